//! What a loop on the device, of EM or of Lloyd's iterations, remembers between launches: whether it ended, and why.

use crate::device;

/// Numbers in a loop's state.
pub const STATE_LEN: usize = 4;

/// The iteration, from 1, after which the loop ended; 0 while it runs.
pub const DONE: u64 = 0;

/// The iteration at which a component's covariance was not positive definite, a sum was not finite, or the features
/// could not hold the digits; 0 if none. What the loop left from there on is not to be used.
pub const TROUBLE: u64 = 1;

/// Iterations finished.
pub const FINISHED: u64 = 2;

/// Whether the loop ended before this iteration. Launches later in the stream see what earlier ones wrote.
///
/// # Safety
/// `state` is null or `STATE_LEN` numbers long.
#[inline(always)]
pub(crate) unsafe fn stopped(state: *const u32, iteration: u32) -> bool {
    if state.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let (done, trouble) = unsafe { (device::load(state, DONE), device::load(state, TROUBLE)) };
    (done != 0 && done < iteration) || (trouble != 0 && trouble < iteration)
}
