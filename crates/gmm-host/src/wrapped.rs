//! An engine that wraps another and calls hooks before its passes and on their results.

use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, Mixture, Noise, Precision, PrecisionMixture, RowStorage, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use crate::adapt::Ratios;
use crate::data::DeviceRows;
use crate::em::{EmOptions, EmRun};
use crate::engine::{ComponentColumns, DeviceInput, Evaluate, Passes, RowsAndReach, Seeding};
use crate::init::{LloydPasses, RowDraw, WeighedRows};
use crate::many::{Job, SmallFit};
use crate::noise::NoisePass;
use crate::products::Multiplier;
use crate::{
    DeviceColumn, DeviceData, DeviceOutputs, Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities,
    FitOptions, Resident, Search, TruncatedPass,
};

/// Hooks around the passes of a [`Wrapped`] engine's rows. The default methods do nothing. A sample of the rows gets a
/// clone of the hooks.
pub trait Hooks: Clone + Send {
    /// Called before every operation that reads the rows.
    ///
    /// # Errors
    /// An error replaces the operation: it does not run, and its caller gets the error.
    fn before(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Called on the result of every [`pass`](Passes::pass); returns the statistics that the caller gets. Not called
    /// for iterations that an engine makes by itself ([`Passes::iterate`], [`Engine::fit_small`]).
    ///
    /// # Errors
    /// An error replaces the result.
    fn passed(&mut self, statistics: Statistics) -> Result<Statistics, Error> {
        Ok(statistics)
    }
}

/// An engine that forwards everything to another one and calls [`Hooks`] around its passes: to stop between passes, to
/// count them, or to inject a failure.
///
/// ```
/// use gmm_host::{CpuEngine, Error, FitOptions, Hooks, Wrapped, fit};
/// use gmm_model::Dataset;
/// use ndarray::array;
///
/// #[derive(Clone)]
/// struct Stopped;
///
/// impl Hooks for Stopped {
///     fn before(&mut self) -> Result<(), Error> {
///         Err(Error::Interrupted { iterations: 0 })
///     }
/// }
///
/// let data = Dataset::new(array![[0.0], [0.2], [5.0], [5.2]])?;
/// let cpu = CpuEngine::new(1)?;
/// let stopped = fit(&Wrapped::new(&cpu, || Stopped), &data, &FitOptions::new(2));
/// assert!(matches!(stopped, Err(Error::Interrupted { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Wrapped<'a, F> {
    engine: &'a dyn Engine,
    hooks: F,
}

impl<'a, H: Hooks + 'static, F: Fn() -> H + Send + Sync> Wrapped<'a, F> {
    /// Wraps `engine`. `hooks` is called once per load, to make the hooks of those rows.
    pub fn new(engine: &'a dyn Engine, hooks: F) -> Self {
        Self { engine, hooks }
    }
}

impl<H: Hooks + 'static, F: Fn() -> H + Send + Sync> Engine for Wrapped<'_, F> {
    fn name(&self) -> String {
        self.engine.name()
    }

    fn description(&self) -> String {
        self.engine.description()
    }

    fn is_streamed(&self, shape: (usize, usize), precision: Precision, weighted: bool) -> Result<bool, Error> {
        self.engine.is_streamed(shape, precision, weighted)
    }

    fn precision(&self, asked: Precision) -> Precision {
        self.engine.precision(asked)
    }

    fn concurrently(&self, shape: (usize, usize), work: &(dyn Fn(&dyn Engine) + Sync)) -> bool {
        // A trait object, since the type of these hooks would otherwise contain itself.
        let hooks: &(dyn Fn() -> H + Send + Sync) = &self.hooks;
        self.engine.concurrently(shape, &|engine| work(&Wrapped::new(engine, hooks)))
    }

    fn pass_of_parts(
        &self,
        data: &Dataset,
        storage: &RowStorage,
        mixture: &Mixture,
        parts: &[Range<usize>],
        top: Option<usize>,
        each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
    ) -> Result<bool, Error> {
        (self.hooks)().before()?;
        self.engine.pass_of_parts(data, storage, mixture, parts, top, &|part, statistics| {
            let mut hooks = (self.hooks)();
            hooks.before()?;
            *statistics = hooks.passed(statistics.clone())?;
            each(part, statistics)
        })
    }

    fn ratios(&self, data: &Dataset, storage: &RowStorage, asked: &Ratios<'_>) -> Result<Option<Vec<f64>>, Error> {
        (self.hooks)().before()?;
        self.engine.ratios(data, storage, asked)
    }

    fn takes_small(&self, shape: (usize, usize), options: &FitOptions) -> bool {
        self.engine.takes_small(shape, options)
    }

    fn fit_small(&self, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
        (self.hooks)().before()?;
        self.engine.fit_small(data, jobs)
    }

    fn multiplier(&self) -> Result<Multiplier, Error> {
        self.engine.multiplier()
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rows = self.engine.load(data, precision, shift)?;
        Ok(Box::new(Rows { rows, hooks: (self.hooks)() }))
    }

    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rows = self.engine.load_measured(data, precision, shift)?;
        Ok(Box::new(Rows { rows, hooks: (self.hooks)() }))
    }

    fn load_to_keep(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rows = self.engine.load_to_keep(data, precision, shift)?;
        Ok(Box::new(Rows { rows, hooks: (self.hooks)() }))
    }

    fn load_with_reach(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
    ) -> Result<Option<RowsAndReach>, Error> {
        let found = self.engine.load_with_reach(data, precision, shift)?;
        Ok(found.map(|(rows, reach)| {
            let rows: Box<dyn Resident> = Box::new(Rows { rows, hooks: (self.hooks)() });
            (rows, reach)
        }))
    }

    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rows = self.engine.load_to_move(data, precision, shift)?;
        Ok(Box::new(Rows { rows, hooks: (self.hooks)() }))
    }

    fn device_input(&self) -> Option<&dyn DeviceInput> {
        self.engine.device_input().map(|_| self as &dyn DeviceInput)
    }
}

impl<H: Hooks + 'static, F: Fn() -> H + Send + Sync> Wrapped<'_, F> {
    fn input(&self) -> Result<&dyn DeviceInput, Error> {
        self.engine.device_input().ok_or_else(|| Error::Device(format!("{} has no device", self.engine.name())))
    }
}

impl<H: Hooks + 'static, F: Fn() -> H + Send + Sync> DeviceInput for Wrapped<'_, F> {
    unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
        // SAFETY: the caller upholds `# Safety` of `DeviceInput::device_data`: `rows` stay readable and unchanged while
        // the result lives.
        unsafe { self.input()?.device_data(rows, weights) }
    }

    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        let rows = self.input()?.load_there(data, precision, shift, limit)?;
        Ok(Box::new(Rows { rows, hooks: (self.hooks)() }))
    }

    fn evaluate_in_place(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        work: &mut dyn FnMut(&mut dyn Evaluate) -> Result<Evaluation, Error>,
    ) -> Result<Evaluation, Error> {
        let mut hooks = (self.hooks)();
        self.input()?.evaluate_in_place(data, precision, shift, &mut |rows| {
            hooks.before()?;
            work(rows)
        })
    }
}

struct Rows<H> {
    rows: Box<dyn Resident>,
    hooks: H,
}

impl<H: Hooks> Rows<H> {
    /// Calls [`Hooks::before`] and returns the rows.
    fn next(&mut self) -> Result<&mut dyn Resident, Error> {
        self.hooks.before()?;
        Ok(self.rows.as_mut())
    }
}

impl<H: Hooks + 'static> Passes for Rows<H> {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.next()?.hold_about(shift)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let rows = self.next()?.sample(rows, weights)?;
        Ok(Box::new(Self { rows, hooks: self.hooks.clone() }))
    }

    fn near_components(&self) -> Option<f64> {
        self.rows.near_components()
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let statistics = self.next()?.pass(mixture)?;
        self.hooks.passed(statistics)
    }

    fn pass_beside(&mut self, mixture: &Mixture, noise: &Noise) -> Result<Option<NoisePass>, Error> {
        let Some(NoisePass { statistics, count }) = self.next()?.pass_beside(mixture, noise)? else { return Ok(None) };
        Ok(Some(NoisePass { statistics: self.hooks.passed(statistics)?, count }))
    }

    fn pass_truncated(&mut self, mixture: &Mixture, search: &Search) -> Result<TruncatedPass, Error> {
        let pass = self.next()?.pass_truncated(mixture, search)?;
        Ok(TruncatedPass { statistics: self.hooks.passed(pass.statistics)?, ..pass })
    }

    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let statistics = self.next()?.expectation(mixture)?;
        self.hooks.passed(statistics)
    }

    fn pass_of_fit(&mut self, mixture: &Mixture, options: &EmOptions) -> Result<Statistics, Error> {
        let statistics = self.next()?.pass_of_fit(mixture, options)?;
        self.hooks.passed(statistics)
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        let all = self.next()?.passes(mixtures)?;
        all.into_iter().map(|statistics| self.hooks.passed(statistics)).collect()
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.next()?.iterate(run, options, seen)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.next()?.given(kind, centres, fill)
    }
}

impl<H: Hooks + 'static> Seeding for Rows<H> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.next()?.nearest(kind, centres)
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        self.next()?.lloyd(centres, most, rest)
    }

    fn forget_centres(&mut self) {
        self.rows.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.next()?.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.next()?.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.next()?.add_drawn(which)
    }

    fn draw_centres(
        &mut self,
        first: &[f64],
        uniforms: ArrayView3<'_, f64>,
        weights: Option<&[f64]>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.next()?.draw_centres(first, uniforms, weights)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.next()?.near(ranges)
    }
}

impl<H: Hooks + 'static> Evaluate for Rows<H> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.next()?.evaluate(mixture, want)
    }

    unsafe fn evaluate_there(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        out: &DeviceOutputs,
    ) -> Result<Evaluation, Error> {
        // SAFETY: the caller upholds `# Safety` of `Evaluate::evaluate_there`.
        unsafe { self.next()?.evaluate_there(mixture, out) }
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.next()?.evaluate_precisions(mixture, want)
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        self.next()?.log_likelihoods(mixtures)
    }
}

impl<H: Hooks + 'static> ComponentColumns for Rows<H> {
    fn column(&mut self) -> Result<Option<DeviceColumn>, Error> {
        self.rows.column()
    }

    fn mix_columns(
        &mut self,
        columns: &mut [DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        self.next()?.mix_columns(columns, log_weights, anew)
    }

    fn mixed_rows(&mut self, columns: &[DeviceColumn], log_weights: &[f64], rows: &mut [f64]) -> Result<(), Error> {
        self.next()?.mixed_rows(columns, log_weights, rows)
    }
}
