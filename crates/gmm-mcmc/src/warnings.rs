//! Warnings about draws that should be read before using them.

use std::fmt;

use crate::{Posterior, SummaryRow, diagnostics};

/// R-hat above which chains count as not mixed (Vehtari and others 2021).
pub const R_HAT: f64 = 1.01;

/// Recommended effective sample size per chain (Vehtari and others 2021).
pub const ESS_PER_CHAIN: f64 = 100.0;

/// A warning about draws. The text does not say what to do about it: callers add that in terms of their own options.
#[derive(Clone, Debug, PartialEq)]
pub enum Concern {
    /// There are too few draws per chain for diagnostics.
    Unjudged {
        /// Number of draws per chain.
        draws: usize,
    },
    /// Chains have not mixed.
    Apart {
        /// Number of scalars whose R-hat is above [`R_HAT`].
        numbers: usize,
        /// Total number of scalars.
        of: usize,
        /// The largest R-hat.
        largest: f64,
        /// Name of the scalar that has it.
        name: String,
    },
    /// The effective sample size is small, so quantiles are imprecise.
    Few {
        /// Number of scalars whose effective sample size is below `wanted`.
        numbers: usize,
        /// Total number of scalars.
        of: usize,
        /// [`ESS_PER_CHAIN`] times the number of chains.
        wanted: f64,
        /// The smallest effective sample size.
        least: f64,
        /// Name of the scalar that has it.
        name: String,
    },
    /// Some trajectories diverged.
    Diverging {
        /// Number of draws with a divergent step.
        draws: usize,
        /// Total number of draws.
        of: usize,
    },
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unjudged { draws } => write!(
                f,
                "{draws} draws per chain are too few to judge convergence: r_hat and effective sample sizes need {}",
                diagnostics::LEAST_DRAWS
            ),
            Self::Apart { numbers, of, largest, name } => write!(
                f,
                "r_hat is above {R_HAT} for {numbers} of {of} numbers (largest {}, {name}): the chains have not mixed",
                r_hat_text(*largest)
            ),
            Self::Few { numbers, of, wanted, least, name } => write!(
                f,
                "{numbers} of {of} numbers have an effective sample size below {wanted:.0} (least {least:.0}, {name}): \
                 their quantiles are imprecise"
            ),
            Self::Diverging { draws, of } => {
                write!(f, "{draws} of {of} draws diverged: the regions where they did are undersampled")
            }
        }
    }
}

/// Formats an R-hat for display. It can be arbitrarily large if chains do not move.
pub fn r_hat_text(value: f64) -> String {
    if value < 1000.0 { format!("{value:.3}") } else { format!("{value:.1e}") }
}

/// The warnings about a posterior and its [`summary`](Posterior::summary), at most one of each kind. `diverging` is the
/// number of draws with a divergent step. Constant parameters cause no warning.
pub fn concerns(posterior: &Posterior, summary: &[SummaryRow], diverging: usize) -> Vec<Concern> {
    let of = summary.len();
    let mut all = Vec::new();
    if posterior.draws.draws < diagnostics::LEAST_DRAWS {
        all.push(Concern::Unjudged { draws: posterior.draws.draws });
    }
    let apart = summary.iter().filter(|row| row.r_hat > R_HAT);
    if let Some(top) = apart.clone().max_by(|a, b| a.r_hat.total_cmp(&b.r_hat)) {
        all.push(Concern::Apart { numbers: apart.count(), of, largest: top.r_hat, name: top.name.clone() });
    }
    let wanted = ESS_PER_CHAIN * posterior.draws.chains as f64;
    let ess = |row: &SummaryRow| row.ess_bulk.min(row.ess_tail);
    let few = summary.iter().filter(|row| row.sd > 0.0 && ess(row) < wanted);
    if let Some(least) = few.clone().min_by(|a, b| ess(a).total_cmp(&ess(b))) {
        all.push(Concern::Few { numbers: few.count(), of, wanted, least: ess(least), name: least.name.clone() });
    }
    if diverging > 0 {
        all.push(Concern::Diverging { draws: diverging, of: posterior.draws.chains * posterior.draws.draws });
    }
    all
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, ParameterDraws};

    use super::*;
    use crate::{Sampler, Stat};

    fn posterior(chains: usize, draws: usize) -> Posterior {
        let n = chains * draws;
        let parameters = ParameterDraws {
            kind: CovarianceType::Spherical,
            chains,
            draws,
            k: 1,
            d: 1,
            weights: vec![1.0; n],
            means: vec![0.0; n],
            covariances: vec![1.0; n],
        };
        Posterior { sampler: Sampler::Nuts, draws: parameters, stats: vec![Stat::default(); n] }
    }

    fn row(name: &str, sd: f64, ess_bulk: f64, ess_tail: f64, r_hat: f64) -> SummaryRow {
        SummaryRow { name: name.to_owned(), mean: 0.0, sd, q5: 0.0, q95: 0.0, ess_bulk, ess_tail, r_hat }
    }

    #[test]
    fn the_worst_of_each_kind_is_named() {
        let summary = [
            row("a", 1.0, 500.0, 399.0, 1.02),
            row("b", 1.0, 10.0, f64::NAN, 1.5),
            row("c", 0.0, f64::NAN, f64::NAN, f64::NAN),
            row("d", 1.0, 400.0, 400.0, 1.01),
        ];
        let found = concerns(&posterior(4, 25), &summary, 3);
        assert_eq!(
            found,
            [
                Concern::Apart { numbers: 2, of: 4, largest: 1.5, name: "b".to_owned() },
                Concern::Few { numbers: 2, of: 4, wanted: 400.0, least: 10.0, name: "b".to_owned() },
                Concern::Diverging { draws: 3, of: 100 },
            ]
        );
        let texts: Vec<String> = found.iter().map(Concern::to_string).collect();
        assert_eq!(texts[0], "r_hat is above 1.01 for 2 of 4 numbers (largest 1.500, b): the chains have not mixed");
        assert!(texts[1].contains("below 400 (least 10, b)") && texts[2].starts_with("3 of 100 draws diverged"));
    }

    #[test]
    fn draws_too_few_to_be_judged_are_told_of() {
        let nan = f64::NAN;
        let found = concerns(&posterior(4, 3), &[row("a", 1.0, nan, nan, nan)], 0);
        assert_eq!(found, [Concern::Unjudged { draws: 3 }]);
        assert!(found[0].to_string().starts_with("3 draws per chain are too few"), "{}", found[0]);
    }

    #[test]
    fn an_r_hat_of_any_size_is_short() {
        for (value, text) in [(1.0021, "1.002"), (819_156_014_863_193.2, "8.2e14"), (f64::INFINITY, "inf")] {
            assert_eq!(r_hat_text(value), text);
        }
    }

    #[test]
    fn draws_that_are_enough_concern_nobody() {
        let summary = [row("a", 1.0, 400.0, 401.0, 1.0), row("b", 0.0, 1.0, 1.0, f64::NAN)];
        assert_eq!(concerns(&posterior(4, 25), &summary, 0), []);
    }
}
