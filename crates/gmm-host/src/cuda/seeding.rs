//! What k-means++ asks of resident rows: distances to the nearest centre stay on the device, and the host sees sums of
//! them, and the few that a draw falls among.

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
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
const _: () = assert!(TOGETHER * SUMMED == DISTANCE_ROWS);

/// Sums of [`DISTANCE_ROWS`] rows each.
fn together(sums: &[f64]) -> Vec<f64> {
    sums.chunks(TOGETHER).map(|some| some.iter().sum()).collect()
}

/// Bytes that are taken without asking what is free.
const SMALL: u128 = 1 << 20;

/// Sums that a kernel writes to the host itself, at most: fewer than these are there sooner than a copy of them would be.
const SUMS_TO_HOST: usize = 1 << 13;

const WHAT: &str = "distances to centres on the GPU";

/// What seeding keeps on the device, from the first centre until it is told to forget.
pub(crate) struct SeedMemory<T: Number> {
    /// `(n,)`.
    near: Slot<f64>,
    /// Whether `near` holds anything.
    begun: bool,
    /// Sums of groups of rows, for each candidate.
    sums: Slot<f64>,
    /// A centre, high parts before low ones, or candidates, `(d, 2, C)` for each launch.
    centres: Slot<T>,
    /// `(candidates, n)`: distances to those that were weighed last, if there was room.
    distances: Slot<T>,
    /// Those candidates.
    weighed: Vec<Weighed>,
    /// Whether a kernel may still run over these buffers.
    pending: bool,
    host_centres: Pinned<T>,
    host_sums: Pinned<f64>,
}

/// A candidate whose distances are on the device.
struct Weighed {
    /// `(d,)`.
    point: Vec<f64>,
    /// What it would leave of each group of rows.
    sums: Vec<f64>,
}

impl<T: Number> SeedMemory<T> {
    pub(crate) fn empty() -> Self {
        Self {
            near: Slot::empty(),
            begun: false,
            sums: Slot::empty(),
            centres: Slot::empty(),
            distances: Slot::empty(),
            weighed: Vec::new(),
            pending: false,
            host_centres: pinned_empty(),
            host_sums: pinned_empty(),
        }
    }

    /// Frees what is on the device. The context is current, and nothing is pending.
    pub(crate) fn forget(&mut self) {
        // Pinning takes longer than a place of a small fit.
        let host_centres = std::mem::replace(&mut self.host_centres, pinned_empty());
        let host_sums = std::mem::replace(&mut self.host_sums, pinned_empty());
        *self = Self { host_centres, host_sums, ..Self::empty() };
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
        if let Some(sums) = self.add_weighed(centre)? {
            return Ok(sums);
        }
        // What they would leave is less with another centre.
        self.seeding.weighed.clear();
        let groups = self.n.div_ceil(SUMMED);
        self.reserve_seeding(groups, CANDIDATES)?;
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

    /// [`Resident::potentials`](crate::Resident::potentials).
    pub(super) fn potentials_here(&mut self, candidates: ArrayView2<'_, f64>) -> Result<Vec<f64>, Error> {
        assert!(self.seeding.begun, "no centre was added");
        let (groups, each) = (self.n.div_ceil(SUMMED), 2 * self.d);
        // A kernel weighs four or eight; the last stands in for those that are not there.
        let slots = candidates.nrows().next_multiple_of(CANDIDATES / 2);
        self.seeding.weighed.clear();
        if self.seeding.pending {
            // What is replaced below goes where others find it, and must be in use by nothing.
            self.queue.wait(&self.gpu)?;
            self.seeding.pending = false;
        }
        self.reserve_seeding(slots * groups, slots)?;
        let keep = self.reserve_distances(slots)?;
        self.send_candidates(candidates, slots)?;
        let shape = self.shape(CovarianceType::Spherical, 1);
        let memory = &self.seeding;
        let near = memory.near.first(self.n);
        let to_host = slots * groups <= SUMS_TO_HOST;
        let all = if to_host { memory.host_sums.on_device(slots * groups) } else { memory.sums.first(slots * groups) };
        for first in (0..slots).step_by(CANDIDATES) {
            let these = first..slots.min(first + CANDIDATES);
            let points = memory.centres.first(slots * each).index(these.start * each..these.end * each);
            let distances =
                keep.then(|| memory.distances.first(slots * self.n).index(these.start * self.n..these.end * self.n));
            let sums = all.index(these.start * groups..these.end * groups);
            let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
            launcher.potentials(&shape, &self.whole(), &points, &near, distances.as_ref(), &sums)?;
        }
        let len = candidates.nrows() * groups;
        let sums = if to_host {
            self.queue.wait(&self.gpu)?;
            self.seeding.pending = false;
            self.seeding.host_sums.as_slice()[..len].to_vec()
        } else {
            self.seed_results(0..len)?.to_vec()
        };
        let of = |t: usize| &sums[t * groups..(t + 1) * groups];
        if keep {
            let all = candidates.outer_iter().enumerate();
            self.seeding.weighed = all.map(|(t, c)| Weighed { point: c.to_vec(), sums: together(of(t)) }).collect();
        }
        Ok((0..candidates.nrows()).map(|t| of(t).iter().sum()).collect())
    }

    /// A centre whose distances are there since it was weighed: its sums, and nothing to wait for. None where they are not.
    fn add_weighed(&mut self, centre: &[f64]) -> Result<Option<Vec<f64>>, Error> {
        let Some(t) = self.seeding.weighed.iter().position(|w| w.point == centre) else { return Ok(None) };
        let memory = &self.seeding;
        let distances = memory.distances.first((t + 1) * self.n).index(t * self.n..);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.lower(self.n as u64, &distances, &memory.near.first(self.n))?;
        let memory = &mut self.seeding;
        memory.pending = true;
        Ok(Some(memory.weighed.drain(..).nth(t).expect("it is there").sums))
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

    /// Room for `sums` sums, for distances, and for `points` centres or candidates.
    fn reserve_seeding(&mut self, sums: usize, points: usize) -> Result<(), Error> {
        let (gpu, memory) = (&self.gpu, &mut self.seeding);
        let centres = 2 * points * self.d;
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

    /// Room for the distances to so many candidates, where there is some to spare: false where there is none.
    fn reserve_distances(&mut self, slots: usize) -> Result<bool, Error> {
        let wanted = slots * self.n;
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

    /// Candidates as the kernels take them, four or eight at a time.
    fn send_candidates(&mut self, candidates: ArrayView2<'_, f64>, slots: usize) -> Result<(), Error> {
        let (d, shift, memory) = (self.d, &self.shift, &mut self.seeding);
        let host = &mut memory.host_centres.as_mut_slice()[..2 * slots * d];
        let (mut high, mut low) = (vec![T::ZERO; candidates.len()], vec![T::ZERO; candidates.len()]);
        parameters::centres(candidates, shift, &mut high, &mut low);
        for first in (0..slots).step_by(CANDIDATES) {
            let count = CANDIDATES.min(slots - first);
            for (i, slot) in host[2 * first * d..][..2 * count * d].iter_mut().enumerate() {
                let (j, part, c) = (i / (2 * count), i / count % 2, i % count);
                let at = (first + c).min(candidates.nrows() - 1) * d + j;
                *slot = if part == 0 { high[at] } else { low[at] };
            }
        }
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for.
        let copy = unsafe { memory.centres.first(host.len()).async_copy_from(&*host, &self.queue.stream) };
        self.gpu.check("a copy of candidates to the device", copy)
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
