//! The components of largest density of each row.
//!
//! `k` may be a thousand and `count` thirty, so the densities of a row are not sorted. Components are taken in groups, at
//! least twice as many as `count`. Bisection finds a bound that `count` of the groups' maxima reach, which are densities of
//! as many components. The few components that reach it are listed, and bisection among them finds the value that exactly
//! `count` reach. Their order by index is kept throughout.

use std::cmp::Ordering;

use super::super::simd::{Kernel, Real, Words};
use super::LANES;

/// Components whose comparisons are collected in one word.
const WORD: usize = u64::BITS as usize;
/// Listed without a branch on how many of a word there are: of 1024 components of which 45 reach the bound, a word has 3.
const AT_ONCE: usize = 6;
/// Halvings of the interval of the maxima: the bound is then a few hundredths of a deviation of the maxima too low.
const HALVINGS: usize = 8;
/// Halvings among the listed components, after which values are taken to be equal: the bits of a float.
const MOST_HALVINGS: usize = 32;

/// Workspace of [`Largest`].
pub(super) struct Scratch<T> {
    maxima: Vec<T>,
    list: Vec<u32>,
    values: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// For rows whose densities are `pitch` apart.
    pub(super) fn new(pitch: usize, count: usize) -> Self {
        let (values, list) = (vec![T::ZERO; pitch + LANES], vec![0; pitch + WORD]);
        Self { maxima: vec![T::ZERO; 2 * count + LANES], list, values }
    }
}

/// Appends the `count` components of largest density of each row, ascending, and their densities. Of equal densities the
/// first component counts as larger.
pub(super) struct Largest<'a, T> {
    pub(super) k: usize,
    /// From 1 to `k`.
    pub(super) count: usize,
    /// Of no NaN, −∞ past `k`: `(rows, pitch)`.
    pub(super) joint: &'a [T],
    /// A multiple of `LANES`.
    pub(super) pitch: usize,
    pub(super) scratch: &'a mut Scratch<T>,
    /// `(rows, count)`.
    pub(super) components: &'a mut Vec<u32>,
    /// `(rows, count)`, each row padded with −∞ to a multiple of `LANES`.
    pub(super) values: &'a mut Vec<T>,
}

impl<T: Real> Kernel<T> for Largest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { k, count, joint, pitch, scratch, components, values: out } = self;
        assert!(
            count >= 1 && count <= k && k <= pitch && pitch.is_multiple_of(LANES) && LANES.is_multiple_of(W::LANES)
        );
        let Scratch { maxima, list, values } = scratch;
        let padding = count.next_multiple_of(LANES) - count;
        for row in joint.chunks_exact(pitch) {
            let bound = bound(w, row, count, maxima);
            // All components reach −∞, those past k too, which are the last.
            let n = if bound > f64::NEG_INFINITY { reach(w, row, T::of(bound), list) } else { all(k, list) };
            for (value, &c) in values.iter_mut().zip(&list[..n]) {
                *value = row[c as usize];
            }
            if n > count {
                // Vectors of values end in −∞, which is never kept.
                values[n..n.next_multiple_of(W::LANES)].fill(T::of(f64::NEG_INFINITY));
                let low = if bound > f64::NEG_INFINITY { bound } else { least(&values[..n]) };
                match cut(w, &values[..n.next_multiple_of(W::LANES)], count, low) {
                    Some(least) => keep(list, values, n, |v| v >= least),
                    None => keep_of_equals(list, &mut values[..n], count),
                }
            }
            components.extend_from_slice(&list[..count]);
            out.extend_from_slice(&values[..count]);
            out.extend(std::iter::repeat_n(T::of(f64::NEG_INFINITY), padding));
        }
    }
}

/// A value that at least `count` components of a row reach, and not many more; −∞ if there are too few components for
/// groups.
#[inline(always)]
fn bound<T: Real, W: Words<T>>(w: W, row: &[T], count: usize, maxima: &mut [T]) -> f64 {
    let (groups, vectors) = ((2 * count).div_ceil(W::LANES), row.len() / W::LANES);
    if 2 * groups > vectors {
        return f64::NEG_INFINITY;
    }
    let maxima = &mut maxima[..groups * W::LANES];
    for group in 0..groups {
        // SAFETY: the row has `vectors` vectors, and the maxima one for each group, by the slice.
        unsafe {
            let mut most = w.load(row.as_ptr().add(group * W::LANES));
            for v in (group + groups..vectors).step_by(groups) {
                most = w.max(w.load(row.as_ptr().add(v * W::LANES)), most);
            }
            w.store(maxima.as_mut_ptr().add(group * W::LANES), most);
        }
    }
    let (mut low, mut high) = extremes(w, maxima);
    if low == f64::NEG_INFINITY {
        return low;
    }
    for _ in 0..HALVINGS {
        let middle = T::of(0.5 * (low + high));
        let side = if reached(w, maxima, middle) >= count { &mut low } else { &mut high };
        *side = middle.to_f64();
    }
    low
}

/// A value that exactly `count` values reach, more of which reach `low`; `None` if equal values prevent that.
#[inline(always)]
fn cut<T: Real, W: Words<T>>(w: W, values: &[T], count: usize, mut low: f64) -> Option<T> {
    let mut high = extremes(w, values).1;
    for _ in 0..MOST_HALVINGS {
        let middle = T::of(0.5 * (low + high));
        match reached(w, values, middle).cmp(&count) {
            Ordering::Equal => return Some(middle),
            Ordering::Greater => low = middle.to_f64(),
            Ordering::Less => high = middle.to_f64(),
        }
    }
    None
}

/// The smallest and the largest of whole vectors of values.
#[inline(always)]
pub(super) fn extremes<T: Real, W: Words<T>>(w: W, values: &[T]) -> (f64, f64) {
    let mut lanes = values.chunks_exact(W::LANES);
    let first = lanes.next().expect("a vector");
    // SAFETY: each chunk holds LANES values.
    let (mut least, mut most) = unsafe { (w.load(first.as_ptr()), w.load(first.as_ptr())) };
    for chunk in lanes {
        // SAFETY: as above.
        let v = unsafe { w.load(chunk.as_ptr()) };
        (least, most) = (w.select_lt(v, least, v, least), w.max(v, most));
    }
    let (mut low, mut high) = ([T::ZERO; LANES], [T::ZERO; LANES]);
    // SAFETY: LANES (16) values are the longest vector.
    unsafe {
        w.store(low.as_mut_ptr(), least);
        w.store(high.as_mut_ptr(), most);
    }
    // In halves, so that the comparisons are vector operations.
    let mut half = W::LANES;
    while half > 1 {
        half /= 2;
        for i in 0..half {
            low[i] = if low[i + half] < low[i] { low[i + half] } else { low[i] };
            high[i] = if high[i + half] > high[i] { high[i + half] } else { high[i] };
        }
    }
    (low[0].to_f64(), high[0].to_f64())
}

/// How many of whole vectors of values reach `bound`.
#[inline(always)]
fn reached<T: Real, W: Words<T>>(w: W, values: &[T], bound: T) -> usize {
    let bound = w.splat(bound);
    let mut below = 0;
    for lanes in values.chunks_exact(W::LANES) {
        // SAFETY: the chunk holds LANES values.
        below += w.lt_bits(unsafe { w.load(lanes.as_ptr()) }, bound).count_ones();
    }
    values.len() - below as usize
}

/// Lists the components of a row that reach `bound`, and returns their number.
#[inline(always)]
fn reach<T: Real, W: Words<T>>(w: W, row: &[T], bound: T, list: &mut [u32]) -> usize {
    let (bound, all) = (w.splat(bound), u32::MAX >> (32 - W::LANES));
    let mut n = 0;
    for (word, values) in row.chunks(WORD).enumerate() {
        let mut bits = 0;
        for (i, lanes) in values.chunks_exact(W::LANES).enumerate() {
            // SAFETY: the chunk holds LANES values.
            let below = w.lt_bits(unsafe { w.load(lanes.as_ptr()) }, bound);
            bits |= u64::from(!below & all) << (i * W::LANES);
        }
        let mut slots = list[n..].chunks_exact_mut(AT_ONCE);
        n += bits.count_ones() as usize;
        loop {
            for slot in slots.next().expect("room for a word more than there are components") {
                *slot = (word * WORD) as u32 + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                break;
            }
        }
    }
    n
}

/// The smallest value, but for −∞.
fn least<T: Real>(values: &[T]) -> f64 {
    let finite = values.iter().map(|v| v.to_f64()).filter(|v| v.is_finite());
    finite.fold(f64::INFINITY, f64::min)
}

/// Lists all `k` components.
fn all(k: usize, list: &mut [u32]) -> usize {
    list[..k].iter_mut().zip(0..).for_each(|(slot, c)| *slot = c);
    k
}

/// Moves the values that `is_kept` and their components to the front.
#[inline(always)]
fn keep<T: Real>(list: &mut [u32], values: &mut [T], n: usize, mut is_kept: impl FnMut(T) -> bool) {
    let mut kept = 0;
    for i in 0..n {
        let (c, value) = (list[i], values[i]);
        (list[kept], values[kept]) = (c, value);
        kept += usize::from(is_kept(value));
    }
}

/// [`keep`] if the smallest kept value has equals that are not kept.
#[cold]
fn keep_of_equals<T: Real>(list: &mut [u32], values: &mut [T], count: usize) {
    let mut sorted = values.to_vec();
    let least = *sorted.select_nth_unstable_by(count - 1, |a, b| b.partial_cmp(a).unwrap_or(Ordering::Equal)).1;
    let mut equals = count - values.iter().filter(|v| **v > least).count();
    keep(list, values, values.len(), |v| {
        let is_equal = v == least && equals > 0;
        equals -= usize::from(is_equal);
        v > least || is_equal
    });
}
