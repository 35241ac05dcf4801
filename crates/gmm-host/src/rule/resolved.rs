//! A rule in the units of one data set, and the E-step under it.

use gmm_model::bayes::{BayesPrior, Posterior};
use gmm_model::{
    ConjugatePrior, CovarianceType, LabelledRows, MStep, MStepRule, Mixture, ModelError, Precision, Statistics,
    m_step_with, packed_index,
};
use ndarray::{Array1, Array2};

use super::{FitRule, Prior};
use crate::em::{EmOptions, EmRun, check};
use crate::shift::Sample;
use crate::{Error, EvaluateOptions, Evaluation, Resident};

/// The rule of a fit, in the units of its data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) m_step: MStepRule,
    /// The rows whose component is known; the engine has the others.
    pub(crate) labelled: Option<LabelledRows>,
    /// Variational Bayes, in place of the M-step.
    pub(crate) bayes: Option<Bayes>,
}

/// The prior of a fit by variational Bayes.
#[derive(Clone, Debug)]
pub(crate) struct Bayes {
    pub(crate) prior: BayesPrior,
    /// Σ w over all rows.
    total_weight: f64,
}

/// The result of an E-step.
pub(crate) struct Expectation {
    pub(crate) statistics: Statistics,
    /// The log-likelihood plus the logarithm of the prior density, or the lower bound of the log evidence, over the total
    /// row weight.
    pub(crate) objective: f64,
}

impl Rule {
    /// Whether EM is the plain one, which an engine can run itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.m_step.is_plain() && self.labelled.is_none() && self.bayes.is_none()
    }

    /// One E-step over all rows: the sums of the unlabelled rows, then those of the labelled ones.
    pub(crate) fn expectation(
        &self,
        rows: &mut dyn Resident,
        run: &EmRun,
        options: &EmOptions,
    ) -> Result<Expectation, Error> {
        if let Some(posterior) = &run.posterior {
            let step = posterior.expectation()?;
            let statistics = self.pass(rows, &step.mixture, options)?;
            let total = statistics.total_weight;
            let bound = statistics.log_likelihood + total * step.log_scale - posterior.divergence();
            return Ok(Expectation { statistics, objective: bound / total });
        }
        let mixture = &run.mixture;
        let statistics = self.pass(rows, mixture, options)?;
        let objective = if self.m_step.prior.is_some() {
            (statistics.log_likelihood + self.m_step.log_prior(mixture)) / statistics.total_weight
        } else {
            statistics.mean_log_likelihood()
        };
        Ok(Expectation { statistics, objective })
    }

    fn pass(&self, rows: &mut dyn Resident, mixture: &Mixture, options: &EmOptions) -> Result<Statistics, Error> {
        let mut statistics = rows.pass_of_fit(mixture, options)?;
        if let Some(labelled) = &self.labelled {
            statistics.add(&labelled.expectation(mixture)?)?;
        }
        Ok(statistics)
    }

    /// Makes a mixture the start of `run`: with variational Bayes it becomes a posterior first.
    pub(crate) fn prepare(&self, run: &mut EmRun) -> Result<(), ModelError> {
        if let (Some(Bayes { prior, total_weight }), None) = (&self.bayes, &run.posterior) {
            let posterior = prior.update_from(&run.mixture, *total_weight)?;
            run.mixture = posterior.mixture().clone();
            run.posterior = Some(posterior);
        }
        Ok(())
    }

    /// The M-step after an E-step under the mixture or posterior of `run`, and the posterior if there is one.
    pub(crate) fn maximise(
        &self,
        statistics: &Statistics,
        reg_covar: f64,
        run: &EmRun,
    ) -> Result<(MStep, Option<Posterior>), ModelError> {
        let Some(Bayes { prior, .. }) = &self.bayes else {
            return Ok((m_step_with(&self.m_step, statistics, reg_covar, Some(&run.mixture))?, None));
        };
        let posterior = prior.update(statistics, reg_covar)?;
        let mixture = posterior.mixture().clone();
        Ok((MStep { mixture, empty: Vec::new(), dropped: Vec::new() }, Some(posterior)))
    }

    /// The lower bound of the log evidence at a posterior. Cost: one evaluation of the rows.
    pub(crate) fn lower_bound(&self, rows: &mut dyn Resident, posterior: &Posterior) -> Result<f64, Error> {
        let step = posterior.expectation()?;
        let mut totals = rows.evaluate(&step.mixture, EvaluateOptions::default())?;
        self.add_labelled(&mut totals, &step.mixture)?;
        Ok(totals.log_likelihood + totals.total_weight * step.log_scale - posterior.divergence())
    }

    /// Adds the labelled rows to the totals of the others. They have no entropy.
    pub(crate) fn add_labelled(&self, totals: &mut Evaluation, mixture: &Mixture) -> Result<(), Error> {
        if let Some(labelled) = &self.labelled {
            let sums = labelled.expectation(mixture)?;
            totals.log_likelihood += sums.log_likelihood;
            totals.total_weight += sums.total_weight;
        }
        Ok(())
    }

    /// The M-step of an initialisation, which has no previous mixture: nothing is fixed or dropped yet.
    pub(crate) fn first_step(&self, statistics: &Statistics, reg_covar: f64) -> Result<MStep, ModelError> {
        let rule = MStepRule { fixed: Default::default(), starved: None, ..self.m_step.clone() };
        m_step_with(&rule, statistics, reg_covar, None)
    }

    /// An M-step with any number of components on the way to the first mixture: only floors apply.
    pub(crate) fn step_towards_start(
        &self,
        statistics: &Statistics,
        reg_covar: f64,
        previous: Option<&Mixture>,
    ) -> Result<MStep, ModelError> {
        let MStepRule { floor, rescue, .. } = self.m_step.clone();
        let rule = MStepRule { floor, rescue, ..MStepRule::default() };
        m_step_with(&rule, statistics, reg_covar, previous)
    }
}

/// The rule in the units of the data. Cost: one pass if the rule needs moments of the data.
///
/// # Errors
/// Any error of the engine; [`Error::Model`] if a given prior has another shape.
pub(crate) fn of_data(
    options: &FitRule,
    rows: &mut dyn Resident,
    sample: &Sample<'_>,
    at: &[f64],
    (kind, k, precision): (CovarianceType, usize, Precision),
    labelled: Option<LabelledRows>,
) -> Result<Rule, Error> {
    let FitRule { prior, bayes, floor, starved, fixed, shared, .. } = options;
    let mut m_step =
        MStepRule { starved: *starved, fixed: fixed.clone(), shared: shared.clone(), ..MStepRule::default() };
    let mut with_bayes = None;
    if options.never_fails() {
        let data = Moments::of(rows, at, kind, labelled.as_ref())?;
        m_step.prior = match prior {
            Prior::None => None,
            Prior::Conjugate => Some(data.default_prior(kind, k)),
            Prior::Given(given) => Some(given.as_ref().clone()),
        };
        let representable = data.representable(precision);
        let mut rescue = data.rescue(sample, &representable);
        let mut least = representable;
        for (j, least) in least.iter_mut().enumerate() {
            let given = floor.absolute.max(floor.relative * data.variance[j]);
            *least = least.max(given);
            // A given floor is what a singular covariance gets, unless its reciprocal would overflow `f32`.
            if given > 1e-20 * rescue[j] {
                rescue[j] = *least;
            }
        }
        if let Some(options) = bayes {
            let prior = options.prior((kind, k), &data.mean, data.unbiased(), &rescue)?;
            with_bayes = Some(Bayes { prior, total_weight: data.total });
        }
        m_step.floor = Some(least);
        m_step.rescue = Some(rescue);
    }
    m_step.check(kind, k, at.len())?;
    Ok(Rule { m_step, labelled, bayes: with_bayes })
}

/// Mean, variances and, for matrices, covariance of all rows.
struct Moments {
    total: f64,
    mean: Array1<f64>,
    variance: Array1<f64>,
    covariance: Option<Array2<f64>>,
}

impl Moments {
    fn of(
        rows: &mut dyn Resident,
        at: &[f64],
        kind: CovarianceType,
        labelled: Option<&LabelledRows>,
    ) -> Result<Self, Error> {
        let d = at.len();
        let kind = LabelledRows::group_kind(kind);
        let centre = Array2::from_shape_vec((1, d), at.to_vec()).expect("d values");
        let mut all = rows.nearest(kind, centre.view())?;
        for (_, group) in labelled.iter().flat_map(|labelled| labelled.groups()) {
            all.add(&group.clone().recentred(centre.clone())?)?;
        }
        check(&all, 0)?;
        let total = all.weight[0];
        let moved = all.first.row(0).mapv(|v| v / total);
        let mean = &moved + &Array1::from_vec(at.to_vec());
        let at_of = |i: usize, j: usize| if kind == CovarianceType::Full { packed_index(i, j) } else { i };
        let central = |i: usize, j: usize| all.second[at_of(i, j)] / total - moved[i] * moved[j];
        let variance = Array1::from_shape_fn(d, |j| {
            let v = central(j, j);
            // Within the rounding error of its terms.
            if v <= 1e-12 * moved[j] * moved[j] { 0.0 } else { v }
        });
        let covariance = (kind == CovarianceType::Full).then(|| {
            Array2::from_shape_fn((d, d), |(i, j)| if i == j { variance[i] } else { central(i.max(j), i.min(j)) })
        });
        Ok(Self { total, mean, variance, covariance })
    }

    /// As mclust, with the divisor `n − 1`; a row of weight 2 counts as two rows.
    fn default_prior(&self, kind: CovarianceType, k: usize) -> ConjugatePrior {
        ConjugatePrior::default_for(kind, k, self.mean.view(), self.unbiased().view())
    }

    /// The covariance with the divisor `n − 1`, `(d, d)`; only its diagonal where the kind needs no more.
    fn unbiased(&self) -> Array2<f64> {
        let unbiased = if self.total > 1.0 { self.total / (self.total - 1.0) } else { 1.0 };
        let diagonal = || Array2::from_diag(&self.variance);
        self.covariance.clone().unwrap_or_else(diagonal) * unbiased
    }

    /// 2⁻⁴⁰ of the squared spread of each column: a standard deviation of a millionth. The spread is that between
    /// percentiles, which a sentinel does not move; else the deviation; else 1, for a constant column.
    fn rescue(&self, sample: &Sample<'_>, representable: &Array1<f64>) -> Array1<f64> {
        let squares = sample.spreads().into_iter().map(|spread| spread * spread);
        let usable = |v: &f64| *v >= 1e-280 && v.is_finite();
        let of = |(square, variance): (f64, &f64)| {
            [square, *variance].into_iter().find(usable).unwrap_or(1.0) * 2f64.powi(-40)
        };
        squares.zip(&self.variance).map(of).zip(representable).map(|(v, least)| v.max(*least)).collect()
    }

    /// The variances below which the squared distance of some row could leave the range of numbers: a row is at most
    /// `√(n σ²)` from the mean. Far below all variances that people fit, except beside rows at 1e150.
    fn representable(&self, precision: Precision) -> Array1<f64> {
        let most = match precision {
            // The squares are single numbers, of which `f64` takes the sum.
            Precision::F32 => 1e37,
            Precision::F64 => 1e306 / self.total.max(1.0),
        };
        let d = self.variance.len() as f64;
        self.variance.mapv(|v| (v / most * self.total.max(1.0) * d).max(4.0 * f64::MIN_POSITIVE))
    }
}
