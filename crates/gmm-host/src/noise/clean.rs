//! Nearest-neighbour cleaning: which rows are noise, by the distance to their nearest neighbours (Byers and Raftery 1998,
//! "Nearest-neighbor clutter removal for estimating features in spatial point processes").

use ndarray::{Array1, ArrayView2, Axis};
use rayon::prelude::*;

use super::bounded;
use crate::{Data, Error};

/// Which neighbour's distance counts. Byers and Raftery use 5 to 25; few rows have fewer.
const NEIGHBOUR: usize = 10;

/// Rows whose distances to one another are computed: 2²⁴ distances.
const MOST: usize = 4096;

/// Iterations of EM for the two rates.
const ITERATIONS: usize = 200;

/// The share of noise and the rows that are not noise, ascending; all of them from an evenly spread sample if there are
/// more than [`MOST`] rows. A given `share` is that of the rows whose neighbours are farthest away.
///
/// Distances are in units of the columns' ranges. Row weights do not count.
pub(super) fn clear_rows(data: Data<'_>, share: Option<f64>) -> Result<(f64, Vec<usize>), Error> {
    let n = data.dim().0;
    let count = n.min(MOST);
    let chosen: Vec<usize> =
        (0..count).map(|i| ((2 * i + 1) as u128 * n as u128 / (2 * count as u128)) as usize).collect();
    let mut rows = data.pick(&chosen)?;
    for mut column in rows.axis_iter_mut(Axis(1)) {
        let (low, high) = column.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
        // A constant column has no range.
        let scale = if high > low { high - low } else { 1.0 };
        column.mapv_inplace(|v| (v - low) / scale);
    }
    let distances = distances(rows.view());
    let is_noise: Vec<bool> = match share {
        Some(share) => {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|&a, &b| distances[b].total_cmp(&distances[a]));
            let mut is_noise = vec![false; count];
            order.iter().take((share * count as f64).round() as usize).for_each(|&i| is_noise[i] = true);
            is_noise
        }
        None => probabilities(&distances, rows.ncols()).into_iter().map(|p| p > 0.5).collect(),
    };
    let found = is_noise.iter().filter(|is| **is).count() as f64 / count as f64;
    let clear = chosen.into_iter().zip(is_noise).filter(|(_, is)| !is).map(|(row, _)| row).collect();
    Ok((share.unwrap_or_else(|| bounded(found)), clear))
}

/// The squared distance of each row to its [`NEIGHBOUR`]-th nearest neighbour, `(n,)`.
fn distances(rows: ArrayView2<'_, f64>) -> Vec<f64> {
    let n = rows.nrows();
    let at = NEIGHBOUR.min(n.saturating_sub(1));
    let of = |i: usize| {
        let x = rows.row(i);
        let squared = |y: ndarray::ArrayView1<'_, f64>| x.iter().zip(y).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let mut all: Vec<f64> = rows.outer_iter().map(squared).collect();
        // The row itself is at position 0.
        *all.select_nth_unstable_by(at, f64::total_cmp).1
    };
    (0..n).into_par_iter().map(of).collect()
}

/// The probability that each row is noise, `(n,)`. The distance `D` to the `m`-th neighbour in a Poisson process of rate
/// `λ` in `d` dimensions is such that `Dᵈ` has a Gamma distribution of shape `m` and rate proportional to `λ`: EM finds the
/// two rates, of which the smaller is that of the noise, and the share of noise (section 3 there).
fn probabilities(squared: &[f64], d: usize) -> Vec<f64> {
    let n = squared.len();
    let m = NEIGHBOUR.min(n.saturating_sub(1)) as f64;
    let largest = squared.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return vec![0.0; n];
    }
    // In units of the largest, since powers of distances leave the range of numbers.
    let volume: Array1<f64> = squared.iter().map(|q| (q / largest).powf(0.5 * d as f64)).collect();
    // The halves above and below the median.
    let mut sorted = volume.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[n / 2];
    let mut noise: Array1<f64> = volume.mapv(|v| f64::from(u8::from(v > median)));
    for _ in 0..ITERATIONS {
        let count = noise.sum();
        let rest = n as f64 - count;
        let far = noise.dot(&volume);
        let near = volume.sum() - far;
        if count < 1.0 || rest < 1.0 || near <= 0.0 || far <= 0.0 {
            break;
        }
        let rates = (m * count / far, m * rest / near);
        if rates.0 >= rates.1 {
            return vec![0.0; n];
        }
        let prior = (count / rest).ln() + m * (rates.0 / rates.1).ln();
        let next = volume.mapv(|v| 1.0 / (1.0 + (-(prior + (rates.1 - rates.0) * v)).exp()));
        let moved = (&next - &noise).mapv(f64::abs).sum();
        noise = next;
        if moved < 1e-6 * n as f64 {
            break;
        }
    }
    noise.to_vec()
}

#[cfg(test)]
mod tests {
    use gmm_model::{Dataset, Draws};
    use ndarray::Array2;

    use super::*;

    /// 300 rows around the middle of a unit square, and 200 all over it.
    fn clutter() -> Dataset {
        let mut draws = Draws::new(1, 0);
        let rows = Array2::from_shape_fn(
            (500, 2),
            |(i, _)| {
                if i < 300 { 0.5 + 0.03 * draws.normal() } else { draws.uniform() }
            },
        );
        Dataset::new(rows).unwrap()
    }

    #[test]
    fn rows_with_far_neighbours_are_noise() {
        let data = clutter();
        let (share, clear) = clear_rows((&data).into(), None).unwrap();
        assert!((share - 0.4).abs() < 0.05, "{share}");
        let wrong = clear.iter().filter(|&&row| row >= 300).count();
        assert!(wrong < 25 && clear.len() - wrong > 280, "{wrong} of {}", clear.len());
    }

    #[test]
    fn a_given_share_is_that_of_the_farthest_rows() {
        let data = clutter();
        let (share, clear) = clear_rows((&data).into(), Some(0.1)).unwrap();
        assert_eq!((share, clear.len()), (0.1, 450));
        assert!((0..300).all(|row| clear.contains(&row)));
    }

    #[test]
    fn equal_rows_are_no_noise() {
        let data = Dataset::new(Array2::<f64>::ones((20, 3))).unwrap();
        let (share, clear) = clear_rows((&data).into(), None).unwrap();
        assert_eq!((share, clear.len()), (super::super::LEAST, 20));
    }
}
