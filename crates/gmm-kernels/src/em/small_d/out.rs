//! A block's sums, moved to the shift and written in the order of [`FeatureLayout`].

use crate::Real;
use crate::device::{self, thread};
use crate::em::features::each;
use crate::em::layout::FeatureLayout;
use crate::em::small_d::SmallDPass;
use crate::em::small_d::memory::of_component;
use crate::layout::packed_index;

/// A block's partial result.
pub(crate) struct Out<'a> {
    pub(crate) a: &'a SmallDPass,
    pub(crate) place: FeatureLayout,
}

impl Out<'_> {
    #[inline(always)]
    pub(crate) unsafe fn put(&self, i: u64, v: f64) {
        // SAFETY: `i < sums`, and `partials` has `sums` elements for each block.
        unsafe { device::store(self.a.partials, thread::block_idx_x() as u64 * self.place.sums() + i, v) };
    }

    /// Zeroes the block's sums. Most stay zero: few columns use few of the features.
    #[inline(always)]
    pub(crate) unsafe fn clear(&self) {
        let mut i = thread::thread_idx_x() as u64;
        while i < self.place.sums() {
            // SAFETY: `i < sums`.
            unsafe { self.put(i, 0.0) };
            i += thread::block_dim_x() as u64;
        }
    }

    /// Writes a component's sums about the shift.
    #[inline(always)]
    pub(crate) unsafe fn component<const D: usize, const C: usize, const R: usize>(&self, c: u32) {
        let (means, sums) = of_component::<D, C, R>(c);
        let p = self.place;
        let weight = sums.load(0);
        let mut mean = [0.0; D];
        let mut first = [0.0; D];
        each(D, |j| (mean[j], first[j]) = (means.load(j as u32).to_f64(), sums.load(1 + j as u32)));
        // SAFETY: `c < k`, so the positions are below `sums`.
        unsafe {
            self.put(p.weight(c), weight);
            each(D, |i| {
                self.put(p.entry_sum(i as u32, c), first[i] + mean[i] * weight);
                each(i + 1, |j| {
                    let own = sums.load(1 + D as u32 + packed_index(i as u32, j as u32) as u32);
                    let moved = mean[i] * first[j] + mean[j] * first[i] + mean[i] * mean[j] * weight;
                    self.put(p.product_sum(i as u32, j as u32, c), own + moved);
                });
            });
        }
    }
}
