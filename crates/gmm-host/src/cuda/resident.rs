//! Rows on a device together with everything that works on them, behind the engine traits.

use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, FactorShape, Mixture, Precision, PrecisionMixture, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use super::driver::device::Gpu;
use super::em::{self, Loop, Member};
use super::launch::plan::ForcedPlan;
use super::log_likelihood::Likelihoods;
use super::log_likelihood::columns::DeviceColumn;
use super::number::Number;
use super::rows::Rows;
use super::rows::device_input::DeviceData;
use super::rows::outputs::Outputs;
use super::seeding::Seeding;
use super::seeding::lloyd::Lloyd;
use super::{truncated, tune};
use crate::cuda::rows::reach::LoadOptions;
use crate::em::{EmOptions, EmRun};
use crate::engine::{ComponentColumns, Evaluate, Passes, Seeding as Seeds, check_features};
use crate::init::{LloydPasses, RowDraw, WeighedRows, lloyd_pass};
use crate::{
    CpuEngine, DeviceOutputs, Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident, Search,
    TruncatedPass,
};

/// Rows, and the buffers of each algorithm that runs over them.
pub(crate) struct CudaResident<T: Number> {
    pub(crate) em: Loop,
    pub(crate) seeding: Seeding<T>,
    pub(crate) lloyd: Lloyd,
    pub(crate) likelihoods: Likelihoods,
    truncated: truncated::Memory,
    /// Streamed rows on the CPU engine, for the distances to centres: see [`on_host`](Self::on_host).
    on_host: Option<Box<dyn Resident>>,
    /// Last, so that it is dropped last: the context must outlive the buffers above.
    pub(crate) rows: Rows<T>,
}

impl<T: Number> CudaResident<T> {
    pub(crate) fn of(rows: Rows<T>) -> Self {
        let (em, seeding, lloyd) = (Loop::empty(), Seeding::empty(), Lloyd::empty());
        let (likelihoods, truncated) = (Likelihoods::empty(), truncated::Memory::empty());
        Self { em, seeding, lloyd, likelihoods, truncated, on_host: None, rows }
    }

    /// See [`Rows::load`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn load(
        gpu: Arc<Gpu>,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
        options: LoadOptions<'_>,
    ) -> Result<Self, Error> {
        Rows::load(gpu, data, precision, shift, forced, options).map(Self::of)
    }

    /// See [`Rows::from_device`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn from_device(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        let mut distances = |rows: &mut Rows<T>, centre: &[f64]| {
            let mut seeding = Seeding::empty();
            let sums = rows.run(|rows| seeding.add_centre(rows, centre));
            seeding.forget(rows);
            sums
        };
        Rows::from_device(gpu, data, precision, shift, limit, forced, &mut distances).map(Self::of)
    }
}

impl<T: Number> CudaResident<T> {
    /// The CPU engine's view of streamed rows. k-means++ over all of them needs a number per row and several passes for
    /// each centre, which read the rows where they are. `None` if the rows are on the device.
    fn on_host(&mut self) -> Result<Option<&mut Box<dyn Resident>>, Error> {
        let Some(streamed) = &self.rows.streamed else { return Ok(None) };
        if self.on_host.is_none() {
            let engine = CpuEngine::without_copies(0)?;
            self.on_host = Some(engine.load(streamed.data(), self.rows.precision, &self.rows.shift)?);
        }
        Ok(self.on_host.as_mut())
    }

    /// As [`from_device`](Self::from_device), for evaluations only: the rows are tiled in each of them, and not checked.
    ///
    /// # Errors
    /// See [`Rows::borrow`].
    pub(crate) fn borrow(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        Rows::borrow(gpu, data, precision, shift, forced).map(Self::of)
    }

    fn evaluate_into(&mut self, mixture: &PrecisionMixture<'_>, out: &mut Outputs<'_>) -> Result<Evaluation, Error> {
        check_features(self.rows.d, mixture.n_features())?;
        mixture.check_factors()?;
        let is_matrix = matches!(mixture.covariance_type(), CovarianceType::Full | CovarianceType::Tied);
        if is_matrix && (0..mixture.n_factors()).any(|c| mixture.factor_shape(c) != FactorShape::Upper) {
            // Factors set by the user that are not upper triangular: the kernels store triangular factors only.
            let mixture = mixture.to_mixture()?;
            return self.rows.run(|rows| rows.evaluate_here(&mixture, out));
        }
        // Variances lose nothing by that; matrices would.
        if !is_matrix
            && em::may_be_near(&self.rows, (mixture.covariance_type(), mixture.n_components()), out)
            && let Ok(mixture) = mixture.to_mixture()
            && let Some(found) = self.evaluate_near(&mixture, out)?
        {
            return Ok(found);
        }
        let scale = |c| Ok(mixture.log_weight(c) + mixture.log_normalizer(c, FactorShape::Upper)?);
        let scales: Vec<f64> = (0..mixture.n_components()).map(scale).collect::<Result<_, Error>>()?;
        self.rows.run(|rows| rows.evaluate_precisions_here(mixture, &scales, out))
    }

    /// [`em::evaluate_near`].
    fn evaluate_near(&mut self, mixture: &Mixture, out: &mut Outputs<'_>) -> Result<Option<Evaluation>, Error> {
        let Self { rows, em, .. } = self;
        rows.run(|rows| em::evaluate_near(Member { em, rows }, mixture, out))
    }
}

impl<T: Number> Drop for CudaResident<T> {
    fn drop(&mut self) {
        self.rows.come_to_rest();
    }
}

impl<T: Number> Passes for CudaResident<T> {
    fn dim(&self) -> (usize, usize) {
        (self.rows.n, self.rows.d)
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        check_features(self.rows.d, shift.len())?;
        let moved = self.rows.run(|rows| rows.hold_about_here(shift))?;
        if moved {
            self.em.moved();
            self.seeding.clear();
            self.lloyd.forget();
            self.likelihoods.forget();
            self.on_host = None;
        }
        Ok(moved)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let mut some = None;
        self.rows.run(|all| {
            some = Some(all.sample_here(rows, weights)?);
            Ok(())
        })?;
        Ok(Box::new(Self::of(some.expect("rows that were picked"))))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        check_features(self.rows.d, mixture.n_features())?;
        self.rows.run(|rows| rows.pass_here(mixture))
    }

    fn pass_of_fit(&mut self, mixture: &Mixture, options: &EmOptions) -> Result<Statistics, Error> {
        check_features(self.rows.d, mixture.n_features())?;
        let Self { rows, em, .. } = self;
        let found = rows.run(|rows| {
            let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
            let paths = em::running(rows, &shape, false);
            em::pass(Member { em, rows }, &paths, mixture, options)
        })?;
        found.map_or_else(|| self.pass(mixture), Ok)
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        check_features(self.rows.d, run.mixture.n_features())?;
        // After earlier iterations the host continues: the log-likelihood to compare with is known only to it.
        if run.iterations > 0 || options.max_iter == 0 {
            return Ok(());
        }
        let options = em::loop_options(run, options);
        let Self { rows, em, .. } = self;
        rows.run(|rows| {
            let paths = tune::paths(rows, em, run, &options)?;
            em::iterate(&mut [Member { em, rows }], &paths, run, &options, seen)
        })
    }

    fn pass_truncated(&mut self, mixture: &Mixture, search: &Search) -> Result<TruncatedPass, Error> {
        check_features(self.rows.d, mixture.n_features())?;
        let Self { rows, truncated: memory, .. } = self;
        rows.run(|rows| truncated::pass(rows, memory, mixture, search))
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.rows.d, centres.ncols())?;
        self.rows.run(|rows| rows.given_here(kind, centres, fill))
    }

    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let mut all = self.passes(std::slice::from_ref(mixture))?;
        Ok(all.remove(0))
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.rows.d, mixture.n_features()))?;
        if self.rows.passes_through() {
            return mixtures.iter().map(|mixture| self.pass(mixture)).collect();
        }
        let Self { rows, likelihoods, .. } = self;
        let all = rows.run(|rows| likelihoods.expectations(rows, mixtures))?;
        all.into_iter().zip(mixtures).map(|(found, mixture)| found.map_or_else(|| self.pass(mixture), Ok)).collect()
    }
}

impl<T: Number> Seeds for CudaResident<T> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.rows.d, centres.ncols())?;
        let Self { rows, lloyd, .. } = self;
        let found = rows.run(|rows| lloyd.hard_statistics(rows, kind, centres))?;
        found.map_or_else(|| rows.run(|rows| rows.nearest_here(kind, centres)), Ok)
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        check_features(self.rows.d, centres.ncols())?;
        if self.rows.passes_through() {
            return lloyd_pass(self, centres);
        }
        let Self { rows, lloyd, .. } = self;
        match rows.run(|rows| lloyd.iterate(rows, centres, most, rest))? {
            Some(passes) => Ok(passes),
            None => lloyd_pass(self, centres),
        }
    }

    fn forget_centres(&mut self) {
        self.seeding.forget(&mut self.rows);
        self.lloyd.forget();
        self.on_host = None;
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.rows.d, centre.len())?;
        if let Some(rows) = self.on_host()? {
            return rows.add_centre(centre);
        }
        let Self { rows, seeding, .. } = self;
        rows.run(|rows| seeding.add_centre(rows, centre))
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.rows.row_weights.is_some(), "row weights");
        if let Some(rows) = self.on_host()? {
            return rows.weigh_draws(draws, weights);
        }
        let Self { rows, seeding, .. } = self;
        rows.run(|rows| seeding.weigh_draws(rows, draws))
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        if let Some(rows) = self.on_host()? {
            return rows.add_drawn(which);
        }
        let Self { rows, seeding, .. } = self;
        rows.run(|rows| seeding.add_drawn(rows, which))
    }

    fn draw_centres(
        &mut self,
        first: &[f64],
        uniforms: ArrayView3<'_, f64>,
        weights: Option<&[f64]>,
    ) -> Result<Option<Vec<usize>>, Error> {
        check_features(self.rows.d, first.len())?;
        assert_eq!(weights.is_some(), self.rows.row_weights.is_some(), "row weights");
        if self.rows.passes_through() {
            self.forget_centres();
            return Ok(None);
        }
        let Self { rows, seeding, .. } = self;
        rows.run(|rows| seeding.draw_centres(rows, first, uniforms))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        if let Some(rows) = self.on_host()? {
            return rows.near(ranges);
        }
        let Self { rows, seeding, .. } = self;
        rows.run(|rows| seeding.near(rows, ranges))
    }
}

impl<T: Number> Evaluate for CudaResident<T> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        check_features(self.rows.d, mixture.n_features())?;
        let mut outputs = Outputs::Host(want);
        let found = self.evaluate_near(mixture, &mut outputs)?;
        found.map_or_else(|| self.rows.run(|rows| rows.evaluate_here(mixture, &mut outputs)), Ok)
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate_into(mixture, &mut Outputs::Host(want))
    }

    unsafe fn evaluate_there(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        out: &DeviceOutputs,
    ) -> Result<Evaluation, Error> {
        // Valid until this returns, as the caller guarantees.
        self.evaluate_into(mixture, &mut Outputs::Device(*out))
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.rows.d, mixture.n_features()))?;
        if self.rows.passes_through() {
            let value = |mixture| Ok(self.evaluate(mixture, EvaluateOptions::default())?.log_likelihood);
            return mixtures.iter().map(value).collect();
        }
        let Self { rows, likelihoods, .. } = self;
        let mut values = rows.run(|rows| likelihoods.log_likelihoods(rows, mixtures))?;
        for (value, mixture) in values.iter_mut().zip(mixtures).filter(|(value, _)| !value.is_finite()) {
            *value = self.evaluate(mixture, EvaluateOptions::default())?.log_likelihood;
        }
        Ok(values)
    }
}

impl<T: Number> ComponentColumns for CudaResident<T> {
    fn column(&mut self) -> Result<Option<DeviceColumn>, Error> {
        if self.rows.passes_through() {
            return Ok(None);
        }
        let mut column = None;
        let Self { rows, likelihoods, .. } = self;
        rows.run(|rows| {
            column = Some(likelihoods.column(rows)?);
            Ok(())
        })?;
        Ok(column)
    }

    fn mix_columns(
        &mut self,
        columns: &mut [DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        self.check_columns(columns, log_weights);
        assert!(anew.iter().all(|(c, alone)| *c < columns.len() && alone.n_components() == 1), "components");
        anew.iter().try_for_each(|(_, component)| check_features(self.rows.d, component.n_features()))?;
        let Self { rows, likelihoods, .. } = self;
        rows.run(|all| likelihoods.mix_columns(all, columns, log_weights, anew))
    }

    fn mixed_rows(&mut self, columns: &[DeviceColumn], log_weights: &[f64], rows: &mut [f64]) -> Result<(), Error> {
        self.check_columns(columns, log_weights);
        assert_eq!(rows.len(), self.rows.n, "rows");
        let Self { rows: held, likelihoods, .. } = self;
        held.run(|held| likelihoods.mixed_rows(held, columns, log_weights, rows))
    }
}

impl<T: Number> CudaResident<T> {
    /// Panics unless every column belongs to these rows: the kernel would read past the end of a shorter column.
    fn check_columns(&self, columns: &[DeviceColumn], log_weights: &[f64]) {
        let good = columns.iter().all(|column| column.is_of(&self.rows.gpu, self.rows.n));
        assert!(good && !columns.is_empty() && columns.len() == log_weights.len(), "columns of these rows");
    }
}
