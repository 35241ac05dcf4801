//! Data drawn from a mixture with overlapping components, written once as npy and read by every program.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3, Axis};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::definition::Shape;

/// Rows on disk and in memory, and the true parameters.
pub(crate) struct Workload {
    /// Rows, components, dimensions.
    pub(crate) shape: Shape,
    /// The npy file, `f64`.
    pub(crate) path: PathBuf,
    /// The same rows, `(n, d)`.
    pub(crate) rows: Array2<f64>,
    means: Array2<f64>,
    covariances: Array3<f64>,
}

/// Draws the rows and writes them under `scratch`.
///
/// Means are drawn with variance `3/d` per axis, so two of them are about `√6` standard deviations apart in any
/// dimension: several components matter for most rows, and no program saves time because exponentials underflow.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn generate(shape: Shape, seed: u64, scratch: &Path) -> Result<Workload> {
    let Shape { n, k, d } = shape;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let spread = (3.0 / d as f64).sqrt();
    let means = Array2::from_shape_simple_fn((k, d), || spread * normal(&mut rng));
    // A mild random shear, so that covariances are correlated and differ, but not so much that they alone separate
    // components.
    let shear = 0.3 / (d as f64).sqrt();
    let factors = Array3::from_shape_fn((k, d, d), |(_, i, j)| match j.cmp(&i) {
        std::cmp::Ordering::Less => shear * normal(&mut rng),
        std::cmp::Ordering::Equal => (0.1 * normal(&mut rng)).exp(),
        std::cmp::Ordering::Greater => 0.0,
    });
    let mut rows = Array2::zeros((n, d));
    for mut row in rows.outer_iter_mut() {
        let c = rng.random_range(0..k);
        let z = Array1::from_shape_simple_fn(d, || normal(&mut rng));
        row.assign(&(&means.row(c) + &factors.index_axis(Axis(0), c).dot(&z)));
    }
    let mut covariances = Array3::zeros((k, d, d));
    for (mut covariance, factor) in covariances.outer_iter_mut().zip(factors.outer_iter()) {
        covariance.assign(&factor.dot(&factor.t()));
    }
    std::fs::create_dir_all(scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let path = scratch.join(format!("rows-{n}-{k}-{d}.npy"));
    ndarray_npy::write_npy(&path, &rows).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Workload { shape, path, rows, means, covariances })
}

impl Workload {
    /// The start parameters of every program: the true means, the true covariances in the given kind, and equal
    /// weights.
    pub(crate) fn start(&self, kind: CovarianceType) -> Mixture {
        let Shape { k, d, .. } = self.shape;
        let diagonal = Array2::from_shape_fn((k, d), |(c, j)| self.covariances[[c, j, j]]);
        let covariances = match kind {
            CovarianceType::Full => Covariances::Full(self.covariances.clone()),
            CovarianceType::Tied => Covariances::Tied(self.covariances.mean_axis(Axis(0)).expect("k > 0")),
            CovarianceType::Spherical => Covariances::Spherical(diagonal.mean_axis(Axis(1)).expect("d > 0")),
            CovarianceType::Diag => Covariances::Diag(diagonal),
        };
        let weights = Array1::from_elem(k, 1.0 / k as f64);
        Mixture::new(weights, self.means.clone(), covariances).expect("drawn with positive variances")
    }

    /// Means of the columns, `(d,)`: the shift that an engine subtracts from the rows.
    pub(crate) fn shift(&self) -> Vec<f64> {
        self.rows.mean_axis(Axis(0)).expect("n > 0").to_vec()
    }
}

/// A standard normal deviate, by the Box–Muller method.
fn normal(rng: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (TAU * rng.random::<f64>()).cos()
}
