//! Rows with measurement errors of their own, and linear views of rows: the passes of extreme deconvolution.
//!
//! The model is that of [`gmm_model::deconvolution`]. A pass returns the expected statistics of the true rows, so that fits,
//! likelihoods, gradients and rules need no more. Rows are stored in blocks of sixteen ([`layout`]), and each vector operation
//! ([`lanes`]) computes several rows of one component: [`dense`] a small Cholesky factor per row, [`diagonal`] columns by
//! themselves, [`views`] projections. All are `f64`.
//!
//! k-means and the moments of given responsibilities use the rows as they were measured: a start is as wide as the noisy rows.

mod component;
mod dense;
mod diagonal;
mod factor;
mod lanes;
mod layout;
mod naive;
mod pass;
mod true_rows;
mod views;

use std::ops::Range;
use std::sync::Arc;

use gmm_model::censoring::Limits;
use gmm_model::{CovarianceType, DataError, Dataset, Mixture, Statistics};
use ndarray::{Array2, ArrayView2};

use crate::cpu::simd::Machine;
use crate::engine::{ComponentColumns, Evaluate, Passes, Seeding, check_features};
use crate::init::{LloydPasses, RowDraw, WeighedRows};
use crate::{Data, Error, EvaluateOptions, Evaluation, FillResponsibilities, FitOptions, Init, Prior, Resident};
use component::Parameters;
use layout::Layout;
pub(crate) use naive::NaivePasses;
use pass::Runner;
pub use true_rows::{TrueRowMoments, true_rows};

/// The line of a fit's record about measurement errors.
pub(crate) fn line(data: Data<'_>) -> Option<String> {
    let errors = data.measurement_errors()?;
    let (n, m) = errors.dim();
    let kind = if errors.covariances().is_diagonal() { "independent" } else { "correlated" };
    Some(match errors.views() {
        Some(_) => format!("{n} linear views of {m} values with {kind} measurement errors"),
        None => format!("{kind} measurement errors of each row"),
    })
}

/// Checks what a fit of rows with measurement errors or limits needs.
///
/// # Errors
/// [`Error::MeasurementErrors`] and [`Error::Limited`] for what needs exact rows; [`DataError::Unlocated`] for a column whose values
/// are all beyond limits, unless a prior or fixed parameters say where it is.
pub(crate) fn check(data: Data<'_>, options: &FitOptions) -> Result<(), Error> {
    if options.rule.noise.is_some() {
        data.refuse_indirect("uniform noise")?;
    }
    if options.rule.bayes.is_some() {
        data.refuse_indirect("variational Bayes")?;
    }
    if matches!(options.init, Init::Tree(_) | Init::Best(_)) {
        data.refuse_indirect("a start by a tree")?;
    }
    let is_free = options.rule.prior == Prior::None && options.rule.fixed.is_none();
    if let Some(column) = data.limits().filter(|_| is_free).and_then(Limits::unlocated_column) {
        let column = data.column_name(column);
        return Err(DataError::Unlocated { column }.into());
    }
    Ok(())
}

/// Passes over rows that are known only with measurement errors or within limits.
pub(crate) trait MeasuredPasses: Send {
    /// As [`Passes::pass`].
    ///
    /// # Errors
    /// As there.
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error>;

    /// As [`Evaluate::evaluate`].
    ///
    /// # Errors
    /// As there.
    fn evaluate(&self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;

    /// The same passes over other rows.
    ///
    /// # Errors
    /// [`Error::Memory`].
    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error>;
}

/// Passes on the processor's vectors.
pub(crate) struct CpuPasses {
    machine: Machine,
    pool: Arc<rayon::ThreadPool>,
    layout: Layout,
    weights: Option<Vec<f64>>,
}

impl CpuPasses {
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn new(machine: Machine, pool: Arc<rayon::ThreadPool>, data: &Dataset) -> Result<Self, Error> {
        Ok(Self { machine, pool, layout: Layout::new(data)?, weights: data.weights().map(<[f64]>::to_vec) })
    }

    fn runner(&self) -> Runner<'_> {
        Runner { machine: self.machine, pool: &self.pool, layout: &self.layout, weights: self.weights.as_deref() }
    }
}

impl MeasuredPasses for CpuPasses {
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error> {
        let zero = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
        self.runner().statistics(&Parameters::new(mixture, &self.layout), zero)
    }

    fn evaluate(&self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.runner().evaluate(&Parameters::new(mixture, &self.layout), want)
    }

    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error> {
        Ok(Box::new(Self::new(self.machine, self.pool.clone(), &data)?))
    }
}

/// Rows with measurement errors or limits.
pub(crate) struct MeasuredRows {
    data: Dataset,
    passes: Box<dyn MeasuredPasses>,
    /// The rows without their errors or limits, for seeding.
    plain: Box<dyn Resident>,
}

impl MeasuredRows {
    /// `plain` are the rows of `data` without their errors or limits, as the engine loaded them.
    pub(crate) fn new(data: Dataset, passes: Box<dyn MeasuredPasses>, plain: Box<dyn Resident>) -> Self {
        Self { data, passes, plain }
    }
}

impl Passes for MeasuredRows {
    fn dim(&self) -> (usize, usize) {
        self.plain.dim()
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.plain.hold_about(shift)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let some = self.data.select_rows(rows);
        // Weights that are all 0 are for the caller to refuse.
        let weighed = match weights {
            Some(weights) => some.with_weights(weights.to_vec())?,
            None => some,
        };
        let passes = self.passes.of_rows(weighed.clone())?;
        Ok(Box::new(Self { data: weighed, passes, plain: self.plain.sample(rows, weights)? }))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        check_features(self.data.n_features(), mixture.n_features())?;
        self.passes.pass(mixture)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.plain.given(kind, centres, fill)
    }
}

impl Seeding for MeasuredRows {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.plain.nearest(kind, centres)
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        self.plain.lloyd(centres, most, rest)
    }

    fn forget_centres(&mut self) {
        self.plain.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.plain.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.plain.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.plain.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.plain.near(ranges)
    }
}

impl Evaluate for MeasuredRows {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        check_features(self.data.n_features(), mixture.n_features())?;
        self.passes.evaluate(mixture, want)
    }
}

impl ComponentColumns for MeasuredRows {}
