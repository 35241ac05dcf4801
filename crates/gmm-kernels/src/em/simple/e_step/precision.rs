//! Full and tied mixtures by factors `U` of their precisions: `y = Uᵀ(x − μ)`, eight entries at a time.
//!
//! A thread accumulates the eight entries of a panel in registers, over the columns of its rows: eight neighbours of the
//! factor, and for each row a difference and eight multiply-adds. Differences are recomputed for each panel, so nothing
//! is stored.

use super::full::{each, eight};
use super::rows::{Group, Mean};
use super::squares::SumOfSquares;
use super::{EStep, SquaredDistances, run};
use crate::Real;
use crate::each::each as rows;
use crate::layout::{PANEL, panel_len};

/// `|Uᵀ(x − μ_c)|²` of `R` rows; `factor` has the panels of `Uᵀ`, with zeros past `d`.
#[inline(always)]
unsafe fn squared_distances<T: Real, const R: usize>(
    a: &EStep<T>,
    x: Group<T, R>,
    c: u32,
    factor: *const T,
) -> [f64; R] {
    let mean = Mean::of(a, c);
    let mut squares = [SumOfSquares::NONE; R];
    let mut panel = factor;
    let mut first = 0;
    while first < a.d {
        let mut y = [[T::ZERO; PANEL as usize]; R];
        let end = if first + PANEL < a.d { first + PANEL } else { a.d };
        // SAFETY: `j < end ≤ d`, so it is a column of the rows and of the panel.
        let load = |j: u32| unsafe { (eight(panel, j), x.centred(mean, j)) };
        let mut add = |(u, z): ([T; PANEL as usize], [T; R])| {
            rows(R, |row| each(|i| y[row][i] = u[i].fma(z[row], y[row][i])));
        };
        let mut j = 0;
        while R == 1 && j < end {
            add(load(j));
            j += 1;
        }
        // A column is loaded while the one before is multiplied, in turns, so that neither has to be moved.
        let mut even = load(0);
        while j < end {
            let odd = if j + 1 < end { load(j + 1) } else { ([T::ZERO; PANEL as usize], [T::ZERO; R]) };
            add(even);
            j += 2;
            even = load(if j < end { j } else { end - 1 });
            add(odd);
        }
        rows(R, |row| each(|i| squares[row].add(y[row][i])));
        panel = panel.wrapping_add((PANEL * (first + PANEL)) as usize);
        first += PANEL;
        if first.is_multiple_of(SumOfSquares::<T>::RUN) || first >= a.d {
            rows(R, |row| squares[row].end_run());
        }
    }
    SumOfSquares::totals(squares)
}

/// One factor per component, or one for all.
struct Distances<'a, T: Real, const SEVERAL: bool> {
    a: &'a EStep<T>,
    /// From one component's factor to the next.
    stride: u64,
}

impl<T: Real, const SEVERAL: bool> SquaredDistances<T> for Distances<'_, T, SEVERAL> {
    const SEVERAL: bool = SEVERAL;

    #[inline(always)]
    unsafe fn of<const R: usize>(&self, x: Group<T, R>, c: u32) -> [f64; R] {
        let factor = self.a.factor.wrapping_add((c as u64 * self.stride) as usize);
        // SAFETY: `c < k`, so `factor` is within the factors.
        unsafe { squared_distances(self.a, x, c, factor) }
    }
}

/// Body of the kernel with one factor per component.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn full<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { run(&a, &Distances::<T, false> { a: &a, stride: panel_len(a.d) }) };
}

/// Body of the kernel with one factor for all components.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn tied<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { run(&a, &Distances::<T, false> { a: &a, stride: 0 }) };
}

/// Body of the kernel with one factor per component and several rows per thread.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn full_rows<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { run(&a, &Distances::<T, true> { a: &a, stride: panel_len(a.d) }) };
}

/// Body of the kernel with one factor for all components and several rows per thread.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn tied_rows<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { run(&a, &Distances::<T, true> { a: &a, stride: 0 }) };
}
