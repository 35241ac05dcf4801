//! Log-likelihoods with fixed-point products of slices, against the reference.

use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{poison, tiled};
use gmm_kernels::device::Buffer;
use gmm_kernels::log_likelihood::fixed_point::{
    COLUMNS, CONSTANT, FixedPointPass, HEADER, LARGEST_CONSTANT, LARGEST_STEP, LEVEL, Tile, kernel, tiles, unit_len,
};
use gmm_model::{CovarianceType, Covariances, Factors, Mixture, reference};
use ndarray::{Array1, Array2, array};

/// Powers of two larger than every entry of a column.
fn sizes(x: &Array2<f64>) -> Vec<f64> {
    x.columns()
        .into_iter()
        .map(|c| c.iter().fold(1e-9_f64, |m, v| m.max(v.abs())).log2().floor() + 1.0)
        .map(f64::exp2)
        .collect()
}

/// Writes a mixture's tiles. Returns the number subtracted from its constants, and the largest step.
fn expand(mixture: &Mixture, shift: &[f64], sizes: &[f64], out: &mut [f64]) -> (f64, f64) {
    let Factors::Diag(sd) = mixture.factors() else { panic!("diagonal") };
    let log2 = std::f64::consts::LOG2_E;
    let peak = |c: usize| mixture.log_weight(c) + mixture.log_normalizer(c);
    let k = mixture.n_components();
    let typical = (0..k).map(peak).fold(f64::NEG_INFINITY, f64::max) - 0.5 * shift.len() as f64;
    let mut largest = 0.0_f64;
    for c in 0..8 * tiles(k as u32).unwrap() as usize {
        let tile = &mut out[c / 8 * Tile::LEN as usize..][..Tile::LEN as usize];
        let (column, at) = ((c % 8) as u32, Tile::constant((c % 8) as u32) as usize);
        if c >= k || mixture.log_weight(c) == f64::NEG_INFINITY {
            (tile[at], tile[Tile::step(column) as usize]) = (-LARGEST_CONSTANT / f64::from(CONSTANT), 1.0);
            continue;
        }
        let mut constant = peak(c) - typical;
        let mut coefficients = Vec::new();
        for (j, size) in sizes.iter().enumerate() {
            let (m, precision) = (mixture.means()[[c, j]] - shift[j], sd[[c, j]].powi(-2));
            constant -= 0.5 * m * m * precision;
            coefficients
                .push([m * precision * size, -0.5 * precision * size * size].map(|v| v * log2 / f64::from(LEVEL)));
        }
        let most = coefficients.iter().flatten().fold(0.0_f64, |m, v| m.max(v.abs())) / f64::from(LEVEL);
        let step = most.max((constant * log2).abs() / LARGEST_CONSTANT).log2().ceil().exp2();
        largest = largest.max(step);
        for (j, both) in coefficients.iter().enumerate() {
            let at = Tile::entry(j as u32, column) as usize;
            (tile[at], tile[at + 1]) = (both[0] / step, both[1] / step);
        }
        let (over, unit) = (constant * log2 / step, f64::from(CONSTANT));
        let most = (over / unit).round();
        (tile[at], tile[at + 1], tile[Tile::step(column) as usize]) = (most, over - unit * most, step);
    }
    (typical, largest)
}

/// Returns the values of units of `sets` mixtures each, and the largest step.
fn values(mixtures: &[Mixture], data: &Array2<f64>, sets: u32, blocks: u32) -> (Vec<f64>, f64) {
    let ((n, d), tiles) = (data.dim(), tiles(mixtures[0].n_components() as u32).unwrap());
    let shift = column_means(data);
    let moved = Array2::from_shape_fn((n, d), |(i, j)| f64::from((data[[i, j]] - shift[j]) as f32));
    let sizes = sizes(&moved);
    let units = mixtures.len().div_ceil(sets as usize);
    let len = unit_len(tiles, sets) as usize;
    let mut all = vec![0.0; units * len];
    let (mut typical, mut largest) = (Vec::new(), 0.0_f64);
    for (unit, mixtures) in all.chunks_mut(len).zip(mixtures.chunks(sets as usize)) {
        for (j, size) in sizes.iter().enumerate() {
            unit[j] = f64::from(LEVEL) / size;
        }
        let of_one = (u64::from(tiles) * Tile::LEN) as usize;
        for (mixture, out) in mixtures.iter().zip(unit[HEADER as usize..].chunks_mut(of_one)) {
            let (taken, step) = expand(mixture, &shift, &sizes, out);
            typical.push(taken);
            largest = largest.max(step);
        }
    }
    let (x, mut all) = (tiled::<f32>(data, Some(&shift), None), Buffer::new(&all));
    let stride = units as u64 * u64::from(sets) + 1;
    let mut partials = poison::<f64>(u64::from(blocks) * stride);
    let mut out = poison::<f64>(stride);
    let arguments = FixedPointPass {
        x: x.pointer(),
        n: n as u64,
        d: d as u32,
        tiles,
        sets,
        units: all.pointer_mut(),
        stride,
        partials: partials.pointer_mut(),
        values: out.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel(tiles, false).emulate((blocks, units as u32), arguments) };
    let out = out.to_vec();
    (typical.iter().zip(out).map(|(typical, value)| value + typical * n as f64).collect(), largest)
}

pub(crate) fn held(data: &Array2<f64>) -> Array2<f64> {
    let shift = column_means(data);
    Array2::from_shape_fn(data.dim(), |(i, j)| shift[j] + f64::from((data[[i, j]] - shift[j]) as f32))
}

/// Checks every value to within `tolerance` per row. Padding rows of the last 64 count too: the kernel takes a
/// logarithm (of 1) for them.
fn check(mixtures: &[Mixture], data: &Array2<f64>, sets: u32, tolerance: f64, what: &str) -> (Vec<f64>, f64) {
    let (got, largest) = values(mixtures, data, sets, 2);
    let rows = held(data);
    for (s, (got, mixture)) in got.iter().zip(mixtures).enumerate() {
        let want = reference::statistics(mixture, rows.view(), None).log_likelihood;
        let error = (got - want).abs() / data.nrows().next_multiple_of(64) as f64;
        assert!(error <= tolerance, "{what}: set {s}: {got} is not {want}: {error:e} a row");
    }
    (got, largest)
}

pub(crate) fn some(count: usize, k: usize, d: usize, offset: f64, seed: u64) -> Vec<Mixture> {
    let random = &mut Random(seed);
    (0..count).map(|_| mixture(CovarianceType::Diag, k, d, offset, random)).collect()
}

/// Error per row of the emulator's exponential and logarithm, as large as the hardware's may be: 1.5e-7 plus half of
/// 1.2e-7, and a margin.
pub(crate) const FUNCTIONS: f64 = 2.5e-7;

#[test]
fn values_are_those_of_the_reference_alone_and_together() {
    for (n, d, k) in
        [(1, 1, 1), (31, 2, 3), (33, 13, 8), (130, 4, 9), (700, 15, 8), (200, 5, 20), (1100, 7, 2), (90, 3, 40)]
    {
        let mixtures = some(9, k, d, 100.0, (n + d + k) as u64);
        let data = rows::<f32>(&mixtures[0], n, &mut Random(5));
        let what = format!("n={n} d={d} k={k}");
        let (all, largest) = check(&mixtures, &data, 16, FUNCTIONS + 1e-6, &what);
        assert!(largest <= LARGEST_STEP, "{what}: {largest}");
        assert_eq!(check(&mixtures[..3], &data, 8, 1e-5, &what).0, all[..3], "{what}: in one unit");
        assert_eq!(check(&mixtures[2..7], &data, 8, 1e-5, &what).0, all[2..7], "{what}: at other places");
    }
}

#[test]
fn large_terms_cancel_without_rounding() {
    // Components as narrow as the step allows, whose distance from the rows' mean is about a hundred times their width.
    let (d, k) = (13, 3);
    let random = &mut Random(8);
    let sd = 0.02;
    let means = Array2::from_shape_fn((k, d), |_| 1.5 * random.uniform() - 0.75);
    let covariances = Covariances::Diag(Array2::from_elem((k, d), sd * sd));
    let one = Mixture::new(Array1::from_elem(k, 1.0 / 3.0), means.clone(), covariances).unwrap();
    let data = Array2::from_shape_fn((400, d), |(i, j)| f64::from((means[[i % k, j]] + sd * random.normal()) as f32));
    let (_, largest) = check(&[one], &data, 8, 1e-6, "narrow");
    assert!(largest <= LARGEST_STEP && largest > LARGEST_STEP / 16.0, "{largest}");
}

#[test]
fn rows_far_from_all_components_have_their_density_and_nobody_else_s_bits_change() {
    let mut mixtures = some(4, 3, 4, 0.0, 3);
    let mut data = rows::<f32>(&mixtures[0], 300, &mut Random(6));
    for i in [7, 150, 299] {
        data.row_mut(i).fill(25.0 + i as f64 * 0.05);
    }
    let near = check(&mixtures, &data, 8, 1e-5, "far rows").0;
    // A mixture whose components are far from all rows.
    mixtures[1] = Mixture::new(
        mixtures[1].weights().to_owned(),
        mixtures[1].means().mapv(|m| m + 90.0),
        mixtures[1].covariances().clone(),
    )
    .unwrap();
    let rows = held(&data);
    let far = values(&mixtures, &data, 8, 2).0;
    let want = reference::statistics(&mixtures[1], rows.view(), None).log_likelihood;
    assert!(((far[1] - want) / want).abs() < 1e-6, "{} is not {want}", far[1]);
    assert_eq!([far[0], far[2], far[3]], [near[0], near[2], near[3]]);
}

#[test]
fn components_of_weight_0_count_nothing() {
    let means = Array2::from_shape_fn((9, 2), |(c, j)| (c + j) as f64);
    let mut weights = Array1::zeros(9);
    weights[8] = 1.0;
    let nine = Mixture::new(weights, means, Covariances::Diag(Array2::ones((9, 2)))).unwrap();
    let one = Mixture::new(array![1.0], array![[8.0, 9.0]], Covariances::Diag(Array2::ones((1, 2)))).unwrap();
    let data = Array2::from_shape_fn((70, 2), |(i, j)| ((i * 3 + j) % 10) as f64);
    let want = reference::statistics(&one, data.view(), None).log_likelihood;
    for sets in [4, 8] {
        let got = values(std::slice::from_ref(&nine), &data, sets, 1).0;
        assert!((got[0] - want).abs() < 70e-6, "{} is not {want}", got[0]);
    }
}

#[test]
fn every_coefficient_has_a_place_of_its_own() {
    let mut places = Vec::new();
    for c in 0..8 {
        let firsts = (0..COLUMNS).map(|j| Tile::entry(j, c)).chain([Tile::constant(c)]);
        places.extend(firsts.flat_map(|at| [at, at + 1]));
        places.push(Tile::step(c));
    }
    places.sort_unstable();
    assert_eq!(places, (0..Tile::LEN).collect::<Vec<_>>());
}
