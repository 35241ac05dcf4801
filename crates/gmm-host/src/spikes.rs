//! Components whose variance in some direction is mostly `reg_covar`.

use gmm_model::{Cholesky, Covariances, Factors, Mixture};
use ndarray::{ArrayView2, Axis};

/// A component in which `reg_covar` makes up more than half of the variance in some direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spike {
    /// Component, from 0; `None` for a tied covariance, which all components share.
    pub component: Option<usize>,
    /// The column closest to the direction, from 0; `None` for a spherical covariance, which has no such column.
    pub column: Option<usize>,
}

/// The spikes of a mixture, at most one per component. Leaves out the `empty` components, whose covariances are old,
/// and the `dominated` columns, whose total variance is below `reg_covar`.
///
/// Cost: up to 4 solves per factor, and one factorisation each if columns are left out.
pub fn spikes(mixture: &Mixture, reg_covar: f64, empty: &[usize], dominated: &[usize]) -> Vec<Spike> {
    let (k, d) = mixture.means().dim();
    let columns: Vec<usize> = (0..d).filter(|j| !dominated.contains(j)).collect();
    if reg_covar == 0.0 || columns.is_empty() {
        return Vec::new();
    }
    // A variance below twice `reg_covar`: more than half of it was added.
    let is_spike = |variance: f64| variance < 2.0 * reg_covar;
    let live = (0..k).filter(|c| !empty.contains(c));
    let of = |c: usize, a: ArrayView2<'_, f64>, factor: &Cholesky| {
        let (variance, at) = if columns.len() == d {
            least(factor)
        } else {
            least(&Cholesky::new(a.select(Axis(0), &columns).select(Axis(1), &columns).view()).ok()?)
        };
        is_spike(variance).then_some(Spike { component: Some(c), column: Some(columns[at]) })
    };
    match (mixture.covariances(), mixture.factors()) {
        (Covariances::Full(all), Factors::Full(factors)) => {
            live.filter_map(|c| of(c, all.index_axis(Axis(0), c), &factors[c])).collect()
        }
        (Covariances::Tied(a), Factors::Tied(factor)) => {
            of(0, a.view(), factor).map(|spike| Spike { component: None, ..spike }).into_iter().collect()
        }
        (Covariances::Diag(all), _) => {
            let column = |c: usize| columns.iter().copied().min_by(|&i, &j| all[[c, i]].total_cmp(&all[[c, j]]));
            let found = live.filter_map(|c| Some((c, column(c).filter(|&j| is_spike(all[[c, j]]))?)));
            found.map(|(c, j)| Spike { component: Some(c), column: Some(j) }).collect()
        }
        (Covariances::Spherical(all), _) => {
            live.filter(|&c| is_spike(all[c])).map(|c| Spike { component: Some(c), column: None }).collect()
        }
        _ => Vec::new(),
    }
}

/// An upper bound of the smallest variance in any direction, and the column closest to that direction. Inverse
/// iteration, started at the column of the smallest pivot. If one direction has a much smaller variance than the
/// others, as a spike has, one or two steps find it.
fn least(factor: &Cholesky) -> (f64, usize) {
    const STEPS: usize = 4;
    let d = factor.dim();
    let by_size = |i: &usize, j: &usize, of: &dyn Fn(usize) -> f64| of(*i).total_cmp(&of(*j));
    let start = (0..d).min_by(|i, j| by_size(i, j, &|i| factor.at(i, i))).unwrap_or(0);
    let mut direction = vec![0.0; d];
    direction[start] = 1.0;
    let mut variance = f64::INFINITY;
    for _ in 0..STEPS {
        let before = direction.clone();
        factor.solve_lower(&mut direction);
        factor.solve_lower_transposed(&mut direction);
        // The reciprocal of the Rayleigh quotient of the inverse at a unit vector.
        variance = before.iter().zip(&direction).map(|(a, b)| a * b).sum::<f64>().recip();
        let length = direction.iter().map(|v| v * v).sum::<f64>().sqrt();
        if !(length.is_finite() && length > 0.0) {
            break;
        }
        direction.iter_mut().for_each(|v| *v /= length);
    }
    let column = (0..d).max_by(|i, j| by_size(i, j, &|i| direction[i].abs())).unwrap_or(start);
    (variance, column)
}

/// Formats spikes for display, at most the first four: `component 1 (column 'b'), ..`.
pub fn places(spikes: &[Spike], column: impl Fn(usize) -> String) -> String {
    const MOST: usize = 4;
    let place = |spike: &Spike| {
        let of = spike.component.map_or_else(|| "all components".to_owned(), |c| format!("component {c}"));
        spike.column.map_or_else(|| of.clone(), |j| format!("{of} ({})", column(j)))
    };
    let first: Vec<String> = spikes.iter().take(MOST).map(place).collect();
    let more = spikes.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    first.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use gmm_model::CovarianceType;
    use ndarray::{Array1, Array2, Array3, array};

    use super::*;

    #[test]
    fn the_least_variance_is_found_in_any_direction() {
        // Q diag(1e-6, 1, 4) Qᵀ, along (1, 2, 2)/3.
        let q = array![[1.0, 2.0, 2.0], [2.0, 1.0, -2.0], [2.0, -2.0, 1.0]] / 3.0;
        let a = q.dot(&Array2::from_diag(&array![1e-6, 1.0, 4.0])).dot(&q.t());
        let (variance, column) = least(&Cholesky::new(a.view()).unwrap());
        assert!((variance / 1e-6 - 1.0).abs() < 1e-6, "{variance}");
        assert!(column > 0);
    }

    #[test]
    fn spikes_are_named_by_component_and_column_in_every_kind() {
        let reg = 1e-6;
        let mut full = Array3::from_shape_fn((2, 3, 3), |(_, i, j)| if i == j { 1.0 } else { 0.1 });
        full[[1, 2, 2]] = reg;
        for i in 0..2 {
            full[[1, i, 2]] = 0.0;
            full[[1, 2, i]] = 0.0;
        }
        let tied = full.index_axis(Axis(0), 1).to_owned();
        let spike = |component, column| vec![Spike { component, column }];
        for (covariances, expected) in [
            (Covariances::Full(full), spike(Some(1), Some(2))),
            (Covariances::Tied(tied), spike(None, Some(2))),
            (Covariances::Diag(array![[1.0, 1.0, 1.0], [1.0, 1.0, 1.5 * reg]]), spike(Some(1), Some(2))),
            (Covariances::Spherical(array![1.0, reg]), spike(Some(1), None)),
        ] {
            let kind = covariances.kind();
            let mixture = Mixture::new(Array1::from_elem(2, 0.5), Array2::zeros((2, 3)), covariances).unwrap();
            assert_eq!(spikes(&mixture, reg, &[], &[]), expected, "{kind}");
            assert_eq!(spikes(&mixture, 0.4 * reg, &[], &[]), [], "{kind}");
            assert_eq!(spikes(&mixture, 0.0, &[], &[]), [], "{kind}");
            if kind != CovarianceType::Tied {
                assert_eq!(spikes(&mixture, reg, &[1], &[]), [], "{kind}: an empty component");
            }
            if kind != CovarianceType::Spherical {
                assert_eq!(spikes(&mixture, reg, &[], &[2]), [], "{kind}: a column that is dominated altogether");
            }
        }
    }

    #[test]
    fn of_many_spikes_the_first_are_named() {
        let all: Vec<_> = (0..7).map(|c| Spike { component: Some(c), column: Some(0) }).collect();
        let column = |j| format!("'{j}'");
        assert!(places(&all, column).ends_with("component 3 ('0') and 3 more"));
        assert_eq!(places(&[Spike { component: None, column: None }], column), "all components");
    }
}
