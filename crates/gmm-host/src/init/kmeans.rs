//! k-means: greedy k-means++ seeding (Arthur and Vassilvitskii 2007) and Lloyd's iteration, on any engine.

use gmm_model::{CovarianceType, Draws, Statistics};
use ndarray::{Array1, Array2, Array3, ArrayView2};

use super::drawn::{RowDraw, cumulative, row_of};
use super::subsample::{self, RowSample};
use crate::em::check;
use crate::engine::{DISTANCE_ROWS, Seeding};
use crate::{Data, Error, Resident};

/// Lloyd's iteration stops when the squared moves of the centres sum to at most this times the mean column variance
/// (scikit-learn's default).
const TOLERANCE: f64 = 1e-4;

/// On a sample it also stops when they sum to at most this times the expected squared sampling error of the centres.
const OF_ERROR: f64 = 0.1;

/// Largest number of Lloyd's passes; they rarely exceed a few dozen.
const MAX_ITER: usize = 300;

/// The result of k-means, or of its seeding only.
#[derive(Clone, Debug)]
pub struct KMeans {
    /// `(k, d)`.
    pub centres: Array2<f64>,
    /// Weighted sum of the squared distances to the nearest centre, at the last pass; infinite if there was no pass.
    pub inertia: f64,
    /// Number of Lloyd's passes.
    pub iterations: usize,
    /// Whether the moves of the centres fell below the tolerance.
    pub converged: bool,
}

/// k-means over resident rows: [`seed`], and [`lloyd`] unless `seeds_alone`.
///
/// If there are many rows it runs on a sample, one random row from each of equal ranges of rows. The sample has `most`
/// rows; if `most` is `None`, the larger of 32768 and `64 k`, unless the data have at most twice as many rows. A
/// cluster without a row in the sample, such as one of a few rows among millions, gets no centre. If the sample has
/// fewer than `k` distinct rows, k-means runs on all rows instead. If `most` is `None`, seeds are drawn among at most
/// 131072 of its rows, or `6 k` if that is more, a sample of the same kind: k-means++ among all would cost `64 k²` distances.
/// Cost: that of [`seed`] and [`lloyd`] on these rows, and of gathering them.
///
/// # Errors
/// Any error of the engine.
pub fn k_means<'a>(
    rows: &mut dyn Resident,
    data: impl Into<Data<'a>>,
    shift: &[f64],
    k: usize,
    seeds_alone: bool,
    most: Option<usize>,
    draws: &mut Draws,
) -> Result<KMeans, Error> {
    let (data, n) = (data.into(), rows.dim().0);
    let run = |rows: &mut dyn Resident, data: &RowSample<'_>, draws: &mut Draws| {
        let (centres, ran_out) = seeds_of(rows, data, k, most.is_none(), draws)?;
        let found = if seeds_alone {
            KMeans { centres, inertia: f64::INFINITY, iterations: 0, converged: false }
        } else {
            lloyd_among(rows, data, shift, centres)?
        };
        Ok::<_, Error>((found, ran_out))
    };
    let count = most.unwrap_or_else(|| subsample::rows_for(n, k));
    if count < n {
        tracing::debug!(rows = count, of = n, "k-means on a sample");
        let some = RowSample::some(data, count, draws);
        let chosen = some.chosen().expect("some rows");
        let mut sample = rows.sample(chosen, some.weights())?;
        let (found, ran_out) = run(sample.as_mut(), &some, draws)?;
        if !ran_out {
            return Ok(found);
        }
    }
    Ok(run(rows, &RowSample::all(data), draws)?.0)
}

/// Draws `k` rows far from each other, `(k, d)`, by greedy k-means++: the first with probability proportional to
/// weight, each further one with probability proportional to weight times squared distance to the nearest row drawn
/// before.
///
/// Each further row is the best of `2 + ⌊ln k⌋` candidates: the one that leaves the smallest weighted sum of squared
/// distances. If all rows coincide with drawn ones, the rest are drawn by weight. Cost: `k − 1` passes of distances to
/// `2 + ⌊ln k⌋` points and as many to one point. A GPU synchronises with the host once per pass, or once in total for
/// up to 131072 rows.
///
/// # Errors
/// Any error of the engine.
pub fn seed<'a>(
    rows: &mut dyn Resident,
    data: impl Into<Data<'a>>,
    k: usize,
    draws: &mut Draws,
) -> Result<Array2<f64>, Error> {
    Ok(seed_among(rows, &RowSample::all(data.into()), k, draws)?.0)
}

/// Seeds of `k` clusters, drawn among some of the rows if there are many and `few` may do; and whether rows ran out.
fn seeds_of(
    rows: &mut dyn Resident,
    data: &RowSample<'_>,
    k: usize,
    few: bool,
    draws: &mut Draws,
) -> Result<(Array2<f64>, bool), Error> {
    let n = rows.dim().0;
    let count = if few { subsample::seeded_rows(n, k) } else { n };
    if count < n {
        let (some, among) = data.fewer(n, count, draws);
        let mut sample = rows.sample(&among, some.weights())?;
        let (seeds, ran_out) = seed_among(sample.as_mut(), &some, k, draws)?;
        if !ran_out {
            return Ok((seeds, false));
        }
    }
    seed_among(rows, data, k, draws)
}

/// [`seed`], and whether rows ran out: all rows coincided with drawn ones before there were `k`.
fn seed_among(
    rows: &mut dyn Resident,
    data: &RowSample<'_>,
    k: usize,
    draws: &mut Draws,
) -> Result<(Array2<f64>, bool), Error> {
    let n = rows.dim().0;
    let trials = 2 + (k as f64).ln() as usize;
    let weight = |i: usize| data.weights().map_or(1.0, |w| w[i]);
    let by_weight = || -> Vec<f64> {
        let group = |g: usize| g * DISTANCE_ROWS..n.min((g + 1) * DISTANCE_ROWS);
        let groups = 0..n.div_ceil(DISTANCE_ROWS);
        groups.map(|g| data.weights().map_or(group(g).len() as f64, |w| w[group(g)].iter().sum())).collect()
    };
    let mut chosen = Vec::with_capacity(k);
    // Σ w near of each group of rows.
    let mut left: Vec<f64> = Vec::new();
    let mut ran_out = false;
    rows.forget_centres();
    for c in 0..k {
        let potential: f64 = left.iter().sum();
        let apart = potential > 0.0 && potential.is_finite();
        ran_out |= c > 0 && !apart;
        let cumulative = cumulative(if apart { left } else { by_weight() });
        let groups: Vec<usize> =
            (0..if apart { trials } else { 1 }).map(|_| draws.weighted_index(&cumulative)).collect();
        let drawn: Vec<RowDraw> = groups.into_iter().map(|group| RowDraw { group, uniform: draws.uniform() }).collect();
        // After the last centre nothing is drawn, so its distances are not needed.
        let is_last = c + 1 == k;
        left = if apart {
            let weighed = rows.weigh_draws(&drawn, data.weights())?;
            let best = least(&weighed.left);
            chosen.push(weighed.rows[best]);
            if is_last { Vec::new() } else { rows.add_drawn(best)? }
        } else {
            let row = row_of(drawn[0], n, weight);
            chosen.push(row);
            if is_last {
                Vec::new()
            } else {
                let point = data.pick(&[row])?;
                let point = point.as_slice().expect("one row");
                if c == 0 {
                    // The same uniforms as the loop would draw for the other centres, one by one.
                    let mut ahead = draws.clone();
                    let uniforms = Array3::from_shape_simple_fn((k - 1, 2, trials), || ahead.uniform());
                    if let Some(others) = rows.draw_centres(point, uniforms.view(), data.weights())? {
                        *draws = ahead;
                        chosen.extend(others);
                        break;
                    }
                }
                rows.add_centre(point)?
            }
        };
    }
    rows.forget_centres();
    Ok((data.pick(&chosen)?, ran_out))
}

/// Index of the smallest value, the first among equals.
fn least(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] < values[best] { i } else { best })
}

/// Moves each centre to the mean of its rows until the moves fall below the tolerance, at most 300 times. A cluster
/// that loses all its rows restarts at the row farthest from every centre. `shift`, `(d,)`, is that of the rows on the
/// engine. Cost: one pass per iteration.
///
/// # Errors
/// Any error of the engine.
pub fn lloyd<'a>(
    rows: &mut dyn Resident,
    data: impl Into<Data<'a>>,
    shift: &[f64],
    centres: Array2<f64>,
) -> Result<KMeans, Error> {
    lloyd_among(rows, &RowSample::all(data.into()), shift, centres)
}

fn lloyd_among(
    rows: &mut dyn Resident,
    data: &RowSample<'_>,
    shift: &[f64],
    mut centres: Array2<f64>,
) -> Result<KMeans, Error> {
    let d = centres.ncols();
    let whole = ArrayView2::from_shape((1, d), shift).expect("d values");
    let spread = rows.nearest(CovarianceType::Spherical, whole)?;
    check(&spread, 0)?;
    let offset = moved_by(&spread, 0);
    let variance = (spread.second[0] / spread.weight[0] - offset.dot(&offset)) / d as f64;
    let mut rest = TOLERANCE * variance.max(0.0);
    let mut out = KMeans { centres: Array2::zeros((0, d)), inertia: f64::INFINITY, iterations: 0, converged: false };
    let is_sample = data.chosen().is_some();
    while out.iterations < MAX_ITER && !out.converged {
        // On a sample, the first pass gives the distances from which the sampling error is estimated.
        let most = if is_sample && out.iterations == 0 { 1 } else { MAX_ITER - out.iterations };
        let last = rows.lloyd(&mut centres, most, rest)?;
        if is_sample {
            let k = centres.nrows() as f64;
            let error = k * k * last.inertia / (spread.weight[0] * rows.dim().0 as f64);
            rest = rest.max(OF_ERROR * error);
        }
        out.inertia = last.inertia;
        out.iterations += last.passes;
        let revived = revive(rows, data, &mut centres, &last.empty)?;
        out.converged = !revived && last.move_squared <= rest;
    }
    rows.forget_centres();
    out.centres = centres;
    Ok(out)
}

/// The result of [`Seeding::lloyd`]: one or more of Lloyd's passes.
#[derive(Clone, Debug, PartialEq)]
pub struct LloydPasses {
    /// Number of passes.
    pub passes: usize,
    /// Weighted sum of the squared distances to the nearest centre, before the last move.
    pub inertia: f64,
    /// Sum of the squared distances by which the centres moved in the last pass.
    pub move_squared: f64,
    /// Indices of the centres that had no rows in the last pass.
    pub empty: Vec<usize>,
}

/// Runs one of Lloyd's passes, on any engine.
pub(crate) fn lloyd_pass<R: Seeding + ?Sized>(rows: &mut R, centres: &mut Array2<f64>) -> Result<LloydPasses, Error> {
    let statistics = rows.nearest(CovarianceType::Spherical, centres.view())?;
    check(&statistics, 0)?;
    let empty: Vec<usize> = (0..centres.nrows()).filter(|&c| statistics.weight[c] == 0.0).collect();
    let mut move_squared = 0.0;
    for c in (0..centres.nrows()).filter(|c| !empty.contains(c)) {
        let step = moved_by(&statistics, c);
        move_squared += step.dot(&step);
        let mut centre = centres.row_mut(c);
        centre += &step;
    }
    Ok(LloydPasses { passes: 1, inertia: statistics.second.iter().sum(), move_squared, empty })
}

/// The vector from centre `c` to the mean of its rows.
fn moved_by(statistics: &Statistics, c: usize) -> Array1<f64> {
    statistics.first.row(c).mapv(|v| v / statistics.weight[c])
}

/// Moves each empty centre to the row farthest from all other centres. Returns whether any moved: none does if every
/// row lies on a centre.
fn revive(
    rows: &mut dyn Resident,
    data: &RowSample<'_>,
    centres: &mut Array2<f64>,
    empty: &[usize],
) -> Result<bool, Error> {
    if empty.is_empty() {
        return Ok(false);
    }
    let n = rows.dim().0;
    rows.forget_centres();
    for c in (0..centres.nrows()).filter(|c| !empty.contains(c)) {
        rows.add_centre(&centres.row(c).to_vec())?;
    }
    let mut revived = false;
    for &c in empty {
        #[expect(clippy::single_range_in_vec_init, reason = "one range of rows: all of them")]
        let near = rows.near(&[0..n])?;
        let present = (0..n).filter(|&i| data.weights().is_none_or(|w| w[i] > 0.0));
        let far = present.fold(None, |best: Option<usize>, i| match best {
            Some(b) if near[b] >= near[i] => best,
            _ => Some(i),
        });
        let Some(far) = far.filter(|&i| near[i] > 0.0) else { break };
        let x = data.pick(&[far])?;
        rows.add_centre(x.as_slice().expect("one row"))?;
        centres.row_mut(c).assign(&x.row(0));
        revived = true;
    }
    rows.forget_centres();
    Ok(revived)
}
