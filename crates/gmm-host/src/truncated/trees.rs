//! Trees over the components, which find components near a row.
//!
//! A node divides its components by the plane halfway between the means of two of them, in columns scaled by the pooled
//! variances; a row goes down on its side. A row near a plane may miss its component, so the first lists come from several
//! trees, and each pass has a tree of its own.

use gmm_model::{Covariances, Draws, Mixture};
use rayon::prelude::*;

use crate::cpu::simd::{Real, Words};

/// Least number of components of a leaf before it is divided.
const LEAF: usize = 8;

/// From so many components on, threads share a node.
const TOGETHER: usize = 4096;

/// If a plane leaves less than this part of the components on one side, half of them go to either.
const LEAST: f64 = 0.1;

pub(crate) struct Trees<T> {
    pub(crate) nodes: Vec<Node>,
    /// Normals of the planes, `(planes, padded)`.
    pub(crate) normals: Vec<T>,
    pub(crate) roots: Vec<u32>,
    /// The components of the leaves, all of them for each tree.
    pub(crate) members: Vec<u32>,
    padded: usize,
}

pub(crate) enum Node {
    /// The plane and the nodes below it and above it.
    Plane { at: u32, threshold: f64, sides: [u32; 2] },
    /// A range of `members`.
    Leaf { first: u32, end: u32 },
}

impl<T: Real> Trees<T> {
    /// Some trees of the components. Rows are less the shift, and `padded` long.
    pub(crate) fn new(mixture: &Mixture, shift: &[f64], (count, padded): (usize, usize), draws: &mut Draws) -> Self {
        let (k, d) = mixture.means().dim();
        let scales: Vec<f64> = (0..d)
            .map(|j| {
                let variance = |c: usize| match mixture.covariances() {
                    Covariances::Full(all) => all[[c, j, j]],
                    Covariances::Tied(all) => all[[j, j]],
                    Covariances::Diag(all) => all[[c, j]],
                    Covariances::Spherical(all) => all[c],
                };
                (0..k).map(|c| mixture.weights()[c] * variance(c)).sum::<f64>().recip()
            })
            .map(|scale| if scale.is_finite() { scale } else { 1.0 })
            .collect();
        let mut out = Self { nodes: Vec::new(), normals: Vec::new(), roots: Vec::new(), members: Vec::new(), padded };
        for _ in 0..count {
            let mut all: Vec<u32> = (0..k as u32).collect();
            let root = out.grow(&mut all, mixture, (shift, &scales), draws);
            out.roots.push(root);
        }
        out
    }

    /// Adds a node of these components; returns its index.
    fn grow(
        &mut self,
        among: &mut [u32],
        mixture: &Mixture,
        (shift, scales): (&[f64], &[f64]),
        draws: &mut Draws,
    ) -> u32 {
        let index = self.nodes.len();
        let first = self.members.len() as u32;
        if among.len() <= LEAF {
            self.members.extend_from_slice(among);
            self.nodes.push(Node::Leaf { first, end: self.members.len() as u32 });
            return index as u32;
        }
        let means = mixture.means();
        let [a, b] = [0, 1].map(|_| means.row(among[draws.index(among.len())] as usize));
        let normal: Vec<f64> = (0..scales.len()).map(|j| (a[j] - b[j]) * scales[j]).collect();
        let place = |c: u32| {
            let terms = means.row(c as usize).into_iter().zip(shift).zip(&normal).map(|((m, s), n)| (m - s) * n);
            terms.sum::<f64>()
        };
        let halfway = 0.5 * (0..normal.len()).map(|j| normal[j] * (a[j] + b[j] - 2.0 * shift[j])).sum::<f64>();
        let placed = |&c: &u32| (place(c), c);
        let mut places: Vec<(f64, u32)> = match among.len() {
            0..TOGETHER => among.iter().map(placed).collect(),
            _ => among.par_iter().with_min_len(TOGETHER / 4).map(placed).collect(),
        };
        places.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut threshold, mut below) = (halfway, places.partition_point(|one| one.0 < halfway));
        let least = (LEAST * among.len() as f64).ceil() as usize;
        if below.min(among.len() - below) < least {
            below = among.len() / 2;
            threshold = places[below].0;
        }
        among.iter_mut().zip(&places).for_each(|(slot, one)| *slot = one.1);
        let at = (self.normals.len() / self.padded) as u32;
        self.normals.extend((0..self.padded).map(|j| T::of(normal.get(j).copied().unwrap_or(0.0))));
        self.nodes.push(Node::Plane { at, threshold, sides: [0; 2] });
        let (left, right) = among.split_at_mut(below);
        let grown = [left, right].map(|side| self.grow(side, mixture, (shift, scales), draws));
        if let Node::Plane { sides, .. } = &mut self.nodes[index] {
            *sides = grown;
        }
        index as u32
    }

    /// The components of the row's leaf in each tree; some may come several times.
    #[inline(always)]
    pub(super) fn near<W: Words<T>>(&self, w: W, x: &[T], mut see: impl FnMut(u32)) {
        assert!(x.len() == self.padded && self.padded.is_multiple_of(W::LANES), "padded numbers");
        for &root in &self.roots {
            let mut node = root;
            while let Node::Plane { at, threshold, sides } = &self.nodes[node as usize] {
                let normal = &self.normals[*at as usize * self.padded..][..self.padded];
                let mut sum = w.splat(T::ZERO);
                for j in (0..self.padded).step_by(W::LANES) {
                    // SAFETY: both have `padded` numbers, a multiple of `LANES`, as asserted.
                    let (x, n) = unsafe { (w.load(x.as_ptr().add(j)), w.load(normal.as_ptr().add(j))) };
                    sum = w.fma(x, n, sum);
                }
                node = sides[usize::from(w.sum(sum).to_f64() >= *threshold)];
            }
            if let Node::Leaf { first, end } = self.nodes[node as usize] {
                self.members[first as usize..end as usize].iter().for_each(|&c| see(c));
            }
        }
    }
}
