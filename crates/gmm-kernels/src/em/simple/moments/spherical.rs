//! Spherical covariances: as for diagonal ones, but a block loops over all columns and adds their squares.

use crate::Real;
use crate::device::{self, Shared, thread};
use crate::em::simple::moments::diag::{PER_COMPONENT, flush_first, place, sweep};
use crate::em::simple::moments::{SIDE, Sums, partial};
use crate::layout::{Kind, second_at};

/// Body of the kernel: block `x` has components from `16 x`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Sums<T>) {
    let components = thread::block_idx_x() * SIDE;
    let mut squares = 0.0;
    let mut columns = 0;
    while columns < a.d {
        let (c, j) = place(components, columns);
        // SAFETY: the caller upholds `# Safety`: the buffers are as `Sums` documents.
        unsafe {
            let sum = sweep(&a, components, columns);
            flush_first(&a, Kind::Spherical, c, j, &sum);
            // Past the last column, rows and means are 0, and so are the squares.
            squares += sum.second[0] + sum.second[1];
        }
        columns += SIDE;
    }
    let t = thread::thread_idx_x();
    let scratch = Shared::<f64>::at(0);
    scratch.store(t, squares);
    thread::sync_threads();
    let (c, _) = place(components, 0);
    if t.is_multiple_of(PER_COMPONENT) && c < a.k {
        let mut trace = 0.0;
        let mut i = 0;
        while i < PER_COMPONENT {
            trace += scratch.load(t + i);
            i += 1;
        }
        // SAFETY: `c < k`; only this thread writes it.
        unsafe { device::store(partial(&a, Kind::Spherical), second_at(a.k, a.d) + c as u64, trace) };
    }
}
