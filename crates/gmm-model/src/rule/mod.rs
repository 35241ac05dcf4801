//! The M-step under a rule: conjugate priors, covariance floors, fixed parts, shared covariances, starved components.
//!
//! Everything here needs only [`Statistics`], so it works with every engine.

mod floor;
mod prior;
mod scatter;
mod step;

use ndarray::Array1;

use crate::factor_analysis::check_number;
use crate::{CovarianceModel, CovarianceType, MStep, Mixture, ModelError, Statistics, m_step};

pub use prior::{ConjugatePrior, PriorScale};

/// What an M-step does beyond maximum likelihood. [`MStepRule::default`] is the plain M-step, [`m_step()`].
///
/// The fields are in units of the data: a rule is made for one data set, `d` columns and `k` components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MStepRule {
    /// The M-step maximises the posterior density under this prior (MAP) instead of the likelihood.
    pub prior: Option<ConjugatePrior>,
    /// The smallest variance in each column, `(d,)`, positive. Full and tied covariances are raised to at least
    /// `diag(floor)`, in the order of positive definite matrices; for spherical covariances the floor is the mean over
    /// the columns. This is the constrained maximum: the objective does not fall.
    pub floor: Option<Array1<f64>>,
    /// Variances, `(d,)`, positive, for covariances that [`m_step()`] would refuse: they are raised to at least
    /// `diag(rescue)`, so that the M-step does not fail. Other covariances do not change.
    pub rescue: Option<Array1<f64>>,
    /// Parameters that keep their bits.
    pub fixed: FixedParts,
    /// Groups of components that share one covariance; components in no group have their own. Not for tied.
    pub shared: Vec<Vec<usize>>,
    /// Which components are dropped for lack of rows.
    pub starved: Option<Starved>,
    /// The number of factors `h` of full covariances `Λ Λᵀ + diag(ψ)`, at least 1 and below `d`: a mixture of factor
    /// analysers, whose result has [`Mixture::loadings`].
    pub factors: Option<usize>,
}

/// Components, from 0, whose parameters stay as they are in the previous mixture, to the bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedParts {
    /// Components with a fixed weight. The other weights share the rest.
    pub weights: Vec<usize>,
    /// Components with a fixed mean.
    pub means: Vec<usize>,
    /// Components with a fixed covariance; for tied covariances, all or none.
    pub covariances: Vec<usize>,
}

impl FixedParts {
    /// Fixes all parameters of the `k` components except those of `components`: an update of chosen components.
    pub fn all_but(components: &[usize], k: usize) -> Self {
        let others: Vec<usize> = (0..k).filter(|c| !components.contains(c)).collect();
        Self { weights: others.clone(), means: others.clone(), covariances: others }
    }

    /// Whether nothing is fixed.
    pub const fn is_none(&self) -> bool {
        self.weights.is_empty() && self.means.is_empty() && self.covariances.is_empty()
    }
}

/// The limits below which a component is dropped. At least one component stays: the one of largest count
/// (in Kaldi the last by index).
///
/// Source: Kaldi's `MleDiagGmmOptions` (`--min-gaussian-occupancy`, `--min-gaussian-weight`,
/// `--remove-low-count-gaussians`), whose values are the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starved {
    /// A component is dropped unless its count `Σr` exceeds this, in units of row weight.
    pub min_count: f64,
    /// A component is dropped unless `Σr / Σw` exceeds this.
    pub min_weight: f64,
}

impl Default for Starved {
    fn default() -> Self {
        Self { min_count: 10.0, min_weight: 1e-5 }
    }
}

impl MStepRule {
    /// Whether this is the plain M-step.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Number of free parameters of a mixture fitted under this rule: fixed parameters do not count, and a shared
    /// covariance counts once. For information criteria.
    pub fn n_parameters(&self, mixture: &Mixture) -> usize {
        let (k, d) = mixture.means().dim();
        let kind = mixture.covariance_type();
        let free = |fixed: &[usize]| (0..k).filter(|c| !fixed.contains(c)).count();
        let covariances = self.groups(kind, k).iter().filter(|g| !self.fixed.covariances.contains(&g[0])).count();
        let each = CovarianceModel { kind, factors: self.factors }.free_parameters(1, d);
        covariances * each + free(&self.fixed.means) * d + free(&self.fixed.weights).max(1) - 1
    }

    /// The natural logarithm of the prior density at `mixture`; 0 without a prior.
    pub fn log_prior(&self, mixture: &Mixture) -> f64 {
        let groups = || self.groups(mixture.covariance_type(), mixture.n_components());
        self.prior.as_ref().map_or(0.0, |prior| prior.log_density(mixture, &groups()))
    }

    /// Checks the rule for mixtures of `k` components in `d` dimensions.
    ///
    /// # Errors
    /// [`ModelError`] if a component does not exist, is in two groups, or has a fixed covariance within a group; if a
    /// number is outside its range or an array has another shape; if groups are given for tied covariances; or if
    /// starved components are to be dropped while others are named by their index; if there are factors but no full
    /// covariances, fewer than 1 or as many as columns, or fixed covariances. With `d = 0`, not yet known, the number of
    /// factors has no upper bound.
    pub fn check(&self, kind: CovarianceType, k: usize, d: usize) -> Result<(), ModelError> {
        let range = |what, value: String, must| Err(ModelError::Range { what, value, must });
        let FixedParts { weights, means, covariances } = &self.fixed;
        for (what, all) in [("fixed weight", weights), ("fixed mean", means), ("fixed covariance", covariances)]
            .into_iter()
            .chain(self.shared.iter().map(|group| ("component of a shared covariance", group)))
        {
            if let Some(c) = all.iter().find(|&&c| c >= k) {
                return range(what, c.to_string(), "a component: an index from 0 to k - 1");
            }
        }
        let mut members: Vec<usize> = self.shared.iter().flatten().copied().collect();
        if let Some(c) = members.iter().find(|c| covariances.contains(c)) {
            return range(
                "shared covariance",
                format!("component {c}, which is fixed"),
                "free, or fixed and in no group",
            );
        }
        members.sort_unstable();
        if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            return range(
                "shared covariance",
                format!("component {} twice", pair[0]),
                "groups without common components",
            );
        }
        if kind == CovarianceType::Tied {
            if !self.shared.is_empty() {
                return range("shared covariance", "tied".to_owned(), "used with another kind: tied shares among all");
            }
            if !covariances.is_empty() && (0..k).any(|c| !covariances.contains(&c)) {
                return range("fixed covariance", format!("{covariances:?}"), "all components or none for tied");
            }
        }
        for (what, values) in [("covariance floor", &self.floor), ("rescue variances", &self.rescue)] {
            if let Some(values) = values {
                crate::error::expect_shape(what, values.shape(), &[d])?;
                if let Some(v) = values.iter().find(|v| !(v.is_finite() && **v > 0.0)) {
                    return range(what, v.to_string(), "positive and finite");
                }
            }
        }
        if let Some(Starved { min_count, min_weight }) = self.starved {
            if !(min_count >= 0.0 && min_count.is_finite()) {
                return range("smallest count", min_count.to_string(), "finite and not negative");
            }
            if !(0.0..1.0).contains(&min_weight) {
                return range("smallest weight", min_weight.to_string(), "at least 0 and below 1");
            }
            if !(self.fixed.is_none() && self.shared.is_empty()) {
                let must = "used without fixed or shared parts: it changes the indices of the components";
                return range("dropping of starved components", "on".to_owned(), must);
            }
        }
        if let Some(h) = self.factors {
            if kind != CovarianceType::Full {
                return range("factors", kind.to_string(), "used with full covariances");
            }
            check_number(h, d)?;
            if !covariances.is_empty() {
                return range("factors", h.to_string(), "used without fixed covariances, which have none");
            }
        }
        self.prior.as_ref().map_or(Ok(()), |prior| prior.check(kind, d))
    }

    /// The components of each covariance, in the order of their first components.
    pub(crate) fn groups(&self, kind: CovarianceType, k: usize) -> Vec<Vec<usize>> {
        if kind == CovarianceType::Tied {
            return vec![(0..k).collect()];
        }
        let mut groups: Vec<Vec<usize>> = self.shared.iter().filter(|group| !group.is_empty()).cloned().collect();
        let alone = (0..k).filter(|c| !self.shared.iter().any(|group| group.contains(c)));
        groups.extend(alone.map(|c| vec![c]));
        groups.iter_mut().for_each(|group| group.sort_unstable());
        groups.sort_unstable();
        groups
    }
}

/// The M-step under a rule: maximises the expected complete-data log-likelihood plus the logarithm of the prior
/// density, over the parameters that the rule leaves free. With a plain rule this is [`m_step()`], to the bit.
///
/// **Prior** (Fraley and Raftery 2007, table 2). With counts `n_c = Σr`, means `x̄_c` and scatter
/// `W_c = Σ r (x − x̄_c)(x − x̄_c)ᵀ`, the means are `(n_c x̄_c + κ μ_P) / (n_c + κ)`, and with
/// `V_c = κ n_c / (n_c + κ) (x̄_c − μ_P)(x̄_c − μ_P)ᵀ + W_c` the covariances are
///
/// | kind | covariance |
/// | --- | --- |
/// | full | `(Λ + V_c) / (ν + n_c + d + 2)` |
/// | tied | `(Λ + Σ V_c) / (ν + n + k + d + 1)` |
/// | diag | `diag(ς² + V_c) / (ν + n_c + 3)` |
/// | spherical | `(ς² + tr V_c) / (ν + (n_c + 1) d + 2)` |
///
/// A covariance shared by a group of `g` components has the sums of the group, and the mode of its posterior density:
/// `ν + n + g + d + 1`, `ν + n + g + 2` and `ν + (n + g) d + 2`. Without shrinkage (`κ = 0`) the means have no prior,
/// and each component counts 1 less. An empty component takes the mode of the prior.
///
/// **Fixed parts** come from `previous`. The scatter of a component with a fixed mean is about that mean. Weights that
/// are not fixed share what the fixed ones leave.
///
/// `reg_covar` is added to the diagonals of covariances that are not fixed, before the floor applies.
///
/// **Factors**: instead of the matrix `S` of a component, the table's for full, the covariance is the `Λ Λᵀ + diag(ψ)` for
/// which `−ln det Σ − tr(Σ⁻¹ S)` is largest, or a step of the way there from `previous`: never lower than before. Each `ψ` is
/// at least `reg_covar`, floor and rescue, which are not added; the maximum under these bounds.
///
/// **Dropped components**: see [`Starved`]. Their rows are divided among the others at the next E-step; those of a tied
/// covariance stay in it. The result has fewer components than `statistics`.
///
/// # Errors
/// As for [`m_step()`] and [`MStepRule::check`]; [`ModelError::Range`] if parts are fixed and there is no previous
/// mixture. With [`MStepRule::rescue`] no finite statistics give an error, as long as variances stay within the range of
/// `f64`.
///
/// Cost: that of [`m_step()`]; `O(d³)` for each matrix that a floor or a rescue changes; up to 8 eigendecompositions of
/// `(d, d)` for each covariance of factors.
///
/// ```
/// use gmm_model::{CovarianceType, Covariances, MStepRule, Mixture, m_step_with, reference};
/// use ndarray::array;
///
/// let start = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
/// let statistics = reference::statistics(&start, array![[2.0], [2.0]].view(), None);
/// let rule = MStepRule { floor: Some(array![0.25]), ..MStepRule::default() };
/// let fit = m_step_with(&rule, &statistics, 0.0, Some(&start))?.mixture;
/// assert_eq!((fit.means()[[0, 0]], fit.covariances()), (2.0, &Covariances::Spherical(array![0.25])));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn m_step_with(
    rule: &MStepRule,
    statistics: &Statistics,
    reg_covar: f64,
    previous: Option<&Mixture>,
) -> Result<MStep, ModelError> {
    if rule.is_plain() {
        return m_step(statistics, reg_covar, previous);
    }
    let (k, d) = statistics.dim();
    crate::m_step::check(statistics, reg_covar, previous)?;
    rule.check(statistics.kind, k, d)?;
    if !rule.fixed.is_none() && previous.is_none_or(|p| p.covariance_type() != statistics.kind) {
        let must = "given with a previous mixture of the same kind, whose parameters they are";
        return Err(ModelError::Range { what: "fixed parts", value: format!("{:?}", rule.fixed), must });
    }
    if let Some((kept, dropped)) = rule.starved.and_then(|starved| starved.of(&statistics.weight)) {
        let rule = MStepRule { starved: None, ..rule.clone() };
        let previous = previous.map(|previous| previous.without(&kept)).transpose()?;
        let mut step = step::run(&rule, &statistics.of_components(&kept), reg_covar, previous.as_ref())?;
        step.dropped = dropped;
        return Ok(step);
    }
    step::run(rule, statistics, reg_covar, previous)
}

impl Starved {
    /// The components to keep and those to drop; `None` if all stay.
    fn of(self, weight: &[f64]) -> Option<(Vec<usize>, Vec<usize>)> {
        let total: f64 = weight.iter().sum();
        let feeds = |c: usize| weight[c] > self.min_count && weight[c] / total > self.min_weight;
        let largest = (1..weight.len()).fold(0, |best, c| if weight[c] > weight[best] { c } else { best });
        let (kept, dropped): (Vec<_>, Vec<_>) = (0..weight.len()).partition(|&c| feeds(c) || c == largest);
        (!dropped.is_empty()).then_some((kept, dropped))
    }
}
