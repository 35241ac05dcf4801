//! Reference values from scipy, written by `tests/golden/make.py`.

use gmm_model::{CovarianceType, Covariances, Mixture, m_step, reference};
use ndarray::{Array1, Array2, Array3};
use serde_json::Value;

use crate::flat;

/// The factorisations of scipy and of the library both lose a few bits; the inputs are well conditioned.
const TOLERANCE: f64 = 1e-12;

#[track_caller]
fn all_close<'a>(found: impl IntoIterator<Item = &'a f64>, golden: &[f64], tolerance: f64) {
    let found: Vec<f64> = found.into_iter().copied().collect();
    assert_eq!(found.len(), golden.len());
    for (a, b) in found.into_iter().zip(golden) {
        assert!((a - b).abs() <= tolerance * b.abs(), "{a} and {b} differ by {:e}", (a / b - 1.0).abs());
    }
}

struct Case(Value);

impl Case {
    fn numbers(&self, name: &str) -> Vec<f64> {
        self.0[name].as_array().expect(name).iter().map(|v| v.as_f64().expect(name)).collect()
    }

    fn size(&self, name: &str) -> usize {
        self.0[name].as_u64().expect(name) as usize
    }

    fn grid(&self, name: &str, rows: usize, columns: usize) -> Array2<f64> {
        Array2::from_shape_vec((rows, columns), self.numbers(name)).expect(name)
    }

    fn mixture(&self) -> Mixture {
        let (k, d, all) = (self.size("k"), self.size("d"), self.numbers("covariances"));
        let covariances = match self.0["kind"].as_str().expect("kind").parse().expect("a kind") {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_vec((k, d, d), all).expect("shape")),
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_vec((d, d), all).expect("shape")),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_vec((k, d), all).expect("shape")),
            CovarianceType::Spherical => Covariances::Spherical(Array1::from_vec(all)),
        };
        Mixture::new(Array1::from_vec(self.numbers("weights")), self.grid("means", k, d), covariances).expect("valid")
    }
}

fn each_case(check: impl Fn(&Case, &Mixture, &Array2<f64>)) {
    let all: Value = serde_json::from_str(include_str!("../golden/golden.json")).expect("json");
    let cases = all["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 16);
    for case in cases {
        let case = Case(case.clone());
        let rows = case.grid("rows", case.size("n"), case.size("d"));
        check(&case, &case.mixture(), &rows);
    }
}

#[test]
fn log_densities_are_scipys() {
    each_case(|case, mixture, rows| {
        let found = reference::log_densities(mixture, rows.view());
        all_close(&found, &case.numbers("log_densities"), TOLERANCE);
    });
}

#[test]
fn responsibilities_are_scipys() {
    each_case(|case, mixture, rows| {
        let found = reference::responsibilities(mixture, rows.view());
        // Exponentials of differences of log densities of size up to 100: the absolute error of these is the relative
        // error here.
        all_close(&found, &case.numbers("responsibilities"), 10.0 * TOLERANCE);
    });
}

#[test]
fn one_m_step_with_row_weights_is_numpys_in_extended_precision() {
    each_case(|case, mixture, rows| {
        let weights = case.numbers("row_weights");
        let statistics = reference::statistics(mixture, rows.view(), Some(&weights));
        let reg_covar = case.0["reg_covar"].as_f64().expect("reg_covar");
        let new = m_step(&statistics, reg_covar, None).expect("well conditioned").mixture;
        all_close(new.weights(), &case.numbers("new_weights"), TOLERANCE);
        all_close(new.means(), &case.numbers("new_means"), TOLERANCE);
        all_close(&flat(new.covariances()), &case.numbers("new_covariances"), TOLERANCE);
    });
}
