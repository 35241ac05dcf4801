//! Engines that implement two passes and inherit the rest.

use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, Mixture, Statistics};
use ndarray::ArrayView2;

use super::{ComponentColumns, Evaluate, EvaluateOptions, Evaluation, FillResponsibilities, Passes, Resident, Seeding};
use crate::Error;
use crate::init::{RowDraw, WeighedRows};
use crate::reference::ReferenceRows;

/// The passes that a new engine must implement.
pub trait OwnPasses: Send {
    /// As [`Passes::pass`].
    ///
    /// # Errors
    /// As there.
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error>;

    /// As [`Evaluate::evaluate`].
    ///
    /// # Errors
    /// As there.
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;
}

/// Resident rows of an engine with [`OwnPasses`]: EM passes and evaluation come from the engine, everything else from
/// the [`ReferenceEngine`](crate::ReferenceEngine), which is correct but slow and stores a copy of the rows in `f64`.
///
/// To replace inherited methods, an engine implements [`Passes`], [`Seeding`] and [`Evaluate`] itself. See the example
/// `07_engine`.
pub struct Inherit<O> {
    own: O,
    rest: ReferenceRows,
}

impl<O: OwnPasses> Inherit<O> {
    /// Combines `own` with the inherited passes over `data`, which must be the same rows.
    pub fn new(own: O, data: &Dataset) -> Self {
        Self { own, rest: ReferenceRows::of(data) }
    }
}

impl<O: OwnPasses> Passes for Inherit<O> {
    fn dim(&self) -> (usize, usize) {
        self.rest.dim()
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        self.rest.sample(rows, weights)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.own.pass(mixture)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.rest.given(kind, centres, fill)
    }
}

impl<O: OwnPasses> Seeding for Inherit<O> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.rest.nearest(kind, centres)
    }

    fn forget_centres(&mut self) {
        self.rest.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.rest.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.rest.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.rest.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.rest.near(ranges)
    }
}

impl<O: OwnPasses> Evaluate for Inherit<O> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.own.evaluate(mixture, want)
    }
}

impl<O: OwnPasses> ComponentColumns for Inherit<O> {}
