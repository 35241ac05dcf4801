//! The starts by a tree, and the best of several, of rows with missing values.

use std::ops::ControlFlow;

use gmm_host::init::Tree;
use gmm_host::{CpuEngine, Error, Fit, FitOptions, Init, evaluate, fit, select};
use gmm_model::{DataError, Draws, SyntheticOptions, sample, synthetic};
use ndarray::{Axis, array};

use super::*;

const NA: f64 = f64::NAN;

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

fn holes(rows: &Array2<f64>) -> Dataset {
    Dataset::with_holes(rows.clone()).unwrap()
}

fn cut(data: &Dataset, k: usize) -> Vec<usize> {
    Tree::new(data, k, None, &mut Draws::for_purpose("fit", 0, 0)).unwrap().cut(k)
}

/// A fit of `data` from a start, which makes exactly `iterations` if there are some.
fn from(data: &Dataset, init: Init, iterations: Option<usize>, options: &FitOptions) -> Fit {
    let (tol, max_iter) = iterations.map_or((1e-9, 2000), |iterations| (0.0, iterations));
    fit(&cpu(), data, &FitOptions { init, tol, max_iter, ..options.clone() }).unwrap()
}

/// Selects among 1 to 3 components.
fn selected(data: &Dataset, init: Init) -> Result<Vec<gmm_host::Candidate>, Error> {
    let options = FitOptions { init, ..FitOptions::new(1) };
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    select(&cpu(), data, &options, &[1, 2, 3], &[CovarianceType::Full, CovarianceType::Diag], go_on, &mut |_| {
        ControlFlow::Continue(())
    })
}

#[test]
fn a_table_without_holes_gives_the_bits_of_the_complete_starts() {
    let rows = common::rows(700, 3, 0.0, 1.0, 4);
    let (complete, asked) = (Dataset::new(rows.clone()).unwrap(), holes(&rows));
    assert_eq!(cut(&asked, 4), cut(&complete, 4));
    for init in [Init::Tree(None), Init::Best(None)] {
        for init_rows in [None, Some(300)] {
            let options = FitOptions { init_rows, ..FitOptions::new(3) };
            let of = |data: &Dataset| from(data, init.clone(), Some(5), &options);
            let (complete, asked) = (of(&complete), of(&asked));
            assert_eq!((asked.mixture, asked.summary.trace), (complete.mixture, complete.summary.trace), "{init:?}");
        }
    }
}

#[test]
fn a_row_is_joined_to_those_that_it_is_near_in_what_is_observed() {
    let rows = array![[0.0, 0.0, 1.0], [9.0, NA, NA], [0.2, NA, 1.0], [9.0, 9.0, 1.1], [NA, 0.1, NA], [9.1, 9.2, 0.9]];
    assert_eq!(cut(&holes(&rows), 2), [0, 1, 0, 1, 0, 1]);
    // Units do not matter with holes either; these scales are exact.
    let data = holed(300, 4, 0.3, 5, Precision::F64);
    let scaled = &data * &array![1.0, 1024.0, 0.0625, 2.0];
    assert_eq!(cut(&holes(&data), 5), cut(&holes(&scaled), 5));
}

#[test]
fn a_tree_finds_separated_components_with_a_fifth_of_the_values_missing() {
    for kind in CovarianceType::ALL {
        for seed in 0..3 {
            let separation = SyntheticOptions { separation: 4.0, ..SyntheticOptions::default() };
            let truth = synthetic(4, 6, kind, seed, &separation).unwrap();
            let (mut rows, labels) = sample(&truth, 1200, seed).unwrap();
            punch(&mut rows, 0.2, seed);
            let data = holes(&rows);
            let found = cut(&data, 4);
            // In six columns of which two are missing at most, a row is nearest to one of its own component.
            let seen = (0..1200).filter(|&i| rows.row(i).iter().filter(|v| v.is_nan()).count() <= 2);
            let mut counts = Array2::<usize>::zeros((4, 4));
            let seen = seen.inspect(|&i| counts[[found[i], labels[i]]] += 1).count();
            let agree: usize = counts.outer_iter().map(|row| *row.iter().max().unwrap()).sum();
            assert!(agree as f64 > 0.98 * seen as f64, "{kind} {seed}: {agree} of {seen}: {counts}");
            let options = FitOptions { covariance_type: kind, ..FitOptions::new(4) };
            let of = |init| from(&data, init, None, &options).summary.mean_log_likelihood;
            let (tree, kmeans) = (of(Init::Tree(None)), of(Init::KMeans));
            // Both stop when an iteration gains 1e-9.
            assert!(tree > kmeans - 1e-6, "{kind} {seed}: {tree} {kmeans}");
            let at_truth = evaluate::score(&cpu(), &truth, &data, Precision::F64).unwrap().log_likelihood / 1200.0;
            assert!(tree > at_truth, "{kind} {seed}: {tree} {at_truth}");
        }
    }
}

#[test]
fn the_best_start_goes_on_from_the_highest_of_its_short_runs() {
    let rows = holed(900, 4, 0.25, 3, Precision::F64);
    let data = holes(&rows).with_weights((0..900).map(|i| 1.0 + (i % 3) as f64).collect()).unwrap();
    for kind in CovarianceType::ALL {
        let options = FitOptions { covariance_type: kind, ..FitOptions::new(4) };
        let found = from(&data, Init::Best(None), Some(3), &options);
        let short: Vec<_> = found.starts.iter().filter(|start| start.short).collect();
        assert_eq!(short.len(), 10);
        // The short runs are those of fits from the same starts.
        for (start, init) in short.iter().zip([Init::Tree(None), Init::KMeans]) {
            let alone = *from(&data, init, Some(10), &options).summary.trace.last().unwrap();
            assert_eq!((start.mean_log_likelihood, start.iterations), (alone, 10), "{kind} {}", start.start);
        }
        for start in short {
            let (value, begun) = (start.mean_log_likelihood, found.summary.trace[0]);
            // The run begins with the step after the last one that was compared.
            assert!(value.is_finite() && begun >= value - 1e-10, "{kind} {}: {value} {begun}", start.start);
        }
        // The short runs on a sample of the rows.
        let few = FitOptions { init_rows: Some(400), ..options };
        let starts = from(&data, Init::Best(None), Some(3), &few).starts;
        assert!(starts.iter().all(|start| start.mean_log_likelihood.is_finite()), "{kind}: {starts:?}");
    }
}

#[test]
fn rows_without_a_value_have_no_part_and_a_selection_has_the_bits_of_its_fits() {
    let rows = holed(200, 3, 0.2, 7, Precision::F64);
    let seen: Vec<usize> = (0..200).filter(|&i| rows.row(i).iter().any(|v| !v.is_nan())).collect();
    let seen = rows.select(Axis(0), &seen);
    let mut with = Array2::from_elem((seen.nrows() + 5, 3), NA);
    with.slice_mut(ndarray::s![2..2 + seen.nrows(), ..]).assign(&seen);
    for init in [Init::Tree(None), Init::Best(None)] {
        let candidates = selected(&holes(&with), init.clone()).unwrap();
        for candidate in candidates {
            let kind = candidate.kind.kind;
            let options = FitOptions { covariance_type: kind, init: init.clone(), ..FitOptions::new(candidate.k) };
            let (alone, found) = (fit(&cpu(), &holes(&seen), &options).unwrap(), candidate.outcome.unwrap());
            assert_eq!(
                (found.mixture, found.summary.trace, found.summary.bic),
                (alone.mixture, alone.summary.trace, alone.summary.bic),
                "{init:?} {kind} {}",
                candidate.k
            );
        }
    }
    // A tree may be asked for with such rows too.
    assert_eq!(cut(&holes(&with), 2).len(), with.nrows());
}

#[test]
fn what_a_start_cannot_do_is_the_error_of_the_others() {
    let mut rows = holed(40, 3, 0.2, 2, Precision::F64);
    rows.column_mut(1).fill(NA);
    let unobserved = |error: &Error| matches!(error, Error::Data(DataError::Unobserved { column: 1 }));
    let data = holes(&rows);
    let error = Tree::new(&data, 2, None, &mut Draws::new(0, 0)).unwrap_err();
    assert!(unobserved(&error), "{error}");
    let few = holes(&array![[1.0, NA], [NA, 2.0], [2.0, 1.0]]);
    let none = holes(&Array2::from_elem((4, 2), NA));
    let small = FitOptions { reg_covar: 1e-3, ..FitOptions::new(3) };
    for init in [Init::Tree(None), Init::Best(None), Init::KMeans] {
        let of = |data: &Dataset, k| fit(&cpu(), data, &FitOptions { init: init.clone(), ..FitOptions::new(k) });
        let error = of(&data, 2).unwrap_err();
        assert!(unobserved(&error), "{init:?}: {error}");
        let error = selected(&data, init.clone()).unwrap_err();
        assert!(unobserved(&error), "{init:?}: {error}");
        assert!(matches!(of(&few, 4).unwrap_err(), Error::TooFewRows { k: 4, n: 3 }), "{init:?}");
        assert!(from(&few, init.clone(), Some(3), &small).mixture.means().iter().all(|v| v.is_finite()), "{init:?}");
        assert!(matches!(of(&none, 1).unwrap_err(), Error::Data(_)), "{init:?}");
        assert!(matches!(selected(&none, init.clone()).unwrap_err(), Error::Data(_)), "{init:?}");
    }
}
