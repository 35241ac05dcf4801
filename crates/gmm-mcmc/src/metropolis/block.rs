//! A block of a point's entries that move together, and the adaptation of its steps.

use std::ops::Range;

use gmm_model::{Cholesky, CovarianceType, Draws, Factors, Mixture, packed_index, packed_len};
use ndarray::Array2;

/// Number of sweeps between updates of a block's factor from the covariance of its points.
const REFRESH: u64 = 20;
/// The first 1/`FORGOTTEN` of the warm-up does not count for the covariance: in it the chain moves from its start to
/// the bulk of the posterior.
const FORGOTTEN: u64 = 5;
/// Weight of the first guess of a block's covariance, in points.
const GUESS: f64 = 10.0;
/// Exponent of the adaptation of the step length: the gains `(sweep + 1)^-0.6` sum to infinity, their squares do not.
const SETTLING: f64 = 0.6;

/// The `b` entries of a point that move together.
pub(super) struct Block {
    at: Range<usize>,
    /// First guess of the covariance of the points, packed, `(b*(b+1)/2,)`.
    guess: Vec<f64>,
    /// Logarithm of the step length, relative to the optimal one for a normal with the block's covariance.
    log_length: f64,
    /// Number of points seen, their mean, `(b,)`, and their sum of squares about it, packed.
    seen: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
    /// Lower factor of the covariance of the steps, packed.
    factor: Vec<f64>,
}

/// The blocks of a mixture's point: the mean and the scales of each component, the shared scales if tied, and the
/// weights. The first guess of each covariance is that of the posterior if the component of every row were known and
/// the prior were flat.
pub(super) fn blocks(mixture: &Mixture, total_weight: f64) -> Vec<Block> {
    let (k, d) = mixture.means().dim();
    let rows = |c: usize| (total_weight * mixture.weights()[c]).max(1.0);
    let (means, scales) = (k - 1, k - 1 + k * d);
    let own = if mixture.covariance_type() == CovarianceType::Tied { 0 } else { scale_guess(mixture, 0, 1.0).len() };
    let mut all = Vec::new();
    for c in 0..k {
        let covariance = mixture.covariances().matrix(c, d);
        all.push(Block::new(means + c * d, d, |i, j| covariance[[i, j]] / rows(c)));
        if own > 0 {
            let guess = scale_guess(mixture, c, rows(c));
            all.push(Block::new(scales + c * own, own, |i, j| if i == j { guess[i] } else { 0.0 }));
        }
    }
    if own == 0 {
        let guess = scale_guess(mixture, 0, total_weight.max(1.0));
        all.push(Block::new(scales, guess.len(), |i, j| if i == j { guess[i] } else { 0.0 }));
    }
    if k > 1 {
        all.push(Block::new(0, k - 1, |i, j| 1.0 / rows(k - 1) + if i == j { 1.0 / rows(i) } else { 0.0 }));
    }
    all
}

/// Guessed variances of the scales of one component, or of the shared scales, given `rows` rows: `1/(2 rows)` for the
/// logarithm of a standard deviation, and `L_ii² / rows` for an entry below the diagonal.
fn scale_guess(mixture: &Mixture, c: usize, rows: f64) -> Vec<f64> {
    let d = mixture.n_features();
    let triangle = |l: &Cholesky| {
        let entry = |i: usize, j: usize| if i == j { 0.5 / rows } else { l.at(i, i) * l.at(i, i) / rows };
        (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect()
    };
    match mixture.factors() {
        Factors::Full(all) => triangle(&all[c]),
        Factors::Tied(one) => triangle(one),
        Factors::Diag(_) => vec![0.5 / rows; d],
        Factors::Spherical(_) => vec![0.5 / (rows * d as f64)],
    }
}

impl Block {
    fn new(start: usize, b: usize, guess: impl Fn(usize, usize) -> f64) -> Self {
        let guess: Vec<f64> = (0..b).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| guess(i, j)).collect();
        // If rounding makes the covariance singular, only its diagonal is used.
        let diagonal = |i: usize, j: usize| if i == j { guess[packed_index(i, i)].sqrt() } else { 0.0 };
        let factor = factor(b, &guess).unwrap_or_else(|| {
            (0..b).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| diagonal(i, j)).collect()
        });
        let (mean, squares) = (vec![0.0; b], vec![0.0; packed_len(b)]);
        Self { at: start..start + b, guess, log_length: 0.0, seen: 0.0, mean, squares, factor }
    }

    /// Proposes a point in which this block has moved by a normal step. Takes `b` normals.
    pub(super) fn propose(&self, point: &[f64], draws: &mut Draws) -> Vec<f64> {
        let b = self.at.len();
        let mut normals = vec![0.0; b];
        draws.fill_normal(&mut normals);
        // 2.38/√b is the optimal length for a normal in many dimensions (Roberts, Gelman and Gilks 1997).
        let length = 2.38 / (b as f64).sqrt() * libm::exp(self.log_length);
        let mut proposal = point.to_vec();
        for (i, slot) in proposal[self.at.clone()].iter_mut().enumerate() {
            let row = &self.factor[packed_index(i, 0)..][..=i];
            *slot += length * row.iter().zip(&normals).map(|(l, z)| l * z).sum::<f64>();
        }
        proposal
    }

    /// Adapts to a step of the warm-up that was accepted with probability `accepted` and led to `point`.
    pub(super) fn adapt(&mut self, sweep: u64, accepted: f64, point: &[f64], warmup: u64) {
        let b = self.at.len();
        // The optimal acceptance is 0.44 in one dimension and 0.234 in many; this formula is close to it in between
        // (Gelman, Roberts and Gilks 1996).
        let wanted = if b == 1 { 0.44 } else { 0.234 + 0.206 / b as f64 };
        self.log_length += (accepted - wanted) / libm::pow((sweep + 1) as f64, SETTLING);
        if sweep < warmup / FORGOTTEN {
            return;
        }
        self.seen += 1.0;
        let here = &point[self.at.clone()];
        let before: Vec<f64> = here.iter().zip(&self.mean).map(|(x, m)| x - m).collect();
        self.mean.iter_mut().zip(&before).for_each(|(m, z)| *m += z / self.seen);
        for i in 0..b {
            let after = here[i] - self.mean[i];
            (0..=i).for_each(|j| self.squares[packed_index(i, j)] += after * before[j]);
        }
        if sweep.is_multiple_of(REFRESH) {
            let entries = self.squares.iter().zip(&self.guess);
            let covariance: Vec<f64> = entries.map(|(s, g)| (s + GUESS * g) / (self.seen + GUESS)).collect();
            // If rounding makes the covariance singular, the previous factor stays.
            if let Some(factor) = factor(b, &covariance) {
                self.factor = factor;
            }
        }
    }

    /// Appends the adaptive state to `out`.
    pub(super) fn write(&self, out: &mut Vec<f64>) {
        out.extend([self.log_length, self.seen]);
        [&self.guess, &self.mean, &self.squares, &self.factor].into_iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Restores the state written by [`write`](Self::write). If `from` is too short, the rest is unchanged.
    pub(super) fn read(&mut self, from: &mut &[f64]) {
        let Self { guess, log_length, seen, mean, squares, factor, .. } = self;
        let slots = [log_length, seen].into_iter().chain([guess, mean, squares, factor].into_iter().flatten());
        for slot in slots {
            let Some((value, rest)) = from.split_first() else { return };
            (*slot, *from) = (*value, rest);
        }
    }
}

/// The packed lower factor of a packed covariance, if it is positive definite.
fn factor(b: usize, covariance: &[f64]) -> Option<Vec<f64>> {
    let dense = Array2::from_shape_fn((b, b), |(i, j)| covariance[packed_index(i.max(j), i.min(j))]);
    Cholesky::new(dense.view()).ok().map(|l| l.packed().to_vec())
}
