//! Responsibilities among the selected components, and moments of the rows with them.
//!
//! A component has a few of the rows, so its sums stay in registers if the rows are taken component by component. Products
//! and the sums of at most [`SUMMED`] rows have the engine's precision; those are added up in `f64`, as in
//! [`moments`](super::super::moments).

use super::super::simd::{Kernel, Real, Words};
use super::score::{exponentials, log_density};
use super::{LANES, TopRows, width};

/// Rows whose sums are in the engine's precision.
const SUMMED: usize = 256;

/// Sums that rows are added to.
pub(super) struct Sums<'a> {
    /// `(k,)`.
    pub(super) weight: &'a mut [f64],
    /// About the centres, `(k, d)`.
    pub(super) first: &'a mut [f64],
    /// About the centres: `(k, d)`, or `(k,)` for the sums over columns.
    pub(super) second: &'a mut [f64],
}

/// Adds the moments of rows, and returns Σ w ln Σ over the selected components.
pub(super) struct Moments<'a, T> {
    /// Their values become responsibilities times weights.
    pub(super) rows: &'a mut TopRows<T>,
    /// Less the shift, `(k, width)`.
    pub(super) centres: &'a [T],
    pub(super) sums: Sums<'a>,
}

impl<T: Real> Kernel<T> for Moments<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> f64 {
        let Self { rows, centres, mut sums } = self;
        let log_likelihood = responsibilities(w, rows);
        let (entries, ends) = by_component(rows, sums.weight.len());
        let width = width(rows.d);
        let mut first = 0;
        for (c, &end) in ends.iter().enumerate() {
            let of_component = &entries[first..end];
            first = end;
            sums.weight[c] += of_component.iter().map(|(_, r)| r.to_f64()).sum::<f64>();
            for some in of_component.chunks(SUMMED) {
                let mut column = 0;
                while column < width {
                    let centre = &centres[c * width + column..];
                    let mut add = |j: usize, a: f64, b: f64| sums.add((c, column + j), rows.d, a, b);
                    // Three vectors have six sums, which hide the latency of two FMA units. Widths are multiples of 16.
                    column += W::LANES
                        * match (width - column) / W::LANES {
                            1 => of::<T, W, 1>(w, &rows.rows[column..], width, some, centre, &mut add),
                            2 => of::<T, W, 2>(w, &rows.rows[column..], width, some, centre, &mut add),
                            _ => of::<T, W, 3>(w, &rows.rows[column..], width, some, centre, &mut add),
                        };
                }
            }
        }
        log_likelihood
    }
}

impl Sums<'_> {
    #[inline(always)]
    fn add(&mut self, (c, j): (usize, usize), d: usize, first: f64, second: f64) {
        if j < d {
            self.first[c * d + j] += first;
            let by_column = self.second.len() == self.first.len();
            self.second[if by_column { c * d + j } else { c }] += second;
        }
    }
}

/// Replaces the values of every row by responsibilities times the row's weight, and returns the log-likelihood.
#[inline(always)]
fn responsibilities<T: Real, W: Words<T>>(w: W, rows: &mut TopRows<T>) -> f64 {
    let count = rows.count;
    let mut log_likelihood = 0.0;
    for (values, &weight) in rows.values.chunks_exact_mut(count.next_multiple_of(LANES)).zip(&rows.weights) {
        let (top, total) = exponentials(w, values);
        log_likelihood += weight * log_density(top, total);
        if total > 0.0 {
            let factor = w.splat(T::of(weight / total));
            for lanes in values.chunks_exact_mut(W::LANES) {
                // SAFETY: the chunk holds LANES values.
                unsafe { w.store(lanes.as_mut_ptr(), w.mul(w.load(lanes.as_ptr()), factor)) };
            }
        } else {
            // Every density underflows: the selected components share the row.
            values[..count].fill(T::of(weight / count as f64));
        }
    }
    log_likelihood
}

/// Rows with their responsibilities, component by component, and where each component's end: `(k,)`.
#[inline(always)]
fn by_component<T: Real>(rows: &TopRows<T>, k: usize) -> (Vec<(u32, T)>, Vec<usize>) {
    let mut ends = vec![0; k];
    rows.components.iter().for_each(|&c| ends[c as usize] += 1);
    let mut before = 0;
    for slot in &mut ends {
        before += std::mem::replace(slot, before);
    }
    let mut entries = vec![(0, T::ZERO); before];
    let values = rows.values.chunks_exact(rows.count.next_multiple_of(LANES));
    for ((components, values), row) in rows.components.chunks_exact(rows.count).zip(values).zip(0..) {
        for (&c, &r) in components.iter().zip(values) {
            let at = &mut ends[c as usize];
            entries[*at] = (row, r);
            *at += 1;
        }
    }
    (entries, ends)
}

/// Calls `add(j, Σ r z_j, Σ r z_j²)` for `C` vectors of columns, with `z = x − centre`, and returns `C`. `x` and `centre`
/// begin with the first column.
#[inline(always)]
fn of<T: Real, W: Words<T>, const C: usize>(
    w: W,
    x: &[T],
    width: usize,
    entries: &[(u32, T)],
    centre: &[T],
    add: &mut impl FnMut(usize, f64, f64),
) -> usize {
    let zero = w.splat(T::ZERO);
    let (mut first, mut second, mut centres) = ([zero; C], [zero; C], [zero; C]);
    assert!(centre.len() >= C * W::LANES && C * W::LANES <= 3 * LANES);
    for (v, slot) in centres.iter_mut().enumerate() {
        // SAFETY: centre has C vectors, as asserted.
        *slot = unsafe { w.load(centre.as_ptr().add(v * W::LANES)) };
    }
    for &(row, r) in entries {
        let (x, r) = (&x[row as usize * width..][..C * W::LANES], w.splat(r));
        for v in 0..C {
            // SAFETY: the slice has C vectors.
            let z = w.sub(unsafe { w.load(x.as_ptr().add(v * W::LANES)) }, centres[v]);
            let rz = w.mul(r, z);
            first[v] = w.add(first[v], rz);
            second[v] = w.fma(rz, z, second[v]);
        }
    }
    let mut sums = [[T::ZERO; 3 * LANES]; 2];
    for v in 0..C {
        // SAFETY: each of the sums has three times the longest vector, and v < C <= 3.
        unsafe {
            w.store(sums[0].as_mut_ptr().add(v * W::LANES), first[v]);
            w.store(sums[1].as_mut_ptr().add(v * W::LANES), second[v]);
        }
    }
    for (j, (a, b)) in sums[0].iter().zip(&sums[1]).enumerate().take(C * W::LANES) {
        add(j, a.to_f64(), b.to_f64());
    }
    C
}
