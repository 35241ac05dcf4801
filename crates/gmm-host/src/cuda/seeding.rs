//! What k-means++ asks of resident rows: distances to the nearest centre stay on the device, and the host sees sums of
//! them, and the few that a draw falls among.

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::layout::tiles;
use gmm_kernels::squared_distances::{CANDIDATES, SUMMED_ROWS};
use gmm_model::CovarianceType;
use ndarray::{ArrayView2, Axis};

use super::launch::Launcher;
use super::parameters;
use super::rows::CudaRows;
use super::upload::Number;
use super::workspace::{Pinned, Slot, pin, pinned_empty};
use crate::Error;
use crate::engine::DISTANCE_ROWS;

const _: () = assert!(SUMMED_ROWS == DISTANCE_ROWS as u64);

const WHAT: &str = "distances to centres on the GPU";

/// What seeding keeps on the device, from the first centre until it is told to forget.
pub(crate) struct SeedMemory<T: Number> {
    /// `(n,)`.
    near: Slot<f64>,
    /// Whether `near` holds anything.
    begun: bool,
    /// Sums of groups of rows, or partial potentials and, after them, potentials.
    sums: Slot<f64>,
    /// A centre or four candidates, high parts before low ones.
    centres: Slot<T>,
    host_centres: Pinned<T>,
    host_sums: Pinned<f64>,
}

impl<T: Number> SeedMemory<T> {
    pub(crate) fn empty() -> Self {
        Self {
            near: Slot::empty(),
            begun: false,
            sums: Slot::empty(),
            centres: Slot::empty(),
            host_centres: pinned_empty(),
            host_sums: pinned_empty(),
        }
    }

    /// Frees everything. The context is current.
    pub(crate) fn forget(&mut self) {
        *self = Self::empty();
    }
}

impl<T: Number> CudaRows<T> {
    /// [`Resident::add_centre`](crate::Resident::add_centre).
    pub(super) fn add_centre_here(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        let groups = self.n.div_ceil(DISTANCE_ROWS);
        self.reserve_seeding(groups)?;
        let shape = self.shape(CovarianceType::Spherical, 1);
        self.send_centres(ArrayView2::from_shape((1, self.d), centre).expect("d values"))?;
        let memory = &self.seeding;
        let (near, sums) = (memory.near.first(self.n), memory.sums.first(groups));
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.add_centre(&shape, &self.whole(), &memory.centres.first(2 * self.d), !memory.begun, &near, &sums)?;
        let sums = self.seed_results(0..groups)?.to_vec();
        self.seeding.begun = true;
        Ok(sums)
    }

    /// [`Resident::potentials`](crate::Resident::potentials).
    pub(super) fn potentials_here(&mut self, candidates: ArrayView2<'_, f64>) -> Result<Vec<f64>, Error> {
        assert!(self.seeding.begun, "no centre was added");
        let blocks = u64::from(16 * self.gpu.limits.multiprocessors).min(tiles(self.n as u64)) as usize;
        let partials = blocks * CANDIDATES;
        self.reserve_seeding(partials + CANDIDATES)?;
        let mut out = Vec::with_capacity(candidates.nrows());
        for some in candidates.axis_chunks_iter(Axis(0), CANDIDATES) {
            let shape = self.shape(CovarianceType::Spherical, some.nrows());
            self.send_centres(some)?;
            let memory = &self.seeding;
            let sums = memory.sums.first(partials + CANDIDATES);
            let (near, centres) = (memory.near.first(self.n), memory.centres.first(2 * some.len()));
            let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
            launcher.potentials(&shape, &self.whole(), &centres, &near, blocks as u32, &sums)?;
            let found = self.seed_results(partials..partials + some.nrows())?;
            out.extend_from_slice(found);
        }
        Ok(out)
    }

    /// [`Resident::near`](crate::Resident::near).
    pub(super) fn near_here(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        assert!(self.seeding.begun, "no centre was added");
        let len: usize = ranges.iter().map(Range::len).sum();
        let memory = &mut self.seeding;
        pin(&self.gpu, &mut memory.host_sums, len)?;
        let near = memory.near.first(self.n);
        let mut host = &mut memory.host_sums.as_mut_slice()[..len];
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (piece, rest) = host.split_at_mut(range.len());
            // SAFETY: pinned; read only after the wait below.
            let copy = unsafe { near.index(range.clone()).async_copy_to(piece, &self.queue.stream) };
            self.gpu.check("a copy of distances from the device", copy)?;
            host = rest;
        }
        self.queue.wait(&self.gpu)?;
        Ok(self.seeding.host_sums.as_slice()[..len].to_vec())
    }

    /// Room for `sums` sums, and for distances and centres.
    fn reserve_seeding(&mut self, sums: usize) -> Result<(), Error> {
        let (gpu, memory) = (&self.gpu, &mut self.seeding);
        let centres = 2 * CANDIDATES * self.d;
        let wanted = 8 * (self.n as u128 + sums as u128) + (centres * size_of::<T>()) as u128;
        let have = memory.near.bytes() + memory.sums.bytes() + memory.centres.bytes();
        gpu.room(WHAT, wanted, have)?;
        // Never replaced once it holds something: its length does not change.
        memory.near.reserve(gpu, self.n)?;
        memory.sums.reserve(gpu, sums)?;
        memory.centres.reserve(gpu, centres)?;
        pin(gpu, &mut memory.host_centres, centres)?;
        pin(gpu, &mut memory.host_sums, sums)
    }

    fn send_centres(&mut self, centres: ArrayView2<'_, f64>) -> Result<(), Error> {
        let len = centres.len();
        let memory = &mut self.seeding;
        let (high, low) = memory.host_centres.as_mut_slice()[..2 * len].split_at_mut(len);
        parameters::centres(centres, &self.shift, high, low);
        let host = &memory.host_centres.as_slice()[..2 * len];
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for.
        let copy = unsafe { memory.centres.first(2 * len).async_copy_from(host, &self.queue.stream) };
        self.gpu.check("a copy of centres to the device", copy)
    }

    /// Waits for some of the sums.
    fn seed_results(&mut self, range: Range<usize>) -> Result<&[f64], Error> {
        let memory = &mut self.seeding;
        let host = &mut memory.host_sums.as_mut_slice()[..range.len()];
        // SAFETY: pinned; read only after the wait below.
        let copy =
            unsafe { memory.sums.first(range.end).index(range.clone()).async_copy_to(&mut *host, &self.queue.stream) };
        self.gpu.check("a copy of distances from the device", copy)?;
        self.queue.wait(&self.gpu)?;
        Ok(&self.seeding.host_sums.as_slice()[..range.len()])
    }
}
