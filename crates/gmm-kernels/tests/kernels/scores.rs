//! Log-likelihoods of many mixtures, against the reference.

use crate::compare::{close, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{KINDS, poison, tiled};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::layout::{Kind, packed_len};
use gmm_kernels::log_likelihood::{Columns, Form, LogLikelihoods, NOTHING, kernel};
use gmm_model::{CovarianceType, Covariances, Factors, Mixture, reference};
use ndarray::{Array1, Array2, array};
use std::ptr::null;

/// Inverse of component `c`'s covariance.
fn precision(mixture: &Mixture, c: usize) -> Array2<f64> {
    let d = mixture.n_features();
    let diagonal = |sd: &dyn Fn(usize) -> f64| Array2::from_diag(&Array1::from_shape_fn(d, |j| sd(j).powi(-2)));
    let l = match mixture.factors() {
        Factors::Diag(sd) => return diagonal(&|j| sd[[c, j]]),
        Factors::Spherical(sd) => return diagonal(&|_| sd[c]),
        Factors::Full(all) => &all[c],
        Factors::Tied(l) => l,
    };
    let mut inverse = Array2::<f64>::eye(d);
    for mut row in inverse.rows_mut() {
        l.solve_lower(row.as_slice_mut().unwrap());
        l.solve_lower_transposed(row.as_slice_mut().unwrap());
    }
    inverse
}

/// Writes component `c` into a column of a tile.
fn expand(form: Form, kind: Kind, mixture: &Mixture, c: usize, shift: &[f64], tile: &mut [f64], column: u32) {
    let (d, p) = (shift.len(), precision(mixture, c));
    let mean = &mixture.means().row(c) - &Array1::from(shift.to_vec());
    let linear = p.dot(&mean);
    for i in 0..d {
        let entry = i as u32;
        tile[form.entry(entry, column) as usize] = linear[i];
        match kind {
            Kind::Full => (0..=i).for_each(|j| {
                let twice = if i == j { 1.0 } else { 2.0 };
                tile[form.product(entry, j as u32, column) as usize] = -0.5 * twice * p[[i, j]];
            }),
            Kind::Diag => tile[form.product(entry, entry, column) as usize] = -0.5 * p[[i, i]],
            Kind::Spherical => tile[form.entry(d as u32, column) as usize] = -0.5 * p[[0, 0]],
            Kind::Tied => {}
        }
    }
    let scale = mixture.log_weight(c) + mixture.log_normalizer(c);
    tile[form.constant(column) as usize] = (scale - 0.5 * mean.dot(&linear)).max(NOTHING);
}

/// Values under each mixture, from the kernel with the given meaning of `columns` and `blocks` blocks per unit.
fn scores<T: Real>(
    columns: Columns,
    kind: Kind,
    sets: &[Mixture],
    data: &Array2<f64>,
    row_weights: Option<&[f64]>,
    blocks: u32,
) -> Vec<f64> {
    let ((n, d), k) = (data.dim(), sets[0].n_components());
    let (form, shift) = (Form::of(kind, d as u32).unwrap(), column_means(data));
    let (tiles, len) = (columns.tiles(k as u32) as usize, form.tile() as usize);
    let units = sets.len().div_ceil(columns.mixtures() as usize);
    let mut coefficients = vec![0.0; units * tiles * len];
    for (s, set) in sets.iter().enumerate() {
        let (unit, column) = (s / columns.mixtures() as usize, s % columns.mixtures() as usize);
        for c in 0..tiles * 8 / columns.mixtures() as usize {
            let (tile, column) = if columns == Columns::Mixtures { (c, column) } else { (c / 8, c % 8) };
            let tile = &mut coefficients[(unit * tiles + tile) * len..][..len];
            if c < k {
                expand(form, kind, set, c, &shift, tile, column as u32);
            } else {
                tile[form.constant(column as u32) as usize] = NOTHING;
            }
        }
    }
    let stride = units * columns.mixtures() as usize + 1;
    let x = tiled::<T>(data, Some(&shift), None);
    let (coefficients, row_weights) = (Buffer::new(&coefficients), row_weights.map(Buffer::new));
    let mut partials = poison::<f64>(u64::from(blocks) * stride as u64);
    let arguments = LogLikelihoods::<T> {
        x: x.pointer(),
        row_weights: row_weights.as_ref().map_or(null(), Buffer::pointer),
        n: n as u64,
        d: d as u32,
        norm: (kind == Kind::Spherical).into(),
        k: k as u32,
        coefficients: coefficients.pointer(),
        stride: stride as u64,
        partials: partials.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel::<T>(form, columns).emulate((blocks, units as u32), arguments) };
    let partials = partials.to_vec();
    let held = |r: usize, j: usize| T::from_f64(data[[r, j]] - shift[j]).to_f64();
    let total = |s: usize| {
        let value: f64 = (0..blocks as usize).map(|b| partials[b * stride + s]).sum();
        if kind != Kind::Tied {
            return value;
        }
        // The term that all components share.
        let p = precision(&sets[s], 0);
        let weight = |r: usize| row_weights.as_ref().map_or(1.0, |w| w.to_vec()[r]);
        let square = |r: usize| {
            let z = Array1::from_shape_fn(d, |j| held(r, j));
            weight(r) * z.dot(&p.dot(&z))
        };
        value - 0.5 * (0..n).map(square).sum::<f64>()
    };
    (0..sets.len()).map(total).collect()
}

fn check<T: Real>(kind: (CovarianceType, Kind), n: usize, d: usize, k: usize, weighted: bool) {
    let random = &mut Random(n as u64 * 7 + d as u64 * 5 + k as u64);
    let sets: Vec<Mixture> = (0..11).map(|_| mixture(kind.0, k, d, 3.0, random)).collect();
    let data = rows::<T>(&sets[0], n, random);
    let weights: Vec<f64> = (0..n).map(|i| 0.5 * (i % 3) as f64).collect();
    let row_weights = weighted.then_some(&weights[..]);
    let what = format!("{} {}: n={n} d={d} k={k}", kind.0, T::NAME);
    let of = |columns, sets: &[Mixture]| scores::<T>(columns, kind.1, sets, &data, row_weights, 2);
    let all = of(Columns::Mixtures, &sets);
    for (s, (got, set)) in all.iter().zip(&sets).enumerate() {
        let want = reference::statistics(set, data.view(), row_weights);
        let scale = want.total_weight + want.log_likelihood.abs();
        close(*got, want.log_likelihood, scale, tolerance::<T>(), &format!("{what}: set {s}"));
    }
    // The same bits, whatever the columns are, and whatever else is in the batch.
    assert_eq!(of(Columns::Components, &sets[..3]), all[..3], "{what}: columns of components");
    assert_eq!(of(Columns::Mixtures, &sets[5..6]), all[5..6], "{what}: alone");
}

#[test]
fn every_form_gives_the_values_of_the_reference_whatever_its_columns_are() {
    for kind in KINDS {
        for d in [1, 4, 5, 8, 9, 12, 13, 14, 15, 16, 31] {
            if Form::of(kind.1, d as u32).is_some() {
                check::<f32>(kind, 203, d, 3, false);
                check::<f64>(kind, 203, d, 3, false);
            }
        }
    }
}

#[test]
fn any_number_of_components_and_of_rows_will_do() {
    for kind in KINDS {
        for (n, k) in [(1, 1), (16, 8), (129, 9), (300, 20), (1001, 3)] {
            check::<f32>(kind, n, 3, k, false);
            check::<f64>(kind, n, 3, k, n > 16);
        }
    }
}

#[test]
fn row_weights_count() {
    for kind in KINDS {
        check::<f32>(kind, 150, 6, 9, true);
        check::<f64>(kind, 150, 6, 2, true);
    }
}

#[test]
fn components_of_weight_0_count_nothing_even_where_they_fill_a_tile() {
    let means = Array2::from_shape_fn((9, 2), |(c, j)| (c + j) as f64);
    let mut weights = Array1::zeros(9);
    weights[8] = 1.0;
    let nine = Mixture::new(weights, means, Covariances::Diag(Array2::ones((9, 2)))).unwrap();
    let one = Mixture::new(array![1.0], array![[8.0, 9.0]], Covariances::Diag(Array2::ones((1, 2)))).unwrap();
    let data = Array2::from_shape_fn((70, 2), |(i, j)| ((i * 3 + j) % 10) as f64);
    let want = reference::statistics(&one, data.view(), None).log_likelihood;
    for columns in [Columns::Components, Columns::Mixtures] {
        let got = scores::<f64>(columns, Kind::Diag, std::slice::from_ref(&nine), &data, None, 1);
        close(got[0], want, want.abs(), 1e-13, &format!("{columns:?}"));
    }
}

#[test]
fn what_leaves_the_range_is_not_finite() {
    let random = &mut Random(3);
    for kind in KINDS {
        let sets = [mixture(kind.0, 3, 2, 0.0, random)];
        let mut data = rows::<f32>(&sets[0], 40, random);
        data[[7, 1]] = 1e30;
        for columns in [Columns::Components, Columns::Mixtures] {
            let got = scores::<f32>(columns, kind.1, &sets, &data, None, 1)[0];
            let want = reference::statistics(&sets[0], data.view(), None).log_likelihood;
            assert!(!got.is_finite() || ((got - want) / want).abs() < 1e-6, "{}: {got} is not {want}", kind.0);
            data[[7, 1]] = 1e200;
            assert!(!scores::<f32>(columns, kind.1, &sets, &data, None, 1)[0].is_finite(), "{}", kind.0);
        }
    }
}

#[test]
fn every_coefficient_has_a_place_of_its_own() {
    for form in Form::ALL {
        let kind = match form {
            Form::Linear(_) => Kind::Spherical,
            Form::Squares(_) => Kind::Diag,
            Form::Full(_) | Form::FullAndOne(_) => Kind::Full,
        };
        let d = (1..40).filter(|d| Form::of(kind, *d) == Some(form)).max().unwrap();
        let mut places = Vec::new();
        for column in 0..8 {
            places.push(form.constant(column));
            places.extend((0..d).map(|j| form.entry(j, column)));
            match kind {
                Kind::Full => (0..d).for_each(|i| places.extend((0..=i).map(|j| form.product(i, j, column)))),
                Kind::Diag => places.extend((0..d).map(|j| form.product(j, j, column))),
                _ => places.push(form.entry(d, column)),
            }
        }
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() == count && places[count - 1] < form.tile(), "{form:?}");
        if kind == Kind::Full {
            assert_eq!(count as u64, 8 * (packed_len(d) + u64::from(d) + 1));
        }
    }
}
