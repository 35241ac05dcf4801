//! Priors and posteriors of the component weights: symmetric Dirichlet, or truncated Dirichlet process.

use ndarray::{Array1, Array2, Axis};

use super::digamma::digamma;
use crate::error::expect_shape;
use crate::{Draws, ModelError};

/// The prior of the component weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightPrior {
    /// `Dirichlet(α, .., α)` over `k` weights: a finite mixture. A small α leaves components empty.
    Dirichlet {
        /// α, positive.
        concentration: f64,
    },
    /// A Dirichlet process of the given concentration, whose posterior is truncated: rows belong to the first `k`
    /// components. Weights are made by breaking sticks, `π_c = v_c Π_{j<c} (1 − v_j)` with `v_c ~ Beta(1, α)`.
    ///
    /// Source: Blei and Jordan 2006, Variational inference for Dirichlet process mixtures, Bayesian Analysis 1. As in
    /// Kurihara, Welling and Vlassis 2007 the sticks after the first `k` keep their prior, so that the last has a
    /// distribution too.
    DirichletProcess {
        /// α, positive.
        concentration: f64,
    },
}

impl WeightPrior {
    /// α.
    pub const fn concentration(self) -> f64 {
        match self {
            Self::Dirichlet { concentration } | Self::DirichletProcess { concentration } => concentration,
        }
    }

    /// The name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dirichlet { .. } => "dirichlet",
            Self::DirichletProcess { .. } => "dp",
        }
    }

    pub(super) fn check(self) -> Result<(), ModelError> {
        match self.concentration() {
            v if v > 0.0 && v.is_finite() => Ok(()),
            v => Err(ModelError::Range {
                what: "concentration of the weights' prior",
                value: v.to_string(),
                must: "positive and finite",
            }),
        }
    }

    /// The posterior after counts `Σr`, `(k,)`. Source: Bishop 2006, eq. 10.58; Blei and Jordan 2006, eqs. 18, 19.
    pub(super) fn update(self, counts: &[f64]) -> WeightPosterior {
        match self {
            Self::Dirichlet { concentration } => {
                WeightPosterior::Dirichlet(counts.iter().map(|n| concentration + n).collect())
            }
            Self::DirichletProcess { concentration } => {
                let mut sticks = Array2::zeros((counts.len(), 2));
                let mut after = 0.0;
                for (mut stick, n) in sticks.axis_iter_mut(Axis(0)).zip(counts).rev() {
                    stick[0] = 1.0 + n;
                    stick[1] = concentration + after;
                    after += n;
                }
                WeightPosterior::Sticks(sticks)
            }
        }
    }
}

/// The posterior of the component weights.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightPosterior {
    /// Concentrations of a Dirichlet distribution, `(k,)`.
    Dirichlet(Array1<f64>),
    /// Parameters of the Beta distributions of the sticks, `(k, 2)`.
    Sticks(Array2<f64>),
}

impl WeightPosterior {
    /// Checks shape and ranges for `k` components under a prior of the same family.
    pub(super) fn check(&self, prior: WeightPrior, k: usize) -> Result<(), ModelError> {
        let (values, family): (Vec<f64>, bool) = match self {
            Self::Dirichlet(all) => {
                expect_shape("weight concentration", all.shape(), &[k])?;
                (all.to_vec(), matches!(prior, WeightPrior::Dirichlet { .. }))
            }
            Self::Sticks(all) => {
                expect_shape("weight concentration", all.shape(), &[k, 2])?;
                (all.iter().copied().collect(), matches!(prior, WeightPrior::DirichletProcess { .. }))
            }
        };
        let wrong = |value: String, must| Err(ModelError::Range { what: "weight concentration", value, must });
        match values.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
            Some(v) => wrong(v.to_string(), "positive and finite"),
            None if !family => wrong(format!("not of a {} prior", prior.name()), "of its prior's family"),
            None => Ok(()),
        }
    }

    /// Number of components.
    pub fn n_components(&self) -> usize {
        match self {
            Self::Dirichlet(all) => all.len(),
            Self::Sticks(all) => all.nrows(),
        }
    }

    /// The posterior means of the weights, `(k,)`. Those of sticks are divided by their sum, as in scikit-learn: the rest
    /// is the weight of the components after the truncation.
    pub fn mean(&self) -> Array1<f64> {
        let mut mean = match self {
            Self::Dirichlet(all) => all.clone(),
            Self::Sticks(all) => {
                let mut left = 1.0;
                let of = |stick: ndarray::ArrayView1<'_, f64>| {
                    let taken = left * stick[0] / (stick[0] + stick[1]);
                    left *= stick[1] / (stick[0] + stick[1]);
                    taken
                };
                all.outer_iter().map(of).collect()
            }
        };
        mean /= mean.sum();
        mean
    }

    /// `E ln π_c`, `(k,)`. Source: Bishop 2006, eq. 10.66; Blei and Jordan 2006, section 3.2.
    pub fn expected_log(&self) -> Array1<f64> {
        match self {
            Self::Dirichlet(all) => {
                let total = digamma(all.sum());
                all.mapv(|a| digamma(a) - total)
            }
            Self::Sticks(all) => {
                let mut left = 0.0;
                let of = |stick: ndarray::ArrayView1<'_, f64>| {
                    let total = digamma(stick[0] + stick[1]);
                    let taken = left + digamma(stick[0]) - total;
                    left += digamma(stick[1]) - total;
                    taken
                };
                all.outer_iter().map(of).collect()
            }
        }
    }

    /// The Kullback-Leibler divergence of this posterior from its prior.
    pub(super) fn divergence(&self, prior: WeightPrior) -> f64 {
        let alpha = prior.concentration();
        match self {
            Self::Dirichlet(all) => dirichlet(&all.to_vec(), &vec![alpha; all.len()]),
            Self::Sticks(all) => all.outer_iter().map(|s| dirichlet(&[s[0], s[1]], &[1.0, alpha])).sum(),
        }
    }

    /// The counts `Σr` of the components, `(k,)`, from which `prior` became this posterior.
    pub(super) fn counts(&self, prior: WeightPrior) -> Array1<f64> {
        match self {
            Self::Dirichlet(all) => all - prior.concentration(),
            Self::Sticks(all) => all.column(0).mapv(|a| a - 1.0),
        }
    }

    /// One draw of the weights, `(k,)`; they sum to 1.
    pub(super) fn draw(&self, draws: &mut Draws) -> Array1<f64> {
        let logs: Vec<f64> = match self {
            Self::Dirichlet(all) => all.iter().map(|&a| draws.ln_gamma(a)).collect(),
            Self::Sticks(all) => {
                let mut left = 0.0;
                let mut of = |stick: ndarray::ArrayView1<'_, f64>| {
                    let (taken, rest) = (draws.ln_gamma(stick[0]), draws.ln_gamma(stick[1]));
                    let total = ln_sum(&[taken, rest]);
                    let log = left + taken - total;
                    left += rest - total;
                    log
                };
                all.outer_iter().map(&mut of).collect()
            }
        };
        let total = ln_sum(&logs);
        logs.iter().map(|v| libm::exp(v - total)).collect()
    }
}

/// `ln Σ exp(v)`; −∞ of no or only infinite terms.
pub(super) fn ln_sum(logs: &[f64]) -> f64 {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top + libm::log(logs.iter().map(|v| libm::exp(v - top)).sum())
}

/// The Kullback-Leibler divergence of one Dirichlet distribution from another.
fn dirichlet(of: &[f64], from: &[f64]) -> f64 {
    let (total, total_from): (f64, f64) = (of.iter().sum(), from.iter().sum());
    let constants = libm::lgamma(total) - libm::lgamma(total_from);
    let psi = digamma(total);
    let each = |(a, b): (&f64, &f64)| libm::lgamma(*b) - libm::lgamma(*a) + (a - b) * (digamma(*a) - psi);
    constants + of.iter().zip(from).map(each).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn means_and_logs_of_the_weights_are_those_of_draws() {
        let posteriors = [
            WeightPosterior::Dirichlet(array![0.4, 3.0, 1.5]),
            WeightPosterior::Sticks(array![[2.0, 3.5], [1.2, 0.7], [4.0, 0.5]]),
        ];
        for posterior in posteriors {
            let (mut draws, count) = (Draws::new(5, 0), 40_000);
            let mut logs = Array1::<f64>::zeros(3);
            let mut of_sticks = Array1::<f64>::zeros(3);
            for _ in 0..count {
                // The weights before their division by the sum.
                let weights = match &posterior {
                    WeightPosterior::Dirichlet(_) => posterior.draw(&mut draws),
                    WeightPosterior::Sticks(all) => {
                        let mut left = 1.0;
                        all.outer_iter()
                            .map(|s| {
                                let (a, b) = (draws.gamma(s[0]), draws.gamma(s[1]));
                                let v = left * a / (a + b);
                                left *= b / (a + b);
                                v
                            })
                            .collect()
                    }
                };
                logs += &weights.mapv(f64::ln);
                of_sticks += &weights;
            }
            let (logs, mut mean) = (logs / f64::from(count), of_sticks / f64::from(count));
            mean /= mean.sum();
            for c in 0..3 {
                assert!((posterior.expected_log()[c] - logs[c]).abs() < 0.06, "{posterior:?} {logs}");
                assert!((posterior.mean()[c] - mean[c]).abs() < 0.01, "{posterior:?} {mean}");
            }
        }
    }

    #[test]
    fn a_posterior_without_rows_is_the_prior() {
        for prior in
            [WeightPrior::Dirichlet { concentration: 0.3 }, WeightPrior::DirichletProcess { concentration: 2.0 }]
        {
            let same = prior.update(&[0.0; 4]);
            assert!(same.divergence(prior).abs() < 1e-14, "{same:?}");
            let other = prior.update(&[3.0, 0.0, 1.5, 2.0]);
            assert!(other.divergence(prior) > 0.1, "{other:?}");
            assert_eq!(other.counts(prior).mapv(|n| (n * 1e9).round() / 1e9).to_vec(), [3.0, 0.0, 1.5, 2.0]);
        }
    }
}
