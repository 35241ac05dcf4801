//! The true rows given the noisy ones: means and covariances under a mixture.

use gmm_model::deconvolution::TrueRows;
use gmm_model::{Dataset, Mixture, Precision};
use ndarray::{Array2, Array3};

use crate::{Engine, Error, evaluate, memory};

/// Mean and covariance of each true row given the noisy one.
#[derive(Clone, Debug, PartialEq)]
pub struct TrueRowMoments {
    /// `(n, d)`.
    pub means: Array2<f64>,
    /// `(n, d, d)`.
    pub covariances: Array3<f64>,
}

/// Conditions `mixture`, of the true rows, on each row of `data`, over all components: the mean is the guess of smallest
/// squared error. Of a row without measurement errors it is the row, and the covariance is 0, up to rounding. A missing value is
/// one of infinite error.
///
/// Cost: an evaluation, and a factor per row and component of responsibility above 0.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Limited`] if rows have limits;
/// [`Error::Memory`]; errors of the engine.
///
/// ```
/// use gmm_host::{CpuEngine, true_rows};
/// use gmm_model::deconvolution::MeasurementErrors;
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[2.0]], Covariances::Spherical(array![3.0]))?;
/// let data = Dataset::new(array![[6.0]])?.with_measurement_errors(MeasurementErrors::from_deviations(array![[1.0]])?)?;
/// let found = true_rows(&CpuEngine::new(1)?, &mixture, &data, Precision::F64)?;
/// assert!((found.means[[0, 0]] - 5.0).abs() < 1e-15 && (found.covariances[[0, 0, 0]] - 0.75).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn true_rows(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: &Dataset,
    precision: Precision,
) -> Result<TrueRowMoments, Error> {
    /// Rows whose responsibilities exist at a time, times components: 8 MiB.
    const AT_ONCE: usize = 1 << 20;
    if data.limits().is_some() {
        return Err(Error::Limited { what: "the estimate of true rows" });
    }
    let (n, d) = data.rows().dim();
    memory::check("the covariances of the true rows", 8 * n as u128 * (d * (d + 1)) as u128)?;
    let (mut means, mut covariances) = (Array2::zeros((n, d)), Array3::zeros((n, d, d)));
    let conditioned = TrueRows::new(mixture);
    let step = (AT_ONCE / mixture.n_components()).max(1);
    for first in (0..n).step_by(step) {
        let block = data.part(first..n.min(first + step));
        let responsibilities = evaluate::responsibilities(engine, mixture, &block, precision)?;
        let rows = 0..block.n_rows();
        let found = rows.map(|row| conditioned.of(&block, row, responsibilities.row(row)));
        for (row, found) in found.enumerate() {
            let (mean, covariance) = found?;
            means.row_mut(first + row).assign(&mean);
            covariances.index_axis_mut(ndarray::Axis(0), first + row).assign(&covariance);
        }
    }
    Ok(TrueRowMoments { means, covariances })
}
