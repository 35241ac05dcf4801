//! Rows into the columns of a block: the transposition, and `x − shift` computed in f64 and rounded once.

use std::ops::Range;

use gmm_model::{Matrix, Precision};

use super::layout::STRIDE;
use super::simd::{Kernel, Real, Words};

/// Most lanes of a vector.
const LANES: usize = 16;

/// With fewer columns most lanes of a vector of columns would be empty.
const FEW_COLUMNS: usize = 3;

/// Fills the columns of a block, `STRIDE` apart, from some rows; rows past the range are left as they are.
pub(super) struct Fill<'a, T> {
    pub(super) out: &'a mut [T],
    pub(super) from: &'a Matrix,
    pub(super) rows: Range<usize>,
    pub(super) shift: &'a [f64],
    /// To which `x − shift` is rounded before it is stored as `T`.
    pub(super) precision: Precision,
}

impl<T: Real> Kernel<T> for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { out, from, rows, shift, precision } = self;
        match from {
            Matrix::F32(all) => fill(w, out, all.as_slice().expect("row-major"), rows, shift, precision),
            Matrix::F64(all) => fill(w, out, all.as_slice().expect("row-major"), rows, shift, precision),
        }
    }
}

#[inline(always)]
fn fill<S: Copy + Into<f64>, T: Real, W: Words<T>>(
    w: W,
    out: &mut [T],
    all: &[S],
    rows: Range<usize>,
    shift: &[f64],
    precision: Precision,
) {
    let (from, count) = (&all[rows.start * shift.len()..], rows.len());
    if precision == T::PRECISION {
        fill_by(w, out, from, count, shift, T::of);
    } else {
        fill_by(w, out, from, count, shift, |value| rounded(value, precision));
    }
}

/// Rounds to `precision`, then to `T`, which is no narrower.
#[inline(always)]
pub(super) fn rounded<T: Real>(value: f64, precision: Precision) -> T {
    match precision {
        Precision::F32 => T::of(f64::from(value as f32)),
        Precision::F64 => T::of(value),
    }
}

/// Fills `count` rows; `from` starts at the first, and may go on after the last.
#[inline(always)]
fn fill_by<S: Copy + Into<f64>, T: Real, W: Words<T>>(
    w: W,
    out: &mut [T],
    from: &[S],
    count: usize,
    shift: &[f64],
    round: impl Fn(f64) -> T,
) {
    let d = shift.len();
    assert!(count <= STRIDE && out.len() >= d * STRIDE && from.len() >= count * d, "a block");
    let mut first = 0;
    if d >= FEW_COLUMNS {
        for (at, shift) in shift.chunks(W::LANES).enumerate() {
            let (column, mut padded) = (at * W::LANES, [0.0; LANES]);
            padded[..shift.len()].copy_from_slice(shift);
            // Vectors end in the next row, or past the last one: those rows are done one by one.
            let room = from.len().saturating_sub(column + W::LANES) / d + usize::from(from.len() >= column + W::LANES);
            let whole = room.min(count) / W::LANES * W::LANES;
            for row in (0..whole).step_by(W::LANES) {
                let mut v = [w.splat(T::ZERO); LANES];
                for (r, v) in v.iter_mut().take(W::LANES).enumerate() {
                    let mut line = [T::ZERO; LANES];
                    let values = &from[(row + r) * d + column..][..W::LANES];
                    for (j, slot) in line.iter_mut().take(W::LANES).enumerate() {
                        *slot = round(values[j].into() - padded[j]);
                    }
                    // SAFETY: `line` has as many values as the widest vector.
                    *v = unsafe { w.load(line.as_ptr()) };
                }
                let v = transposed(w, v);
                for (j, v) in v.into_iter().take(shift.len()).enumerate() {
                    // SAFETY: the vector ends at row `row + LANES ≤ count ≤ STRIDE` of a column below `d`.
                    unsafe { w.store(out.as_mut_ptr().add((column + j) * STRIDE + row), v) };
                }
            }
            one_by_one(out, from, whole..count, (d, column), shift, &round);
        }
        first = count;
    }
    one_by_one(out, from, first..count, (d, 0), shift, &round);
}

/// The columns from `column` on that `shift` has, of some rows.
#[inline(always)]
fn one_by_one<S: Copy + Into<f64>, T: Real>(
    out: &mut [T],
    from: &[S],
    rows: Range<usize>,
    (d, column): (usize, usize),
    shift: &[f64],
    round: &impl Fn(f64) -> T,
) {
    for (j, &s) in shift.iter().enumerate() {
        let out = &mut out[(column + j) * STRIDE..][rows.clone()];
        for (slot, row) in out.iter_mut().zip(rows.clone()) {
            *slot = round(from[row * d + column + j].into() - s);
        }
    }
}

/// The first `LANES` of the vectors transposed: interleaving each with that half of them away, as often as their number
/// can be halved.
#[inline(always)]
fn transposed<T: Real, W: Words<T>>(w: W, mut v: [W::V; LANES]) -> [W::V; LANES] {
    let mut rounds = W::LANES;
    while rounds > 1 {
        let before = v;
        for i in 0..W::LANES / 2 {
            (v[2 * i], v[2 * i + 1]) = w.zip(before[i], before[i + W::LANES / 2]);
        }
        rounds /= 2;
    }
    v
}

#[cfg(test)]
mod tests {
    use gmm_model::RowArray;
    use ndarray::Array2;

    use super::*;
    use crate::cpu::simd::{Dispatch, Machine};

    /// Every instruction set, number of rows and columns: each number where it belongs, and nothing else written.
    fn every_shape<T: Dispatch>(matrix: impl Fn(Array2<f64>) -> Matrix, precision: Precision) {
        for machine in Machine::all() {
            for (n, d) in [(1, 1), (5, 2), (16, 3), (17, 4), (40, 7), (33, 16), (256, 17), (250, 33), (64, 50)] {
                let x = Array2::from_shape_fn((n + 2, d), |(i, j)| 0.1 + (i * d + j) as f64 / 3.0);
                let shift: Vec<f64> = (0..d).map(|j| 0.7 * j as f64).collect();
                let from = matrix(x);
                for rows in [2..n + 2, 0..n] {
                    let mut out = vec![T::of(-9.0); d * STRIDE];
                    T::dispatch(
                        machine,
                        Fill { out: &mut out, from: &from, rows: rows.clone(), shift: &shift, precision },
                    );
                    for (i, out) in out.iter().enumerate() {
                        let (column, row) = (i / STRIDE, i % STRIDE);
                        let want = if row < n {
                            rounded(from.at(rows.start + row, column) - shift[column], precision)
                        } else {
                            T::of(-9.0)
                        };
                        assert_eq!(*out, want, "{} ({n}, {d}) row {row} column {column}", machine.name());
                    }
                }
            }
        }
    }

    #[test]
    fn rows_become_columns_with_every_instruction_set() {
        let single = |x: Array2<f64>| Matrix::F32(RowArray::from(x.mapv(|v| v as f32)));
        let double = |x: Array2<f64>| Matrix::F64(RowArray::from(x));
        every_shape::<f32>(single, Precision::F32);
        every_shape::<f32>(double, Precision::F32);
        every_shape::<f64>(single, Precision::F64);
        every_shape::<f64>(double, Precision::F64);
        every_shape::<f64>(double, Precision::F32);
    }
}
