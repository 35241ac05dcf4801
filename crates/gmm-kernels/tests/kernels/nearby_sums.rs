//! The sums of the blocks of a pass that met a component.

use std::ptr::{null, null_mut};

use gmm_kernels::device::Buffer;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::nearby::{Nearby, nearby_sums};

/// More blocks than a block has threads; sums that a block has not met are poison.
#[test]
fn blocks_that_met_a_component_are_added() {
    for place in [FeatureLayout::full(1, 3), FeatureLayout::linear(2, 3)] {
        let (blocks, len) = (301_usize, place.sums() as usize);
        let has_met = |block: usize, group: usize| (block * 7 + group * 3).is_multiple_of(5) && group != 1;
        let group_of = |at: usize| match at.checked_sub(place.coefficients() as usize) {
            None => at / 128 % 3,
            Some(weight) => weight / 8,
        };
        let value = |block: usize, at: usize| ((block * 31 + at * 17) % 97) as f64;
        let partial = |i: usize| {
            let (block, at) = (i / len, i % len);
            if at + 1 == len || has_met(block, group_of(at)) { value(block, at) } else { f64::NAN }
        };
        let partials = Buffer::new(&(0..blocks * len).map(partial).collect::<Vec<f64>>());
        let met: Vec<u32> = (0..3 * blocks).map(|i| has_met(i / 3, i % 3).into()).collect();
        let (mut partials, mut met, mut sums) = (partials, Buffer::new(&met), Buffer::new(&vec![f64::NAN; len]));
        let arguments = Nearby {
            state: null(),
            iteration: 1,
            n: 1,
            k: 24,
            d: 2,
            kind: 0,
            padded: 2,
            number_bytes: 8,
            steps: place.steps,
            groups: place.groups,
            classes: place.classes,
            from: null(),
            from_weights: null(),
            order: null(),
            labels: null_mut(),
            x: null_mut(),
            row_weights: null_mut(),
            best: null_mut(),
            boxes: null_mut(),
            weights: null(),
            means: null(),
            covariances: null(),
            records: null_mut(),
            columns: null_mut(),
            lists: null_mut(),
            counts: null_mut(),
            lows: null_mut(),
            listed: null_mut(),
            every: 1,
            blocks: blocks as u32,
            partials: partials.pointer_mut(),
            met: met.pointer_mut(),
            sums: sums.pointer_mut(),
            totals: null_mut(),
            log_densities: null_mut(),
            total_weight: 1.0,
            scatter: null_mut(),
        };
        // SAFETY: the buffers that this kernel reads have the lengths that the arguments document.
        unsafe { nearby_sums().emulate((place.groups + 1, 1), arguments) };
        let got = sums.to_vec();
        for (at, got) in got.iter().enumerate() {
            let of = |block: &usize| at + 1 == len || has_met(*block, group_of(at));
            let want: f64 = (0..blocks).filter(of).map(|block| value(block, at)).sum();
            assert_eq!(*got, want, "{place:?}: sum {at}");
        }
    }
}
