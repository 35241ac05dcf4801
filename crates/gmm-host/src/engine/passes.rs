//! Passes of EM over resident rows.

use gmm_model::{CovarianceType, Mixture, Noise, Statistics};
use ndarray::ArrayView2;

use super::Resident;
use crate::em::{EmOptions, EmRun};
use crate::noise::NoisePass;
use crate::{Error, Search, TruncatedPass};

/// Writes the responsibilities, `(m, k)` in row-major order, of the `m` rows that start at the given row.
pub type FillResponsibilities<'a> = dyn Fn(usize, &mut [f64]) + Sync + 'a;

/// Passes over resident rows. Each returns [`Statistics`] about the centres that it was given.
pub trait Passes: Send {
    /// `(n, d)`.
    fn dim(&self) -> (usize, usize);

    /// Changes the shift of the rows, `(d,)`, if that is cheaper than [loading](crate::Engine::load) them again. All
    /// results are then the same, to the bit, as if the rows had been loaded with this shift. Returns `false`, with
    /// nothing changed, if the rows must be loaded again, as for engines that do not store the unshifted rows.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        let _ = shift;
        Ok(false)
    }

    /// Copies the rows of the given indices into a new [`Resident`] with the same shift: to the bit what
    /// [`load`](crate::Engine::load) of those rows gives. `weights`, `(rows.len(),)`, are the weights of the copies, if
    /// any.
    ///
    /// # Errors
    /// As for [`load`](crate::Engine::load).
    ///
    /// # Panics
    /// If an index is `n` or more.
    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error>;

    /// One pass of EM: computes responsibilities under `mixture` and their sufficient statistics about its means.
    ///
    /// # Errors
    /// [`Error::Features`] if `d` differs; [`Error::Memory`].
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error>;

    /// One pass of EM beside [`Noise`]: as [`pass`](Self::pass), where each row counts for the components with the
    /// probability that it is not noise. `None` if the engine does not do that: the caller then evaluates the mixture, and
    /// passes over copies of the rows.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn pass_beside(&mut self, mixture: &Mixture, noise: &Noise) -> Result<Option<NoisePass>, Error> {
        let _ = (mixture, noise);
        Ok(None)
    }

    /// As [`pass`](Self::pass), for callers that need a single pass, such as the gradient of the likelihood. May be
    /// faster.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.pass(mixture)
    }

    /// [`expectation`](Self::expectation) under each mixture, to the same bits. Engines may compute several at once.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        mixtures.iter().map(|mixture| self.expectation(mixture)).collect()
    }

    /// As [`pass`](Self::pass), in the iterations of a fit whose M-step the host makes. May be faster: a GPU runs its EM
    /// paths here, within their error bounds.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn pass_of_fit(&mut self, mixture: &Mixture, options: &EmOptions) -> Result<Statistics, Error> {
        let _ = options;
        self.pass(mixture)
    }

    /// Continues EM from `run.mixture` on the device, as far as the engine can without the host; if there is a
    /// `run.posterior`, continues variational Bayes from that, or does nothing. Records iterations,
    /// trace, mixture, posterior and convergence in `run`, and calls `seen(run, from)` at each host synchronisation, where `from`
    /// is the number of iterations known before it. The caller makes the remaining iterations by [`pass`](Self::pass).
    /// The default, for engines without an EM loop on a device, does nothing; an engine may also do nothing for some
    /// shapes.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass), and any error of `seen`.
    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _ = (run, options, seen);
        Ok(())
    }

    /// A pass of truncated EM under a mixture of any kind but tied: each row counts for some components only, which go on
    /// from those of `search`. See [`TruncatedPass`].
    ///
    /// # Errors
    /// As for [`pass`](Self::pass); [`Error::Device`] if the engine has no such pass, as in this default.
    fn pass_truncated(&mut self, mixture: &Mixture, search: &Search) -> Result<TruncatedPass, Error> {
        let _ = (mixture, search);
        let why = "this engine has no truncated EM: use the CPU (--device cpu, device=\"cpu\")";
        Err(Error::Device(why.to_owned()))
    }

    /// If the last pass left out components whose part in a tile of rows is below rounding: the mean number of components
    /// that it evaluated for a tile.
    fn near_components(&self) -> Option<f64> {
        None
    }

    /// Statistics about `centres`, `(k, d)`, under the responsibilities that `fill` writes.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error>;
}
