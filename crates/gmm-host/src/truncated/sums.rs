//! The sums of each component over the rows that list it.

use gmm_model::{CovarianceType, Mixture, Statistics};
use rayon::prelude::*;

use super::join::Sorted;
use super::pass::{AHEAD, Rows, Step};
use crate::cpu::simd::{Dispatch, Kernel, Machine, Words, prefetch};
use crate::{Error, memory};

/// The sums about the means. Each component's are added in the order of the rows, by one thread: the bits do not depend on the
/// number of threads.
///
/// # Errors
/// [`Error::Memory`].
pub(super) fn of_lists<T: Dispatch>(
    machine: Machine,
    rows: &Rows<T>,
    mixture: &Mixture,
    step: &Step,
) -> Result<Statistics, Error> {
    let (k, d) = mixture.means().dim();
    let (kind, means) = (mixture.covariance_type(), mixture.means());
    let seconds = kind.second_len(1, d);
    memory::check("the sums of the components", 8 * k as u128 * (1 + d + seconds) as u128)?;
    let mut out = Statistics::zero(kind, means.to_owned());
    let sorted = Sorted::new(k, step.lists.components.iter().copied());
    let first = out.first.as_slice_mut().expect("a new array");
    let each = out.weight.par_iter_mut().zip(first.par_chunks_mut(d)).zip(out.second.par_chunks_mut(seconds));
    // Sums of all pairs of columns are enough work for a thread.
    let together = if kind == CovarianceType::Full { 1 } else { 16 };
    each.enumerate().with_min_len(together).for_each_init(
        || [(); 4].map(|()| vec![0.0; rows.padded]),
        |[mean, z, ones, squares], (c, ((weight, first), second))| {
            let entries = &sorted.items[sorted.starts[c]..sorted.starts[c + 1]];
            mean.iter_mut().zip(means.row(c).iter().zip(&rows.shift)).for_each(|(slot, (m, s))| *slot = m - s);
            let second_sums = match kind {
                CovarianceType::Full => Seconds::Products(second),
                _ => Seconds::Squares(squares),
            };
            *weight = T::dispatch(machine, Component { rows, step, entries, mean, z, ones, seconds: second_sums });
            first.copy_from_slice(&ones[..d]);
            match kind {
                CovarianceType::Full => {}
                CovarianceType::Spherical => second[0] = squares[..d].iter().sum(),
                _ => second.copy_from_slice(&squares[..d]),
            }
        },
    );
    Ok(out)
}

/// Second sums of a component.
enum Seconds<'a> {
    /// Of each column, `(padded,)`.
    Squares(&'a mut [f64]),
    /// Of each pair of columns, packed as in [`Statistics`].
    Products(&'a mut [f64]),
}

/// The rows of one component.
struct Component<'a, T> {
    rows: &'a Rows<T>,
    step: &'a Step,
    /// Indices of `responsibilities`.
    entries: &'a [u32],
    /// The mean less the shift, room for a row, and the sums, `(padded,)`.
    mean: &'a [f64],
    z: &'a mut [f64],
    ones: &'a mut [f64],
    seconds: Seconds<'a>,
}

impl<T: Dispatch> Kernel<T> for Component<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, _: W) -> f64 {
        let Self { rows, step, entries, mean, z, ones, mut seconds } = self;
        let g = step.lists.g;
        ones.fill(0.0);
        match &mut seconds {
            Seconds::Squares(all) | Seconds::Products(all) => all.fill(0.0),
        }
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
            match &mut seconds {
                Seconds::Squares(all) => {
                    let sums = ones.iter_mut().zip(all.iter_mut());
                    for ((one, square), (x, m)) in sums.zip(x.iter().zip(mean)) {
                        let z = x.to_f64() - m;
                        let scaled = r * z;
                        *one += scaled;
                        *square += scaled * z;
                    }
                }
                Seconds::Products(all) => {
                    z.iter_mut().zip(x.iter().zip(mean)).for_each(|(z, (x, m))| *z = x.to_f64() - m);
                    ones.iter_mut().zip(&*z).for_each(|(one, z)| *one += r * z);
                    let mut rest = &mut **all;
                    for i in 0..rows.shift.len() {
                        let (line, after) = rest.split_at_mut(i + 1);
                        let scaled = r * z[i];
                        line.iter_mut().zip(&*z).for_each(|(sum, z)| *sum += scaled * z);
                        rest = after;
                    }
                }
            }
        }
        total
    }
}
