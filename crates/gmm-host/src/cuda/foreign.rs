//! Rows that another library put on the device, taken in from where they lie.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use cust::memory::bytemuck::{Pod, cast_slice};
use cust::memory::{AsyncCopyDestination, DeviceCopy, DevicePointer, DeviceSlice};
use cust::sys::{
    CUDA_MEMCPY2D, CUmemorytype, CUpointer_attribute, CUstream, cuCtxSynchronize, cuMemcpy2DAsync_v2,
    cuPointerGetAttribute, cuStreamSynchronize, cudaError_enum,
};
use gmm_kernels::layout::tiled_len;
use gmm_model::{DataError, Matrix, Precision, check_weights};
use ndarray::{Array2, Axis};

use super::CudaEngine;
use super::blocks::{Block, blocks_of, widest};
use super::buffers::{Slot, pin, pinned_empty};
use super::device::Gpu;
use super::launch::Launcher;
use super::plan::Forced;
use super::queue::Queue;
use super::rows::CudaRows;
use super::staging::receive;
use super::upload::{Number, weights as upload_weights};
use crate::engine::{DISTANCE_ROWS, check_features};
use crate::shift::{Strided, too_far};
use crate::{Error, Resident};

/// Rows, `(n, d)` in row-major order and one behind the other, in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRows {
    /// Where the first number is.
    pub address: u64,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub d: usize,
    /// Of the numbers.
    pub precision: Precision,
    /// The stream on which they are written, where that is known: work that is on it is waited for.
    pub stream: Option<u64>,
}

impl DeviceRows {
    fn number_bytes(&self) -> usize {
        if self.precision == Precision::F32 { 4 } else { 8 }
    }
}

/// Rows of another library on this process's GPU, with optional row weights, which lie on the host. What a
/// [`Dataset`](gmm_model::Dataset) is for rows on the host, but for one thing: whether all numbers are finite is seen when
/// an engine takes them in.
pub struct DeviceData {
    gpu: Arc<Gpu>,
    rows: DeviceRows,
    weights: Option<Vec<f64>>,
}

impl CudaEngine {
    /// Rows on this engine's device, to be read from there: to fit, to evaluate, to take the likelihood of. All work that
    /// the process has put on the device until now is waited for.
    ///
    /// # Safety
    /// `rows` are numbers that this process may read, and nobody writes to them or frees them as long as the result lives.
    /// Work that writes them is done, or was put on a stream of the device's primary context or on the one that `rows`
    /// names.
    ///
    /// # Errors
    /// [`Error::Data`] for no rows, and for weights as [`Dataset::with_weights`](gmm_model::Dataset::with_weights) refuses
    /// them; [`Error::Option`] where `rows` lie on another device, or on none; [`Error::Device`].
    pub unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
        check(&rows)?;
        if let Some(weights) = &weights {
            check_weights(weights, rows.n)?;
        }
        self.gpu.enter()?;
        ready(&self.gpu, &rows)?;
        Ok(DeviceData { gpu: self.gpu.clone(), rows, weights })
    }

    /// [`Engine::load_there`](crate::Engine::load_there).
    pub(super) fn load_device_data(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(data.rows.d, shift.len())?;
        if data.gpu.ordinal != self.gpu.ordinal {
            return refused(&self.gpu, format!("cuda:{}", data.gpu.ordinal));
        }
        let (gpu, forced) = (self.gpu.clone(), Forced::from_environment()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaRows::<f32>::foreign(gpu, data, precision, shift, limit, forced)?),
            Precision::F64 => Box::new(CudaRows::<f64>::foreign(gpu, data, precision, shift, limit, forced)?),
        })
    }
}

impl DeviceData {
    /// `(n, d)`.
    pub const fn dim(&self) -> (usize, usize) {
        (self.rows.n, self.rows.d)
    }

    /// Of the numbers.
    pub const fn precision(&self) -> Precision {
        self.rows.precision
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Brings all rows to the host, as they are.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken; [`Error::Device`].
    pub fn fetch(&self) -> Result<Matrix, Error> {
        crate::memory::check("rows from the GPU", (self.rows.n * self.rows.d * self.rows.number_bytes()) as u128)?;
        self.gpu.enter()?;
        let queue = Queue::new(&self.gpu)?;
        Ok(match self.rows.precision {
            Precision::F32 => self.some::<f32>(&queue, 0..self.rows.n)?.into(),
            Precision::F64 => self.some::<f64>(&queue, 0..self.rows.n)?.into(),
        })
    }

    /// Some rows on the host, `(rows.len(), d)`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn pick(&self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        let blocks = rows.iter().map(|&first| Block { first, pitch: 1, height: 1, width: 1 });
        let picked = self.blocks(&blocks.collect::<Vec<_>>())?;
        Ok(ndarray::concatenate(Axis(0), &picked.iter().map(|row| row.view()).collect::<Vec<_>>())
            .expect("d columns each"))
    }

    /// Rows at some strides on the host, `(strided.len(), d)`. They are a thousand at most, and a copy for each would take
    /// longer than to bring the whole of a small data set: they come in blocks, with rows around them.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn sample(&self, strided: Strided) -> Result<Array2<f64>, Error> {
        let row_bytes = self.rows.d * self.rows.number_bytes();
        let (blocks, picks) = blocks_of(strided, widest(row_bytes));
        let found = self.blocks(&blocks)?;
        let mut out = Array2::zeros((strided.len(), self.rows.d));
        for (mut row, (block, at)) in out.outer_iter_mut().zip(picks) {
            row.assign(&found[block].row(at));
        }
        Ok(out)
    }

    /// Each block's rows, `(height*width, d)`.
    fn blocks(&self, blocks: &[Block]) -> Result<Vec<Array2<f64>>, Error> {
        match self.rows.precision {
            Precision::F32 => self.blocks_of_numbers::<f32>(blocks),
            Precision::F64 => self.blocks_of_numbers::<f64>(blocks),
        }
    }

    fn blocks_of_numbers<A: DeviceCopy + Pod + Into<f64>>(&self, blocks: &[Block]) -> Result<Vec<Array2<f64>>, Error> {
        let (gpu, d) = (&self.gpu, self.rows.d);
        gpu.enter()?;
        let queue = Queue::new(gpu)?;
        let mut host = pinned_empty::<u64>();
        let len: usize = blocks.iter().map(|block| block.rows() * d).sum();
        pin(gpu, &mut host, (len * size_of::<A>()).div_ceil(8).max(1))?;
        let (base, row_bytes) = (host.as_mut_slice().as_mut_ptr().cast::<u8>(), d * size_of::<A>());
        let mut at = 0;
        let copies = blocks.iter().try_for_each(|block| {
            let width = block.width * row_bytes;
            let copy = CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                srcHost: std::ptr::null(),
                srcDevice: self.rows.address + (block.first * row_bytes) as u64,
                srcArray: std::ptr::null_mut(),
                // Of one row nobody steps to the next.
                srcPitch: if block.height == 1 { width } else { block.pitch * row_bytes },
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
                // SAFETY: within the pinned block, which is as long as all blocks together.
                dstHost: unsafe { base.add(at) }.cast::<c_void>(),
                dstDevice: 0,
                dstArray: std::ptr::null_mut(),
                dstPitch: width,
                WidthInBytes: width,
                Height: block.height,
            };
            at += block.height * width;
            queue.left();
            // SAFETY: from within the rows, of which `device_data`'s caller spoke, to pinned memory that is neither read nor
            // given back before the stream was waited for.
            let code = unsafe { cuMemcpy2DAsync_v2(&raw const copy, queue.stream.as_inner()) };
            gpu.check_code(|| "a copy of rows from the device".to_owned(), code)
        });
        if let Err(error) = copies.and_then(|()| queue.wait(gpu)) {
            queue.recover();
            return Err(error);
        }
        let mut numbers = cast_slice::<u64, A>(host.as_slice());
        Ok(blocks
            .iter()
            .map(|block| {
                let (these, rest) = numbers.split_at(block.rows() * d);
                numbers = rest;
                let values = these.iter().map(|&v| v.into()).collect();
                Array2::from_shape_vec((block.rows(), d), values).expect("as many as copied")
            })
            .collect())
    }

    /// Some rows on the host, one behind the other.
    fn some<A: DeviceCopy + Pod + Default>(&self, queue: &Queue, some: Range<usize>) -> Result<Array2<A>, Error> {
        let d = self.rows.d;
        let mut out = Array2::from_elem((some.len(), d), A::default());
        let slots = out.as_slice_mut().expect("row-major");
        let start = self.rows.address + (some.start * d * size_of::<A>()) as u64;
        // SAFETY: within the rows, of which `device_data`'s caller spoke.
        let from = unsafe { DeviceSlice::<A>::from_raw_parts(DevicePointer::from_raw(start), some.len() * d) };
        receive(&self.gpu, queue, &from, |piece, numbers| slots[piece].copy_from_slice(numbers))?;
        Ok(out)
    }
}

fn check(rows: &DeviceRows) -> Result<(), Error> {
    let DeviceRows { n, d, .. } = *rows;
    if n == 0 || d == 0 {
        return Err(DataError::Empty { n, d }.into());
    }
    if !rows.address.is_multiple_of(rows.number_bytes() as u64) {
        let must = format!("a multiple of {} bytes", rows.number_bytes());
        return Err(Error::Option { option: "the address of rows", value: rows.address.to_string(), must });
    }
    Ok(())
}

fn refused<A>(gpu: &Gpu, value: String) -> Result<A, Error> {
    let must = format!("on cuda:{}, the device that computes", gpu.ordinal);
    Err(Error::Option { option: "the place of the rows", value, must })
}

/// Sees that rows lie on this device, whose context is current, and waits for whoever writes them.
fn ready(gpu: &Gpu, rows: &DeviceRows) -> Result<(), Error> {
    let mut ordinal = -1_i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: writes one integer; the driver knows which addresses are its own.
    let code = unsafe { cuPointerGetAttribute((&raw mut ordinal).cast::<c_void>(), attribute, rows.address) };
    if code != cudaError_enum::CUDA_SUCCESS {
        super::driver::take_failure();
        return refused(gpu, "memory that the driver does not know".to_owned());
    }
    if ordinal != gpu.ordinal as i32 {
        return refused(gpu, format!("cuda:{ordinal}"));
    }
    if let Some(stream) = rows.stream {
        // SAFETY: the caller's stream, or one of the driver's own handles.
        let code = unsafe { cuStreamSynchronize(stream as CUstream) };
        gpu.check_code(|| "waiting for rows".to_owned(), code)?;
    }
    // Libraries write on streams of their own, of which they tell or not.
    // SAFETY: waits for the context's work, whoever put it there.
    let code = unsafe { cuCtxSynchronize() };
    gpu.check_code(|| "waiting for rows".to_owned(), code)
}

impl<T: Number> CudaRows<T> {
    /// Rows held about a shift, from where another library put them.
    fn foreign(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
        forced: Forced,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let total_weight = data.weights().map(|weights| weights.iter().sum());
        let mut held = Self::with_room(gpu, data.dim(), total_weight, precision, shift, forced)?;
        // Outside of `run`, which waits for the stream after a failure, and before this goes back to the pool.
        let at = Slot::taken(&held.gpu, "a shift on the GPU", data.rows.d)?;
        held.run(|held| held.take_foreign(&data.rows, &at))?;
        // A row counts whatever it weighs.
        let weights = held.row_weights.take();
        let checked = held.run(|held| held.check_foreign(data, limit));
        held.forget_centres_here();
        held.row_weights = weights;
        checked?;
        if let (Some(to), Some(weights)) = (&held.row_weights, data.weights()) {
            upload_weights(&held.gpu, &held.queue, weights, &mut to.first(held.n))?;
        }
        Ok(held)
    }

    fn take_foreign(&mut self, rows: &DeviceRows, shift: &Slot<f64>) -> Result<(), Error> {
        let (n, d) = (self.n as u64, self.d as u32);
        let words = (rows.n * rows.d * rows.number_bytes()).div_ceil(8);
        // SAFETY: the kernel reads numbers, of which the last word may have one only.
        let from = unsafe { DeviceSlice::<f64>::from_raw_parts(DevicePointer::from_raw(rows.address), words) };
        // SAFETY: `self` and the slot live until the stream was waited for: at the end, or by `run` after a failure.
        let copied = unsafe { shift.first(self.d).async_copy_from(&self.shift[..], &self.queue.stream) };
        self.gpu.check("a copy of a shift to the device", copied)?;
        let to = self.x.first(tiled_len(n, d) as usize);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.hold((n, d), rows.precision, &from, &shift.first(self.d), &to)?;
        self.queue.wait(&self.gpu)
    }

    /// Squared distances from the shift, summed over some thousand rows, say where something may be amiss; the rows
    /// themselves, on the host, what.
    fn check_foreign(&mut self, data: &DeviceData, limit: Option<f64>) -> Result<(), Error> {
        let shift = self.shift.clone();
        let sums = self.add_centre_here(&shift)?;
        // A distance beyond the limit has its square in the sum, up to rounding. Nothing is beyond an infinite one.
        let most = limit.map_or(f64::MAX, |limit| 0.5 * limit * limit);
        let mut largest = vec![0.0_f64; self.d];
        for group in (0..sums.len()).filter(|&group| sums[group].is_nan() || sums[group] > most) {
            let some = group * DISTANCE_ROWS..self.n.min((group + 1) * DISTANCE_ROWS);
            let first = some.start;
            let here = match data.rows.precision {
                Precision::F32 => data.some::<f32>(&self.queue, some)?.mapv(f64::from),
                Precision::F64 => data.some::<f64>(&self.queue, some)?,
            };
            if let Some(((row, column), &value)) = here.indexed_iter().find(|(_, v)| !v.is_finite()) {
                return Err(DataError::NotFinite { row: first + row, column, value }.into());
            }
            for ((_, column), value) in here.indexed_iter() {
                largest[column] = largest[column].max((value - shift[column]).abs());
            }
        }
        // Without a limit all may be finite, and their squares too large: what that means for a density is no matter of here.
        limit.map_or(Ok(()), |limit| too_far(&largest, limit, self.precision))
    }
}
