//! An engine that stops between passes when it is told to: initialisations have many passes and no observer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gmm_host::init::LloydPasses;
use gmm_host::{EmOptions, EmRun, Engine, Error, Evaluation, FillResponsibilities, Resident, Wanted};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, Statistics};
use ndarray::{Array2, ArrayView2};

/// `engine`, whose passes end in [`Error::Interrupted`] once `stop` is set.
pub(crate) struct Stoppable<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Engine for Stoppable<'_> {
    fn name(&self) -> String {
        self.engine.name()
    }

    fn description(&self) -> String {
        self.engine.description()
    }

    fn precision(&self, asked: Precision) -> Precision {
        self.engine.precision(asked)
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rows = self.engine.load(data, precision, shift)?;
        Ok(Box::new(StoppableRows { rows, stop: self.stop.clone() }))
    }
}

struct StoppableRows {
    rows: Box<dyn Resident>,
    stop: Arc<AtomicBool>,
}

impl StoppableRows {
    /// The rows, for one more pass.
    fn going(&mut self) -> Result<&mut dyn Resident, Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted { iterations: 0 });
        }
        Ok(self.rows.as_mut())
    }
}

impl Resident for StoppableRows {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.going()?.hold_about(shift)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.going()?.pass(mixture)
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.going()?.iterate(run, options, seen)
    }

    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.going()?.nearest(kind, centres)
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        self.going()?.lloyd(centres, most, rest)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.going()?.given(kind, centres, fill)
    }

    fn forget_centres(&mut self) {
        self.rows.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.going()?.add_centre(centre)
    }

    fn potentials(&mut self, candidates: ArrayView2<'_, f64>) -> Result<Vec<f64>, Error> {
        self.going()?.potentials(candidates)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.going()?.near(ranges)
    }

    fn evaluate(&mut self, mixture: &Mixture, want: Wanted<'_>) -> Result<Evaluation, Error> {
        self.going()?.evaluate(mixture, want)
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        self.going()?.log_likelihoods(mixtures)
    }
}
