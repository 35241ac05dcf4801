//! Rows resident on a device: how they are loaded, which memory passes may take, and how failures are handled.
//!
//! They are uploaded from the host ([`upload`]), optionally in their original form ([`original`]), or are on the device
//! already ([`device_input`], from which [`download`] copies some to the host; [`borrowed`], if they are read once). The host drives [`passes`] over them,
//! chunk by chunk, in a [`workspace`].

pub(crate) mod blocks;
pub(crate) mod borrowed;
pub(crate) mod device_input;
pub(crate) mod download;
pub(crate) mod original;
pub(crate) mod outputs;
pub(crate) mod parameters;
pub(crate) mod passes;
pub(crate) mod reach;
pub(crate) mod sections;
mod source;
mod streamed;
pub(crate) mod threads;
pub(crate) mod upload;
mod whitening;
pub(crate) mod workspace;

use std::ops::Range;
use std::sync::Arc;

use cust::memory::DeviceSlice;
use gmm_kernels::layout::tiled_len;
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::DeviceRows;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging;
use crate::cuda::launch::plan::{self, ForcedPlan, Plan};
use crate::cuda::launch::{Chunk, Launcher};
use crate::cuda::number::Number;
use crate::cuda::rows::borrowed::Borrowed;
use crate::cuda::rows::reach::LoadOptions;
use crate::cuda::rows::sections::Sections;
use crate::cuda::rows::source::Source;
use crate::cuda::rows::streamed::Streamed;
pub(crate) use crate::cuda::rows::streamed::is_streamed;
use crate::cuda::rows::workspace::{Extras, Sizes, Workspace};
use crate::cuda::shape::Shape;

/// Rows on a device. Its buffers are released with the context current: see `Drop`.
pub(crate) struct Rows<T: Number> {
    pub(crate) queue: Queue,
    pub(crate) precision: Precision,
    pub(crate) n: usize,
    pub(crate) d: usize,
    pub(crate) shift: Vec<f64>,
    pub(crate) total_weight: f64,
    pub(crate) sections: Sections,
    /// `(n, d)` tiled; empty if the rows are `streamed`.
    pub(crate) x: Slot<T>,
    /// The rows, if they do not fit into device memory.
    pub(crate) streamed: Option<Box<Streamed<T>>>,
    /// The rows, if they are another library's and are tiled anew in each pass.
    pub(crate) borrowed: Option<Borrowed<T>>,
    /// Another library's rows of which `x` was made, if these may be read as long as the rows live.
    pub(crate) original: Option<DeviceRows>,
    /// `(n,)`.
    pub(crate) row_weights: Option<Slot<f64>>,
    /// The rows in their original form, if they are kept.
    pub(crate) source: Option<Source>,
    pub(crate) workspace: Workspace<T>,
    /// Packed Σ w x xᵀ about the shift; computed when first needed.
    pub(crate) scatter: Option<Vec<f64>>,
    pub(crate) forced: ForcedPlan,
    /// The pass for which the workspace was made.
    pub(crate) planned: Option<(Shape, Extras, Plan)>,
    /// Most rows per chunk: those of a section, or less after a launch lacked memory.
    pub(crate) most_rows: u64,
    /// Last, so that it is dropped last: the context must outlive the buffers.
    pub(crate) gpu: Arc<Gpu>,
}

impl<T: Number> Rows<T> {
    /// Loads a data set: `tiled_len(n, d)*size_of::<T>()` bytes on the device, and `8*n` for row weights. Rows that will
    /// be moved are also kept in their original form if memory allows. If there are several sections, and not enough
    /// memory for all and for the passes, the rows are [`streamed`], unless they are taken by tiles.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken; [`Error::Device`].
    pub(crate) fn load(
        gpu: Arc<Gpu>,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
        options: LoadOptions<'_>,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let total_weight = data.weights().map(|_| data.total_weight());
        let dim = (options.n_rows(data), data.n_features());
        if options.tiles.is_none() && is_streamed(&gpu, dim, size_of::<T>(), total_weight.is_some(), &forced)? {
            return Self::load_streamed(gpu, data, precision, shift, forced);
        }
        let mut rows = Self::with_room(gpu, dim, total_weight, precision, shift, forced)?;
        if options.tiles.is_some() || !rows.keep_source(data, options)? {
            rows.upload(data, options)?;
        }
        Ok(rows)
    }

    /// Allocates memory for `(n, d)` rows, and for their weights if `total_weight` is given. The context must be
    /// current.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub(crate) fn with_room(
        gpu: Arc<Gpu>,
        (n, d): (usize, usize),
        total_weight: Option<f64>,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        Self::taken(gpu, (n, d), n, total_weight, precision, shift, forced)
    }

    /// As [`with_room`](Self::with_room), for only the first `held` rows.
    fn taken(
        gpu: Arc<Gpu>,
        (n, d): (usize, usize),
        held: usize,
        total_weight: Option<f64>,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        const WHAT: &str = "the data on the GPU";
        let len = usize::try_from(tiled_len(held as u64, d as u32)).unwrap_or(usize::MAX);
        let weighted = total_weight.is_some();
        let wanted = len as u128 * size_of::<T>() as u128 + if weighted { 8 * n as u128 } else { 0 };
        gpu.room(WHAT, wanted, 0)?;
        let queue = Queue::new(&gpu)?;
        let x = Slot::taken(&gpu, WHAT, len)?;
        let row_weights = weighted.then(|| Slot::taken(&gpu, WHAT, n)).transpose()?;
        let sections = Sections::of((n, d), size_of::<T>(), &forced);
        Ok(Self {
            queue,
            precision,
            n,
            d,
            shift: shift.to_vec(),
            total_weight: total_weight.unwrap_or(n as f64),
            sections,
            x,
            streamed: None,
            borrowed: None,
            original: None,
            row_weights,
            source: None,
            workspace: Workspace::empty(),
            scatter: None,
            forced,
            planned: None,
            most_rows: sections.rows() as u64,
            gpu,
        })
    }

    /// Loads rows of which not all fit, and leaves memory for the passes. Row weights are on the device.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_streamed(
        gpu: Arc<Gpu>,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        let spare = sections::bytes_for_passes();
        let total_weight = data.weights().map(|_| data.total_weight());
        let mut rows = Self::taken(gpu, data.rows().dim(), 0, total_weight, precision, shift, forced)?;
        rows.streamed = Some(Box::new(Streamed::new(&rows.gpu, &rows.queue, data, shift, rows.sections, spare)?));
        rows.upload_weights(data, LoadOptions::default())?;
        Ok(rows)
    }

    fn upload(&mut self, data: &Dataset, options: LoadOptions<'_>) -> Result<(), Error> {
        let x = self.x.first(tiled_len(self.n as u64, self.d as u32) as usize);
        upload::rows(&self.gpu, &self.queue, data, &self.shift, &x, options)?;
        self.upload_weights(data, options)
    }

    fn upload_weights(&mut self, data: &Dataset, options: LoadOptions<'_>) -> Result<(), Error> {
        let (Some(to), Some(weights)) = (&self.row_weights, data.weights()) else { return Ok(()) };
        let mut to = to.first(self.n);
        let Some(tiles) = options.tiles else { return upload::weights(&self.gpu, &self.queue, weights, &mut to) };
        let mut spread = vec![0.0; self.n];
        let slots = spread.chunks_exact_mut(upload::TILE).zip(tiles);
        slots.for_each(|(to, tile)| to[..tile.len()].copy_from_slice(&weights[tile.clone()]));
        upload::weights(&self.gpu, &self.queue, &spread, &mut to)
    }

    /// [`Passes::sample`](crate::Passes::sample).
    pub(crate) fn sample_here(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Self, Error> {
        const WHAT: &str = "a sample of the data on the GPU";
        if let Some(streamed) = &self.streamed {
            return self.sample_of(streamed.data(), rows, weights);
        }
        assert!(rows.iter().all(|&row| row < self.n), "row numbers below n");
        let (dim, total_weight) = ((rows.len(), self.d), weights.map(|all| all.iter().sum()));
        let room =
            |all: &Self| Self::with_room(all.gpu.clone(), dim, total_weight, all.precision, &all.shift, all.forced);
        let mut some = match room(self) {
            Err(Error::Memory { .. }) if self.give_up_source()? => room(self)?,
            answer => answer?,
        };
        let which = Slot::<u64>::taken(&self.gpu, WHAT, rows.len())?;
        // Waits for pending writes of these rows: the gathering runs on the sample's own stream.
        self.queue.rest(&self.gpu)?;
        let picked = some.pick_from(&self.whole().x, rows, &which, weights);
        // Waits even if the gathering failed, since `which` is freed.
        let rested = some.queue.wait(&self.gpu);
        picked.and(rested).map(|()| some)
    }

    /// Loads a sample of rows on the host.
    pub(crate) fn sample_of(&self, data: &Dataset, rows: &[usize], weights: Option<&[f64]>) -> Result<Self, Error> {
        let some = Dataset::new(data.rows().select_rows(rows))?;
        let some = weights.map_or(Ok(some.clone()), |weights| some.with_weights(weights.to_vec()))?;
        Self::load(self.gpu.clone(), &some, self.precision, &self.shift, self.forced, LoadOptions::default())
    }

    fn pick_from(
        &mut self,
        from: &DeviceSlice<T>,
        rows: &[usize],
        which: &Slot<u64>,
        weights: Option<&[f64]>,
    ) -> Result<(), Error> {
        let mut which = which.first(rows.len());
        staging::send(&self.gpu, &self.queue, &mut which, 1, |piece, chunk| {
            chunk.iter_mut().zip(&rows[piece]).for_each(|(to, &row)| *to = row as u64);
        })?;
        if let (Some(to), Some(weights)) = (&self.row_weights, weights) {
            upload::weights(&self.gpu, &self.queue, weights, &mut to.first(self.n))?;
        }
        let to = self.whole().x;
        Launcher { gpu: &self.gpu, queue: &self.queue }.pick(self.d as u32, from, &which, &to)
    }

    pub(crate) fn shape(&self, kind: CovarianceType, k: usize) -> Shape {
        Shape { kind, precision: self.precision, n: self.n as u64, k: k as u32, d: self.d as u32 }
    }

    /// Whether the rows are streamed or borrowed.
    pub(crate) const fn passes_through(&self) -> bool {
        self.streamed.is_some() || self.borrowed.is_some()
    }

    /// All rows as one chunk.
    ///
    /// # Panics
    /// If the rows [pass through](Self::passes_through).
    pub(crate) fn whole(&self) -> Chunk<T> {
        assert!(!self.passes_through(), "these rows are never all in tiles");
        let n = self.n as u64;
        let x = self.x.first(tiled_len(n, self.d as u32) as usize);
        Chunk { x, row_weights: self.row_weights.as_ref().map(|w| w.first(self.n)), n }
    }

    /// A range of rows within one section as a chunk, for kernels that are enqueued before the next call.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn stage(&mut self, rows: Range<usize>) -> Result<Chunk<T>, Error> {
        let n = rows.len() as u64;
        let row_weights = self.row_weights.as_ref().map(|w| w.first(self.n).index(rows.clone()));
        let x = match (&mut self.streamed, &mut self.borrowed) {
            (Some(streamed), _) => streamed.stage(&self.gpu, &self.queue, rows)?,
            (None, Some(borrowed)) => borrowed.stage(&self.gpu, &self.queue, rows)?,
            // Sections and chunks start at tiles, so the numbers of a chunk are contiguous.
            (None, None) => self.whole().x.index(rows.start * self.d..).index(..tiled_len(n, self.d as u32) as usize),
        };
        Ok(Chunk { x, row_weights, n })
    }

    pub(crate) fn launcher(&self) -> Launcher<'_> {
        Launcher { gpu: &self.gpu, queue: &self.queue }
    }

    /// Plans a pass and sizes the workspace for it, with the largest chunks for which there is memory.
    pub(crate) fn prepare(&mut self, kind: CovarianceType, k: usize, extras: Extras) -> Result<(Shape, Plan), Error> {
        let shape = self.shape(kind, k);
        if let Some((s, e, plan)) = self.planned
            && (s, e) == (shape, extras)
        {
            return Ok((shape, plan));
        }
        let (limits, forced) = (self.gpu.limits, self.forced);
        let plan_for = |most_rows| plan::plan(&shape, &limits, &forced, most_rows, extras.is_evaluation);
        let whole = plan_for(self.most_rows);
        let sizes = Sizes::of(&shape, &whole, extras);
        let plan = if self.workspace.holds(&sizes) { whole } else { self.reserve(&shape, extras, plan_for)? };
        tracing::debug!(kind = %kind, precision = %self.precision, n = self.n, k, d = self.d, %plan, "plan");
        self.planned = Some((shape, extras, plan));
        Ok((shape, plan))
    }

    fn reserve(&mut self, shape: &Shape, extras: Extras, plan_for: impl Fn(u64) -> Plan) -> Result<Plan, Error> {
        self.planned = None;
        let mut most_rows = self.most_rows;
        loop {
            let most = Sizes::of(shape, &plan_for(most_rows), extras).bytes(shape.number_bytes());
            let budget = self.gpu.within_reach(most, self.workspace.bytes())?;
            if budget < most && self.give_up_source()? {
                // The original rows are freed before chunks get smaller.
                continue;
            }
            let (plan, sizes) = workspace::fitting(budget, shape, extras, &plan_for, most_rows)?;
            let kept = self.workspace.bytes() > 0;
            match self.workspace.reserve(&self.gpu, &sizes) {
                Err(Error::Memory { .. }) if self.give_up_source()? => {}
                // Buffers of earlier passes may be in the way: try again without them, then with smaller chunks.
                Err(Error::Memory { .. }) if kept => self.workspace.clear(),
                Err(error @ Error::Memory { .. }) => {
                    self.workspace.clear();
                    most_rows = workspace::smaller(&plan).ok_or(error)?;
                }
                other => return other.map(|()| plan),
            }
        }
    }

    /// Runs a pass with the device's context current. After a failure, waits for the stream, since enqueued work may
    /// still use the workspace.
    ///
    /// A launch itself may need device memory: for a kernel's code on its first launch, and for its threads' stacks. If
    /// that is lacking, the pass is repeated with smaller chunks, whose workspace leaves more memory free.
    pub(crate) fn run<A>(&mut self, mut pass: impl FnMut(&mut Self) -> Result<A, Error>) -> Result<A, Error> {
        self.gpu.enter()?;
        let mut drained = false;
        loop {
            let lacked_before = self.gpu.lacked_memory();
            let error = match pass(self) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            self.recover();
            // If an allocation failed, the error states the size, and smaller chunks have been tried already.
            if matches!(error, Error::Memory { .. }) || self.gpu.lacked_memory() == lacked_before {
                return Err(error);
            }
            let held = self.workspace.bytes();
            let Ok(free) = self.gpu.free() else { return Err(error) };
            // First frees the pool's idle memory, once; then this pass's own memory.
            let idle = !std::mem::replace(&mut drained, true) && self.gpu.pool.drain();
            if !self.make_room() && !idle {
                return Err(Error::Device(format!(
                    "{error}; the pass needs {held} bytes in its smallest chunks, plus what the driver needs, and \
                     {free} are free: use fewer components, or f32"
                )));
            }
        }
    }

    /// Frees the workspace and makes chunks smaller. Returns false if there is nothing left to free.
    fn make_room(&mut self) -> bool {
        let smaller = self.planned.take().and_then(|(_, _, plan)| workspace::smaller(&plan));
        let source = self.source.take().is_some() || self.streamed.as_mut().is_some_and(|rows| rows.evict());
        self.workspace.clear();
        self.gpu.pool.drain();
        self.most_rows = smaller.unwrap_or(self.most_rows);
        smaller.is_some() || source
    }
}

impl<T: Number> Rows<T> {
    /// Makes the context current and waits for the stream, before buffers are released: they belong to the context, and
    /// the pool gives them to others.
    pub(crate) fn come_to_rest(&self) {
        self.gpu.enter_to_drop();
        self.queue.come_to_rest();
        self.streamed.iter().for_each(|streamed| streamed.come_to_rest());
    }

    /// Waits for all streams after a failure.
    pub(crate) fn recover(&self) {
        self.queue.recover();
        self.streamed.iter().for_each(|streamed| streamed.come_to_rest());
    }
}

impl<T: Number> Drop for Rows<T> {
    fn drop(&mut self) {
        self.come_to_rest();
    }
}
