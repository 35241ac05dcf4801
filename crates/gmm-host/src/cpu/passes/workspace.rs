//! Scratch of passes: each thread borrows a workspace for the time of a share.

use std::sync::{Mutex, PoisonError};

use gmm_model::CovarianceType;

use super::super::layout::{BLOCK, Buffer, STRIDE};
use super::super::moments::SCRATCH;
use super::super::simd::Real;
use super::Shape;

/// Scratch of the share that a thread computes; row outputs have `BLOCK` values.
pub(super) struct Workspace<T> {
    /// `(k, STRIDE)`: log joint densities, then responsibilities; or distances.
    pub(super) joint: Buffer<T>,
    /// `(k, STRIDE)` squared distances for the spherical kind; else empty.
    pub(super) distances: Buffer<T>,
    /// `(scratch*d, STRIDE)`, for as many scratch columns per dimension as the passes need.
    pub(super) scratch: Buffer<T>,
    pub(super) top: Buffer<T>,
    pub(super) rest: Buffer<T>,
    pub(super) entropy: Buffer<T>,
    pub(super) labels: Vec<u32>,
    /// Capacity for `k` components.
    pub(super) dense: Vec<u32>,
    /// `(BLOCK, k)` responsibilities given by the caller; empty until first used.
    pub(super) given: Vec<f64>,
    /// [`Layout::block_buffer`](super::Layout::block_buffer).
    pub(super) block: Buffer<T>,
}

impl<T: Real> Workspace<T> {
    fn new(Shape { kind, k, d }: Shape, scratch: usize, block: usize) -> Self {
        Self {
            joint: Buffer::zeroed(k * STRIDE),
            distances: Buffer::zeroed(if kind == CovarianceType::Spherical { k * STRIDE } else { 0 }),
            scratch: Buffer::zeroed(scratch * d * STRIDE),
            top: Buffer::zeroed(BLOCK),
            rest: Buffer::zeroed(BLOCK),
            entropy: Buffer::zeroed(BLOCK),
            labels: vec![0; BLOCK],
            dense: Vec::with_capacity(k),
            given: Vec::new(),
            block: Buffer::zeroed(block),
        }
    }

    /// Upper bound on the bytes of a workspace.
    pub(super) fn bytes(Shape { k, d, .. }: Shape) -> u128 {
        (2 * k as u128 + ((SCRATCH + 1) * d) as u128 + 4) * (STRIDE * size_of::<T>()) as u128
    }
}

/// The workspaces that no thread uses at the moment. They are not numbered by thread: a thread whose work waits for others
/// may be given a second share meanwhile.
pub(super) struct Workspaces<T> {
    shape: Shape,
    /// Scratch columns per dimension.
    scratch: usize,
    /// Values of a block that is copied in each pass; 0 if no layout so far was one without copies.
    block: usize,
    free: Mutex<Vec<Workspace<T>>>,
}

impl<T: Real> Workspaces<T> {
    pub(super) const fn new(shape: Shape) -> Self {
        Self { shape, scratch: 0, block: 0, free: Mutex::new(Vec::new()) }
    }

    /// Discards all workspaces if they are of another shape, or too small for this scratch and these blocks. Returns whether
    /// they were not.
    pub(super) fn serve(&mut self, shape: Shape, scratch: usize, block: usize) -> bool {
        let is_alike = self.shape == shape;
        if is_alike && self.scratch >= scratch && self.block >= block {
            return true;
        }
        let least = |old: usize| if is_alike { old } else { 0 };
        let (scratch, block) = (scratch.max(least(self.scratch)), block.max(least(self.block)));
        *self = Self { scratch, block, ..Self::new(shape) };
        false
    }

    /// Makes workspaces until `count` are free, so that a pass on `count` threads allocates none.
    pub(super) fn reserve(&mut self, count: usize) {
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        let missing = count.saturating_sub(free.len());
        free.extend((0..missing).map(|_| Workspace::new(self.shape, self.scratch, self.block)));
    }

    /// How many more [`reserve`](Self::reserve) would make.
    pub(super) fn missing(&mut self, count: usize) -> usize {
        count.saturating_sub(self.free.get_mut().unwrap_or_else(PoisonError::into_inner).len())
    }

    /// Calls `work` with a free workspace, or with a new one if there is none. That of a call that panics is not used again.
    pub(super) fn lend<R>(&self, work: impl FnOnce(&mut Workspace<T>) -> R) -> R {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = free().pop();
        let mut workspace = taken.unwrap_or_else(|| Workspace::new(self.shape, self.scratch, self.block));
        let found = work(&mut workspace);
        free().push(workspace);
        found
    }
}
