//! What k-means++ asks of resident rows: distances to the nearest centre stay on the device, rows are drawn by them there, and
//! the host sees sums and the numbers of those rows, once for each centre ([`one_by_one`]) or once in all ([`ahead`]).

pub(super) mod ahead;
mod one_by_one;

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::draw_rows::DRAWN_ROWS;
use gmm_kernels::squared_distances::{CANDIDATES, SUMMED_ROWS};
use gmm_model::CovarianceType;
use ndarray::ArrayView2;

use super::launch::Launcher;
use super::parameters;
use super::rows::CudaRows;
use super::upload::Number;
use super::workspace::{Pinned, Slot, pin, pinned_empty};
use crate::Error;
use crate::engine::DISTANCE_ROWS;

/// Rows of which a kernel adds up distances, and how many such sums are one of [`DISTANCE_ROWS`]: a kernel has blocks for
/// more parts of few rows than draws need to tell apart.
const SUMMED: usize = SUMMED_ROWS as usize;
const TOGETHER: usize = DISTANCE_ROWS / SUMMED;
const _: () = assert!(TOGETHER * SUMMED == DISTANCE_ROWS && DRAWN_ROWS == DISTANCE_ROWS as u64);

/// Sums of [`DISTANCE_ROWS`] rows each.
fn together(sums: &[f64]) -> Vec<f64> {
    sums.chunks(TOGETHER).map(|some| some.iter().sum()).collect()
}

/// Bytes that are taken without asking what is free.
const SMALL: u128 = 1 << 20;

const WHAT: &str = "distances to centres on the GPU";

/// What seeding keeps on the device, from the first centre until it is told to forget.
pub(crate) struct SeedMemory<T: Number> {
    /// `(n,)`.
    near: Slot<f64>,
    /// Whether `near` holds anything.
    begun: bool,
    /// Sums of groups of rows, for each candidate.
    sums: Slot<f64>,
    /// A centre, high parts before low ones; or candidates, `(d, 2, C)` for each launch, and behind them the same one by one,
    /// `(places, 2, d)`.
    centres: Slot<T>,
    /// `(candidates, n)`: distances to those that were weighed last, if there was room.
    distances: Slot<T>,
    weighed: Candidates,
    /// Uniform numbers and rows, of [`draw_centres`](crate::Resident::draw_centres).
    draws: Slot<u64>,
    /// Whether a kernel may still run over these buffers.
    pending: bool,
    host_centres: Pinned<T>,
    host_sums: Pinned<f64>,
    /// Groups and uniforms of draws, and the rows that come of them: a kernel reads and writes them here.
    host_draws: Pinned<u64>,
}

/// Candidates that were weighed since the last centre.
#[derive(Default)]
struct Candidates {
    /// What each would leave of each group of rows.
    sums: Vec<Vec<f64>>,
    /// Places that candidates have on the device.
    places: usize,
    /// Whether their distances are there too.
    kept: bool,
}

impl<T: Number> SeedMemory<T> {
    pub(crate) fn empty() -> Self {
        Self {
            near: Slot::empty(),
            begun: false,
            sums: Slot::empty(),
            centres: Slot::empty(),
            distances: Slot::empty(),
            weighed: Candidates::default(),
            draws: Slot::empty(),
            pending: false,
            host_centres: pinned_empty(),
            host_sums: pinned_empty(),
            host_draws: pinned_empty(),
        }
    }

    /// Frees what is on the device. The context is current, and nothing is pending.
    pub(crate) fn forget(&mut self) {
        // Pinning takes longer than a place of a small fit.
        let host_centres = std::mem::replace(&mut self.host_centres, pinned_empty());
        let host_sums = std::mem::replace(&mut self.host_sums, pinned_empty());
        let host_draws = std::mem::replace(&mut self.host_draws, pinned_empty());
        *self = Self { host_centres, host_sums, host_draws, ..Self::empty() };
    }
}

impl<T: Number> CudaRows<T> {
    /// [`Resident::forget_centres`](crate::Resident::forget_centres).
    pub(super) fn forget_centres_here(&mut self) {
        self.gpu.enter_to_drop();
        if self.seeding.pending {
            self.queue.come_to_rest();
        }
        self.seeding.forget();
        self.lloyd.forget();
    }

    /// [`Resident::add_centre`](crate::Resident::add_centre).
    pub(super) fn add_centre_here(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        // What they would leave is less with another centre.
        self.seeding.weighed = Candidates::default();
        let groups = self.n.div_ceil(SUMMED);
        // As much as eight candidates will need, so that it stays.
        self.reserve_seeding(groups, 2 * CANDIDATES)?;
        pin(&self.gpu, &mut self.seeding.host_centres, 2 * self.d)?;
        let shape = self.shape(CovarianceType::Spherical, 1);
        self.send_centres(ArrayView2::from_shape((1, self.d), centre).expect("d values"))?;
        let memory = &self.seeding;
        let (near, sums) = (memory.near.first(self.n), memory.sums.first(groups));
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.add_centre(&shape, &self.whole(), &memory.centres.first(2 * self.d), !memory.begun, &near, &sums)?;
        let sums = together(self.seed_results(0..groups)?);
        self.seeding.begun = true;
        Ok(sums)
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
        self.seeding.pending = false;
        Ok(self.seeding.host_sums.as_slice()[..len].to_vec())
    }

    /// Room for `sums` sums, for distances, and for `points` points.
    fn reserve_seeding(&mut self, sums: usize, points: usize) -> Result<(), Error> {
        let centres = 2 * points * self.d;
        let wanted = 8 * (self.n as u128 + sums as u128) + (centres * size_of::<T>()) as u128;
        let have = self.seeding.near.bytes() + self.seeding.sums.bytes() + self.seeding.centres.bytes();
        self.room(WHAT, wanted, have)?;
        let (gpu, memory) = (&self.gpu, &mut self.seeding);
        // Never replaced once it holds something: its length does not change.
        memory.near.reserve(gpu, self.n)?;
        memory.sums.reserve(gpu, sums)?;
        memory.centres.reserve(gpu, centres)?;
        pin(gpu, &mut memory.host_sums, sums)
    }

    /// Room for the distances to so many candidates, where there is some to spare: false where there is none.
    fn reserve_distances(&mut self, places: usize) -> Result<bool, Error> {
        let wanted = places * self.n;
        let have = self.seeding.distances.bytes();
        let bytes = (wanted * size_of::<T>()) as u128;
        // To ask takes longer than a place of a small fit, which needs next to nothing.
        if bytes > have.max(SMALL) && bytes > (self.gpu.free()? + have) / 2 {
            return Ok(false);
        }
        match self.seeding.distances.reserve(&self.gpu, wanted) {
            Err(Error::Memory { .. }) => Ok(false),
            other => other.map(|()| true),
        }
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
        self.seeding.pending = false;
        Ok(&self.seeding.host_sums.as_slice()[..range.len()])
    }
}
