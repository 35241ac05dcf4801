//! Evaluation of a few rows under factors of the precisions: each factor is read once, in place, and neither it nor the
//! rows are rearranged.
//!
//! Every value has the same bits as from the passes over blocks: sums have the order of [`product`](super::e_step).

mod panel;
pub(super) mod shared;

use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, FactorShape, Matrix, Precision, PrecisionMixture};
use rayon::prelude::*;

use super::e_step::{Normalise, RowOutputs, store_log_joint};
use super::layout::{BLOCK, Buffer, STRIDE};
use super::passes::{EStepOutput, padded};
use super::simd::{Dispatch, Kernel, Machine, Real, Words};
use super::terms::{Terms, converted, reciprocal_deviations, relative};
use crate::engine::check_features;
use crate::{Error, EvaluateOptions, Evaluation, memory};
use panel::{FactorScan, Panel, squares};

/// Above this number of rows, rearranging the factors pays off.
pub(crate) const MOST: usize = 64;

/// Row limit if the engine is a GPU: up to this number, the host takes less time than copying the factors to the
/// device.
const MOST_BESIDE_A_DEVICE: usize = 16;

/// Differences of rows and means that are multiplied by a factor together: they stay in the L2 cache beside it.
const SIDES: usize = 32;

/// Columns of a factor per work item, if several threads take part.
const COLUMNS: usize = 512;

/// Below this many bytes, one thread finishes before other threads join on a machine that also has other work: some
/// milliseconds.
const SMALL: usize = 64 << 20;

/// Evaluates up to [`MOST`] rows, on the calling thread if `pool` is `None`.
///
/// # Errors
/// As for [`Evaluate::evaluate_precisions`](crate::Evaluate::evaluate_precisions).
pub(crate) fn evaluate(
    machine: Machine,
    pool: Option<&rayon::ThreadPool>,
    data: &Dataset,
    precision: Precision,
    shift: &[f64],
    mixture: &PrecisionMixture<'_>,
    want: EvaluateOptions<'_>,
) -> Result<Evaluation, Error> {
    check_features(data.n_features(), mixture.n_features())?;
    match precision {
        Precision::F32 => run::<f32>(machine, pool, data, shift, mixture, want),
        Precision::F64 => run::<f64>(machine, pool, data, shift, mixture, want),
    }
}

/// Evaluates a few rows on the host, on the calling thread, for a GPU engine. Returns `None` if there are too many
/// rows.
///
/// # Errors
/// As for [`evaluate`].
pub(crate) fn evaluate_beside_a_device(
    data: &Dataset,
    precision: Precision,
    shift: &[f64],
    mixture: &PrecisionMixture<'_>,
    want: &mut EvaluateOptions<'_>,
) -> Result<Option<Evaluation>, Error> {
    if data.n_rows() > MOST_BESIDE_A_DEVICE {
        return Ok(None);
    }
    evaluate(Machine::detect(), None, data, precision, shift, mixture, std::mem::take(want)).map(Some)
}

fn run<T: Dispatch>(
    machine: Machine,
    pool: Option<&rayon::ThreadPool>,
    data: &Dataset,
    shift: &[f64],
    mixture: &PrecisionMixture<'_>,
    want: EvaluateOptions<'_>,
) -> Result<Evaluation, Error> {
    let (n, k, d) = (data.n_rows(), mixture.n_components(), mixture.n_features());
    memory::check("the workspace of a few rows", 4 * (n * k) as u128 * d as u128 * size_of::<T>() as u128)?;
    let u = converted::<T>(mixture.factors());
    let is_tied = mixture.covariance_type() == CovarianceType::Tied;
    let shared = if is_tied { shared::means(machine, &u, mixture.means(), shift) } else { None };
    let (rows, means) = (rows::<T>(data, shift), relative(mixture.means(), shift));
    let few = Few { machine, pool, mixture, d, u: &u, rows, means, shared };
    let (distances, shapes) = match mixture.covariance_type() {
        CovarianceType::Full | CovarianceType::Tied => few.by_factors(),
        CovarianceType::Diag | CovarianceType::Spherical => (few.by_deviations(), vec![FactorShape::Upper; k]),
    };
    // A factor with NaN gives NaN distances. Infinite distances of far rows are not an error.
    if distances.iter().any(|q| !q.to_f64().is_finite()) {
        mixture.check_factors()?;
    }
    let terms = Terms::<T>::without_scales(mixture, few.means, &shapes)?;
    let weights: Vec<T> = data.weights().map_or_else(|| vec![T::ONE; n], |all| all.iter().map(|w| T::of(*w)).collect());
    let mut joint = Buffer::zeroed(k * STRIDE);
    let mut out = Rows { top: vec![T::ZERO; BLOCK], rest: vec![T::ZERO; BLOCK], entropy: vec![T::ZERO; BLOCK] };
    T::dispatch(machine, Finish { terms: &terms, n, distances: &distances, joint: &mut joint, out: &mut out });
    let found = EStepOutput { joint: &joint, top: &out.top, rest: &out.rest, entropy: &out.entropy };
    let (log_likelihood, entropy) = found.deliver(k, &weights, want);
    let total_weight = data.weights().map_or(n as f64, |all| all.iter().sum());
    Ok(Evaluation { log_likelihood, entropy, total_weight })
}

/// `x − shift`, rounded once, `(n, d)`.
fn rows<T: Real>(data: &Dataset, shift: &[f64]) -> Vec<T> {
    let shift = shift.iter().cycle();
    match data.rows() {
        Matrix::F32(a) => a.iter().zip(shift).map(|(v, s)| T::of(f64::from(*v) - s)).collect(),
        Matrix::F64(a) => a.iter().zip(shift).map(|(v, s)| T::of(v - s)).collect(),
    }
}

/// A few rows and a mixture, with the operands of their products.
struct Few<'a, T> {
    machine: Machine,
    pool: Option<&'a rayon::ThreadPool>,
    mixture: &'a PrecisionMixture<'a>,
    d: usize,
    /// The factors.
    u: &'a [T],
    /// `(n, d)`, less the shift.
    rows: Vec<T>,
    /// `(k, d)`, less the shift.
    means: Vec<T>,
    /// The means times the shared factor, `(k, d)`, if rows and means are multiplied separately instead of their
    /// differences.
    shared: Option<Vec<T>>,
}

/// Some columns of a factor, and some of the vectors that it multiplies: rows, or differences `(component, row)`,
/// numbered component by component.
struct Part {
    factor: usize,
    first: usize,
    sides: Range<usize>,
}

impl<T: Dispatch> Few<'_, T> {
    fn n(&self) -> usize {
        self.rows.len() / self.d
    }

    /// Row less mean. Computing the difference in f64 and rounding it gives the same as computing it in `T`.
    fn difference(&self, side: usize) -> impl Iterator<Item = T> {
        let (n, d) = (self.n(), self.d);
        let (mean, row) = (&self.means[side / n * d..][..d], &self.rows[side % n * d..][..d]);
        row.iter().zip(mean).map(|(x, m)| T::of(x.to_f64() - m.to_f64()))
    }

    /// Appends the vector number `side` that a factor multiplies.
    fn factor_side(&self, side: usize, out: &mut Vec<T>) {
        match self.shared {
            Some(_) => out.extend_from_slice(&self.rows[side * self.d..][..self.d]),
            None => out.extend(self.difference(side)),
        }
    }

    /// `|Uᵀ(x − mean)|²`, `(k, n)`, and the shape of each component's factor.
    fn by_factors(&self) -> (Vec<T>, Vec<FactorShape>) {
        let (n, k) = (self.n(), self.mixture.n_components());
        let factors = self.mixture.n_factors();
        let sides = if self.shared.is_some() { n } else { k * n / factors };
        let mut distances = vec![T::ZERO; k * n];
        let threads = self.pool.map_or(1, rayon::ThreadPool::current_num_threads);
        // A factor once loaded serves about four vectors before the arithmetic takes longer than the load.
        let work = factors * self.d * self.d * size_of::<T>() * sides.div_ceil(4);
        let pool = self.pool.filter(|_| threads > 1 && work >= SMALL);
        let columns = if pool.is_some() { COLUMNS } else { self.d };
        let parts = |factor: usize| {
            (0..sides).step_by(SIDES).flat_map(move |side| {
                let sides = factor * sides + side..factor * sides + sides.min(side + SIDES);
                (0..self.d).step_by(columns).map(move |first| Part { factor, first, sides: sides.clone() })
            })
        };
        let all: Vec<Part> = (0..factors).flat_map(parts).collect();
        let run = |part: &Part| self.part(part, columns, FactorShape::Upper);
        let done: Vec<_> = match pool {
            Some(pool) => pool.install(|| all.par_iter().map(run).collect()),
            None => all.iter().map(run).collect(),
        };
        let mut seen = vec![FactorScan::default(); factors];
        for (part, (_, here)) in all.iter().zip(&done) {
            seen[part.factor].below |= here.below;
            seen[part.factor].above |= here.above;
        }
        let shapes: Vec<FactorShape> = seen.into_iter().map(FactorScan::shape).collect();
        for (part, (y, _)) in all.iter().zip(done) {
            match shapes[part.factor] {
                FactorShape::Upper => self.add_squares(&y, part, columns, &mut distances),
                other => self.add_squares(&self.part(part, columns, other).0, part, columns, &mut distances),
            }
        }
        (distances, (0..k).map(|c| shapes[c.min(factors - 1)]).collect())
    }

    /// Computes `y` of a part and, if `shape` is upper, where its columns have nonzero entries.
    fn part(&self, part: &Part, columns: usize, shape: FactorShape) -> (Vec<T>, FactorScan) {
        let u = &self.u[part.factor * self.d * self.d..][..self.d * self.d];
        let end = self.d.min(part.first + columns);
        let mut z = Vec::with_capacity(part.sides.len() * self.d);
        part.sides.clone().for_each(|side| self.factor_side(side, &mut z));
        let mut y = vec![T::ZERO; part.sides.len() * Panel::<T>::pitch(part.first, end)];
        let panel = Panel { u, d: self.d, first: part.first, end, shape, z: &z, y: &mut y };
        let seen = T::dispatch(self.machine, panel);
        (y, seen)
    }

    fn add_squares(&self, y: &[T], part: &Part, columns: usize, distances: &mut [T]) {
        let end = self.d.min(part.first + columns);
        let (pitch, width) = (Panel::<T>::pitch(part.first, end), end - part.first);
        let Some(means) = &self.shared else {
            T::dispatch(self.machine, Squares { y, pitch, width, sums: &mut distances[part.sides.clone()] });
            return;
        };
        let mut z = Vec::with_capacity(part.sides.len() * width);
        for (mean, distances) in means.chunks_exact(self.d).zip(distances.chunks_exact_mut(self.n())) {
            z.clear();
            for y in y.chunks_exact(pitch) {
                z.extend(y.iter().zip(&mean[part.first..end]).map(|(y, m)| T::of(y.to_f64() - m.to_f64())));
            }
            T::dispatch(self.machine, Squares { y: &z, pitch: width, width, sums: &mut distances[part.sides.clone()] });
        }
    }

    /// `Σ ((x − mean) scale)²`, `(k, n)`.
    fn by_deviations(&self) -> Vec<T> {
        let (n, d) = (self.n(), self.d);
        let scales = reciprocal_deviations::<T>(self.mixture);
        let mut distances = vec![T::ZERO; self.mixture.n_components() * n];
        let mut y = Vec::with_capacity(SIDES * d);
        for (i, sums) in distances.chunks_mut(SIDES).enumerate() {
            y.clear();
            for side in i * SIDES..i * SIDES + sums.len() {
                let scales = &scales[side / n * d..][..d];
                y.extend(self.difference(side).zip(scales).map(|(z, s)| T::of(z.to_f64() * s.to_f64())));
            }
            T::dispatch(self.machine, Squares { y: &y, pitch: d, width: d, sums });
        }
        distances
    }
}

/// Adds the squares of the first `width` numbers of each row of `y`, `(sums.len(), pitch)`.
struct Squares<'a, T> {
    y: &'a [T],
    pitch: usize,
    width: usize,
    sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for Squares<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { y, pitch, width, sums } = self;
        let mut rows = y.chunks(pitch);
        let (fours, rest) = sums.as_chunks_mut::<4>();
        for sums in fours {
            let y = [rows.next(), rows.next(), rows.next(), rows.next()].map(|y| &y.expect("a row a sum")[..width]);
            squares::<T, W, 4>(w, y, sums);
        }
        for (sum, y) in rest.iter_mut().zip(rows) {
            squares::<T, W, 1>(w, [&y[..width]], std::array::from_mut(sum));
        }
    }
}

/// Results per row, `(BLOCK,)` each.
struct Rows<T> {
    top: Vec<T>,
    rest: Vec<T>,
    entropy: Vec<T>,
}

/// Turns squared distances, `(k, n)`, into responsibilities in `joint`, `(k, STRIDE)`.
struct Finish<'a, T> {
    terms: &'a Terms<T>,
    n: usize,
    distances: &'a [T],
    joint: &'a mut [T],
    out: &'a mut Rows<T>,
}

impl<T: Real> Kernel<T> for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, n, distances, joint, out } = self;
        let wide = padded::<T, W>(n);
        assert!(wide <= BLOCK && joint.len() >= terms.k * STRIDE && distances.len() == terms.k * n);
        for (c, distances) in distances.chunks_exact(n).enumerate() {
            joint[c * STRIDE..][..n].copy_from_slice(distances);
            for row in (0..wide).step_by(W::LANES) {
                // SAFETY: row + LANES <= wide <= BLOCK, so the vector of component c is within joint, as asserted.
                let distance = unsafe { w.load(joint.as_ptr().add(c * STRIDE + row)) };
                store_log_joint::<T, W, 1>(w, terms, c, [distance], &mut joint[row..]);
            }
        }
        let ones = [T::ONE; BLOCK];
        let mut out = RowOutputs { top: &mut out.top, rest: &mut out.rest, entropy: Some(&mut out.entropy) };
        w.apart(Normalise { terms, rows: 0..wide, weights: &ones, joint, out: &mut out });
    }
}
