//! Passes and evaluations against the naive reference, for every kind of covariance and of errors.

use gmm_host::{EvaluateOptions, ReferenceEngine, true_rows};
use gmm_model::deconvolution::reference::{self, Measurement};
use gmm_model::missing::reference as missing;
use ndarray::Axis;

use super::*;

/// A few rounding errors per term of the longest sum, times the growth of errors in the solutions: the condition of the
/// covariances of `common::mixture`, which is below 40.
fn tolerance(d: usize) -> f64 {
    64.0 * f64::EPSILON * (d as f64 + 4.0)
}

fn weighted(data: &Dataset) -> Dataset {
    let weights = (0..data.n_rows()).map(|i| 0.5 * (i % 4) as f64).collect();
    if data.n_rows() > 1 { data.clone().with_weights(weights).unwrap() } else { data.clone() }
}

/// Panics unless a pass and an evaluation of the engine agree with the naive reference.
fn check(engine: &dyn Engine, mixture: &Mixture, data: &Dataset, what: &str) {
    check_within(engine, mixture, data, (tolerance(data.n_features()), what));
}

/// [`check`] within a tolerance.
fn check_within(engine: &dyn Engine, mixture: &Mixture, data: &Dataset, (tolerance, what): (f64, &str)) {
    let (n, d) = data.rows().dim();
    let what = &format!("{} {} n={n} d={d}: {what}", engine.name(), mixture.covariance_type());
    for data in [data.clone(), weighted(data)] {
        let mut resident = load(engine, &data);
        let got = resident.pass(mixture).unwrap();
        let want = reference::statistics(mixture, &data);
        common::check(&got, &want, tolerance, what);
        assert!((got.total_weight - want.total_weight).abs() <= 1e-12 * want.total_weight, "{what}");
        densities(resident.as_mut(), mixture, &data, (tolerance, what));
    }
}

/// Panics unless the outputs of each row, and the totals with and without them, are those of the reference.
fn densities(resident: &mut dyn Resident, mixture: &Mixture, data: &Dataset, (tolerance, what): (f64, &str)) {
    let (n, k) = (data.n_rows(), mixture.n_components());
    let (mut log_densities, mut responsibilities, mut labels) = (vec![0.0; n], vec![0.0; n * k], vec![0u32; n]);
    let want = EvaluateOptions {
        log_densities: Some(&mut log_densities),
        responsibilities: Some((&mut responsibilities).into()),
        labels: Some(&mut labels),
    };
    let totals = resident.evaluate(mixture, want).unwrap();
    let mut sum = 0.0;
    for row in 0..n {
        let (log_density, r) = reference::posterior(mixture, &Measurement::of(data, row));
        let bound = tolerance * (1.0 + log_density.abs());
        let found = log_densities[row];
        assert!((found - log_density).abs() <= bound, "{what}: row {row}: {found} {log_density}");
        for (got, want) in responsibilities[row * k..].iter().zip(&r) {
            assert!((got - want).abs() <= 4.0 * bound, "{what}: row {row}: responsibility {got}, want {want}");
        }
        let best = gmm_model::reference::argmax(r.view());
        assert!(r[labels[row] as usize] >= r[best] - 8.0 * bound, "{what}: row {row}: label {}", labels[row]);
        sum += data.weight(row) * log_density;
    }
    assert!((totals.log_likelihood - sum).abs() <= tolerance * sum.abs(), "{what}: {} {sum}", totals.log_likelihood);
    let alone = resident.evaluate(mixture, EvaluateOptions::default()).unwrap();
    assert_eq!(alone, totals, "{what}: the totals depend on the outputs");
}

#[test]
fn passes_and_densities_are_those_of_the_reference_for_every_kind_of_covariance_and_error() {
    for kind in CovarianceType::ALL {
        for (n, d, k) in [(400, 4, 3), (90, 7, 2), (5, 2, 1), (300, 1, 2), (70, 12, 3), (1, 3, 2), (16, 2, 2)] {
            let seed = (n * 1009 + d) as u64;
            let (mixture, data) = (mixture(kind, k, d, seed), noisy(n, d, seed));
            check(&cpu(), &mixture, &data, "independent");
            let full = MeasurementErrors::from_covariances(&covariances(n, d, seed)).unwrap();
            let full = data.without_measurement_errors().with_measurement_errors(full).unwrap();
            check(&cpu(), &mixture, &full, "correlated");
        }
        check(&ReferenceEngine, &mixture(kind, 3, 4, 1), &noisy(50, 4, 1), "independent");
    }
}

/// Views of `m` values of rows of `d` columns.
fn views(n: usize, m: usize, d: usize, seed: u64, errors: MeasurementErrors) -> Dataset {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0x71e5);
    let projections = Array3::from_shape_fn((n, m, d), |_| common::normal(rng));
    let measured = common::rows(n, m, 0.0, 1.0, seed);
    Dataset::of_views(measured, projections, errors).unwrap()
}

/// Of views: random projections can be nearly dependent, and `T` then has a condition of some 1e4.
fn check_views(mixture: &Mixture, data: &Dataset, what: &str) {
    check_within(&cpu(), mixture, data, (1e3 * tolerance(data.n_features()), what));
}

#[test]
fn linear_views_have_the_sums_and_densities_of_the_reference() {
    for kind in CovarianceType::ALL {
        for (n, m, d) in [(300, 2, 4), (200, 1, 3), (70, 3, 3), (40, 5, 2)] {
            let seed = (n * 1009 + m) as u64;
            let mut own = deviations(n, m, seed);
            // More values than columns: exact ones would leave T singular.
            own.mapv_inplace(|v| if m > d { v + 0.3 } else { v });
            let data = views(n, m, d, seed, MeasurementErrors::from_deviations(own).unwrap());
            check_views(&mixture(kind, 3, d, seed), &data, "independent");
            let mut all = covariances(n, m, seed);
            all.outer_iter_mut().for_each(|mut a| a.diag_mut().mapv_inplace(|v| v + 0.3));
            let data = views(n, m, d, seed, MeasurementErrors::from_covariances(&all).unwrap());
            check_views(&mixture(kind, 3, d, seed), &data, "correlated");
        }
    }
}

/// Rows with holes, as `missing` of its own.
fn holed(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0x401e);
    let mut rows = common::rows(n, d, 0.0, 1.0, seed);
    rows.mapv_inplace(|v| if common::uniform(rng) < 0.3 { f64::NAN } else { v });
    rows
}

#[test]
fn missing_values_and_errors_go_together() {
    for kind in CovarianceType::ALL {
        for (n, d) in [(400, 4), (90, 7), (60, 1)] {
            let rows = holed(n, d, 5);
            let data = Dataset::with_holes(rows.clone()).unwrap();
            check(
                &cpu(),
                &mixture(kind, 3, d, 5),
                &data.clone().with_measurement_errors(errors(n, d, 5)).unwrap(),
                "holes",
            );
            // The error of a missing value may be missing too, and says nothing if it is not.
            let mut own = deviations(n, d, 5);
            let with_nan = |own: &Array2<f64>| {
                let own = Array2::from_shape_fn((n, d), |at| if rows[at].is_nan() { f64::NAN } else { own[at] });
                data.clone().with_measurement_errors(MeasurementErrors::from_deviations(own).unwrap()).unwrap()
            };
            check(&cpu(), &mixture(kind, 3, d, 5), &with_nan(&own), "holes");
            let full = MeasurementErrors::from_covariances(&covariances(n, d, 5)).unwrap();
            check(
                &cpu(),
                &mixture(kind, 3, d, 5),
                &data.clone().with_measurement_errors(full).unwrap(),
                "correlated, holes",
            );
            own.fill(0.0);
            let exact = load(&cpu(), &with_nan(&own)).pass(&mixture(kind, 3, d, 5)).unwrap();
            let want = missing::statistics(&mixture(kind, 3, d, 5), rows.view(), None);
            common::check(&exact, &want, tolerance(d), "exact values with holes");
        }
    }
}

#[test]
fn selections_of_columns_as_views_are_missing_values() {
    for kind in CovarianceType::ALL {
        let (n, d) = (200, 4);
        let rows = common::rows(n, d, 0.0, 1.0, 8);
        // Two columns of each row.
        let seen = |i: usize, at: usize| (i % d + at * (1 + i / d % 2)) % d;
        let holes =
            Array2::from_shape_fn(
                (n, d),
                |(i, j)| if (0..2).any(|at| seen(i, at) == j) { rows[[i, j]] } else { f64::NAN },
            );
        let measured = Array2::from_shape_fn((n, 2), |(i, at)| rows[[i, seen(i, at)]]);
        let selection = Array3::from_shape_fn((n, 2, d), |(i, at, j)| f64::from(seen(i, at) == j));
        let exact = MeasurementErrors::from_deviations(Array2::zeros((n, 2))).unwrap();
        let data = Dataset::of_views(measured, selection, exact).unwrap();
        let mixture = mixture(kind, 3, d, 8);
        let got = load(&cpu(), &data).pass(&mixture).unwrap();
        common::check(&got, &missing::statistics(&mixture, holes.view(), None), tolerance(d), "selection");
    }
}

#[test]
fn errors_of_0_give_the_sums_of_exact_rows() {
    let naive = gmm_model::reference::statistics;
    for kind in CovarianceType::ALL {
        let (n, d) = (500, 6);
        let data = Dataset::new(common::rows(n, d, 0.0, 1.0, 2)).unwrap();
        let mixture = mixture(kind, 3, d, 2);
        let want = naive(&mixture, data.rows().to_f64().view(), None);
        let independent = MeasurementErrors::from_deviations(Array2::zeros((n, d))).unwrap();
        let correlated = MeasurementErrors::from_covariances(&Array3::zeros((n, d, d))).unwrap();
        for errors in [independent, correlated] {
            let data = data.clone().with_measurement_errors(errors).unwrap();
            let got = load(&cpu(), &data).pass(&mixture).unwrap();
            common::check(&got, &want, tolerance(d), "errors of 0");
        }
    }
}

#[test]
fn every_instruction_set_and_thread_count_gives_the_sums_of_the_reference() {
    let (mixture, data) = (mixture(CovarianceType::Full, 4, 5, 3), noisy(700, 5, 3));
    for instructions in CpuEngine::instruction_sets() {
        for threads in [1, 2, 5] {
            let engine = CpuEngine::with_instructions(threads, instructions).unwrap();
            check(&engine, &mixture, &data, instructions);
            let twice = [0, 1].map(|_| load(&engine, &data).pass(&mixture).unwrap());
            assert_eq!(twice[0], twice[1]);
        }
    }
}

/// Columns in units that differ by 1e16, and errors from a billionth to a billion times the deviation of the column.
#[test]
fn units_and_sizes_of_errors_that_differ_by_orders_of_magnitude_cost_no_digits() {
    let (n, d, seed) = (200, 4, 12);
    let units = [1e-8, 1.0, 1e8, 1e3];
    let base = mixture(CovarianceType::Full, 2, d, seed);
    let rows = common::rows(n, d, 0.0, 1.0, seed);
    let mut own = deviations(n, d, seed);
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    own.mapv_inplace(|v| v * 10f64.powf(18.0 * common::uniform(rng) - 9.0));
    let scaled = |a: &Array2<f64>| Array2::from_shape_fn(a.dim(), |(i, j)| a[[i, j]] * units[j]);
    let with = |rows: &Array2<f64>, own: &Array2<f64>| {
        let errors = MeasurementErrors::from_deviations(own.clone()).unwrap();
        Dataset::new(rows.clone()).unwrap().with_measurement_errors(errors).unwrap()
    };
    let one = with(&rows, &own);
    let want = load(&cpu(), &one).pass(&base).unwrap();
    let all =
        Array3::from_shape_fn((2, d, d), |(c, i, j)| base.covariances().matrix(c, d)[[i, j]] * units[i] * units[j]);
    let (weights, means) = (base.weights().to_owned(), scaled(&base.means().to_owned()));
    let other = Mixture::new(weights, means, gmm_model::Covariances::Full(all)).unwrap();
    let got = load(&cpu(), &with(&scaled(&rows), &scaled(&own))).pass(&other).unwrap();
    let mut back = got.clone();
    for c in 0..2 {
        for i in 0..d {
            back.first[[c, i]] /= units[i];
            (0..=i).for_each(|j| back.second[c * 10 + gmm_model::packed_index(i, j)] /= units[i] * units[j]);
        }
    }
    let ln_units: f64 = units.iter().map(|u| u.ln()).sum();
    back.log_likelihood += n as f64 * ln_units;
    back.centres = want.centres.clone();
    common::check(&back, &want, tolerance(d), "units");
    // The reference loses precision by its elimination, in proportion to the square root of the ratio of the sizes at worst.
    common::check(&want, &reference::statistics(&base, &one), 1e-9, "sizes of errors");
}

#[test]
fn a_sample_of_rows_is_that_of_its_own_data_set() {
    let (mixture, data) = (mixture(CovarianceType::Full, 3, 4, 3), noisy(900, 4, 3));
    let mut all = load(&cpu(), &data);
    let chosen: Vec<usize> = (0..300).map(|i| (i * 7919) % 900).collect();
    let weights: Vec<f64> = (0..300).map(|i| (i % 4) as f64).collect();
    for weights in [None, Some(weights)] {
        let got = all.sample(&chosen, weights.as_deref()).unwrap().pass(&mixture).unwrap();
        let some = data.select_rows(&chosen);
        let some = match &weights {
            Some(weights) => some.with_weights(weights.clone()).unwrap(),
            None => some,
        };
        common::check(&got, &reference::statistics(&mixture, &some), tolerance(4), "sample");
    }
}

#[test]
fn true_rows_have_the_moments_of_the_reference() {
    for kind in CovarianceType::ALL {
        for data in [noisy(60, 3, 4), views(40, 2, 3, 4, errors(40, 2, 4))] {
            let mixture = mixture(kind, 3, 3, 4);
            let found = true_rows(&cpu(), &mixture, &data, Precision::F64).unwrap();
            for row in 0..data.n_rows() {
                let (mean, covariance) = reference::true_row(&mixture, &Measurement::of(&data, row));
                let size = covariance.diag().iter().copied().fold(1.0, f64::max);
                (0..3).for_each(|j| assert!((found.means[[row, j]] - mean[j]).abs() < 1e-11 * size, "{row}"));
                let got = found.covariances.index_axis(Axis(0), row);
                got.iter().zip(&covariance).for_each(|(a, b)| assert!((a - b).abs() < 1e-11 * size, "{row}: {a} {b}"));
            }
        }
    }
}
