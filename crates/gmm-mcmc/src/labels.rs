//! Label switching: components change places between draws; relabelling puts them in one order.
//!
//! The posterior under a prior of this crate is invariant under permutations of the components. Chains that mix well
//! visit every order, so averages over draws are meaningless for a single component. Densities of rows, and all other
//! quantities that do not refer to a component, need no relabelling.

use std::str::FromStr;

use gmm_model::Mixture;

use crate::Error;

/// How to order the components of each draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relabel {
    /// Leave the order unchanged.
    None,
    /// By ascending means in one column.
    Order {
        /// Column, from 0.
        column: usize,
    },
    /// As close as possible to the draw of highest posterior density: the assignment of least cost (Marin, Mengersen
    /// and Robert 2005). The cost of matching two components is the squared distance of their means, log standard
    /// deviations and log weights.
    Pivot,
}

impl FromStr for Relabel {
    type Err = String;

    /// `none`, `order` (column 0), `order:COLUMN` or `pivot`.
    fn from_str(text: &str) -> Result<Self, String> {
        let column = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a column: give its index, from 0"));
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "order" => Ok(Self::Order { column: 0 }),
            None if text == "pivot" => Ok(Self::Pivot),
            Some(("order", at)) => Ok(Self::Order { column: column(at)? }),
            _ => Err("choose one of none, order, order:COLUMN, pivot".to_owned()),
        }
    }
}

impl Relabel {
    /// The mixture with its components in order. Only [`Relabel::Pivot`] uses `pivot`, the mixture to compare with.
    ///
    /// Cost: `O(k³ + k² d)` for [`Relabel::Pivot`], else that of a sort.
    ///
    /// # Errors
    /// [`Error::Option`] if the column does not exist.
    pub fn apply(self, mixture: &Mixture, pivot: &Mixture) -> Result<Mixture, Error> {
        let (k, d) = mixture.means().dim();
        let order: Vec<usize> = match self {
            Self::None => return Ok(mixture.clone()),
            Self::Order { column } if column >= d => {
                return crate::error::refuse(
                    "the column of the order",
                    column,
                    &format!("below {d}, the number of columns"),
                );
            }
            Self::Order { column } => {
                let mut order: Vec<usize> = (0..k).collect();
                let mean = |c: usize| mixture.means()[[c, column]];
                order.sort_by(|&a, &b| mean(a).total_cmp(&mean(b)));
                order
            }
            Self::Pivot => {
                let scales = (0..d).map(|j| (0..k).map(|c| deviation(pivot, c, j)).sum::<f64>() / k as f64);
                let scales: Vec<f64> = scales.collect();
                let cost = |place: usize, c: usize| distance(mixture, c, pivot, place, &scales);
                assignment(k, cost)
            }
        };
        Ok(mixture.permuted(&order)?)
    }
}

fn deviation(mixture: &Mixture, c: usize, j: usize) -> f64 {
    use gmm_model::Covariances;
    match mixture.covariances() {
        Covariances::Full(a) => a[[c, j, j]].sqrt(),
        Covariances::Tied(a) => a[[j, j]].sqrt(),
        Covariances::Diag(a) => a[[c, j]].sqrt(),
        Covariances::Spherical(a) => a[c].sqrt(),
    }
}

/// The squared distance of two components: of the means in units of `scales`, `(d,)`, and of the logarithms of the
/// standard deviations and weights.
fn distance(a: &Mixture, c: usize, b: &Mixture, p: usize, scales: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (j, scale) in scales.iter().enumerate() {
        let mean = (a.means()[[c, j]] - b.means()[[p, j]]) / scale;
        let spread = (deviation(a, c, j) / deviation(b, p, j)).ln();
        sum += mean * mean + spread * spread;
    }
    // A draw's weights can underflow to 0, which must not give an infinite cost.
    let weight = a.log_weight(c).max(LEAST_LOG) - b.log_weight(p).max(LEAST_LOG);
    sum + weight * weight
}

/// The logarithm of the smallest positive `f64`, rounded.
const LEAST_LOG: f64 = -745.0;

/// The assignment of least total cost: `result[place]` is the item assigned to `place`. `cost(place, item)` must be
/// finite.
///
/// The Hungarian algorithm by shortest augmenting paths with potentials (Jonker and Volgenant 1987). Cost: `O(k³)`.
pub fn assignment(k: usize, cost: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    /// Marks an item without a place. Index `k` is for the place that is being assigned.
    const FREE: usize = usize::MAX;
    let (mut of_place, mut of_item) = (vec![0.0; k], vec![0.0; k + 1]);
    let mut taken = vec![FREE; k + 1];
    for place in 0..k {
        taken[k] = place;
        let mut at = k;
        let mut least = vec![f64::INFINITY; k];
        let mut from = vec![k; k];
        let mut seen = vec![false; k + 1];
        while taken[at] != FREE {
            seen[at] = true;
            let row = taken[at];
            let (mut step, mut next) = (f64::INFINITY, at);
            for item in (0..k).filter(|&item| !seen[item]) {
                let reduced = cost(row, item) - of_place[row] - of_item[item];
                if reduced < least[item] {
                    (least[item], from[item]) = (reduced, at);
                }
                if least[item] < step {
                    (step, next) = (least[item], item);
                }
            }
            for item in 0..=k {
                if seen[item] {
                    of_place[taken[item]] += step;
                    of_item[item] -= step;
                } else if item < k {
                    least[item] -= step;
                }
            }
            at = next;
        }
        while at != k {
            taken[at] = taken[from[at]];
            at = from[at];
        }
    }
    let mut result = vec![0; k];
    (0..k).for_each(|item| result[taken[item]] = item);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_model::Draws;

    /// Every permutation of `0..k`.
    fn permutations(k: usize) -> Vec<Vec<usize>> {
        if k == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(k - 1);
        let insert = |p: &Vec<usize>, at: usize| [&p[..at], &[k - 1], &p[at..]].concat();
        shorter.iter().flat_map(|p| (0..k).map(move |at| insert(p, at))).collect()
    }

    #[test]
    fn the_assignment_is_the_cheapest_of_all_permutations() {
        let mut draws = Draws::new(3, 0);
        for k in 1..=6 {
            for _ in 0..20 {
                // Some costs are equal.
                let costs: Vec<f64> = (0..k * k).map(|_| draws.index(7) as f64 + draws.uniform()).collect();
                let total = |order: &[usize]| order.iter().enumerate().map(|(p, c)| costs[p * k + c]).sum::<f64>();
                let found = assignment(k, |p, c| costs[p * k + c]);
                let best = permutations(k).iter().map(|p| total(p)).fold(f64::INFINITY, f64::min);
                assert!((total(&found) - best).abs() < 1e-9, "{found:?} of {costs:?}: {} and {best}", total(&found));
            }
        }
    }
}
