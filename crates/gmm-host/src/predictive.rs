//! Posterior predictive densities of rows, on the CPU.

use std::thread;

use gmm_model::bayes::{Posterior, Predictive};
use gmm_model::{Dataset, Matrix};
use ndarray::{Array1, Axis};

use crate::{Error, default_threads};

/// The log posterior predictive density of each row, `(n,)`, in `f64`: see [`Predictive`]. `threads` is
/// the number of threads, 0 for one per core.
///
/// # Errors
/// [`Error::Features`] if `d` differs.
///
/// Cost: `O(n k d²)` flops, for diag and spherical `O(n k d)`, and a logarithm for each row and component.
pub fn predictive_log_densities(posterior: &Posterior, data: &Dataset, threads: usize) -> Result<Array1<f64>, Error> {
    let predictive = posterior.predictive();
    crate::engine::check_features(data.rows().dim().1, predictive.n_features())?;
    let n = data.n_rows();
    let threads = if threads == 0 { default_threads() } else { threads };
    let share = n.div_ceil(threads).max(1);
    let mut densities = Array1::zeros(n);
    let slots = densities.as_slice_mut().expect("contiguous");
    thread::scope(|scope| {
        for (i, slots) in slots.chunks_mut(share).enumerate() {
            let predictive = &predictive;
            scope.spawn(move || of_rows(predictive, data, i * share, slots));
        }
    });
    Ok(densities)
}

/// The densities of some rows, from `first` on.
fn of_rows(predictive: &Predictive, data: &Dataset, first: usize, slots: &mut [f64]) {
    let rows = first..first + slots.len();
    match data.rows() {
        Matrix::F32(a) => {
            for (slot, row) in slots.iter_mut().zip(rows) {
                *slot = predictive.log_density(a.view().index_axis(Axis(0), row).mapv(f64::from).view());
            }
        }
        Matrix::F64(a) => {
            for (slot, row) in slots.iter_mut().zip(rows) {
                *slot = predictive.log_density(a.view().index_axis(Axis(0), row));
            }
        }
    }
}
