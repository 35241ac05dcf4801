//! Full covariances: forward substitution with each component's factor, eight unknowns at a time.
//!
//! A thread holds the eight unknowns of a panel in registers and subtracts the earlier ones one by one: one load of a
//! solved column and eight neighbours of the factor (the same for all threads: a broadcast from cache) for eight
//! multiply-adds of each of the thread's rows. That is `k*d²/2` multiply-adds per row, and no array in registers is indexed at run time.

use super::rows::{Group, Mean};
use super::solved::{InScratch, InShared, Solved};
use super::squares::SumOfSquares;
use super::{EStep, SquaredDistances, run};
use crate::Real;
use crate::each::each as rows;
use crate::layout::{PANEL, panel_len};

/// `|L⁻¹(x − μ_c)|²` of `R` rows, with `factor` in panels.
#[inline(always)]
unsafe fn squared_distances<T: Real, const R: usize>(
    a: &EStep<T>,
    x: Group<T, R>,
    c: u32,
    factor: *const T,
    solved: impl Solved<T>,
) -> [f64; R] {
    let mean = Mean::of(a, c);
    let mut squares = [SumOfSquares::NONE; R];
    let mut panel = factor;
    let mut first = 0;
    while first < a.d {
        let mut y = [[T::ZERO; PANEL as usize]; R];
        // SAFETY: columns are below `d`; a factor has `panel_len(d)` elements.
        unsafe {
            each(|u| {
                if first + (u as u32) < a.d {
                    let centred = x.centred(mean, first + u as u32);
                    rows(R, |i| y[i][u] = centred[i]);
                }
            });
            // A column is loaded while the one before is multiplied, in turns, so that neither has to be moved. `first` is
            // even, and the column after the last belongs to the panel.
            let (mut even, mut j) = (eight(panel, 0), 0);
            let mut subtract = |l: [T; PANEL as usize], known: [T; R]| {
                rows(R, |i| each(|u| y[i][u] = l[u].fma(-known[i], y[i][u])));
            };
            while R == 1 && j < first {
                subtract(eight(panel, j), solved.get::<R>(j));
                j += 1;
            }
            while j < first {
                let (odd, known, next) = (eight(panel, j + 1), solved.get::<R>(j), solved.get::<R>(j + 1));
                subtract(even, known);
                j += 2;
                even = eight(panel, j);
                subtract(odd, next);
            }
            let last = first + PANEL >= a.d;
            each(|v| {
                let l = eight(panel, first + v as u32);
                let mut here = [T::ZERO; R];
                rows(R, |i| {
                    here[i] = y[i][v] * l[v];
                    each(|u| {
                        if u > v {
                            y[i][u] = l[u].fma(-here[i], y[i][u]);
                        }
                    });
                    squares[i].add(here[i]);
                });
                if !last {
                    solved.set(first + v as u32, here);
                }
            });
        }
        panel = panel.wrapping_add((PANEL * (first + PANEL)) as usize);
        first += PANEL;
        if first.is_multiple_of(SumOfSquares::<T>::RUN) || first >= a.d {
            rows(R, |i| squares[i].end_run());
        }
    }
    SumOfSquares::totals(squares)
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
    unsafe { body::<T, _, false>(&a, InShared) };
}

/// Body of the kernel that computes several rows per thread.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn rows_in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { body::<T, _, true>(&a, InShared) };
}

/// Body of the kernel that keeps solved columns in `scratch`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn in_scratch<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers, `scratch` among them, are as `EStep` documents.
    unsafe { body::<T, _, false>(&a, InScratch::new(&a)) };
}

/// One factor per component, or one for all.
pub(super) struct Distances<'a, T: Real, S, const SEVERAL: bool> {
    pub(super) a: &'a EStep<T>,
    pub(super) solved: S,
    /// From one component's factor to the next.
    pub(super) stride: u64,
}

impl<T: Real, S: Solved<T>, const SEVERAL: bool> SquaredDistances<T> for Distances<'_, T, S, SEVERAL> {
    const SEVERAL: bool = SEVERAL;

    #[inline(always)]
    unsafe fn of<const R: usize>(&self, x: Group<T, R>, c: u32) -> [f64; R] {
        let factor = self.a.factor.wrapping_add((c as u64 * self.stride) as usize);
        // SAFETY: `c < k`, so `factor` is within the factors.
        unsafe { squared_distances(self.a, x, c, factor, self.solved) }
    }
}

#[inline(always)]
unsafe fn body<T: Real, S: Solved<T>, const SEVERAL: bool>(a: &EStep<T>, solved: S) {
    // SAFETY: the entries uphold `# Safety`.
    unsafe { run(a, &Distances::<T, S, SEVERAL> { a, solved, stride: panel_len(a.d) }) };
}
