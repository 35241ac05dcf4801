//! Rows by which of their values are exact, limited or missing, and mixtures with their columns in that order.

use std::collections::HashMap;

use gmm_model::censoring::{Limits, MAX_DEPENDENT};
use gmm_model::{CovarianceType, Factors, Mixture, ModelError, packed_index, packed_len};

use crate::Error;

/// Which columns of a row are exact, limited, and free.
#[derive(Debug)]
pub(super) struct Pattern {
    /// All columns: first the exact ones, then the limited, then the free, each ascending.
    pub(super) order: Vec<usize>,
    pub(super) exact: usize,
    pub(super) limited: usize,
}

impl Pattern {
    fn of<'a>(limits: impl Iterator<Item = (&'a f64, &'a f64)>) -> Self {
        let mut columns = [Vec::new(), Vec::new(), Vec::new()];
        for (j, (low, high)) in limits.enumerate() {
            let class = if low == high {
                0
            } else if low.is_finite() || high.is_finite() {
                1
            } else {
                2
            };
            columns[class].push(j);
        }
        Self { exact: columns[0].len(), limited: columns[1].len(), order: columns.concat() }
    }
}

/// The patterns of all rows.
pub(super) struct Patterns {
    pub(super) all: Vec<Pattern>,
    /// The pattern of each row, `(n,)`.
    pub(super) of_row: Vec<usize>,
    /// The rows sorted by pattern, and within one by index.
    pub(super) sorted: Vec<usize>,
    /// The pattern of the box of truncation, all of whose ends are limits.
    pub(super) truncation: Option<Pattern>,
}

impl Patterns {
    pub(super) fn of(limits: &Limits, (n, _): (usize, usize)) -> Self {
        let mut known = HashMap::new();
        let mut all = Vec::new();
        let of_row: Vec<usize> = (0..n)
            .map(|row| {
                let (lower, upper) = limits.row(row);
                let pattern = Pattern::of(lower.iter().zip(upper));
                let key = (pattern.order.clone(), pattern.exact, pattern.limited);
                *known.entry(key).or_insert_with(|| {
                    all.push(pattern);
                    all.len() - 1
                })
            })
            .collect();
        let mut sorted: Vec<usize> = (0..n).collect();
        sorted.sort_by_key(|&row| of_row[row]);
        let truncation = limits.truncation().map(|(lower, upper)| Pattern::of(lower.iter().zip(upper)));
        Self { all, of_row, sorted, truncation }
    }
}

/// A mixture with the columns in the order of a pattern.
pub(super) struct Ordered<'a> {
    pub(super) pattern: &'a Pattern,
    /// Means in that order, `(k, d)`.
    pub(super) means: Vec<f64>,
    /// Packed factors of each component, or one for all if they are tied.
    factors: Vec<f64>,
    /// The packed factor of the limited columns given the exact ones, as `factors`.
    limited: Vec<f64>,
    pub(super) is_diagonal: bool,
    /// Of each component, `(k,)`: the logarithm of its weight and of the constants of the exact columns' density.
    pub(super) constants: Vec<f64>,
}

impl<'a> Ordered<'a> {
    /// # Errors
    /// [`Error::Limits`] if more columns are limited than can be integrated; [`ModelError::NotPositiveDefinite`].
    pub(super) fn new(mixture: &Mixture, pattern: &'a Pattern) -> Result<Self, Error> {
        let (k, d) = mixture.means().dim();
        let Pattern { order, exact, limited } = pattern;
        let is_diagonal = matches!(mixture.covariance_type(), CovarianceType::Diag | CovarianceType::Spherical);
        if !is_diagonal && *limited > MAX_DEPENDENT {
            return Err(Error::Limits { found: *limited, most: MAX_DEPENDENT, kind: mixture.covariance_type() });
        }
        let of_the_mixture = |error| match error {
            ModelError::NotPositiveDefinite { component, column, pivot, kind } => {
                ModelError::NotPositiveDefinite { component, column: order[column], pivot, kind }
            }
            other => other,
        };
        let ordered = mixture.marginal(order).map_err(of_the_mixture)?;
        let diagonal = |sd: &mut dyn Iterator<Item = f64>| {
            let mut packed = vec![0.0; packed_len(d)];
            sd.enumerate().for_each(|(i, sd)| packed[packed_index(i, i)] = sd);
            packed
        };
        let factors: Vec<f64> = match ordered.factors() {
            Factors::Full(all) => all.iter().flat_map(|l| l.packed()).copied().collect(),
            Factors::Tied(one) => one.packed().to_vec(),
            Factors::Diag(sd) => sd.outer_iter().flat_map(|sd| diagonal(&mut sd.iter().copied())).collect(),
            Factors::Spherical(sd) => sd.iter().flat_map(|&sd| diagonal(&mut std::iter::repeat_n(sd, d))).collect(),
        };
        let own = |factor: &[f64]| -> Vec<f64> {
            let rows =
                (*exact..exact + limited).flat_map(|i| factor[packed_index(i, *exact)..=packed_index(i, i)].iter());
            rows.copied().collect()
        };
        let limited_factors = factors.chunks_exact(packed_len(d)).flat_map(own).collect();
        let mut out = Self {
            pattern,
            means: ordered.means().iter().copied().collect(),
            factors,
            limited: limited_factors,
            is_diagonal,
            constants: vec![0.0; k],
        };
        out.constants = (0..k)
            .map(|c| {
                let factor = out.factor(c);
                let scales: f64 = (0..*exact).map(|i| factor[packed_index(i, i)].ln()).sum();
                let normal = 0.5 * (2.0 * std::f64::consts::PI).ln() * *exact as f64;
                mixture.log_weight(c) - scales - normal
            })
            .collect();
        Ok(out)
    }

    /// The packed factor of component `c`.
    pub(super) fn factor(&self, c: usize) -> &[f64] {
        component(&self.factors, packed_len(self.pattern.order.len()), c)
    }

    /// That of its limited columns given the exact ones.
    pub(super) fn limited_factor(&self, c: usize) -> &[f64] {
        component(&self.limited, packed_len(self.pattern.limited), c)
    }
}

/// Component `c` of packed factors, of which there may be one for all.
fn component(all: &[f64], len: usize, c: usize) -> &[f64] {
    if all.len() == len { all } else { &all[c * len..][..len] }
}
