//! Lloyd's iterations on the device: the host enqueues batches of passes and polls between them.

use std::ops::{Range, RangeInclusive};
use std::time::Instant;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::seeding::lloyd::centres::SEEN;
use gmm_kernels::seeding::lloyd::{CentreLayout, SumSplits, assign, labels_len, sums};
use gmm_model::{CovarianceType, Precision, Statistics};
use ndarray::{Array2, ArrayView2};

use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::launch::{End, Launcher, LloydBuffers, LloydPlan};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::seeding::hard_moments::{product_splits, statistics_of};
use crate::cuda::shape::Shape;
use crate::init::LloydPasses;

/// State of Lloyd's iterations that is kept between calls.
pub(crate) struct Lloyd {
    numbers: Slot<f64>,
    labels: Slot<u32>,
    state: Slot<u32>,
    /// The polled values, pinned.
    seen: Pinned<f64>,
    /// The centres that the last call returned. The device holds them in full precision about the shift, and a call
    /// that continues from them uses those, so that the result does not depend on where a call ended.
    left: Option<Array2<f64>>,
    /// Set if products would lose too much precision for these rows, or overflow: later passes use differences, driven
    /// by the host.
    pub(crate) by_host: bool,
}

impl Lloyd {
    pub(crate) fn empty() -> Self {
        Self {
            numbers: Slot::empty(),
            labels: Slot::empty(),
            state: Slot::empty(),
            seen: pinned_empty(),
            left: None,
            by_host: false,
        }
    }

    /// Frees the device buffers. The context must be current.
    pub(crate) fn forget(&mut self) {
        let seen = std::mem::replace(&mut self.seen, pinned_empty());
        *self = Self { seen, ..Self::empty() };
    }
}

/// Positions in the buffer of numbers: first what the host polls.
#[derive(Clone, Copy)]
struct Arena {
    /// Number of centres; sections are padded to an even length.
    k: usize,
    weights: usize,
    centres: usize,
    /// End of what the host polls.
    seen: usize,
    moved: usize,
    constants: usize,
    coefficients: usize,
    sums: usize,
    products: usize,
    partials: usize,
    len: usize,
}

impl Arena {
    fn of(plan: &LloydPlan) -> Self {
        let (k, d) = (plan.shape.k as usize, plan.shape.d as usize);
        let sums_len = plan.cut.len(plan.shape.k) as usize;
        let products_len = plan.products.map_or(0, |p| p.len(&plan.shape)) as usize;
        // Partial sums, and after their reduction partial products.
        let partials_len = plan.products.map_or(0, |p| p.splits) as usize * products_len;
        let partials_len = partials_len.max(plan.cut.splits as usize * sums_len);
        // Each section starts 16-byte aligned.
        let up = |len: usize| len.next_multiple_of(2);
        let weights = SEEN;
        let centres = weights + up(k);
        let seen = centres + up(k * d);
        let moved = seen;
        let constants = moved + up(k);
        let coefficients = constants + 8 * plan.place.groups as usize;
        let sums = coefficients + plan.place.coefficients() as usize;
        let products = sums + up(sums_len);
        let partials = products + up(products_len);
        let len = partials + partials_len;
        Self { k, weights, centres, seen, moved, constants, coefficients, sums, products, partials, len }
    }
}

/// A call returns at the first poll after this many seconds, so that interrupts are answered.
const AT_MOST: f64 = 0.03;

/// Most passes between polls. A launch after convergence costs some microseconds, and so does a poll.
const MOST_BETWEEN_LOOKS: usize = 8;

/// Shared memory in which a block of `assign` may keep all coefficients: the size without opt-in leaves room for other
/// blocks.
const RESIDENT_BYTES: u64 = 48 << 10;

/// Warps per multiprocessor of the sums kernel: this many hide the latency of device memory.
const WARPS: u32 = 32;

/// The largest allowed error of a product, as a share of the clusters' inertia.
const LARGEST_LOSS: f64 = 1e-6;

/// Number of ranges of centres. More than the minimum only if that lets a quarter more warps run per range, since each
/// range reads the rows. Assumes that a multiprocessor has about as much shared memory as one block can opt in to.
fn ranges(k: u32, shared_bytes: u32) -> u32 {
    let most = (WARPS * WARP / THREADS) as u64;
    let together = |r: u32| (u64::from(shared_bytes) / sums::shared_len(k, r)).min(most) as f64 / f64::from(r);
    let fewest = sums::ranges(k, shared_bytes);
    let better = |a: u32, b: u32| if together(b) > 1.25 * together(a) { b } else { a };
    (fewest..=(4 * fewest).min(k)).fold(fewest, better)
}

/// Number of parts of the rows, for `units` warps each, of which `resident` run at a time; there are `groups` groups of
/// four tiles. Minimises the time to the end, where a warp's start and end cost as much as `around` groups.
fn splits(groups: u64, k: u32, units: u64, resident: u64) -> u32 {
    let around = 4.0 + f64::from(k) / 64.0;
    let cost = |s: u64| (units * s).div_ceil(resident) as f64 * (groups.div_ceil(s) as f64 + around);
    let most = groups.min(4 * resident / units + 1);
    (1..=most).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).expect("at least one") as u32
}

impl Lloyd {
    /// [`Seeding::lloyd`](crate::Seeding::lloyd); `None` if the host must run the pass.
    pub(crate) fn iterate<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        centres: &mut Array2<f64>,
        most: usize,
        rest: f64,
    ) -> Result<Option<LloydPasses>, Error> {
        let shape = data.shape(CovarianceType::Spherical, centres.nrows());
        let Some(plan) = self.plan(data, shape, false)? else { return Ok(None) };
        let arena = Arena::of(&plan);
        // If a buffer is replaced, the centres left in it are lost.
        let (left, room) = (self.left.take(), self.numbers.bytes());
        match self.reserve(data, &plan, &arena) {
            // Passes in chunks need less.
            Err(Error::Memory { .. }) => return Ok(None),
            other => other?,
        }
        let (started, mut next) = (Instant::now(), 1);
        let goes_on = room == self.numbers.bytes() && left.is_some_and(|left| left == *centres);
        self.begin(data, &plan, &arena, (!goes_on).then_some(centres.view()))?;
        let buffers = self.buffers(&plan, &arena);
        let between = between_looks(&plan);
        let mut found = None;
        let most = most.max(1);
        while next <= most {
            let last = most.min(next + between - 1);
            let rows = data.whole();
            let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
            for pass in next..=last {
                launcher.hard_pass(&plan, pass as u32, &rows, &buffers)?;
                launcher.end_pass(&plan, pass as u32, rest, &buffers)?;
            }
            self.poll(data, &arena)?;
            let Some(passes) = self.polled_passes(data, &arena, next..=last) else {
                // The caller continues from the previous poll, if there was one.
                self.by_host = true;
                break;
            };
            let values = &self.seen.as_slice()[arena.centres..arena.seen];
            self.left = Some(Array2::from_shape_fn(centres.dim(), |(c, j)| values[c * data.d + j] + data.shift[j]));
            let ended = passes.passes < last || passes.move_squared <= rest || !passes.empty.is_empty();
            found = Some(passes);
            if ended || started.elapsed().as_secs_f64() > AT_MOST {
                break;
            }
            next = last + 1;
        }
        if let Some(left) = &self.left {
            centres.assign(left);
        }
        Ok(found)
    }

    /// [`Seeding::nearest`](crate::Seeding::nearest) without responsibilities, section by section; `None` if the host must
    /// run the pass.
    pub(crate) fn hard_statistics<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
    ) -> Result<Option<Statistics>, Error> {
        let shape = Shape { n: data.sections.rows() as u64, ..data.shape(kind, centres.nrows()) };
        let Some(plan) = self.plan(data, shape, true)? else { return Ok(None) };
        let arena = Arena::of(&plan);
        self.left = None;
        match self.reserve(data, &plan, &arena) {
            Err(Error::Memory { .. }) => return Ok(None),
            other => other?,
        }
        self.begin(data, &plan, &arena, Some(centres))?;
        let buffers = self.buffers(&plan, &arena);
        for (section, range) in data.sections.ranges().enumerate() {
            let rows = data.stage(range)?;
            let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
            launcher.hard_pass(&plan, 1, &rows, &buffers)?;
            launcher.hard_sums(&plan, &buffers, section > 0)?;
            if let Some(cut) = plan.products {
                launcher.hard_products(&plan, cut, &rows, &buffers, section > 0)?;
            }
        }
        let sums = self.received(data, arena.sums..arena.partials)?;
        let out = statistics_of(&plan, kind, centres, sums, arena.products - arena.sums);
        let out = Statistics { total_weight: data.total_weight, n_rows: data.n as u64, ..out };
        let (k, d) = centres.dim();
        let relative = |c: usize, j: usize| centres[[c, j]] - data.shift[j];
        let norms = (0..k).map(|c| out.weight[c] * (0..d).map(|j| relative(c, j).powi(2)).sum::<f64>()).sum();
        let parts = plan.cut.columns as usize * k;
        let inertia = self.seen.as_slice()[parts..plan.cut.len(shape.k) as usize].iter().sum();
        // A single centre is always the nearest.
        if out.is_finite() && (k == 1 || !self.loses(data, norms, inertia)) {
            return Ok(Some(out));
        }
        self.by_host = true;
        Ok(None)
    }

    /// Copies a range of the numbers to the host, and waits for it.
    fn received<T: Number>(&mut self, data: &mut Rows<T>, range: Range<usize>) -> Result<&[f64], Error> {
        let memory = &mut *self;
        let host = &mut memory.seen.as_mut_slice()[..range.len()];
        let device = memory.numbers.first(range.end).index(range);
        // SAFETY: the host buffer is pinned, and is read only after the wait below.
        let copy = unsafe { device.async_copy_to(&mut *host, &data.queue.stream) };
        data.gpu.check("a copy of sums from the device", copy)?;
        data.queue.wait(&data.gpu)?;
        Ok(host)
    }

    /// Whether products lose too much precision, given Σ w |c|² about the shift and Σ w |x − c|². `f32` rows lose more
    /// by their own rounding than products in `f64` do.
    fn loses<T: Number>(&self, data: &Rows<T>, norms: f64, inertia: f64) -> bool {
        data.precision == Precision::F64 && 4.0 * f64::EPSILON * norms > LARGEST_LOSS * inertia
    }

    /// Plans a pass with the second moments of the shape's kind; `None` if the module has no kernels for it or the host must
    /// run it.
    fn plan<T: Number>(&self, data: &mut Rows<T>, shape: Shape, second: bool) -> Result<Option<LloydPlan>, Error> {
        let place = CentreLayout::of(shape.k, shape.d);
        let (assign, sums) = (assign::kernel::<T>(place.at_once).name, sums::hard_sums::<T>().name);
        if self.by_host || data.forced.host_loop() || !data.gpu.has(assign) || !data.gpu.has(sums) {
            return Ok(None);
        }
        let limits = data.gpu.limits;
        let resident = assign::shared_len(place, true) <= RESIDENT_BYTES;
        let each = data.gpu.occupancy(assign, THREADS, assign::shared_len(place, resident))?;
        let of_columns = second && matches!(shape.kind, CovarianceType::Diag | CovarianceType::Spherical);
        let columns = if of_columns { 2 * shape.d + 1 } else { shape.d + 1 };
        let ranges = ranges(shape.k, limits.shared_bytes);
        let warps_of_block = THREADS / WARP;
        let at_once = data.gpu.occupancy(sums, THREADS, sums::shared_len(shape.k, ranges))?.min(WARPS / warps_of_block);
        let units = u64::from(columns) * u64::from(ranges);
        let at_once = u64::from(at_once * warps_of_block * limits.multiprocessors);
        let splits = splits(sums::most_splits(shape.n), shape.k.div_ceil(ranges), units, at_once);
        let cut = SumSplits { columns, ranges, splits };
        let end = End::of(cut, shape.k);
        let products = if second && !of_columns { Some(product_splits::<T>(data, &shape)?) } else { None };
        let blocks = each * limits.multiprocessors;
        let plan = LloydPlan { shape, place, resident, blocks, cut, products, end };
        tracing::debug!(plan = format!("{plan:?}"), "Lloyd's iterations on the device");
        Ok(Some(plan))
    }

    fn reserve<T: Number>(&mut self, data: &mut Rows<T>, plan: &LloydPlan, arena: &Arena) -> Result<(), Error> {
        let labels = labels_len(plan.shape.n) as usize;
        let wanted = 8 * arena.len as u128 + 4 * (labels + STATE_LEN) as u128;
        let have = self.numbers.bytes() + self.labels.bytes() + self.state.bytes();
        data.room("k-means on the GPU", wanted, have)?;
        let (gpu, memory) = (&data.gpu, &mut *self);
        memory.numbers.reserve(gpu, arena.len)?;
        memory.labels.reserve(gpu, labels)?;
        memory.state.reserve(gpu, STATE_LEN)?;
        // Large enough for both kinds of calls, so that it is not replaced while a copy to or from it is in flight.
        pin(gpu, &mut memory.seen, arena.seen.max(arena.partials - arena.sums))
    }

    fn buffers(&self, plan: &LloydPlan, at: &Arena) -> LloydBuffers {
        let numbers = self.numbers.first(at.len);
        LloydBuffers {
            state: self.state.first(STATE_LEN),
            labels: self.labels.first(labels_len(plan.shape.n) as usize),
            seen: numbers.index(..at.weights),
            weights: numbers.index(at.weights..at.centres),
            centres: numbers.index(at.centres..at.seen),
            moved: numbers.index(at.moved..at.constants),
            constants: numbers.index(at.constants..at.coefficients),
            coefficients: numbers.index(at.coefficients..at.sums),
            sums: numbers.index(at.sums..at.products),
            products: numbers.index(at.products..at.partials),
            partials: numbers.index(at.partials..),
        }
    }

    /// Clears the state, and, if `centres` are given, copies them to the device and computes coefficients from them.
    fn begin<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        plan: &LloydPlan,
        arena: &Arena,
        centres: Option<ArrayView2<'_, f64>>,
    ) -> Result<(), Error> {
        let b = self.buffers(plan, arena);
        let (mut coefficients, mut state) = (b.coefficients, b.state);
        let stream = &data.queue.stream;
        // SAFETY: the buffer belongs to the loop, and the stream orders this before the kernels that use it.
        data.gpu.check("clearing a loop's state", unsafe { state.set_8_async(0, stream) })?;
        let Some(centres) = centres else { return Ok(()) };
        let memory = &mut *self;
        let host = &mut memory.seen.as_mut_slice()[..arena.seen];
        host.fill(0.0);
        for (slot, (v, s)) in host[arena.centres..].iter_mut().zip(centres.iter().zip(data.shift.iter().cycle())) {
            *slot = v - s;
        }
        // SAFETY: the host buffer is pinned, and `Rows::run` waits for the stream before it is written again or freed.
        let copied = unsafe { memory.numbers.first(arena.seen).async_copy_from(&*host, stream) };
        data.gpu.check("a copy of centres to the device", copied)?;
        // SAFETY: as for the state.
        data.gpu.check("clearing coefficients", unsafe { coefficients.set_8_async(0, stream) })?;
        Launcher { gpu: &data.gpu, queue: &data.queue }.move_centres(plan, 0, &b)
    }

    /// Copies what the passes so far left to the host, and waits for it.
    fn poll<T: Number>(&mut self, data: &mut Rows<T>, arena: &Arena) -> Result<(), Error> {
        let host = &mut self.seen.as_mut_slice()[..arena.seen];
        // SAFETY: the host buffer is pinned, and is read only after the wait below.
        let copy = unsafe { self.numbers.first(arena.seen).async_copy_to(&mut *host, &data.queue.stream) };
        data.gpu.check("a copy of centres from the device", copy)?;
        data.queue.wait(&data.gpu)
    }

    /// The polled statistics; `None` if they are not of an expected pass, not finite, or lost too much precision.
    fn polled_passes<T: Number>(
        &self,
        data: &mut Rows<T>,
        arena: &Arena,
        expected: RangeInclusive<usize>,
    ) -> Option<LloydPasses> {
        let seen = &self.seen.as_slice()[..arena.seen];
        let [number, _, inertia, move_squared] = seen[..SEEN] else { unreachable!("four numbers") };
        if !seen.iter().all(|v| v.is_finite()) || !expected.contains(&(number as usize)) {
            return None;
        }
        let weights = &seen[arena.weights..arena.centres];
        let centres = seen[arena.centres..].chunks_exact(data.d);
        let norms: f64 = weights.iter().zip(centres).map(|(w, c)| w * c.iter().map(|v| v * v).sum::<f64>()).sum();
        if self.loses(data, norms, inertia) {
            return None;
        }
        let empty = (0..arena.k).filter(|c| weights[*c] == 0.0).collect();
        Some(LloydPasses { passes: number as usize, inertia, move_squared, empty })
    }
}

/// Passes between polls. Depends only on the shape and not on a clock, since what a poll finds affects the result.
fn between_looks(plan: &LloydPlan) -> usize {
    let n = plan.shape.n as f64;
    let bytes = n * f64::from(plan.shape.d) * plan.shape.number_bytes() as f64;
    let seconds = 2e-5 + n * plan.place.coefficients() as f64 / 2e13 + bytes / 1e12;
    ((AT_MOST / seconds) as usize).clamp(1, MOST_BETWEEN_LOOKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centres_are_cut_into_ranges_where_more_warps_run_for_it() {
        let hopper = 232_448;
        assert_eq!([1, 8, 64, 128, 200].map(|k| ranges(k, hopper)), [1, 1, 1, 2, 1]);
        for (k, shared) in [(1024, hopper), (5000, hopper), (300, 101_376), (1, 49_152)] {
            let r = ranges(k, shared);
            assert!(r <= k && sums::shared_len(k, r) <= u64::from(shared), "{k} {shared}: {r}");
        }
    }

    #[test]
    fn rows_are_split_so_that_warps_end_together() {
        // A million rows of 13 columns, eight centres: one wave of short warps, at most one per group.
        let groups = sums::most_splits(1_000_000);
        let one_wave = splits(groups, 8, 14, 132 * 16);
        assert!((100..=150).contains(&one_wave), "{one_wave}");
        // More warps than run at a time even without splits: several waves, so that the last is not mostly idle.
        let units = 129 * 5;
        let some = u64::from(splits(groups, 205, units, 528));
        assert!((units * some).div_ceil(528) * 528 < units * some * 11 / 10, "{some}");
        assert_eq!(splits(1, 1, 2, 4000), 1);
    }
}
