//! Rows that another library put on the device, taken in from where they lie.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use cust::memory::bytemuck::Pod;
use cust::memory::{AsyncCopyDestination, DeviceCopy, DevicePointer, DeviceSlice};
use cust::sys::{CUpointer_attribute, CUstream, cuPointerGetAttribute, cuStreamSynchronize};
use gmm_kernels::layout::tiled_len;
use gmm_model::{DataError, Matrix, Precision};
use ndarray::Array2;

use super::CudaEngine;
use super::buffers::Slot;
use super::device::Gpu;
use super::launch::Launcher;
use super::plan::Forced;
use super::queue::Queue;
use super::rows::CudaRows;
use super::staging::receive;
use super::upload::Number;
use crate::engine::{DISTANCE_ROWS, check_features};
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

    /// Numbers of some rows.
    ///
    /// # Safety
    /// As for [`CudaEngine::load_device_rows`]; the slice is not used after the call that makes it.
    unsafe fn slice<A: DeviceCopy>(&self, rows: Range<usize>) -> DeviceSlice<A> {
        let start = self.address + (rows.start * self.d * size_of::<A>()) as u64;
        // SAFETY: within the numbers of which the caller speaks.
        unsafe { DeviceSlice::from_raw_parts(DevicePointer::from_raw(start), rows.len() * self.d) }
    }
}

impl CudaEngine {
    /// Takes rows in as [`Engine::load`](crate::Engine::load) does those of a data set, to the same bits, without bringing
    /// them to the host. They are read before this returns, and not needed after.
    ///
    /// Cost: two passes over the rows on the device, one of which sees whether all are finite.
    ///
    /// # Safety
    /// `rows` are numbers that this process may read, and nobody writes to them or frees them during the call. Work that
    /// wrote them is done, or on the stream that `rows` names, or on the device's default stream.
    ///
    /// # Errors
    /// [`Error::Data`] for no rows, and with the first row and column that is NaN or infinite; [`Error::Option`] where
    /// `rows` lie on another device, or on none; [`Error::Memory`] before anything is taken; [`Error::Device`].
    pub unsafe fn load_device_rows(
        &self,
        rows: &DeviceRows,
        precision: Precision,
        shift: &[f64],
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(rows.d, shift.len())?;
        check(rows)?;
        let (gpu, forced) = (self.gpu.clone(), Forced::from_environment()?);
        // SAFETY: the caller's promise.
        unsafe {
            Ok(match precision {
                Precision::F32 => Box::new(CudaRows::<f32>::foreign(gpu, rows, precision, shift, forced)?),
                Precision::F64 => Box::new(CudaRows::<f64>::foreign(gpu, rows, precision, shift, forced)?),
            })
        }
    }

    /// Brings rows to the host, as they are.
    ///
    /// # Safety
    /// As for [`load_device_rows`](Self::load_device_rows).
    ///
    /// # Errors
    /// [`Error::Option`] and [`Error::Device`] as there; [`Error::Memory`] before anything is taken.
    pub unsafe fn fetch_device_rows(&self, rows: &DeviceRows) -> Result<Matrix, Error> {
        check(rows)?;
        crate::memory::check("rows from the GPU", (rows.n * rows.d * rows.number_bytes()) as u128)?;
        self.gpu.enter()?;
        ready(&self.gpu, rows)?;
        let queue = Queue::new(&self.gpu)?;
        // SAFETY: the caller's promise.
        unsafe {
            Ok(match rows.precision {
                Precision::F32 => fetched::<f32>(&self.gpu, &queue, rows, 0..rows.n)?.into(),
                Precision::F64 => fetched::<f64>(&self.gpu, &queue, rows, 0..rows.n)?.into(),
            })
        }
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

/// Sees that rows lie on this device, whose context is current, and waits for whoever writes them.
fn ready(gpu: &Gpu, rows: &DeviceRows) -> Result<(), Error> {
    let mut ordinal = -1_i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: writes one integer; the driver knows which addresses are its own.
    let code = unsafe { cuPointerGetAttribute((&raw mut ordinal).cast::<c_void>(), attribute, rows.address) };
    let refused = |value: String| {
        let must = format!("on cuda:{}, the device that computes", gpu.ordinal);
        Err(Error::Option { option: "the place of the rows", value, must })
    };
    if code != cust::sys::cudaError_enum::CUDA_SUCCESS {
        super::driver::take_failure();
        return refused("memory that the driver does not know".to_owned());
    }
    if ordinal != gpu.ordinal as i32 {
        return refused(format!("cuda:{ordinal}"));
    }
    let Some(stream) = rows.stream else { return Ok(()) };
    // SAFETY: the caller's stream, or one of the driver's own handles.
    let code = unsafe { cuStreamSynchronize(stream as CUstream) };
    gpu.check_code(|| "waiting for rows".to_owned(), code)
}

/// Some rows on the host.
///
/// # Safety
/// As for [`CudaEngine::load_device_rows`].
unsafe fn fetched<A: DeviceCopy + Pod + Default>(
    gpu: &Gpu,
    queue: &Queue,
    rows: &DeviceRows,
    some: Range<usize>,
) -> Result<Array2<A>, Error> {
    let mut out = Array2::from_elem((some.len(), rows.d), A::default());
    let slots = out.as_slice_mut().expect("row-major");
    // SAFETY: the caller's promise.
    let from = unsafe { rows.slice::<A>(some) };
    receive(gpu, queue, &from, |piece, numbers| slots[piece].copy_from_slice(numbers))?;
    Ok(out)
}

impl<T: Number> CudaRows<T> {
    /// Rows held about a shift, from where another library put them.
    ///
    /// # Safety
    /// As for [`CudaEngine::load_device_rows`].
    unsafe fn foreign(
        gpu: Arc<Gpu>,
        rows: &DeviceRows,
        precision: Precision,
        shift: &[f64],
        forced: Forced,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        ready(&gpu, rows)?;
        let mut held = Self::with_room(gpu, (rows.n, rows.d), None, precision, shift, forced)?;
        // Outside of `run`, which waits for the stream after a failure, and before this goes back to the pool.
        let at = Slot::taken(&held.gpu, "a shift on the GPU", rows.d)?;
        // SAFETY: the caller's promise.
        held.run(|held| unsafe { held.take_foreign(rows, &at) })?;
        // SAFETY: the caller's promise.
        held.run(|held| unsafe { held.check_foreign(rows) })?;
        held.forget_centres_here();
        Ok(held)
    }

    /// # Safety
    /// As for [`CudaEngine::load_device_rows`].
    unsafe fn take_foreign(&mut self, rows: &DeviceRows, shift: &Slot<f64>) -> Result<(), Error> {
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

    /// # Safety
    /// As for [`CudaEngine::load_device_rows`].
    unsafe fn check_foreign(&mut self, rows: &DeviceRows) -> Result<(), Error> {
        let sums = self.add_centre_here(&self.shift.clone())?;
        for group in (0..sums.len()).filter(|&group| !sums[group].is_finite()) {
            let some = group * DISTANCE_ROWS..rows.n.min((group + 1) * DISTANCE_ROWS);
            let first = some.start;
            // SAFETY: the caller's promise.
            let here = unsafe {
                match rows.precision {
                    Precision::F32 => fetched::<f32>(&self.gpu, &self.queue, rows, some)?.mapv(f64::from),
                    Precision::F64 => fetched::<f64>(&self.gpu, &self.queue, rows, some)?,
                }
            };
            // All may be finite, and their squares too large: what that means for a density is no matter of here.
            if let Some(((row, column), &value)) = here.indexed_iter().find(|(_, v)| !v.is_finite()) {
                return Err(DataError::NotFinite { row: first + row, column, value }.into());
            }
        }
        Ok(())
    }
}
