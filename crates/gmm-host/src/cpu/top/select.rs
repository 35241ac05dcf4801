//! The components of largest density of each row of a block.
//!
//! `k` may be a thousand and `count` thirty, so the densities of a row are not sorted. Components are taken in groups, at
//! least twice as many as `count`. The `count` largest of the groups' maxima are densities of as many components, so the
//! smallest of them is a bound that `count` components reach. The few that reach it are then compared with one another.

use std::cmp::Ordering;

use super::super::e_step::log_joint_of_rows;
use super::super::layout::STRIDE;
use super::super::passes::padded;
use super::super::simd::{Kernel, Real, Words};
use super::super::terms::Terms;
use super::LANES;

/// Most components of a group: with more, most groups have one of the largest.
const MOST_IN_GROUP: usize = 32;

/// Appends the selected components of each row, `(rows, count)`, to `out`.
pub(super) struct Select<'a, T> {
    pub(super) terms: &'a Terms<T>,
    /// `(d, STRIDE)`.
    pub(super) x: &'a [T],
    pub(super) rows: usize,
    pub(super) count: usize,
    /// `(k, STRIDE)`.
    pub(super) joint: &'a mut [T],
    /// `(k, STRIDE)` for the spherical kind.
    pub(super) distances: &'a mut [T],
    /// `(2*d, STRIDE)`.
    pub(super) scratch: &'a mut [T],
    pub(super) out: &'a mut Vec<u32>,
}

impl<T: Real> Kernel<T> for Select<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, x, rows, count, joint, distances, scratch, out } = self;
        log_joint_of_rows(w, terms, x, padded::<T, W>(rows), joint, distances, scratch);
        w.apart(Largest { k: terms.k, rows, count, joint, out });
    }
}

/// The selection from log joint densities, `(k, STRIDE)`, none of which is NaN.
struct Largest<'a, T> {
    k: usize,
    rows: usize,
    count: usize,
    joint: &'a [T],
    out: &'a mut Vec<u32>,
}

impl<T: Real> Kernel<T> for Largest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { k, rows, count, joint, out } = self;
        assert!(joint.len() >= k * STRIDE && W::LANES <= LANES && count >= 1 && padded::<T, W>(rows) <= STRIDE);
        let size = (k / (2 * count)).clamp(1, MOST_IN_GROUP);
        let groups = k.div_ceil(size);
        let mut maxima = vec![T::ZERO; groups * W::LANES];
        let mut one = vec![T::ZERO; groups];
        let mut reached: Vec<Vec<u32>> = (0..W::LANES).map(|_| Vec::with_capacity(k)).collect();
        for first in (0..rows).step_by(W::LANES) {
            let cells = joint[first..].as_ptr();
            for group in 0..groups {
                let mut most = w.splat(T::of(f64::NEG_INFINITY));
                for c in group * size..k.min((group + 1) * size) {
                    // SAFETY: c < k, and first + LANES is at most the padded rows, which is at most STRIDE.
                    most = w.max(unsafe { w.load(cells.add(c * STRIDE)) }, most);
                }
                // SAFETY: maxima has LANES values per group.
                unsafe { w.store(maxima.as_mut_ptr().add(group * W::LANES), most) };
            }
            let mut bounds = [T::of(f64::NEG_INFINITY); LANES];
            for (lane, bound) in bounds.iter_mut().enumerate().take(W::LANES) {
                if groups > count {
                    one.iter_mut().zip(maxima[lane..].iter().step_by(W::LANES)).for_each(|(to, v)| *to = *v);
                    *bound = *one.select_nth_unstable_by(count - 1, |a, b| descending(*a, *b)).1;
                }
            }
            // SAFETY: bounds has LANES (16) values, the largest vector length.
            let bound = unsafe { w.load(bounds.as_ptr()) };
            let all = u32::MAX >> (32 - W::LANES);
            reached.iter_mut().for_each(Vec::clear);
            for c in 0..k {
                // SAFETY: as for the maxima.
                let mut lanes = !w.lt_bits(unsafe { w.load(cells.add(c * STRIDE)) }, bound) & all;
                while lanes != 0 {
                    reached[lanes.trailing_zeros() as usize].push(c as u32);
                    lanes &= lanes - 1;
                }
            }
            for (lane, reached) in reached.iter_mut().enumerate().take(rows - first) {
                let value = |c: u32| joint[c as usize * STRIDE + first + lane];
                if reached.len() > count {
                    reached.select_nth_unstable_by(count - 1, |a, b| descending(value(*a), value(*b)).then(a.cmp(b)));
                    reached.truncate(count);
                    reached.sort_unstable();
                }
                out.extend_from_slice(reached);
            }
        }
    }
}

fn descending<T: Real>(a: T, b: T) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}
