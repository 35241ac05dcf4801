//! A tied covariance: as for full ones, but a block loops over all components and pools their products.

use crate::Real;
use crate::device::thread;
use crate::em::simple::moments::full::{Moments, Piece, flush_first, flush_second, sweep};
use crate::em::simple::moments::{Sums, partial};
use crate::layout::{Kind, second_at};

/// Body of the kernel: block `x` has piece `x` of the single triangle.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Sums<T>) {
    let piece = Piece::new(thread::block_idx_x());
    let mut moments = Moments::zero();
    // SAFETY: the caller upholds `# Safety`; `c < k`.
    unsafe {
        let mut c = 0;
        while c < a.k {
            sweep(&a, c, piece, &mut moments);
            flush_first(&a, Kind::Tied, c, piece, &mut moments);
            c += 1;
        }
        let second = partial(&a, Kind::Tied).wrapping_add(second_at(a.k, a.d) as usize);
        flush_second(&a, second, piece, &moments);
    }
}
