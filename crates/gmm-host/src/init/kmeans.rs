//! k-means: greedy k-means++ seeding (Arthur and Vassilvitskii 2007) and Lloyd's iteration, on the engine in use.

use gmm_model::{CovarianceType, Draws, Statistics};
use ndarray::{Array1, Array2, Array3, ArrayView2};

use super::drawn::{RowDraw, cumulative, row_of};
use super::picked::{self, Picked};
use crate::em::check;
use crate::engine::{DISTANCE_ROWS, Seeding};
use crate::{Data, Error, Resident};

/// Lloyd stops when the centres' squared moves sum to this times the mean column variance (scikit-learn's default).
const TOLERANCE: f64 = 1e-4;

/// On a sample, where they sum to this times the square of the error that its clusters' means have anyway.
const OF_ERROR: f64 = 0.1;

/// Lloyd's bound; it rarely takes more than some dozens.
const MAX_ITER: usize = 300;

/// Clusters as Lloyd left them, or as they were seeded.
#[derive(Clone, Debug)]
pub struct KMeans {
    /// `(k, d)`.
    pub centres: Array2<f64>,
    /// Σ weight of the squared distances to the nearest centre, at the last pass; infinite where there was none.
    pub inertia: f64,
    /// Passes done.
    pub iterations: usize,
    /// Whether the centres came to rest.
    pub converged: bool,
}

/// k-means over resident rows: [`seed`], and [`lloyd`] unless `seeds_alone`.
///
/// Of many rows a sample is taken, one row of each of equal stretches: `most` rows, or where that is not said the larger of
/// 32768 and `64 k` if there are more than twice as many. A cluster that has no row in the sample can then have no centre:
/// one of a few rows among millions. Where the sample has fewer different rows than `k`, all rows are looked at after all.
/// Cost: that of [`seed`] and [`lloyd`] for so many rows, and to pick them.
///
/// # Errors
/// Whatever the engine reports.
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
    let run = |rows: &mut dyn Resident, data: &Picked<'_>, draws: &mut Draws| {
        let (centres, ran_out) = seed_among(rows, data, k, draws)?;
        let found = if seeds_alone {
            KMeans { centres, inertia: f64::INFINITY, iterations: 0, converged: false }
        } else {
            lloyd_among(rows, data, shift, centres)?
        };
        Ok::<_, Error>((found, ran_out))
    };
    let count = most.unwrap_or_else(|| picked::rows_for(n, k));
    if count < n {
        tracing::debug!(rows = count, of = n, "k-means on a sample");
        let some = Picked::some(data, count, draws);
        let chosen = some.chosen().expect("some rows");
        let mut sample = rows.sample(chosen, some.weights())?;
        let (found, ran_out) = run(sample.as_mut(), &some, draws)?;
        if !ran_out {
            return Ok(found);
        }
    }
    Ok(run(rows, &Picked::all(data), draws)?.0)
}

/// Draws `k` rows far from each other, `(k, d)`: the first by weight, each further one with a probability in
/// proportion to weight times squared distance from those before it.
///
/// Of `2 + ln k` candidates for each place, the one that leaves the smallest sum of distances is kept. Where all rows
/// lie on chosen ones, the rest are drawn by weight. Cost: `k − 1` passes of distances to `2 + ln k` points and as many to one,
/// for each of which a GPU is waited for once, or for up to 131072 rows once in all.
///
/// # Errors
/// Whatever the engine reports.
pub fn seed<'a>(
    rows: &mut dyn Resident,
    data: impl Into<Data<'a>>,
    k: usize,
    draws: &mut Draws,
) -> Result<Array2<f64>, Error> {
    Ok(seed_among(rows, &Picked::all(data.into()), k, draws)?.0)
}

/// [`seed`], and whether rows ran out: all lay on the chosen ones before there were `k`.
fn seed_among(
    rows: &mut dyn Resident,
    data: &Picked<'_>,
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
    // Σ weight of each group of rows times their distances to the centres that there are.
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
        // Nothing is drawn after the last.
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
                    // What would be drawn for them all, one after another.
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

/// Where the least value stands, the first among equals.
fn least(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] < values[best] { i } else { best })
}

/// Moves each centre to the mean of its rows until the centres rest. A cluster that loses all its rows restarts at
/// the row farthest from every centre. Cost: one pass an iteration.
///
/// # Errors
/// Whatever the engine reports.
pub fn lloyd<'a>(
    rows: &mut dyn Resident,
    data: impl Into<Data<'a>>,
    shift: &[f64],
    centres: Array2<f64>,
) -> Result<KMeans, Error> {
    lloyd_among(rows, &Picked::all(data.into()), shift, centres)
}

fn lloyd_among(
    rows: &mut dyn Resident,
    data: &Picked<'_>,
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
        // The first pass of a sample tells how far its rows are from their centres.
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

/// What some of Lloyd's passes came to: [`Seeding::lloyd`].
#[derive(Clone, Debug, PartialEq)]
pub struct LloydPasses {
    /// How many they were.
    pub passes: usize,
    /// Σ weight of the squared distances to the nearest centre, before the last move.
    pub inertia: f64,
    /// Σ of the squares of the last moves.
    pub move_squared: f64,
    /// Centres that had no rows in the last pass.
    pub empty: Vec<usize>,
}

/// One of Lloyd's passes, on any engine.
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

/// From a centre to the mean of its rows.
fn moved_by(statistics: &Statistics, c: usize) -> Array1<f64> {
    statistics.first.row(c).mapv(|v| v / statistics.weight[c])
}

/// Puts each empty centre on the row that is farthest from all others; false where every row lies on a centre.
fn revive(
    rows: &mut dyn Resident,
    data: &Picked<'_>,
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
