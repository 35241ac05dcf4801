//! Full and tied mixtures by factors `U` of their precisions: `y = Uᵀ(x − μ)`, eight entries at a time.
//!
//! A thread accumulates the eight entries of a panel in registers, over the columns of the row: one difference and
//! eight neighbours of the factor for eight multiply-adds. Differences are recomputed for each panel, so nothing is
//! stored.

use crate::Real;
use crate::em::simple::e_step::full::{each, eight};
use crate::em::simple::e_step::{EStep, Row, SumOfSquares, run};
use crate::layout::{PANEL, panel_len};

/// `|Uᵀ(x − μ_c)|²`; `factor` has the panels of `Uᵀ`, with zeros past `d`.
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
            // SAFETY: `j < d`, so it is a column of the row and of the panel.
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

/// Body of the kernel with one factor per component.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn full<T: Real>(a: EStep<T>) {
    let factor = |c: u32| a.factor.wrapping_add((c as u64 * panel_len(a.d)) as usize);
    // SAFETY: the caller upholds `# Safety`; `c < k`, so `factor(c)` is within the factors.
    unsafe { run(&a, |x, c| squared_distance(&a, x, c, factor(c))) };
}

/// Body of the kernel with one factor for all components.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn tied<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { run(&a, |x, c| squared_distance(&a, x, c, a.factor)) };
}
