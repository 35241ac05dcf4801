//! The second moments of all components together, for a tied covariance.

use crate::Real;
use crate::device::{self, Shared, block_sum, thread};
use crate::em::layout::FeatureLayout;
use crate::em::nearby::Nearby;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, packed_index};

/// Body of the kernel. From the sums about the means of this iteration it makes moments about those of the next. A component
/// without rows keeps its mean.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn body(a: Nearby) {
    device::await_previous_grid();
    // SAFETY: the caller upholds `# Safety`.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
    let entry = thread::block_idx_x();
    let mut i = 0;
    while packed_index(i + 1, 0) <= entry as u64 {
        i += 1;
    }
    let j = entry - packed_index(i, 0) as u32;
    let mut sum = 0.0;
    let mut c = thread::thread_idx_x();
    while c < a.k {
        // SAFETY: positions of `FeatureLayout` for a component below `k` and columns below `d` are below `sums`.
        unsafe {
            let at = |at: u64| device::load(a.sums.cast_const(), at);
            let (weight, second) = (at(place.weight(c)), at(place.product_sum(i, j, c)));
            let moved = at(place.entry_sum(i, c)) * at(place.entry_sum(j, c));
            // As in the M-step.
            let is_empty = weight <= f64::EPSILON * a.total_weight;
            sum += if is_empty { second } else { Real::fma(-1.0 / weight, moved, second) };
        }
        c += TILE_ROWS;
    }
    let sum = block_sum(sum, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: the grid has one block for each entry.
        unsafe { device::store(a.scatter, entry as u64, sum) };
    }
}
