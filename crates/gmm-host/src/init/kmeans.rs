//! k-means: greedy k-means++ seeding (Arthur and Vassilvitskii 2007) and Lloyd's iteration, on the engine in use.

use gmm_model::{CovarianceType, Dataset, Draws};
use ndarray::{Array2, ArrayView2};

use crate::em::check;
use crate::{Error, Resident};

/// Lloyd stops when the centres' squared moves sum to this times the mean column variance (scikit-learn's default).
const TOLERANCE: f64 = 1e-4;

/// Lloyd's bound; it rarely takes more than some dozens.
const MAX_ITER: usize = 300;

/// Clusters as Lloyd left them.
#[derive(Clone, Debug)]
pub struct KMeans {
    /// `(k, d)`.
    pub centres: Array2<f64>,
    /// Σ weight of the squared distances to the nearest centre, at the last pass.
    pub inertia: f64,
    /// Passes done.
    pub iterations: usize,
    /// Whether the centres came to rest.
    pub converged: bool,
}

/// Draws `k` rows far from each other, `(k, d)`: the first by weight, each further one with a probability in
/// proportion to weight times squared distance from those before it.
///
/// Of `2 + ln k` candidates for each place, the one that leaves the smallest sum of distances is kept. Where all rows
/// lie on chosen ones, the rest are drawn by weight. Cost: `k (2 + ln k)` passes of distances to one point.
///
/// # Errors
/// Whatever the engine reports.
pub fn seed(rows: &mut dyn Resident, data: &Dataset, k: usize, draws: &mut Draws) -> Result<Array2<f64>, Error> {
    let (n, d) = rows.dim();
    let trials = 2 + (k as f64).ln() as usize;
    let mut centres = Array2::zeros((k, d));
    // Infinite distances to no centre at all: the first draw is by weight.
    let mut nearest = vec![f64::INFINITY; n];
    let mut cumulative = vec![0.0; n];
    let (mut candidate, mut best) = (vec![0.0; n], vec![0.0; n]);
    for c in 0..k {
        let potential = accumulate(&mut cumulative, |i| data.weight(i) * nearest[i]);
        let by_weight = c == 0 || !(potential > 0.0 && potential.is_finite());
        if by_weight {
            accumulate(&mut cumulative, |i| data.weight(i));
        }
        let mut least = f64::INFINITY;
        let mut point = Vec::new();
        for _ in 0..if by_weight { 1 } else { trials } {
            let row = draws.weighted_index(&cumulative);
            let x: Vec<f64> = (0..d).map(|j| data.rows().at(row, j)).collect();
            candidate.copy_from_slice(&nearest);
            rows.squared_distances(&x, &mut candidate)?;
            let left: f64 = candidate.iter().enumerate().map(|(i, q)| data.weight(i) * q).sum();
            if left < least || point.is_empty() {
                (least, point) = (left, x);
                std::mem::swap(&mut candidate, &mut best);
            }
        }
        std::mem::swap(&mut nearest, &mut best);
        centres.row_mut(c).assign(&ndarray::ArrayView1::from(&point));
    }
    Ok(centres)
}

fn accumulate(cumulative: &mut [f64], value: impl Fn(usize) -> f64) -> f64 {
    let mut sum = 0.0;
    for (i, slot) in cumulative.iter_mut().enumerate() {
        let v = value(i);
        // A weight of 0 at an infinite distance is still nothing.
        sum += if v.is_nan() { 0.0 } else { v };
        *slot = sum;
    }
    sum
}

/// Moves each centre to the mean of its rows until the centres rest. A cluster that loses all its rows restarts at
/// the row farthest from every centre. Cost: one pass an iteration.
///
/// # Errors
/// Whatever the engine reports.
pub fn lloyd(
    rows: &mut dyn Resident,
    data: &Dataset,
    shift: &[f64],
    mut centres: Array2<f64>,
) -> Result<KMeans, Error> {
    let d = centres.ncols();
    let whole = ArrayView2::from_shape((1, d), shift).expect("d values");
    let spread = rows.nearest(CovarianceType::Spherical, whole)?;
    check(&spread, 0)?;
    let moved_by = |s: &gmm_model::Statistics, c: usize| s.first.row(c).mapv(|v| v / s.weight[c]);
    let offset = moved_by(&spread, 0);
    let variance = (spread.second[0] / spread.weight[0] - offset.dot(&offset)) / d as f64;
    let rest = TOLERANCE * variance.max(0.0);
    let mut out = KMeans { centres: Array2::zeros((0, d)), inertia: f64::INFINITY, iterations: 0, converged: false };
    while out.iterations < MAX_ITER && !out.converged {
        let statistics = rows.nearest(CovarianceType::Spherical, centres.view())?;
        check(&statistics, 0)?;
        out.inertia = statistics.second.iter().sum();
        out.iterations += 1;
        let mut move_squared = 0.0;
        let empty: Vec<usize> = (0..centres.nrows()).filter(|&c| statistics.weight[c] == 0.0).collect();
        for c in (0..centres.nrows()).filter(|c| !empty.contains(c)) {
            let step = moved_by(&statistics, c);
            move_squared += step.dot(&step);
            let mut centre = centres.row_mut(c);
            centre += &step;
        }
        let revived = revive(rows, data, &mut centres, &empty)?;
        out.converged = !revived && move_squared <= rest;
    }
    out.centres = centres;
    Ok(out)
}

/// Puts each empty centre on the row that is farthest from all others; false where every row lies on a centre.
fn revive(rows: &mut dyn Resident, data: &Dataset, centres: &mut Array2<f64>, empty: &[usize]) -> Result<bool, Error> {
    if empty.is_empty() {
        return Ok(false);
    }
    let mut nearest = vec![f64::INFINITY; rows.dim().0];
    for c in (0..centres.nrows()).filter(|c| !empty.contains(c)) {
        rows.squared_distances(&centres.row(c).to_vec(), &mut nearest)?;
    }
    let mut revived = false;
    for &c in empty {
        let present = (0..nearest.len()).filter(|&i| data.weight(i) > 0.0);
        let far = present.fold(None, |best: Option<usize>, i| match best {
            Some(b) if nearest[b] >= nearest[i] => best,
            _ => Some(i),
        });
        let Some(far) = far.filter(|&i| nearest[i] > 0.0) else { break };
        let x: Vec<f64> = (0..centres.ncols()).map(|j| data.rows().at(far, j)).collect();
        rows.squared_distances(&x, &mut nearest)?;
        centres.row_mut(c).assign(&ndarray::ArrayView1::from(&x));
        revived = true;
    }
    Ok(revived)
}
