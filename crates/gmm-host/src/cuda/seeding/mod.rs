//! k-means++ over resident rows. Distances to the nearest centre stay on the device, which draws rows by them. The host
//! receives sums and row numbers, once for each centre ([`one_by_one`]) or once in all ([`batched`]).

pub(crate) mod batched;
mod hard_moments;
pub(crate) mod lloyd;
mod one_by_one;

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::seeding::draw_rows::DRAWN_ROWS;
use gmm_kernels::seeding::squared_distances::{CANDIDATES, SUMMED_ROWS};
use gmm_model::CovarianceType;
use ndarray::ArrayView2;

use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::launch::Launcher;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::parameters;
use crate::engine::DISTANCE_ROWS;

/// Rows whose distances a kernel sums, and how many of these sums make one of [`DISTANCE_ROWS`]. Kernels need finer
/// parts than draws do, so that few rows still occupy many blocks.
const SUMMED: usize = SUMMED_ROWS as usize;
const TOGETHER: usize = DISTANCE_ROWS / SUMMED;
const _: () = assert!(TOGETHER * SUMMED == DISTANCE_ROWS && DRAWN_ROWS == DISTANCE_ROWS as u64);

/// Combines sums into sums over [`DISTANCE_ROWS`] rows each.
fn together(sums: &[f64]) -> Vec<f64> {
    sums.chunks(TOGETHER).map(|some| some.iter().sum()).collect()
}

/// Bytes that are allocated without checking free memory.
const SMALL: u128 = 1 << 20;

const WHAT: &str = "distances to centres on the GPU";

/// Buffers of seeding on the device, from the first centre until [`forget`](Self::forget).
pub(crate) struct Seeding<T: Number> {
    /// `(n,)`: distances to the nearest centre.
    near: Slot<f64>,
    /// Whether `near` is valid.
    begun: bool,
    /// Sums over groups of rows, for each candidate.
    sums: Slot<f64>,
    /// A centre, high parts before low ones; or candidates, `(d, 2, C)` for each launch, followed by the same as
    /// points, `(places, 2, d)`.
    centres: Slot<T>,
    /// `(candidates, n)`: distances to the candidates that were evaluated last, if there was memory for them.
    distances: Slot<T>,
    weighed: Candidates,
    /// Uniform numbers and rows, for [`draw_centres`](crate::Seeding::draw_centres).
    draws: Slot<u64>,
    /// Whether a kernel that uses these buffers may still be running.
    pending: bool,
    host_centres: Pinned<T>,
    host_sums: Pinned<f64>,
    /// Groups and uniforms of draws, and the drawn rows: a kernel reads and writes this pinned memory directly.
    host_draws: Pinned<u64>,
}

/// Candidates that were evaluated since the last centre.
#[derive(Default)]
struct Candidates {
    /// The potential that each would leave, for each group of rows.
    sums: Vec<Vec<f64>>,
    /// Candidate slots on the device.
    places: usize,
    /// Whether their distances are stored too.
    kept: bool,
}

impl<T: Number> Seeding<T> {
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

    /// Frees the device buffers. The context must be current, and nothing may be pending.
    pub(crate) fn clear(&mut self) {
        // The pinned buffers are kept: pinning takes longer than drawing a centre of a small fit.
        let host_centres = std::mem::replace(&mut self.host_centres, pinned_empty());
        let host_sums = std::mem::replace(&mut self.host_sums, pinned_empty());
        let host_draws = std::mem::replace(&mut self.host_draws, pinned_empty());
        *self = Self { host_centres, host_sums, host_draws, ..Self::empty() };
    }
}

impl<T: Number> Seeding<T> {
    /// [`Seeding::forget_centres`](crate::Seeding::forget_centres).
    pub(crate) fn forget(&mut self, data: &mut Rows<T>) {
        data.gpu.enter_to_drop();
        if self.pending {
            data.queue.come_to_rest();
        }
        self.clear();
    }

    /// [`Seeding::add_centre`](crate::Seeding::add_centre).
    pub(crate) fn add_centre(&mut self, data: &mut Rows<T>, centre: &[f64]) -> Result<Vec<f64>, Error> {
        // With another centre the candidates' potentials are outdated.
        self.weighed = Candidates::default();
        let groups = data.n.div_ceil(SUMMED);
        // Sized for eight candidates, so that it is not replaced later.
        self.reserve_seeding(data, groups, 2 * CANDIDATES)?;
        pin(&data.gpu, &mut self.host_centres, 2 * data.d)?;
        let shape = data.shape(CovarianceType::Spherical, 1);
        self.send_centres(data, ArrayView2::from_shape((1, data.d), centre).expect("d values"))?;
        let memory = &*self;
        let (near, sums) = (memory.near.first(data.n), memory.sums.first(groups));
        let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
        launcher.add_centre(&shape, &data.whole(), &memory.centres.first(2 * data.d), !memory.begun, &near, &sums)?;
        let sums = together(self.seed_results(data, 0..groups)?);
        self.begun = true;
        Ok(sums)
    }

    /// [`Seeding::near`](crate::Seeding::near).
    pub(crate) fn near(&mut self, data: &mut Rows<T>, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        assert!(self.begun, "no centre was added");
        let len: usize = ranges.iter().map(Range::len).sum();
        let memory = &mut *self;
        pin(&data.gpu, &mut memory.host_sums, len)?;
        let near = memory.near.first(data.n);
        let mut host = &mut memory.host_sums.as_mut_slice()[..len];
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (piece, rest) = host.split_at_mut(range.len());
            // SAFETY: the host buffer is pinned, and is read only after the wait below.
            let copy = unsafe { near.index(range.clone()).async_copy_to(piece, &data.queue.stream) };
            data.gpu.check("a copy of distances from the device", copy)?;
            host = rest;
        }
        data.queue.wait(&data.gpu)?;
        self.pending = false;
        Ok(self.host_sums.as_slice()[..len].to_vec())
    }

    /// Reserves buffers for `sums` sums, for distances, and for `points` points.
    fn reserve_seeding(&mut self, data: &mut Rows<T>, sums: usize, points: usize) -> Result<(), Error> {
        let centres = 2 * points * data.d;
        let wanted = 8 * (data.n as u128 + sums as u128) + (centres * size_of::<T>()) as u128;
        let have = self.near.bytes() + self.sums.bytes() + self.centres.bytes();
        data.room(WHAT, wanted, have)?;
        let (gpu, memory) = (&data.gpu, &mut *self);
        // Never replaced once it is in use: its length does not change.
        memory.near.reserve(gpu, data.n)?;
        memory.sums.reserve(gpu, sums)?;
        memory.centres.reserve(gpu, centres)?;
        pin(gpu, &mut memory.host_sums, sums)
    }

    /// Reserves the buffer of distances to `places` candidates. Returns false if there is not enough spare memory.
    fn reserve_distances(&mut self, data: &mut Rows<T>, places: usize) -> Result<bool, Error> {
        let wanted = places * data.n;
        let have = self.distances.bytes();
        let bytes = (wanted * size_of::<T>()) as u128;
        // Querying free memory takes longer than drawing a centre of a small fit, which needs little memory.
        if bytes > have.max(SMALL) && bytes > (data.gpu.free()? + have) / 2 {
            return Ok(false);
        }
        match self.distances.reserve(&data.gpu, wanted) {
            Err(Error::Memory { .. }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn send_centres(&mut self, data: &mut Rows<T>, centres: ArrayView2<'_, f64>) -> Result<(), Error> {
        let len = centres.len();
        let memory = &mut *self;
        let (high, low) = memory.host_centres.as_mut_slice()[..2 * len].split_at_mut(len);
        parameters::centres(centres, &data.shift, high, low);
        let host = &memory.host_centres.as_slice()[..2 * len];
        // SAFETY: the host buffer is pinned, and the stream is waited for before it is written again or freed.
        let copy = unsafe { memory.centres.first(2 * len).async_copy_from(host, &data.queue.stream) };
        data.gpu.check("a copy of centres to the device", copy)
    }

    /// Copies a range of the sums to the host, and waits for it.
    fn seed_results(&mut self, data: &mut Rows<T>, range: Range<usize>) -> Result<&[f64], Error> {
        let memory = &mut *self;
        let host = &mut memory.host_sums.as_mut_slice()[..range.len()];
        // SAFETY: the host buffer is pinned, and is read only after the wait below.
        let copy =
            unsafe { memory.sums.first(range.end).index(range.clone()).async_copy_to(&mut *host, &data.queue.stream) };
        data.gpu.check("a copy of distances from the device", copy)?;
        data.queue.wait(&data.gpu)?;
        self.pending = false;
        Ok(&self.host_sums.as_slice()[..range.len()])
    }
}
