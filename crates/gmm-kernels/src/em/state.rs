//! State that a loop on the device (EM or Lloyd's iterations) keeps between launches: whether it ended, and why.

use crate::device;

/// Length of a loop's state, in `u32`.
pub const STATE_LEN: usize = 4;

/// The iteration, from 1, after which the loop ended; 0 while it runs.
pub const DONE: u64 = 0;

/// The iteration at which a component's covariance was not positive definite, a sum was not finite, or the features
/// lost too much precision; 0 if none. Results from that iteration on must not be used.
pub const TROUBLE: u64 = 1;

/// Number of iterations finished.
pub const FINISHED: u64 = 2;

/// Whether the loop ended before this iteration. Launches later in the stream see what earlier ones wrote.
///
/// # Safety
/// `state` is null or has `STATE_LEN` elements.
#[inline(always)]
pub(crate) unsafe fn stopped(state: *const u32, iteration: u32) -> bool {
    if state.is_null() {
        return false;
    }
    // SAFETY: `state` is not null, so it has `STATE_LEN` elements, and both indices are below that.
    let (done, trouble) = unsafe { (device::load(state, DONE), device::load(state, TROUBLE)) };
    (done != 0 && done < iteration) || (trouble != 0 && trouble < iteration)
}
