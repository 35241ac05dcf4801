//! The joins against agglomeration by the definition, and the trees of weighted and repeated rows.

use gmm_model::{Cholesky, Dataset};
use ndarray::array;

use super::*;

fn draws() -> Draws {
    Draws::for_purpose("test", 7, 0)
}

/// `(m, d)`: three groups of normal rows, rounded to tenths if they are to have ties.
fn groups(m: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut draws = Draws::for_purpose("groups", seed, 0);
    Array2::from_shape_fn((m, d), |(i, j)| draws.normal() * (1 + j) as f64 + (i % 3 * 4) as f64)
}

fn tree(rows: &Array2<f64>) -> Tree {
    Tree::new(&Dataset::new(rows.clone()).unwrap(), 1, None, &mut draws()).unwrap()
}

/// `n ln(|W/n| + (tr W + α)/n)` of some rows of `z`, from the rows themselves.
fn vvv_cost(z: &Array2<f64>, members: &[usize]) -> f64 {
    let p = z.ncols() as f64;
    let scatter = |rows: &Array2<f64>| {
        let centred = rows - &rows.mean_axis(Axis(0)).unwrap();
        centred.t().dot(&centred)
    };
    let alpha = scatter(z).diag().sum() / (z.nrows() as f64 * p);
    let (w, n) = (scatter(&z.select(Axis(0), members)), members.len() as f64);
    let determinant = Cholesky::new((&w / n).view()).map_or(0.0, |factor| factor.ln_det().exp());
    n * (determinant + (w.diag().sum() + alpha) / n).ln()
}

/// The sum of squares about the mean.
fn ward_cost(z: &Array2<f64>, members: &[usize]) -> f64 {
    let rows = z.select(Axis(0), members);
    (&rows - &rows.mean_axis(Axis(0)).unwrap()).iter().map(|v| v * v).sum()
}

/// Greedy agglomeration by a cost of members: the partition at each number of clusters, `m` first.
fn naive(z: &Array2<f64>, cost: impl Fn(&Array2<f64>, &[usize]) -> f64) -> Vec<Vec<Vec<usize>>> {
    let mut clusters: Vec<Vec<usize>> = (0..z.nrows()).map(|i| vec![i]).collect();
    let mut all = vec![clusters.clone()];
    while clusters.len() > 1 {
        let growth = |a: usize, b: usize| {
            let union = [clusters[a].as_slice(), &clusters[b]].concat();
            cost(z, &union) - cost(z, &clusters[a]) - cost(z, &clusters[b])
        };
        let pairs = (0..clusters.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let (a, b) = pairs.min_by(|&x, &y| growth(x.0, x.1).total_cmp(&growth(y.0, y.1))).unwrap();
        let other = clusters.remove(b);
        clusters[a].extend(other);
        all.push(clusters.clone());
    }
    all
}

/// The clusters after the first joins, each sorted, in the order of their first rows.
fn partition(m: usize, joins: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut parent: Vec<usize> = (0..m).collect();
    for &(a, b) in joins {
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[a.max(b)] = a.min(b);
    }
    let mut clusters = vec![Vec::new(); m];
    (0..m).for_each(|i| clusters[root(&mut parent, i)].push(i));
    clusters.retain(|members| !members.is_empty());
    clusters
}

fn sorted(mut clusters: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    clusters.iter_mut().for_each(|members| members.sort_unstable());
    clusters.sort();
    clusters
}

#[test]
fn wards_joins_are_those_of_greedy_agglomeration() {
    for (m, d, seed) in [(2, 1, 0), (3, 2, 1), (25, 1, 2), (40, 3, 3), (31, 7, 4)] {
        let z = groups(m, d, seed);
        let joins = ward::joins(z.view(), &vec![1.0; m], 1);
        for (done, want) in naive(&z, ward_cost).into_iter().enumerate() {
            assert_eq!(partition(m, &joins[..done]), sorted(want), "m={m} d={d}, {done} joins");
        }
    }
}

#[test]
fn joins_by_likelihood_are_those_of_greedy_agglomeration() {
    for (m, d, seed) in [(2, 1, 0), (3, 2, 1), (25, 1, 2), (40, 3, 3), (30, 5, 4)] {
        let z = groups(m, d, seed);
        let joins = agglomerate(z.view(), &vec![1.0; m], m);
        for (done, want) in naive(&z, vvv_cost).into_iter().enumerate() {
            assert_eq!(partition(m, &joins[..done]), sorted(want), "m={m} d={d}, {done} joins");
        }
    }
}

#[test]
fn a_join_costs_what_its_rows_cost() {
    let z = groups(24, 3, 9);
    let mut criterion = vvv::Criterion::new(z.view(), &[1.0; 24]);
    let mut whole = criterion.single(0, &z.row(0).to_vec(), 1.0);
    for i in 1..24 {
        let other = criterion.single(i, &z.row(i).to_vec(), 1.0);
        criterion.join(&mut whole, &other);
        let (found, want) = (whole.cost(), vvv_cost(&z, &(0..=i).collect::<Vec<_>>()));
        // Sums of about i*d² terms.
        assert!((found - want).abs() < 1e3 * f64::EPSILON * want.abs().max(1.0), "{i}: {found} {want}");
    }
}

#[test]
fn a_row_of_weight_two_is_joined_as_two_equal_rows() {
    let rows = groups(30, 2, 5);
    let weights: Vec<f64> = (0..30).map(|i| 1.0 + (i % 3) as f64).collect();
    let repeated: Vec<usize> = (0..30).flat_map(|i| std::iter::repeat_n(i, 1 + i % 3)).collect();
    let weighted = Dataset::new(rows.clone()).unwrap().with_weights(weights).unwrap();
    let (weighted, twice) =
        (Tree::new(&weighted, 1, None, &mut draws()).unwrap(), tree(&rows.select(Axis(0), &repeated)));
    for k in 1..=30 {
        let (a, b) = (weighted.cut(k), twice.cut(k));
        assert_eq!(repeated.iter().map(|&i| a[i]).collect::<Vec<_>>(), b, "{k} clusters");
    }
}

#[test]
fn the_units_of_the_columns_do_not_matter() {
    let rows = groups(60, 3, 6);
    let scaled = &rows * &array![1.0, 1024.0, 0.0625] + &array![0.0, 1e6, -3.0];
    for k in [2, 3, 5] {
        assert_eq!(tree(&rows).cut(k), tree(&scaled).cut(k), "{k} clusters");
    }
}

#[test]
fn equal_rows_are_never_apart_and_fewer_rows_give_fewer_clusters() {
    let rows = array![[0.0, 1.0], [5.0, 1.0], [-0.0, 1.0], [5.0, 1.0], [9.0, 1.0]];
    assert_eq!(tree(&rows).cut(5), [0, 1, 0, 1, 2]);
    assert_eq!(tree(&rows).cut(2), [0, 1, 0, 1, 1]);
    let same = Array2::from_elem((4, 2), 3.0);
    assert_eq!([tree(&same).cut(1), tree(&same).cut(3)], [[0; 4]; 2]);
}

#[test]
fn a_tree_of_many_rows_is_that_of_a_sample_and_finds_separate_groups() {
    let rows = groups(9000, 2, 8).mapv(|v| v / 8.0) + Array2::from_shape_fn((9000, 2), |(i, _)| (i % 3 * 40) as f64);
    let tree = tree(&rows);
    let chosen = tree.chosen.clone().expect("a sample");
    assert_eq!(chosen.len(), LEAST);
    let labels = tree.cut(3);
    for (i, &row) in chosen.iter().enumerate() {
        let first = chosen.iter().position(|other| other % 3 == row % 3).unwrap();
        assert_eq!(labels[i], labels[first]);
    }
    assert_eq!(labels.iter().max(), Some(&2));
}

#[test]
fn a_missing_value_is_that_of_the_nearest_row_by_the_definition() {
    for (m, d, seed) in [(40, 3, 1), (700, 4, 2), (30, 1, 3)] {
        let whole = groups(m, d, seed);
        let mut random = Draws::for_purpose("holes", seed, 0);
        // A column without variance, and one that nobody has.
        let holed = Array2::from_shape_fn((m, d + 2), |(i, j)| match j {
            _ if j == d + 1 || random.uniform() < 0.3 => f64::NAN,
            _ if j == d => 7.0,
            _ => whole[[i, j]],
        });
        let mut found = holed.mapv(|v| if v.is_nan() { -1.0 } else { v });
        let weights: Vec<f64> = (0..m).map(|i| 1.0 + (i % 2) as f64).collect();
        complete::complete(&mut found, holed.view(), &weights);
        let scaled: Vec<Vec<f64>> = (0..d).map(|j| standardised(holed.column(j).to_vec(), &weights)).collect();
        let squares = |a: usize, b: usize| {
            let one = |z: &Vec<f64>| match (z[a], z[b]) {
                (x, _) if x.is_nan() => 0.0,
                (x, y) if y.is_nan() => x * x + 1.0,
                (x, y) => (x - y) * (x - y),
            };
            scaled.iter().map(one).sum::<f64>()
        };
        for ((i, j), v) in holed.indexed_iter() {
            let seen = (0..m).filter(|&other| !holed[[other, j]].is_nan());
            let near = seen.min_by(|&a, &b| squares(i, a).total_cmp(&squares(i, b)));
            let want = if v.is_nan() { near.map_or(-1.0, |near| holed[[near, j]]) } else { *v };
            assert_eq!(found[[i, j]], want, "m={m} row {i} column {j}");
        }
    }
}

/// Observed values less their weighted mean, divided by their standard deviation.
fn standardised(column: Vec<f64>, weights: &[f64]) -> Vec<f64> {
    let seen = || column.iter().zip(weights).filter(|(x, _)| !x.is_nan());
    let total: f64 = seen().map(|(_, w)| w).sum();
    let mean = seen().map(|(x, w)| w * x).sum::<f64>() / total;
    let variance = seen().map(|(x, w)| w * (x - mean).powi(2)).sum::<f64>() / total;
    column.iter().map(|x| (x - mean) / variance.sqrt()).collect()
}

#[test]
fn a_row_of_weight_two_with_holes_is_joined_as_two_equal_rows() {
    let mut random = Draws::for_purpose("holes", 4, 0);
    let rows = groups(30, 3, 5).mapv(|v| if random.uniform() < 0.2 { f64::NAN } else { v });
    let weights: Vec<f64> = (0..30).map(|i| 1.0 + (i % 3) as f64).collect();
    let repeated: Vec<usize> = (0..30).flat_map(|i| std::iter::repeat_n(i, 1 + i % 3)).collect();
    let of = |data: &Dataset| Tree::new(data, 1, None, &mut draws()).unwrap();
    let weighted = of(&Dataset::with_holes(rows.clone()).unwrap().with_weights(weights).unwrap());
    let twice = of(&Dataset::with_holes(rows.select(Axis(0), &repeated)).unwrap());
    for k in 1..=30 {
        let a = weighted.cut(k);
        assert_eq!(repeated.iter().map(|&i| a[i]).collect::<Vec<_>>(), twice.cut(k), "{k} clusters");
    }
}
