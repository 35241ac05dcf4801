//! Full covariances: forward substitution with each component's factor, eight unknowns at a time.
//!
//! A thread holds the eight unknowns of a panel in registers and subtracts the earlier ones one by one: one load of a
//! solved column and eight neighbours of the factor (the same for all threads: a broadcast from cache) for eight
//! multiply-adds. That is `k*d²/2` multiply-adds per row, and no array in registers is indexed at run time.

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
        // SAFETY: columns are below `d`; a factor has `panel_len(d)` elements.
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

/// Calls `f` with 0 to 7, unrolled by hand: in a loop that the compiler does not unroll, an indexed array would leave
/// the registers.
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

/// Body of the kernel that keeps solved columns in shared memory.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { body(&a, InShared::new()) };
}

/// Body of the kernel that keeps solved columns in `scratch`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn in_scratch<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers, `scratch` among them, are as `EStep` documents.
    unsafe { body(&a, InScratch::new(&a)) };
}

#[inline(always)]
unsafe fn body<T: Real>(a: &EStep<T>, solved: impl Solved<T>) {
    let factor = |c: u32| a.factor.wrapping_add((c as u64 * panel_len(a.d)) as usize);
    // SAFETY: both entries uphold `# Safety`; `c < k`, so `factor(c)` is within the factors.
    unsafe { run(a, |x, c| squared_distance(a, x, c, factor(c), solved)) };
}
