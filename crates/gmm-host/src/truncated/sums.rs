//! The sums of each component over the rows that list it.

use gmm_model::{CovarianceType, Mixture, Statistics};
use rayon::prelude::*;

use super::join::Sorted;
use super::pass::{AHEAD, Rows, Step};
use crate::cpu::simd::{Dispatch, Kernel, Machine, Words, prefetch};

/// The sums about the means. Each component's are added in the order of the rows, by one thread: the bits do not depend on the
/// number of threads.
pub(super) fn of_lists<T: Dispatch>(machine: Machine, rows: &Rows<T>, mixture: &Mixture, step: &Step) -> Statistics {
    let (k, d) = mixture.means().dim();
    let (kind, means) = (mixture.covariance_type(), mixture.means());
    let mut out = Statistics::zero(kind, mixture.means().to_owned());
    let sorted = Sorted::new(k, step.lists.components.iter().copied());
    let seconds = if kind == CovarianceType::Diag { d } else { 1 };
    let first = out.first.as_slice_mut().expect("a new array");
    let each = out.weight.par_iter_mut().zip(first.par_chunks_mut(d)).zip(out.second.par_chunks_mut(seconds));
    each.enumerate().with_min_len(16).for_each_init(
        || [(); 3].map(|()| vec![0.0; rows.padded]),
        |[mean, ones, squares], (c, ((weight, first), second))| {
            let entries = &sorted.items[sorted.starts[c]..sorted.starts[c + 1]];
            mean.iter_mut().zip(means.row(c).iter().zip(&rows.shift)).for_each(|(slot, (m, s))| *slot = m - s);
            *weight = T::dispatch(machine, Component { rows, step, entries, mean, ones, squares });
            first.copy_from_slice(&ones[..d]);
            if kind == CovarianceType::Diag {
                second.copy_from_slice(&squares[..d]);
            } else {
                second[0] = squares[..d].iter().sum();
            }
        },
    );
    out
}

/// The rows of one component.
struct Component<'a, T> {
    rows: &'a Rows<T>,
    step: &'a Step,
    /// Indices of `responsibilities`.
    entries: &'a [u32],
    /// The mean less the shift, and the sums, `(padded,)`.
    mean: &'a [f64],
    ones: &'a mut [f64],
    squares: &'a mut [f64],
}

impl<T: Dispatch> Kernel<T> for Component<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, _: W) -> f64 {
        let Self { rows, step, entries, mean, ones, squares } = self;
        let g = step.lists.g;
        ones.fill(0.0);
        squares.fill(0.0);
        let mut total = 0.0;
        let row_of = |entry: u32| step.lists.order[entry as usize / g] as usize;
        for (i, &entry) in entries.iter().enumerate() {
            if let Some(&later) = entries.get(i + AHEAD) {
                prefetch(rows.row(row_of(later)));
            }
            let row = row_of(entry);
            let r = step.responsibilities[entry as usize] * rows.weight(row);
            if r == 0.0 {
                continue;
            }
            total += r;
            let x = &rows.row(row)[..mean.len()];
            let sums = ones.iter_mut().zip(squares.iter_mut());
            for ((one, square), (x, m)) in sums.zip(x.iter().zip(mean)) {
                let z = x.to_f64() - m;
                let scaled = r * z;
                *one += scaled;
                *square += scaled * z;
            }
        }
        total
    }
}
