//! Log-likelihoods of single mixtures, against the reference.

use crate::data::{Random, column_means, rows};
use crate::harness::{poison, tiled};
use crate::slices::{FUNCTIONS, held, some};
use gmm_kernels::log_likelihood::single_mixture::{
    COLUMNS, PLACES, SingleMixturePass, columns, constant, entry, kernel, place,
};
use gmm_model::{Covariances, Factors, Mixture, reference};
use ndarray::{Array1, Array2, array};

/// Coefficients of a mixture, and the number subtracted from its constants.
fn expand(mixture: &Mixture, shift: &[f64]) -> ([u64; PLACES], f64) {
    let Factors::Diag(sd) = mixture.factors() else { panic!("diagonal") };
    let (log2, d) = (std::f64::consts::LOG2_E, shift.len());
    let columns = columns(d as u32).unwrap();
    let peak = |c: usize| mixture.log_weight(c) + mixture.log_normalizer(c);
    let typical = (0..mixture.n_components()).map(peak).fold(f64::NEG_INFINITY, f64::max) - 0.5 * d as f64;
    let mut out = [0; PLACES];
    for c in 0..mixture.n_components() {
        out[constant(columns, c as u32)] = place((((peak(c) - typical) * log2) as f32).max(-1e30), 0.0);
        for j in 0..d {
            let scale = ((0.5 * log2).sqrt() / sd[[c, j]]) as f32;
            let moved = -(mixture.means()[[c, j]] - shift[j]) * f64::from(scale);
            out[entry(columns, c as u32, j as u32)] = place(scale, moved as f32);
        }
    }
    (out, typical)
}

fn value(mixture: &Mixture, data: &Array2<f64>, blocks: u32, kept: u64) -> f64 {
    let (n, d) = data.dim();
    let shift = column_means(data);
    let (x, (coefficients, typical)) = (tiled::<f32>(data, Some(&shift), None), expand(mixture, &shift));
    let mut values = poison::<f64>(blocks.into());
    let arguments = SingleMixturePass {
        x: x.pointer(),
        n: n as u64,
        d: d as u32,
        k: mixture.n_components() as u32,
        kept,
        values: values.pointer_mut(),
        coefficients,
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel(columns(d as u32).unwrap()).emulate((blocks, 1), arguments) };
    values.to_vec().iter().sum::<f64>() + typical * n as f64
}

/// Checks the value to within `tolerance` per row. Padding rows of the last tile count too: the kernel takes a
/// logarithm (of 1) for them.
fn check(mixture: &Mixture, data: &Array2<f64>, blocks: u32, tolerance: f64, what: &str) {
    let got = value(mixture, data, blocks, 1);
    let want = reference::statistics(mixture, held(data).view(), None).log_likelihood;
    let error = (got - want).abs() / data.nrows().next_multiple_of(128) as f64;
    assert!(error <= tolerance, "{what}: {got} is not {want}: {error:e} a row");
}

#[test]
fn a_value_is_that_of_the_reference() {
    for (n, d, k) in [
        (1, 1, 1),
        (127, 2, 3),
        (129, 4, 48),
        (700, 5, 8),
        (300, 8, 20),
        (260, 12, 2),
        (3000, 13, 8),
        (140, 15, 14),
        (90, 16, 3),
    ] {
        let one = &some(1, k, d, 100.0, (n + d + k) as u64)[0];
        let data = rows::<f32>(one, n, &mut Random(5));
        check(one, &data, 2, FUNCTIONS + 1e-6, &format!("n={n} d={d} k={k}"));
    }
}

#[test]
fn rows_far_from_all_components_have_their_density() {
    let one = &some(1, 3, 4, 0.0, 3)[0];
    let mut data = rows::<f32>(one, 300, &mut Random(6));
    // Includes the last tile, which is partly filled.
    for i in [7, 150, 299] {
        data.row_mut(i).fill(25.0 + i as f64 * 0.05);
    }
    let want = reference::statistics(one, held(&data).view(), None).log_likelihood;
    let got = value(one, &data, 1, 0);
    assert!(((got - want) / want).abs() < 1e-6, "{got} is not {want}");
}

#[test]
fn components_of_weight_0_count_nothing() {
    let means = Array2::from_shape_fn((9, 2), |(c, j)| (c + j) as f64);
    let mut weights = Array1::zeros(9);
    weights[8] = 1.0;
    let nine = Mixture::new(weights, means, Covariances::Diag(Array2::ones((9, 2)))).unwrap();
    let one = Mixture::new(array![1.0], array![[8.0, 9.0]], Covariances::Diag(Array2::ones((1, 2)))).unwrap();
    let data = Array2::from_shape_fn((70, 2), |(i, j)| ((i * 3 + j) % 10) as f64);
    let want = reference::statistics(&one, held(&data).view(), None).log_likelihood;
    let got = value(&nine, &data, 1, 0);
    assert!((got - want).abs() < 70e-6, "{got} is not {want}");
}

#[test]
fn what_the_cache_keeps_does_not_change_the_value() {
    let one = &some(1, 4, 3, 0.0, 9)[0];
    let data = rows::<f32>(one, 900, &mut Random(6));
    let all = [0, 3, 100].map(|kept| value(one, &data, 2, kept).to_bits());
    assert_eq!(all, [all[0]; 3]);
}

#[test]
fn every_coefficient_has_a_place_of_its_own() {
    for columns in COLUMNS {
        let k = PLACES as u32 / (columns + 1);
        let of = |c| (0..columns).map(move |j| entry(columns, c, j)).chain([constant(columns, c)]);
        let mut all: Vec<usize> = (0..k).flat_map(of).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] < two[1]) && all[all.len() - 1] < PLACES, "{columns} columns");
    }
}
