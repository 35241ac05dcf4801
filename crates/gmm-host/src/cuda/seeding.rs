//! What k-means++ asks of resident rows: distances to the nearest centre stay on the device, rows are drawn by them there, and
//! the host sees sums and the numbers of those rows, once for each centre; or once in all, where rows are few enough that a block
//! can decide on a centre by itself.

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::draw_next::MOST_ROWS;
use gmm_kernels::draw_rows::DRAWN_ROWS;
use gmm_kernels::squared_distances::{CANDIDATES, SUMMED_ROWS};
use gmm_model::CovarianceType;
use ndarray::{ArrayView2, ArrayView3};

use super::launch::{Distances, DrawBuffers, Launcher, NextBuffers, Weighed};
use super::parameters;
use super::rows::CudaRows;
use super::upload::Number;
use super::workspace::{Pinned, Slot, pin, pinned_empty};
use crate::Error;
use crate::engine::DISTANCE_ROWS;
use crate::init::{RowDraw, WeighedRows};

/// Rows of which a kernel adds up distances, and how many such sums are one of [`DISTANCE_ROWS`]: a kernel has blocks for
/// more parts of few rows than draws need to tell apart.
const SUMMED: usize = SUMMED_ROWS as usize;
const TOGETHER: usize = DISTANCE_ROWS / SUMMED;
const _: () = assert!(TOGETHER * SUMMED == DISTANCE_ROWS && DRAWN_ROWS == DISTANCE_ROWS as u64);

/// Sums of [`DISTANCE_ROWS`] rows each.
fn together(sums: &[f64]) -> Vec<f64> {
    sums.chunks(TOGETHER).map(|some| some.iter().sum()).collect()
}

/// The sum of what a candidate leaves of all groups, in the order in which a block of [`draw_next`](gmm_kernels::draw_next) adds: so
/// that which way a centre is decided on does not show in it.
fn as_a_block_adds(sums: &[f64]) -> f64 {
    const LANES: usize = WARP as usize;
    let mut of_threads = [0.0; THREADS as usize];
    for (i, sum) in sums.iter().enumerate() {
        of_threads[i % of_threads.len()] += sum;
    }
    let of_warp = |lanes: &[f64]| {
        let mut lanes: [f64; LANES] = lanes.try_into().expect("a warp's lanes");
        for step in [16, 8, 4, 2, 1] {
            lanes = std::array::from_fn(|lane| lanes[lane] + lanes[lane ^ step]);
        }
        lanes[0]
    };
    of_threads.chunks_exact(LANES).fold(0.0, |sum, lanes| sum + of_warp(lanes))
}

/// Seconds that all centres may take without a look, at most, so that an interrupt is answered; and an estimate of them on a
/// slow device.
const UNSEEN: f64 = 0.3;
fn unseen(more: usize, numbers: usize, places: usize) -> f64 {
    more as f64 * (2e-5 + numbers as f64 * places as f64 * 1e-11)
}

/// Bytes that are taken without asking what is free.
const SMALL: u128 = 1 << 20;

/// Sums that a kernel writes to the host itself, at most: fewer than these are there sooner than a copy of them would be.
const SUMS_TO_HOST: usize = 1 << 13;

#[cfg(test)]
thread_local! {
    /// A test of seeds that are drawn one after another sets this, on its own thread.
    pub(super) static ONE_BY_ONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

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

    /// [`Resident::weigh_draws`](crate::Resident::weigh_draws).
    pub(super) fn weigh_draws_here(&mut self, draws: &[RowDraw]) -> Result<WeighedRows, Error> {
        assert!(self.seeding.begun, "no centre was added");
        assert!(draws.iter().all(|draw| draw.group < self.n.div_ceil(DISTANCE_ROWS)), "a group that there is");
        let (count, groups, each) = (draws.len(), self.n.div_ceil(SUMMED), 2 * self.d);
        // A kernel weighs four or eight; the last stands in for those that are not there.
        let places = count.next_multiple_of(CANDIDATES / 2);
        self.seeding.weighed = Candidates::default();
        let kept = self.reserve_draws(places, groups)?;
        self.launch_draws(draws, places)?;
        let shape = self.shape(CovarianceType::Spherical, 1);
        let memory = &self.seeding;
        let near = memory.near.first(self.n);
        let to_host = places * groups <= SUMS_TO_HOST;
        let all =
            if to_host { memory.host_sums.on_device(places * groups) } else { memory.sums.first(places * groups) };
        for first in (0..places).step_by(CANDIDATES) {
            let these = first..places.min(first + CANDIDATES);
            let points = memory.centres.first(places * each).index(these.start * each..these.end * each);
            let distances =
                kept.then(|| memory.distances.first(places * self.n).index(these.start * self.n..these.end * self.n));
            let sums = all.index(these.start * groups..these.end * groups);
            let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
            launcher.potentials(
                &shape,
                &self.whole(),
                &points,
                &near,
                distances.as_ref().map(|to| Distances { to, lower_by: None }),
                &sums,
            )?;
        }
        let len = count * groups;
        let sums = if to_host {
            self.queue.wait(&self.gpu)?;
            self.seeding.pending = false;
            self.seeding.host_sums.as_slice()[..len].to_vec()
        } else {
            self.seed_results(0..len)?.to_vec()
        };
        let rows = &self.seeding.host_draws.as_slice()[2 * places..][..count];
        let rows = rows.iter().map(|&row| row as usize).collect();
        let of_each = || sums.chunks_exact(groups);
        self.seeding.weighed = Candidates { sums: of_each().map(together).collect(), places, kept };
        Ok(WeighedRows { rows, left: of_each().map(as_a_block_adds).collect() })
    }

    /// Puts draws where a kernel reads them, and the kernel on the stream that makes candidates of them.
    fn launch_draws(&mut self, draws: &[RowDraw], places: usize) -> Result<(), Error> {
        let points = 2 * places * self.d;
        let shape = self.shape(CovarianceType::Spherical, 1);
        let host = self.seeding.host_draws.as_mut_slice();
        for (i, draw) in draws.iter().enumerate() {
            (host[i], host[places + i]) = (draw.group as u64, draw.uniform.to_bits());
        }
        let memory = &self.seeding;
        let (there, centres) = (memory.host_draws.on_device(3 * places), memory.centres.first(2 * points));
        let buffers = DrawBuffers {
            groups: there.index(..places),
            uniforms: there.index(places..2 * places),
            rows: there.index(2 * places..),
            candidates: centres.index(..points),
            points: centres.index(points..),
        };
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        let (count, near) = (draws.len() as u32, memory.near.first(self.n));
        launcher.draw_rows(&shape, &self.whole(), &near, (count, places as u32), &buffers)
    }

    /// [`Resident::add_drawn`](crate::Resident::add_drawn): what it leaves is known since it was weighed, and there is nothing to
    /// wait for.
    pub(super) fn add_drawn_here(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        let memory = &self.seeding;
        let Candidates { sums, places, kept } = &memory.weighed;
        assert!(which < sums.len(), "row {which} of {} that were weighed since the last centre", sums.len());
        let near = memory.near.first(self.n);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        if *kept {
            let distances = memory.distances.first((which + 1) * self.n).index(which * self.n..);
            launcher.lower(self.n as u64, &distances, &near)?;
        } else {
            let each = 2 * self.d;
            let point = memory.centres.first(2 * places * each).index((places + which) * each..);
            let shape = self.shape(CovarianceType::Spherical, 1);
            let sums = memory.sums.first(self.n.div_ceil(SUMMED));
            launcher.add_centre(&shape, &self.whole(), &point, false, &near, &sums)?;
        }
        let memory = &mut self.seeding;
        memory.pending = true;
        Ok(std::mem::take(&mut memory.weighed).sums.swap_remove(which))
    }

    /// [`Resident::draw_centres`](crate::Resident::draw_centres): one launch decides on a centre and draws candidates for the next,
    /// another weighs them, and the host waits once in all.
    pub(super) fn draw_centres_here(
        &mut self,
        first: &[f64],
        uniforms: ArrayView3<'_, f64>,
    ) -> Result<Option<Vec<usize>>, Error> {
        let (more, two, count) = uniforms.dim();
        assert!(two == 2 && more > 0 && count > 0, "two numbers for each candidate of a place");
        let (places, groups, n) = (count.next_multiple_of(CANDIDATES / 2), self.n.div_ceil(SUMMED), self.n);
        self.forget_centres_here();
        #[cfg(test)]
        if ONE_BY_ONE.get() {
            return Ok(None);
        }
        if n as u64 > MOST_ROWS || unseen(more, n * self.d, places) > UNSEEN {
            return Ok(None);
        }
        // What the host sends and reads: rows of centres, whether rows ran out, a candidate's number, and uniforms. Then come rows
        // of candidates.
        let (sent, len) = (more + 2 + uniforms.len(), more + 2 + uniforms.len() + more * count);
        match self.reserve_ahead(places, sent, len) {
            Ok(true) => {}
            // One after another they need less.
            Ok(false) | Err(Error::Memory { .. }) => {
                self.forget_centres_here();
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let host = &mut self.seeding.host_draws.as_mut_slice()[..sent];
        host[..more + 2].fill(0);
        host[more + 2..].iter_mut().zip(&uniforms).for_each(|(slot, u)| *slot = u.to_bits());
        self.seeding.pending = true;
        self.send_centres(ArrayView2::from_shape((1, self.d), first).expect("d values"))?;
        let memory = &self.seeding;
        let draws = memory.draws.first(len);
        let host = &memory.host_draws.as_slice()[..sent];
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for.
        let copy = unsafe { draws.index(..sent).async_copy_from(host, &self.queue.stream) };
        self.gpu.check("a copy of uniform numbers to the device", copy)?;

        let shape = self.shape(CovarianceType::Spherical, 1);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        let each = 2 * self.d;
        let (near, sums) = (memory.near.first(n), memory.sums.first(places * groups));
        let centres = memory.centres.first(2 * places * each);
        let distances = memory.distances.first(places * n);
        let rows = self.whole();
        launcher.add_centre(&shape, &rows, &centres.index(..each), true, &near, &sums.index(..groups))?;
        let (ran_out, best) = (draws.index(more..more + 1), draws.index(more + 1..more + 2));
        let drawn = |c: usize| draws.index(sent + c * count..sent + (c + 1) * count);
        // Those that were weighed before place `c`.
        let weighed = |c: usize| Weighed {
            count: if c == 0 { 1 } else { count as u32 },
            distances: (c > 0).then(|| (distances, drawn(c - 1))),
            sums,
            chosen: draws.index(c.saturating_sub(1)..c.max(1)),
            best,
            ran_out,
        };
        for c in 0..more {
            let next = NextBuffers {
                uniforms: draws.index(more + 2 + 2 * c * count..more + 2 + 2 * (c + 1) * count),
                rows: drawn(c),
                candidates: centres.index(..places * each),
                points: centres.index(places * each..),
            };
            launcher.draw_next(&shape, &rows, &near, &weighed(c), Some((count as u32, places as u32, &next)))?;
            for first in (0..places).step_by(CANDIDATES) {
                let these = first..places.min(first + CANDIDATES);
                let points = next.candidates.index(these.start * each..these.end * each);
                let to = distances.index(these.start * n..);
                let sums = sums.index(these.start * groups..these.end * groups);
                // The first launch of a place lowers what is near, before any distance is another's.
                let lower_by = (c > 0 && first == 0).then_some((&best, count as u64));
                launcher.potentials(&shape, &rows, &points, &near, Some(Distances { to: &to, lower_by }), &sums)?;
            }
        }
        launcher.draw_next::<T>(&shape, &rows, &near, &weighed(more), None)?;
        let memory = &mut self.seeding;
        let host = &mut memory.host_draws.as_mut_slice()[..more + 1];
        // SAFETY: pinned; read only after the wait below.
        let copy = unsafe { draws.index(..more + 1).async_copy_to(&mut *host, &self.queue.stream) };
        self.gpu.check("a copy of centres' rows from the device", copy)?;
        self.queue.wait(&self.gpu)?;
        self.seeding.pending = false;
        let (rows, ran_out) = self.seeding.host_draws.as_slice()[..more + 1].split_at(more);
        // Rows that are none would be a fault of the device's: the host draws by itself then.
        let good = ran_out == [0] && rows.iter().all(|&row| row < n as u64);
        Ok(good.then(|| rows.iter().map(|&row| row as usize).collect()))
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

    /// Room to draw candidates for so many places and to weigh them; and whether there is some for their distances.
    fn reserve_draws(&mut self, places: usize, groups: usize) -> Result<bool, Error> {
        let memory = &self.seeding;
        let is_there = memory.centres.room() >= 4 * places * self.d
            && memory.sums.room() >= places * groups
            && memory.host_sums.len() >= places * groups
            && memory.host_draws.len() >= 3 * places
            && (memory.distances.room() >= places * self.n || memory.distances.room() == 0);
        if memory.pending && !is_there {
            // What is replaced goes where others find it, and must be in use by nothing.
            self.queue.wait(&self.gpu)?;
            self.seeding.pending = false;
        }
        self.reserve_seeding(places * groups, 2 * places)?;
        pin(&self.gpu, &mut self.seeding.host_draws, 3 * places)?;
        self.reserve_distances(places)
    }

    /// Room to draw all centres for so many places, with so many numbers of draws of which some are sent; false where there is none
    /// to spare for distances.
    fn reserve_ahead(&mut self, places: usize, sent: usize, len: usize) -> Result<bool, Error> {
        pin(&self.gpu, &mut self.seeding.host_centres, 2 * self.d)?;
        pin(&self.gpu, &mut self.seeding.host_draws, sent)?;
        self.seeding.draws.reserve(&self.gpu, len)?;
        self.reserve_seeding(places * self.n.div_ceil(SUMMED), 2 * places)?;
        self.reserve_distances(places)
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
