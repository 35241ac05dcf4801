//! Weighted moments of one tile of rows about each component's centre, added to `f64` sums.
//!
//! Products and the sums over a tile (at most 256 rows, spread over the lanes) are in the engine's precision. The sums
//! of tiles are added up in `f64`.

mod diag;
mod full;
mod scatter;
mod spherical;
mod tied;

use gmm_model::{CovarianceType, packed_len};

use super::layout::{BLOCK, STRIDE};
use super::simd::{Kernel, Real, Words};
use crate::nearby::FLOOR_BITS;

pub(crate) use scatter::scatter;
pub(crate) use tied::{finish as finish_tied, pays as pairs_pay};

/// Scratch columns per dimension.
pub(crate) const SCRATCH: usize = 3;

/// Running sums of one share of the rows; see [`gmm_model::Statistics`] for meaning and packing.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) weight: Vec<f64>,
    pub(crate) first: Vec<f64>,
    pub(crate) second: Vec<f64>,
    /// Sums of responsibilities by pairs of components, `(k, k)`, if [`tied`] uses them; otherwise empty.
    pub(crate) pairs: Vec<f64>,
    pub(crate) log_likelihood: f64,
    pub(crate) entropy: f64,
    /// `Σ w t`, the count of the noise.
    pub(crate) noise: f64,
}

impl Sums {
    /// Zero sums; `pairs` states whether pooled moments are computed by pairs of components.
    pub(crate) fn zero(kind: CovarianceType, k: usize, d: usize, pairs: bool) -> Self {
        Self {
            weight: vec![0.0; k],
            first: vec![0.0; k * d],
            second: vec![0.0; kind.second_len(k, d)],
            pairs: vec![0.0; if pairs { k * k } else { 0 }],
            log_likelihood: 0.0,
            entropy: 0.0,
            noise: 0.0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.weight.fill(0.0);
        self.first.fill(0.0);
        self.second.fill(0.0);
        self.pairs.fill(0.0);
        self.log_likelihood = 0.0;
        self.entropy = 0.0;
        self.noise = 0.0;
    }

    /// Zero sums of another number of components, without pairs; the memory is used again.
    pub(crate) fn resize(&mut self, kind: CovarianceType, k: usize, d: usize) {
        let lengths = [(&mut self.weight, k), (&mut self.first, k * d), (&mut self.second, kind.second_len(k, d))];
        for (cells, len) in lengths {
            cells.clear();
            cells.resize(len, 0.0);
        }
    }

    /// Adds sums of the listed components, without pairs.
    pub(crate) fn add_some(&mut self, kind: CovarianceType, some: &Self, components: &[u32]) {
        let k = self.weight.len();
        let is_pooled = kind == CovarianceType::Tied;
        if is_pooled {
            self.second.iter_mut().zip(&some.second).for_each(|(a, b)| *a += b);
        }
        let (d, each) = (self.first.len() / k, if is_pooled { 0 } else { self.second.len() / k });
        for (i, &c) in components.iter().enumerate() {
            let c = c as usize;
            self.weight[c] += some.weight[i];
            for (to, from, each) in [(&mut self.first, &some.first, d), (&mut self.second, &some.second, each)] {
                let from = &from[i * each..(i + 1) * each];
                to[c * each..(c + 1) * each].iter_mut().zip(from).for_each(|(a, b)| *a += b);
            }
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.weight, &other.weight),
            (&mut self.first, &other.first),
            (&mut self.second, &other.second),
            (&mut self.pairs, &other.pairs),
        ];
        for (to, from) in sums {
            for (a, b) in to.iter_mut().zip(from) {
                *a += b;
            }
        }
        self.log_likelihood += other.log_likelihood;
        self.entropy += other.entropy;
        self.noise += other.noise;
    }

    /// Bytes of one set of sums.
    pub(crate) fn bytes(kind: CovarianceType, k: usize, d: usize, pairs: bool) -> u128 {
        let pairs = if pairs { k as u128 * k as u128 } else { 0 };
        8 * (k as u128 * (d as u128 + 1) + kind.second_len(k, d) as u128 + pairs)
    }
}

/// Vectors of rows per loop iteration: with fewer iterations, the processor predicts the last one better.
const AT_ONCE: usize = 2;

/// One tile of rows with its responsibilities.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, T> {
    /// `(d, STRIDE)`.
    pub(crate) x: &'a [T],
    /// Number of rows, a multiple of `AT_ONCE * LANES`.
    pub(crate) rows: usize,
    /// `(k, STRIDE)`, multiplied by the row weights.
    pub(crate) responsibilities: &'a [T],
    /// `(k, STRIDE)` squared distances to the centres, or empty if they are unknown.
    pub(crate) distances: &'a [T],
    /// Rows whose responsibility is at most this may be left out of a component's moments, `(k,)`; see [`floors`].
    pub(crate) floors: &'a [T],
}

/// Smallest weighted responsibility with which a row enters each component's moments, `(k,)`.
///
/// `2⁻⁶⁰ w_c` times the mean row weight. All that is left out of a component's moments then sums to less than 2⁻⁶⁰ of
/// the component's weight at a stationary point, a hundredth of one rounding error. The weights themselves are summed
/// over all rows.
pub(crate) fn floors<T: Real>(component_weights: &[T], mean_row_weight: f64) -> Vec<T> {
    let share = (-FLOOR_BITS).exp2() * mean_row_weight;
    component_weights.iter().map(|w| T::of(w.to_f64() * share)).collect()
}

/// Adds a tile's moments about the centres.
pub(crate) struct Accumulate<'a, T> {
    pub(crate) kind: CovarianceType,
    /// `(k, d)`.
    pub(crate) centres: &'a [T],
    pub(crate) tile: Tile<'a, T>,
    /// `(SCRATCH*d, STRIDE)`.
    pub(crate) scratch: &'a mut [T],
    /// Components that are processed by columns; capacity `k`.
    pub(crate) dense: &'a mut Vec<u32>,
    pub(crate) sums: &'a mut Sums,
}

impl<T: Real> Kernel<T> for Accumulate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        accumulate(w, self);
    }
}

#[inline(always)]
fn accumulate<T: Real, W: Words<T>>(w: W, all: Accumulate<'_, T>) {
    let Accumulate { kind, centres, tile, scratch, dense, sums } = all;
    let k = sums.weight.len();
    let d = centres.len() / k;
    let Tile { x, rows, responsibilities, distances, floors } = tile;
    assert!(x.len() >= d * STRIDE && scratch.len() >= SCRATCH * d * STRIDE && rows <= BLOCK && floors.len() == k);
    let pairs = !sums.pairs.is_empty();
    let mut labels = [0; BLOCK];
    if pairs {
        w.apart(tied::Pooled { centres, tile, scratch, second: &mut sums.second, labels: &mut labels });
    }
    let mut list = [0u16; BLOCK];
    let mut gathered_r = [T::ZERO; BLOCK];
    // One column has variances only, whatever the kind, and sums of squares are then cheaper than packed products.
    let is_pooled = d == 1 && kind == CovarianceType::Tied;
    let kind = if d == 1 { CovarianceType::Diag } else { kind };
    let known = kind == CovarianceType::Spherical && !distances.is_empty();
    let by_columns = known || pairs || kind == CovarianceType::Diag;
    dense.clear();
    for c in 0..k {
        let r = &responsibilities[c * STRIDE..][..rows];
        let (weight, present) = scan(w, r, floors[c]);
        sums.weight[c] += weight;
        // Copying a value costs about as much as arithmetic on four or five vector lanes (diag) or a dozen (full).
        let sparse = present * if kind == CovarianceType::Full { 2 } else { 5 } < rows;
        let list = if sparse { rows_above(w, r, floors[c], &mut list) } else { &[] };
        if pairs {
            let pairs = &mut sums.pairs[c * k..][..k];
            let mut add = |row: usize| pairs[labels[row] as usize] += r[row].to_f64();
            if sparse { list.iter().for_each(|&row| add(usize::from(row))) } else { (0..rows).for_each(add) }
        }
        if known {
            sums.second[c] += spherical::second(w, r, &distances[c * STRIDE..][..rows]);
        }
        let (scratch, gathered) = scratch.split_at_mut(2 * d * STRIDE);
        let (x, r) = if sparse { gather(w, list, x, r, &mut gathered[..d * STRIDE], &mut gathered_r) } else { (x, r) };
        if r.is_empty() {
            continue;
        }
        if !sparse && by_columns {
            dense.push(c as u32);
            continue;
        }
        let centre = &centres[c * d..][..d];
        let first = &mut sums.first[c * d..][..d];
        match kind {
            CovarianceType::Full => {
                let second = &mut sums.second[c * packed_len(d)..][..packed_len(d)];
                w.apart(full::Moments { centre, x, r, scratch, first, second });
            }
            CovarianceType::Spherical if known => diag::firsts(w, centre, x, r, first),
            CovarianceType::Tied if pairs => diag::firsts(w, centre, x, r, first),
            CovarianceType::Tied => {
                w.apart(full::Moments { centre, x, r, scratch, first, second: &mut sums.second });
            }
            CovarianceType::Diag => {
                let second = if is_pooled { 0..1 } else { c * d..c * d + d };
                diag::accumulate(w, centre, x, r, first, &mut sums.second[second]);
            }
            CovarianceType::Spherical => spherical::accumulate(w, centre, x, r, first, &mut sums.second[c]),
        }
    }
    // A few columns at a time, which stay in the L1 cache while all components are processed.
    for j in (0..d).step_by(RESIDENT_COLUMNS) {
        let columns = RESIDENT_COLUMNS.min(d - j);
        for &c in dense.iter() {
            let (c, x) = (c as usize, &x[j * STRIDE..]);
            let r = &responsibilities[c * STRIDE..][..rows];
            let cells = c * d + j..c * d + j + columns;
            let (centre, first) = (&centres[cells.clone()], &mut sums.first[cells.clone()]);
            if kind == CovarianceType::Diag {
                let second = if is_pooled { 0..1 } else { cells };
                diag::accumulate(w, centre, x, r, first, &mut sums.second[second]);
            } else {
                diag::firsts(w, centre, x, r, first);
            }
        }
    }
}

/// Columns of a block that stay in the L1 cache: at most 16 KiB.
const RESIDENT_COLUMNS: usize = 8;

/// The sum of each vector's lanes.
#[inline(always)]
fn sums_of_lanes<T: Real, W: Words<T>, const C: usize>(w: W, vectors: [W::V; C]) -> [T; C] {
    let mut sums = [T::ZERO; C];
    let mut i = 0;
    while i + 2 < C {
        // One `sum4`, with a vector repeated if only three are left, is cheaper than separate sums.
        let four = w.sum4([vectors[i], vectors[i + 1], vectors[i + 2], vectors[(i + 3).min(C - 1)]]);
        let count = (C - i).min(4);
        sums[i..i + count].copy_from_slice(&four[..count]);
        i += count;
    }
    while i < C {
        sums[i] = w.sum(vectors[i]);
        i += 1;
    }
    sums
}

/// Returns Σ r and the number of rows whose responsibility exceeds `floor`.
#[inline(always)]
fn scan<T: Real, W: Words<T>>(w: W, r: &[T], floor: T) -> (f64, usize) {
    let mut sums = [w.splat(T::ZERO); AT_ONCE];
    let floor = w.splat(floor);
    let mut present = 0;
    for lanes in r.chunks_exact(AT_ONCE * W::LANES) {
        for turn in 0..AT_ONCE {
            // SAFETY: the chunk holds AT_ONCE * LANES values.
            let v = unsafe { w.load(lanes.as_ptr().add(turn * W::LANES)) };
            sums[turn] = w.add(sums[turn], v);
            present += w.lt_bits(floor, v).count_ones();
        }
    }
    let mut sum = sums[0];
    for other in &sums[1..] {
        sum = w.add(sum, *other);
    }
    (w.sum(sum).to_f64(), present as usize)
}

/// Lists the rows whose responsibility exceeds `floor`, in order.
#[inline(always)]
fn rows_above<'a, T: Real, W: Words<T>>(w: W, r: &[T], floor: T, list: &'a mut [u16; BLOCK]) -> &'a [u16] {
    let floor = w.splat(floor);
    let mut present = 0;
    for (i, lanes) in r.chunks_exact(W::LANES).enumerate() {
        // SAFETY: the chunk holds LANES values.
        let mut bits = w.lt_bits(floor, unsafe { w.load(lanes.as_ptr()) });
        while bits != 0 {
            list[present] = (i * W::LANES) as u16 + bits.trailing_zeros() as u16;
            present += 1;
            bits &= bits - 1;
        }
    }
    &list[..present]
}

/// Copies the listed rows so that they are contiguous: columns into `columns`, responsibilities into `r_out`, padded
/// with rows of responsibility 0 to a multiple of `AT_ONCE * LANES`.
#[inline(always)]
fn gather<'a, T: Real, W: Words<T>>(
    _: W,
    list: &[u16],
    x: &[T],
    r: &[T],
    columns: &'a mut [T],
    r_out: &'a mut [T; BLOCK],
) -> (&'a [T], &'a [T]) {
    let rows = list.len().next_multiple_of(AT_ONCE * W::LANES);
    for (from, to) in x.chunks_exact(STRIDE).zip(columns.chunks_exact_mut(STRIDE)) {
        let from: &[T; BLOCK] = from[..BLOCK].try_into().expect("a column of a block");
        for (slot, &row) in to.iter_mut().zip(list) {
            *slot = from[usize::from(row) % BLOCK];
        }
        // The padding must be finite; an earlier component may have left infinities here.
        to[list.len()..rows].fill(T::ZERO);
    }
    for (slot, &row) in r_out.iter_mut().zip(list) {
        *slot = r[usize::from(row)];
    }
    r_out[list.len()..rows].fill(T::ZERO);
    (columns, &r_out[..rows])
}
