//! A rule in the units of one data set, and the E-step under it.

use gmm_model::bayes::{BayesPrior, Posterior};
use gmm_model::{
    ConjugatePrior, CovarianceType, LabelledRows, MStep, MStepRule, Mixture, ModelError, Noise, Precision, Statistics,
    m_step_with, packed_index, packed_len,
};
use ndarray::{Array1, Array2};

use super::{FitRule, Prior};
use crate::em::{EmOptions, EmRun, check};
use crate::noise::{self, NoisePass, NoiseRule};
use crate::shift::Sample;
use crate::{Error, EvaluateOptions, Evaluation, Resident, Search};

/// The rule of a fit, in the units of its data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) m_step: MStepRule,
    /// The rows whose component is known; the engine has the others.
    pub(crate) labelled: Option<LabelledRows>,
    /// Whether all rows are labelled. Those on the engine then do not count a second time.
    pub(crate) is_known: bool,
    /// The noise component.
    pub(crate) noise: Option<NoiseRule>,
    /// Truncated EM: the search with which a run begins.
    pub(crate) truncated: Option<Search>,
    /// Whether the rows are those of a larger number that fell into a range. EM is slow then, so that its convergence is judged
    /// by what it has left to gain.
    pub(crate) has_unrecorded: bool,
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
    /// The next weight of the noise; 0 without noise.
    pub(crate) noise_weight: f64,
    /// The components of each row, if the fit is truncated.
    pub(crate) search: Option<Search>,
}

impl Rule {
    /// Whether EM is the plain one, which an engine can run itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.m_step.is_plain()
            && self.labelled.is_none()
            && self.noise.is_none()
            && self.truncated.is_none()
            && self.bayes.is_none()
    }

    /// Whether this is variational Bayes without labels, which an engine can run itself too.
    pub(crate) fn is_plain_bayes(&self) -> bool {
        self.bayes.is_some() && self.labelled.is_none() && !self.is_known && self.noise.is_none()
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
            let statistics = self.pass(rows, &step.mixture, None, options)?.0;
            let total = statistics.total_weight;
            let bound = statistics.log_likelihood + total * step.log_scale - posterior.divergence();
            return Ok(Expectation { statistics, objective: bound / total, noise_weight: 0.0, search: None });
        }
        let mixture = &run.mixture;
        let (statistics, count, search) = match &self.truncated {
            Some(begun) => {
                let pass = rows.pass_truncated(mixture, run.search.as_ref().unwrap_or(begun))?;
                (pass.statistics, 0.0, Some(pass.search))
            }
            None => {
                let (statistics, count) = self.pass(rows, mixture, run.noise.as_ref(), options)?;
                (statistics, count, None)
            }
        };
        let objective = if self.m_step.prior.is_some() {
            (statistics.log_likelihood + self.m_step.log_prior(mixture)) / statistics.total_weight
        } else {
            statistics.mean_log_likelihood()
        };
        let noise_weight = (count / statistics.total_weight).clamp(0.0, 1.0);
        Ok(Expectation { statistics, objective, noise_weight, search })
    }

    /// The statistics of all rows, and the row weight that is noise.
    fn pass(
        &self,
        rows: &mut dyn Resident,
        mixture: &Mixture,
        noise: Option<&Noise>,
        options: &EmOptions,
    ) -> Result<(Statistics, f64), Error> {
        let weights = self.noise.as_ref().and_then(|noise| noise.weights.as_deref());
        let (mut statistics, count) = match noise {
            _ if self.is_known => (Statistics::zero(mixture.covariance_type(), mixture.means().to_owned()), 0.0),
            None => (rows.pass_of_fit(mixture, options)?, 0.0),
            Some(noise) => {
                let NoisePass { statistics, count } = noise::pass(rows, mixture, noise, weights)?;
                (statistics, count)
            }
        };
        if let Some(labelled) = &self.labelled {
            statistics.add(&labelled.expectation(mixture)?)?;
            statistics.log_likelihood += labelled.total_weight() * noise.map_or(0.0, Noise::log_rest);
        }
        Ok((statistics, count))
    }

    /// Makes a mixture the start of `run`: with variational Bayes it becomes a posterior first, with factors one that has
    /// that many.
    pub(crate) fn prepare(&self, run: &mut EmRun) -> Result<(), ModelError> {
        if let Some(h) = self.m_step.factors
            && run.mixture.loadings().is_none_or(|found| found.n_factors() != h)
        {
            let least = self.m_step.floor.clone().unwrap_or_else(|| Array1::zeros(run.mixture.n_features()));
            run.mixture = run.mixture.reduced_to_factors(h, least.view())?;
        }
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
        let mut totals = match self.is_known {
            true => Evaluation::NOTHING,
            false => rows.evaluate(&step.mixture, EvaluateOptions::default())?,
        };
        self.add_labelled(&mut totals, &step.mixture, None)?;
        Ok(totals.log_likelihood + totals.total_weight * step.log_scale - posterior.divergence())
    }

    /// Adds the labelled rows to the totals of the others. They have no entropy.
    pub(crate) fn add_labelled(
        &self,
        totals: &mut Evaluation,
        mixture: &Mixture,
        noise: Option<&Noise>,
    ) -> Result<(), Error> {
        if let Some(labelled) = &self.labelled {
            let sums = labelled.expectation(mixture)?;
            totals.log_likelihood += sums.log_likelihood + sums.total_weight * noise.map_or(0.0, Noise::log_rest);
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
    (labelled, is_known): (Option<LabelledRows>, bool),
) -> Result<Rule, Error> {
    let mut m_step = options.without_data();
    let mut bayes = None;
    if options.never_fails() {
        let data = Moments::of(rows, at, kind, labelled.as_ref().filter(|_| !is_known))?;
        let rescue = data.rescue(sample.spreads().into_iter().map(|spread| spread * spread), precision);
        if let Some(options) = &options.bayes {
            let prior = options.prior((kind, k), &data.mean, data.unbiased(), &rescue)?;
            bayes = Some(Bayes { prior, total_weight: data.total });
        }
        data.bound(&mut m_step, options, rescue, (kind, k, precision));
    }
    m_step.check(kind, k, at.len())?;
    Ok(Rule { m_step, labelled, is_known, noise: None, truncated: None, has_unrecorded: false, bayes })
}

/// The rule for an M-step from the statistics of all rows, whose moments they contain. For spherical covariances the
/// variance of each column is the mean over the columns.
///
/// # Errors
/// [`Error::Model`] if a given prior or a component does not fit; [`Error::Statistics`] if the statistics are of no rows.
pub(crate) fn of_statistics(options: &FitRule, statistics: &Statistics) -> Result<MStepRule, Error> {
    let mut m_step = options.without_data();
    let ((k, d), kind) = (statistics.dim(), statistics.kind);
    if options.never_fails() {
        let data = Moments::of_statistics(statistics)?;
        let rescue = data.rescue(data.variance.to_vec().into_iter(), Precision::F64);
        data.bound(&mut m_step, options, rescue, (kind, k, Precision::F64));
    }
    m_step.check(kind, k, d)?;
    Ok(m_step)
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

    /// The moments of the rows whose statistics these are.
    fn of_statistics(statistics: &Statistics) -> Result<Self, Error> {
        let ((k, d), kind) = (statistics.dim(), statistics.kind);
        let total: f64 = statistics.weight.iter().sum();
        let mut mean = Array1::<f64>::zeros(d);
        for (c, centre) in statistics.centres.outer_iter().enumerate() {
            mean.scaled_add(statistics.weight[c] / total, &centre);
            mean.scaled_add(1.0 / total, &statistics.first.row(c));
        }
        let about = statistics.clone().recentred(mean.broadcast((k, d)).expect("d values").to_owned())?;
        let second = |at: usize, len: usize| about.second.iter().skip(at).step_by(len).sum::<f64>() / total;
        let packed = packed_len(d);
        let variance = Array1::from_shape_fn(d, |j| match kind {
            CovarianceType::Full | CovarianceType::Tied => second(packed_index(j, j), packed),
            CovarianceType::Diag => second(j, d),
            CovarianceType::Spherical => second(0, 1) / d as f64,
        });
        let variance = variance.mapv(|v| v.max(0.0));
        let covariance = matches!(kind, CovarianceType::Full | CovarianceType::Tied)
            .then(|| Array2::from_shape_fn((d, d), |(i, j)| second(packed_index(i.max(j), i.min(j)), packed)));
        Ok(Self { total, mean, variance, covariance })
    }

    /// Sets the prior, and the smallest variances.
    fn bound(
        &self,
        m_step: &mut MStepRule,
        options: &FitRule,
        mut rescue: Array1<f64>,
        (kind, k, precision): (CovarianceType, usize, Precision),
    ) {
        m_step.prior = match &options.prior {
            Prior::None => None,
            Prior::Conjugate => Some(self.default_prior(kind, k)),
            Prior::Given(given) => Some(given.as_ref().clone()),
            Prior::Parts(parts) => Some(parts.over(self.default_prior(kind, k))),
        };
        let mut least = self.representable(precision);
        for (j, least) in least.iter_mut().enumerate() {
            let given = options.floor.absolute.max(options.floor.relative * self.variance[j]);
            *least = least.max(given);
            // A given floor is what a singular covariance gets, unless its reciprocal would overflow `f32`.
            if given > 1e-20 * rescue[j] {
                rescue[j] = *least;
            }
        }
        m_step.floor = Some(least);
        m_step.rescue = Some(rescue);
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
    fn rescue(&self, squares: impl Iterator<Item = f64>, precision: Precision) -> Array1<f64> {
        let representable = self.representable(precision);
        let usable = |v: &f64| *v >= 1e-280 && v.is_finite();
        let of = |(square, variance): (f64, &f64)| {
            [square, *variance].into_iter().find(usable).unwrap_or(1.0) * 2f64.powi(-40)
        };
        squares.zip(&self.variance).map(of).zip(representable).map(|(v, least): (f64, f64)| v.max(least)).collect()
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
