//! The first lists of a search, from trees over the components.

use std::sync::Arc;

use gmm_model::Mixture;
use rayon::prelude::*;

use super::pass::{Rows, TASK, best};
use super::scores::Terms;
use super::search::{Lists, Search};
use super::trees::Trees;
use crate::Error;
use crate::cpu::simd::{Dispatch, Kernel, Machine, Words};

/// Number of trees.
pub(crate) const TREES: usize = 6;

/// The purpose of their draws.
pub(crate) const TREES_OF_FIRST: &str = "truncated trees";

/// The best components of each row's leaves, and of each mean's, which are the neighbours of its component.
///
/// # Errors
/// As for [`Search::sizes`].
pub(super) fn lists<T: Dispatch>(
    machine: Machine,
    rows: &Rows<T>,
    mixture: &Mixture,
    terms: &Terms<T>,
    search: &Search,
) -> Result<Lists, Error> {
    let (n, k) = (rows.n, mixture.n_components());
    let (g, h) = search.sizes(n, k)?;
    let order = Arc::new((0..n as u32).collect());
    if g == k {
        let components = (0..n * k).map(|i| (i % k) as u32).collect();
        return Ok(Lists { order, components: Arc::new(components), neighbours: Arc::default(), g, h });
    }
    let draws = &mut search.draws(TREES_OF_FIRST);
    let trees = Trees::new(mixture, &rows.shift, (TREES, rows.padded), draws);
    let components = Arc::new(near(machine, &trees, terms, (&rows.cells, g, false)));
    Ok(Lists { order, components, neighbours: Arc::new(of_means(machine, &trees, terms, h)), g, h })
}

/// The `h` neighbours of each component: itself, and those that its mean explains best among those of its leaves, `(k, h)`.
pub(crate) fn of_means<T: Dispatch>(machine: Machine, trees: &Trees<T>, terms: &Terms<T>, h: usize) -> Vec<u32> {
    near(machine, trees, terms, (terms.means(), h, true))
}

/// The best components of some points, `each` of them; they may be the means themselves.
fn near<T: Dispatch>(
    machine: Machine,
    trees: &Trees<T>,
    terms: &Terms<T>,
    (points, each, have_selves): (&[T], usize, bool),
) -> Vec<u32> {
    let padded = terms.padded;
    let mut found = vec![0; points.len() / padded * each];
    let tasks = points.par_chunks(TASK * padded).zip(found.par_chunks_mut(TASK * each)).enumerate();
    tasks.for_each(|(task, (points, found))| {
        let first_self = have_selves.then_some((task * TASK) as u32);
        T::dispatch(machine, Near { trees, terms, points, each, first_self, found });
    });
    found
}

/// The best components of some points.
struct Near<'a, T> {
    trees: &'a Trees<T>,
    terms: &'a Terms<T>,
    /// `(.., padded)`
    points: &'a [T],
    /// Components of a point.
    each: usize,
    /// If the points are means: the component of the first, each of which is the first of its own.
    first_self: Option<u32>,
    found: &'a mut [u32],
}

impl<T: Dispatch> Kernel<T> for Near<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { trees, terms, points, each, first_self, found } = self;
        let k = terms.weights.len() as u32;
        let (mut candidates, mut joint, mut tops) = (Vec::new(), Vec::new(), vec![0.0; each]);
        let all = points.chunks_exact(points.len() / (found.len() / each)).zip(found.chunks_exact_mut(each));
        for (i, (x, listed)) in (0..).zip(all) {
            candidates.clear();
            trees.near(w, x, |c| candidates.push(c));
            candidates.sort_unstable();
            candidates.dedup();
            let mut next = candidates.last().copied().unwrap_or(0);
            while candidates.len() <= each {
                next = (next + 1) % k;
                if !candidates.contains(&next) {
                    candidates.push(next);
                } else if candidates.len() == k as usize {
                    break;
                }
            }
            let own = first_self.map(|first| first + i);
            if let Some(own) = own {
                candidates.retain(|c| *c != own);
            }
            terms.log_joint(w, x, &candidates, &mut joint);
            let skip = usize::from(own.is_some());
            best(&candidates, &joint, &mut listed[skip..], &mut tops[skip..]);
            own.into_iter().for_each(|own| listed[0] = own);
        }
    }
}
