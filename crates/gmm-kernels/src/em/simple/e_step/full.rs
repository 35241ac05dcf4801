//! Full covariances: forward substitution with each component's factor, eight unknowns at a time.
//!
//! A thread holds the eight unknowns of a panel in registers and takes out the earlier ones one by one: one read of a
//! solved column and eight neighbours of the factor (the same for all threads: a broadcast from cache) for eight
//! multiply-adds. `k*d²/2` of them per row, and no array that is indexed at run time lives in registers.

use crate::Real;
use crate::em::simple::e_step::{EStep, InScratch, InShared, Row, Solved, SumOfSquares, run};
use crate::layout::{PANEL, panel_len};

/// `|L⁻¹(x − μ_c)|²` with `factor` in panels.
#[inline(always)]
pub(super) unsafe fn squared_distance<T: Real>(
    a: &EStep<T>,
    x: Row<T>,
    c: u32,
    factor: *const T,
    solved: impl Solved<T>,
) -> f64 {
    let mut squares = SumOfSquares::NONE;
    let mut panel = factor;
    let mut first = 0;
    while first < a.d {
        let mut y = [T::ZERO; PANEL as usize];
        // SAFETY: columns below `d`; factors are `panel_len(d)` long.
        unsafe {
            each(|u| {
                if first + (u as u32) < a.d {
                    y[u] = x.centred(a, c, first + u as u32);
                }
            });
            let mut j = 0;
            while j < first {
                let (l, known) = (eight(panel, j), -solved.get(j));
                each(|u| y[u] = l[u].fma(known, y[u]));
                j += 1;
            }
            let last = first + PANEL >= a.d;
            each(|v| {
                let l = eight(panel, first + v as u32);
                y[v] = y[v] * l[v];
                each(|u| {
                    if u > v {
                        y[u] = l[u].fma(-y[v], y[u]);
                    }
                });
                squares.add(y[v]);
                if !last {
                    solved.set(first + v as u32, y[v]);
                }
            });
        }
        panel = panel.wrapping_add((PANEL * (first + PANEL)) as usize);
        first += PANEL;
        if first.is_multiple_of(SumOfSquares::<T>::RUN) || first >= a.d {
            squares.end_run();
        }
    }
    squares.total()
}

/// `f` of 0 to 7, written out: an array indexed by a loop that the compiler leaves rolled would leave the registers.
#[inline(always)]
pub(crate) fn each(mut f: impl FnMut(usize)) {
    f(0);
    f(1);
    f(2);
    f(3);
    f(4);
    f(5);
    f(6);
    f(7);
}

/// Column `j` of a panel.
#[inline(always)]
pub(crate) unsafe fn eight<T: Real>(panel: *const T, j: u32) -> [T; PANEL as usize] {
    let p = panel.wrapping_add((j * PANEL) as usize);
    // SAFETY: `j` is a column of the panel; panels are 16-byte aligned since their lengths are multiples of 64.
    let ([a, b, c, d], [e, f, g, h]) = unsafe { (T::global_load4(p), T::global_load4(p.wrapping_add(4))) };
    [a, b, c, d, e, f, g, h]
}

/// The kernel with solved columns in shared memory.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe { body(&a, InShared::new()) };
}

/// The kernel with solved columns in `scratch`.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn in_scratch<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe { body(&a, InScratch::new(&a)) };
}

#[inline(always)]
unsafe fn body<T: Real>(a: &EStep<T>, solved: impl Solved<T>) {
    let factor = |c: u32| a.factor.wrapping_add((c as u64 * panel_len(a.d)) as usize);
    // SAFETY: the caller's promise.
    unsafe { run(a, |x, c| squared_distance(a, x, c, factor(c), solved)) };
}
