//! Full and tied mixtures by factors `U` of their precisions: `y = Uᵀ(x − μ)`, eight entries at a time.
//!
//! A thread sums the eight entries of a panel in registers, column by column of the row: one difference and eight neighbours
//! of the factor for eight multiply-adds. The difference is formed anew for each panel, so that nothing is kept.

use crate::Real;
use crate::em::simple::e_step::full::{each, eight};
use crate::em::simple::e_step::{EStep, Row, SumOfSquares, run};
use crate::layout::{PANEL, panel_len};

/// `|Uᵀ(x − μ_c)|²` with `factor` the panels of `Uᵀ`, zeros past `d`.
#[inline(always)]
unsafe fn squared_distance<T: Real>(a: &EStep<T>, x: Row<T>, c: u32, factor: *const T) -> f64 {
    let mut squares = SumOfSquares::NONE;
    let mut panel = factor;
    let mut first = 0;
    while first < a.d {
        let mut y = [T::ZERO; PANEL as usize];
        let end = if first + PANEL < a.d { first + PANEL } else { a.d };
        let mut j = 0;
        while j < end {
            // SAFETY: columns below `d`, which the panel has.
            let (u, z) = unsafe { (eight(panel, j), x.centred(a, c, j)) };
            each(|i| y[i] = u[i].fma(z, y[i]));
            j += 1;
        }
        each(|i| squares.add(y[i]));
        panel = panel.wrapping_add((PANEL * (first + PANEL)) as usize);
        first += PANEL;
        if first.is_multiple_of(SumOfSquares::<T>::RUN) || first >= a.d {
            squares.end_run();
        }
    }
    squares.total()
}

/// The kernel with a factor for each component.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn full<T: Real>(a: EStep<T>) {
    let factor = |c: u32| a.factor.wrapping_add((c as u64 * panel_len(a.d)) as usize);
    // SAFETY: the caller's promise.
    unsafe { run(&a, |x, c| squared_distance(&a, x, c, factor(c))) };
}

/// The kernel with one factor for all.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn tied<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe { run(&a, |x, c| squared_distance(&a, x, c, a.factor)) };
}
