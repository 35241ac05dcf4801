//! The sums of all blocks of a pass.

use crate::device::{self, Shared, block_sum, thread};
use crate::em::layout::{FeatureLayout, TILE};
use crate::em::nearby::{Nearby, SCRATCH, block_positions};
use crate::em::state::stopped;
use crate::layout::TILE_ROWS;

/// Body of the kernel.
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
    let (group, t, len) = (thread::block_idx_x(), thread::thread_idx_x(), place.sums());
    let scratch = Shared::<f64>::at(0);
    if group == a.groups {
        let (mut sum, mut block) = (0.0, t);
        while block < a.blocks {
            // SAFETY: `block < blocks`.
            sum += unsafe { device::load(a.partials.cast_const(), block as u64 * len + place.log_likelihood()) };
            block += TILE_ROWS;
        }
        let sum = block_sum(sum, scratch);
        if t == 0 {
            // SAFETY: the position is below `sums`.
            unsafe { device::store(a.sums, place.log_likelihood(), sum) };
        }
        return;
    }
    // Numbers of the blocks that met one of the components, ascending.
    let list = Shared::<f32>::at(8 * SCRATCH);
    let (mut found, mut from) = (0, 0);
    while from < a.blocks {
        let block = from + t;
        // SAFETY: `block < blocks`, and `group < groups`.
        let met = block < a.blocks
            && unsafe { device::load(a.met.cast_const(), block as u64 * a.groups as u64 + group as u64) } == 1;
        let (position, all) = block_positions(met, scratch);
        if let Some(position) = position {
            list.store(found + position, f32::from_bits(block));
        }
        found += all;
        from += TILE_ROWS;
    }
    thread::sync_threads();
    let mut step = 0;
    while step <= a.steps {
        // After the features come the eight components' Σ r.
        let is_weight = step == a.steps;
        let at = if is_weight { place.weights_of(group) } else { place.sum_tile(step, 8 * group) } + t as u64;
        if !is_weight || t < 8 {
            let (mut sum, mut i) = (0.0, 0);
            while i < found {
                // SAFETY: the block met the group, and so has written these sums.
                sum += unsafe { device::load(a.partials.cast_const(), list.load(i).to_bits() as u64 * len + at) };
                i += 1;
            }
            // SAFETY: the position is below `sums`.
            unsafe { device::store(a.sums, at, sum) };
        }
        step += 1;
    }
}

const _: () = assert!(TILE == TILE_ROWS as usize);
