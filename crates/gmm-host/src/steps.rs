//! Runs an EM iteration in separate steps, for data in several files or on several machines: [`pass()`] over each part,
//! [`Statistics::sum`], then [`maximise`].
//!
//! With the same [`RowStorage`], start, thread count and instruction set, this gives the bits of a
//! [`fit`](crate::fit()) on the CPU engine of a data set with those parts.

use gmm_model::{MStep, Mixture, Noise, Precision, RowStorage, Statistics, StatisticsError, m_step_with};

use crate::em::{check, singular};
use crate::engine::check_features;
use crate::noise::{self, NoisePass};
use crate::rule::{self, FitRule};
use crate::{Data, Engine, Error, Resident, shift};

/// Rows that stay on an engine for many passes.
pub struct PassRows {
    rows: Box<dyn Resident>,
}

impl PassRows {
    /// Loads the rows of positive weight in the given storage.
    ///
    /// Cost: one read of the data. Memory: that of the rows on the engine, and a copy of the rows of positive weight if
    /// there are others.
    ///
    /// # Errors
    /// [`Error::Features`] if the storage is for another number of columns; [`Error::Option`] if row weights are
    /// outside the range of its precision; [`Error::Memory`]; any error of the device.
    pub fn new<'a>(engine: &dyn Engine, data: impl Into<Data<'a>>, storage: &RowStorage) -> Result<Self, Error> {
        let data = data.into();
        check_features(data.dim().1, storage.shift.len())?;
        let present = data.without_absent_rows();
        let data = present.as_ref().map_or(data, Data::from);
        let precision = engine.precision(storage.precision);
        shift::check_weights(data, precision)?;
        Ok(Self { rows: data.load(engine, precision, &storage.shift, None)? })
    }

    /// `(n, d)`: the rows of positive weight.
    pub fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    /// One E-step: the statistics of the rows under `mixture`, about its means.
    ///
    /// # Errors
    /// [`Error::Features`] if `d` differs; [`Error::NotFinite`] and [`Error::Likelihood`] if rows are so far from all
    /// components that a sum is not finite; [`Error::Memory`]; any error of the device.
    pub fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let statistics = self.rows.pass(mixture)?;
        check(&statistics, 1)?;
        Ok(Statistics { mixture: mixture.fingerprint(), ..statistics })
    }
}

/// One E-step over `data`: their sufficient statistics under `mixture`, about its means. The statistics of other rows
/// under the same mixture can be added ([`Statistics::add`]), and [`maximise`] gives the next mixture.
///
/// `storage` decides how the rows are rounded. Use that of the fit that the mixture comes from
/// ([`Fit::storage`](crate::Fit::storage)), or else [`storage`] of the first mixture, and the same in all passes.
///
/// # Errors
/// As for [`PassRows::new`] and [`PassRows::pass`].
///
/// ```
/// use gmm_host::{CpuEngine, FitOptions, fit, maximise, pass};
/// use gmm_model::{Dataset, Statistics};
/// use ndarray::array;
///
/// let engine = CpuEngine::new(1)?;
/// let rows = array![[0.0], [0.2], [0.1], [5.0], [5.2], [5.1]];
/// let all = Dataset::new(rows)?.with_parts(vec![2]);
/// let files = [all.part(0..2), all.part(2..6)];
///
/// let start = fit(&engine, &all, &FitOptions { max_iter: 0, ..FitOptions::new(2) })?;
/// let mut mixture = start.mixture;
/// for _ in 0..3 {
///     let each = files.iter().map(|file| pass(&engine, &mixture, file, &start.storage));
///     let sum = Statistics::sum(each.collect::<Result<Vec<_>, _>>()?).unwrap().expect("two files");
///     mixture = maximise(&sum, 1e-6, &mixture)?.mixture;
/// }
/// let whole = fit(&engine, &all, &FitOptions { max_iter: 3, tol: 0.0, ..FitOptions::new(2) })?;
/// assert_eq!(mixture, whole.mixture);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pass<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    storage: &RowStorage,
) -> Result<Statistics, Error> {
    PassRows::new(engine, data, storage)?.pass(mixture)
}

/// As [`pass()`], beside uniform noise: responsibilities are those of the mixture with noise, so the counts `Σr` lack those of
/// the noise. Log-likelihood, total weight and number of rows are those of all rows. The next mixture is [`maximise`]'s, and
/// the next weight of the noise is [`noise::weight_after`]; its volume stays.
///
/// # Errors
/// As for [`pass()`]; [`Error::Model`] if the noise does not belong to the mixture; [`Error::Missing`].
pub fn pass_beside<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: &Noise,
    data: impl Into<Data<'a>>,
    storage: &RowStorage,
) -> Result<Statistics, Error> {
    let data = data.into();
    noise.check(mixture.n_features())?;
    data.require_exact("uniform noise")?;
    let present = data.without_absent_rows();
    let data = present.as_ref().map_or(data, Data::from);
    let mut loaded = PassRows::new(engine, data, storage)?;
    let NoisePass { statistics, .. } = noise::pass(loaded.rows.as_mut(), mixture, noise, data.weights())?;
    check(&statistics, 1)?;
    Ok(Statistics { mixture: mixture.fingerprint(), ..statistics })
}

/// The storage of rows for passes that start from a mixture of unknown origin: shifted by a median of its means, in
/// `precision`, or in `f64` if `f32` would lose precision ([`shift::is_felt`]).
pub fn storage(mixture: &Mixture, precision: Precision) -> RowStorage {
    let shift = shift::of_mixture(mixture);
    let precision = if shift::is_felt(mixture, &shift, precision) { Precision::F64 } else { precision };
    RowStorage { precision, shift }
}

/// The M-step: the mixture that maximises the expected log-likelihood under `statistics`, which must come from passes
/// under `previous`. Empty components keep the mean and covariance that they have there: see [`m_step`](gmm_model::m_step()).
///
/// # Errors
/// [`Error::Statistics`] if the statistics do not come from `previous`: they have another kind, shape or centres,
/// or record another mixture;
/// [`Error::NotFinite`] and [`Error::Likelihood`] if the statistics are not finite; [`Error::Singular`] if a covariance
/// is not positive definite; [`Error::Model`] if `reg_covar` is negative or not finite.
pub fn maximise(statistics: &Statistics, reg_covar: f64, previous: &Mixture) -> Result<MStep, Error> {
    Ok(maximise_with(&FitRule::none(), statistics, reg_covar, previous)?.0)
}

/// As [`maximise`], under a rule: the prior and the relative floors are made from the moments of all rows, which the
/// statistics contain. Returns also the logarithm of the prior density at `previous`, 0 without a prior: the passes of such
/// a fit maximise the log-likelihood plus this.
///
/// The result is that of a fit within rounding. For spherical covariances a relative floor is a fraction of the variance
/// averaged over the columns.
///
/// # Errors
/// As for [`maximise`]; [`Error::Option`] if the rule has labels or noise, which need the rows. For statistics of
/// [`pass_beside`] leave the noise out of the rule.
pub fn maximise_with(
    rule: &FitRule,
    statistics: &Statistics,
    reg_covar: f64,
    previous: &Mixture,
) -> Result<(MStep, f64), Error> {
    rule.refuse_noise("an M-step from statistics, which lack the rows")?;
    if rule.labels.is_some() {
        let must = "left out for an M-step from statistics, which lack the rows".to_owned();
        return Err(Error::Option { option: "labels", value: "given".to_owned(), must });
    }
    // Adding checks kind, shape, centres and mixture.
    let mut of_previous = Statistics::of_no_rows(previous);
    of_previous.add(statistics).map_err(|error| match error {
        StatisticsError::Shape { left, right } => StatisticsError::Shape { left: right, right: left },
        other => other,
    })?;
    check(statistics, 1)?;
    let mut rule = rule::of_statistics(rule, statistics)?;
    rule.factors = rule.factors.or(previous.covariance_model().factors);
    let step = m_step_with(&rule, statistics, reg_covar, Some(previous)).map_err(|error| singular(error, 1))?;
    Ok((step, rule.log_prior(previous)))
}
