//! Passes of EM over resident rows.

use gmm_model::{CovarianceType, Mixture, Statistics};
use ndarray::ArrayView2;

use super::Resident;
use crate::Error;
use crate::em::{EmOptions, EmRun};

/// Writes the responsibilities, `(m, k)` row by row, of the `m` rows that start at the given row.
pub type FillResponsibilities<'a> = dyn Fn(usize, &mut [f64]) + Sync + 'a;

/// Passes over resident rows, each of which gives [`Statistics`] about the centres that it was run with.
pub trait Passes: Send {
    /// `(n, d)`.
    fn dim(&self) -> (usize, usize);

    /// Holds the rows about another point, `(d,)`, where that is cheaper than to [load](crate::Engine::load) them again: every
    /// result is then, to the bit, that of rows which were loaded so. False where they must be loaded, as for engines
    /// that keep no more than what they hold; nothing has changed then.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        let _ = shift;
        Ok(false)
    }

    /// Some of the rows by their indices, as rows of their own about the same point: to the bit what
    /// [`load`](crate::Engine::load) would give for them. Their weights, `(rows.len(),)`, are given where there are any.
    ///
    /// # Errors
    /// As for [`load`](crate::Engine::load).
    ///
    /// # Panics
    /// Where there is no such row.
    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error>;

    /// One fused E- and M-pass: responsibilities under `mixture`, and their sufficient statistics about its means.
    ///
    /// # Errors
    /// [`Error::Features`] where `d` differs; [`Error::Memory`].
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error>;

    /// As [`pass`](Self::pass), for who wants one and not a loop of them, and may be quicker: the gradient of the likelihood.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.pass(mixture)
    }

    /// [`expectation`](Self::expectation) under each mixture, to the same bits: for engines that can do several at once.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        mixtures.iter().map(|mixture| self.expectation(mixture)).collect()
    }

    /// Goes on with EM from `run.mixture` by itself, as far as it can without the host: iterations, trace, mixture and
    /// whether it converged are noted in `run`, and `seen(run, from)` is called at each of the host's looks, with the
    /// iterations that were known before. What is left is the caller's to do, by [`pass`](Self::pass); this does nothing
    /// where an engine has no loop of its own, or none for this shape.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass), and what `seen` says.
    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _ = (run, options, seen);
        Ok(())
    }

    /// Statistics under responsibilities that the caller gives, about `centres`, `(k, d)`.
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
