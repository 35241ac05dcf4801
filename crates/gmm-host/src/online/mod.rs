//! Online EM: a mixture that follows batches of rows, each seen once, in memory that does not grow with their number.
//!
//! Stepwise EM (Cappé and Moulines 2009, "On-line expectation-maximization algorithm for latent data models", JRSS B
//! 71). Batch `t`, counted from 0, has the sufficient statistics `ŝ_t` under the current mixture. They enter a running
//! average, from which the M-step makes the next mixture:
//!
//! ```text
//! s ← (1 − η_t) s + η_t ŝ_t,    η_0 = 1,    η_t = (t + t0)^−κ
//! ```
//!
//! The average converges for `0.5 < κ ≤ 1`. A small κ forgets the start sooner; a large one averages out more of the
//! noise of the batches. `t0` keeps the first steps from replacing everything before them. The defaults `κ = 0.7`
//! and `η_0 = 1` are this project's choice; the form with `t0 = 2` is that of Liang and Klein (2009, "Online EM for
//! unsupervised models", NAACL), who tuned κ between 0.5 and 1.
//!
//! Moments are about the current means, so each M-step moves them to the new ones ([`Statistics::recentred`]):
//! otherwise they would cancel. The statistics are sums, not means: every row counts alike, and a batch of half the
//! weight moves the mixture half as much. A step of 1 is one iteration of EM on the batch, to the bit.

mod epochs;

use gmm_model::{Mixture, Precision, RowStorage, Statistics, m_step};

use crate::shift::Sample;
use crate::{Data, Engine, Error, em, engine, hold, shift};

pub use epochs::{EpochOptions, fit_online};

/// Options of [`OnlineFit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnlineOptions {
    /// Added to the covariances' diagonals in each M-step.
    pub reg_covar: f64,
    /// Precision of the rows on the engine; `None`: that of the batch.
    pub precision: Option<Precision>,
    /// The exponent `κ` of the step sizes, from 0 to 1; the average converges if it is above 0.5. With 0 all steps are
    /// 1.
    pub kappa: f64,
    /// The offset `t0` of the step sizes, at least 0.
    pub offset: f64,
}

impl Default for OnlineOptions {
    fn default() -> Self {
        Self { reg_covar: 1e-6, precision: None, kappa: 0.7, offset: 2.0 }
    }
}

impl OnlineOptions {
    /// Checks that all options are in range.
    ///
    /// # Errors
    /// [`Error::Option`] with the first invalid option.
    pub fn validate(&self) -> Result<(), Error> {
        let check = |option, value: f64, most: f64, must: &str| match value {
            v if v >= 0.0 && v <= most && v.is_finite() => Ok(()),
            v => Err(Error::Option { option, value: v.to_string(), must: must.to_owned() }),
        };
        check("reg_covar", self.reg_covar, f64::MAX, "finite and not negative")?;
        check("step", self.kappa, 1.0, "from 0 to 1; above 0.5 the average converges")?;
        check("offset", self.offset, f64::MAX, "finite and not negative")
    }

    /// The step size `η_t` of batch `t`, counted from 0: above 0 and at most 1.
    pub fn step_size(&self, t: u64) -> f64 {
        // The offset may be 0, but t is then at least 1.
        if t == 0 { 1.0 } else { (t as f64 + self.offset).powf(-self.kappa).min(1.0) }
    }
}

/// One step of an online fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnlineStep {
    /// Number of the step, from 1.
    pub step: u64,
    /// Its size `η`.
    pub size: f64,
    /// Mean log-likelihood of the batch under the mixture before the step.
    pub mean_log_likelihood: f64,
    /// Total row weight of the batch.
    pub weight: f64,
    /// Number of rows of the batch, without those of weight 0.
    pub rows: u64,
}

/// A mixture fitted to one batch of rows after another.
///
/// ```
/// use gmm_host::{CpuEngine, FitOptions, OnlineFit, OnlineOptions, fit};
/// use gmm_model::{CovarianceType, Dataset, SyntheticOptions, sample, synthetic};
/// use ndarray::s;
///
/// let truth = synthetic(2, 3, CovarianceType::Full, 1, &SyntheticOptions::default())?;
/// let rows = sample(&truth, 1000, 2)?.0;
/// let engine = CpuEngine::new(1)?;
/// let first = Dataset::new(rows.slice(s![..100, ..]).to_owned())?;
/// // The start: an initialisation on the first batch, without iterations.
/// let start = fit(&engine, &first, &FitOptions { max_iter: 0, ..FitOptions::new(2) })?.mixture;
/// let mut online = OnlineFit::new(start, OnlineOptions::default())?;
/// for batch in 0..10 {
///     let batch = rows.slice(s![100 * batch..100 * (batch + 1), ..]);
///     online.partial_fit(&engine, &Dataset::new(batch.to_owned())?)?;
/// }
/// assert_eq!(online.steps(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OnlineFit {
    mixture: Mixture,
    /// The running average, about the means of the mixture.
    statistics: Option<Statistics>,
    steps: u64,
    empty: Vec<usize>,
    /// How the rows of the last batch were stored.
    storage: Option<RowStorage>,
    options: OnlineOptions,
}

impl OnlineFit {
    /// A fit that begins at `start`, which the first batch, with step 1, replaces by one iteration of EM.
    ///
    /// # Errors
    /// [`Error::Option`] if an option is out of range.
    pub fn new(start: Mixture, options: OnlineOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { mixture: start, statistics: None, steps: 0, empty: Vec::new(), storage: None, options })
    }

    /// A fit that goes on from a fitted mixture: as if one batch before had had the statistics that the mixture expects
    /// of its own rows, with the weight of the first batch that comes.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn from_fitted(mixture: Mixture, options: OnlineOptions) -> Result<Self, Error> {
        let statistics = Some(Statistics::expected(&mixture, options.reg_covar));
        Ok(Self { statistics, steps: 1, ..Self::new(mixture, options)? })
    }

    /// A fit that goes on from the [`mixture`](Self::mixture), the [`statistics`](Self::statistics) and the
    /// [`steps`](Self::steps) of an earlier one, to the same bits.
    ///
    /// # Errors
    /// As for [`new`](Self::new); [`Error::Option`] if the statistics are of another kind or shape, about other
    /// centres, or not finite.
    pub fn resume(
        mixture: Mixture,
        statistics: Option<Statistics>,
        steps: u64,
        options: OnlineOptions,
    ) -> Result<Self, Error> {
        let agree = statistics.as_ref().is_none_or(|s| {
            s.kind == mixture.covariance_type() && s.centres == mixture.means() && s.is_finite() && s.total_weight > 0.0
        });
        if !agree || statistics.is_none() != (steps == 0) {
            let must = "those of the mixture: of its kind and shape, about its means, and none before the first step";
            return Err(Error::Option { option: "statistics", value: "others".to_owned(), must: must.to_owned() });
        }
        Ok(Self { statistics, steps, ..Self::new(mixture, options)? })
    }

    /// Makes one step with a batch of rows, of any number. After an error the fit is unchanged.
    ///
    /// Memory and time are those of loading the batch, one pass over it and an M-step; nothing depends on the number of
    /// earlier rows. The same start and the same batches give the same bits. The first step of a [`new`](Self::new) fit
    /// has the bits of one iteration of [`fit`](crate::fit()) on an engine without a loop on a device, such as the CPU.
    ///
    /// # Errors
    /// [`Error`] if the rows are invalid or have another number of columns, if memory does not suffice, if the device
    /// fails, or if a covariance is not positive definite. Iterations in messages are steps.
    pub fn partial_fit<'a>(&mut self, engine: &dyn Engine, batch: impl Into<Data<'a>>) -> Result<OnlineStep, Error> {
        let step = self.steps + 1;
        let (found, storage) = self.expectation(engine, batch.into())?;
        em::check(&found, usize::try_from(step).unwrap_or(usize::MAX))?;
        let (mean_log_likelihood, weight, rows) = (found.mean_log_likelihood(), found.total_weight, found.n_rows);
        let size = self.options.step_size(self.steps);
        let mut sum = found.scaled(size);
        if size < 1.0
            && let Some(before) = &self.statistics
        {
            // Statistics of a fitted mixture have no rows, and count as much as the first batch.
            let unit = if before.n_rows == 0 { weight / before.total_weight } else { 1.0 };
            let before = before.clone().recentred(sum.centres.clone())?;
            sum.add(&before.scaled((1.0 - size) * unit))?;
        }
        let next = m_step(&sum, self.options.reg_covar, Some(&self.mixture))
            .map_err(|source| em::singular(source, usize::try_from(step).unwrap_or(usize::MAX)))?;
        self.statistics = Some(sum.recentred(next.mixture.means().to_owned())?);
        (self.mixture, self.empty, self.steps, self.storage) = (next.mixture, next.empty, step, Some(storage));
        Ok(OnlineStep { step, size, mean_log_likelihood, weight, rows })
    }

    /// Loads the batch as [`fit`](crate::fit()) does, and makes one pass over it. Also returns how the rows were
    /// stored.
    fn expectation(&self, engine: &dyn Engine, data: Data<'_>) -> Result<(Statistics, RowStorage), Error> {
        engine::check_features(data.dim().1, self.mixture.n_features())?;
        let present = data.without_absent_rows();
        let data = present.as_ref().map_or(data, Data::from);
        let asked = self.options.precision.unwrap_or(data.precision());
        shift::check_weights(data, asked)?;
        let sample = Sample::of(data)?;
        let at = sample.shift();
        let (mut rows, precision) = hold::for_fit(data, engine, asked, &sample, &at, self.options.reg_covar)?;
        Ok((rows.pass(&self.mixture)?, RowStorage { precision, shift: at }))
    }

    /// How the rows of the last batch of this process were stored.
    pub const fn storage(&self) -> Option<&RowStorage> {
        self.storage.as_ref()
    }

    /// The current mixture.
    pub const fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Components that were empty at the last step.
    pub fn empty(&self) -> &[usize] {
        &self.empty
    }

    /// The running average of the statistics, about the means of the mixture; `None` before the first step.
    pub const fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_ref()
    }

    /// Number of steps made.
    pub const fn steps(&self) -> u64 {
        self.steps
    }
}
