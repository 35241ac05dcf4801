//! Rows that another library put on the device, taken in from where they lie.

use std::ffi::c_void;
use std::sync::Arc;

use cust::memory::{AsyncCopyDestination, DevicePointer, DeviceSlice};
use cust::sys::{
    CUpointer_attribute, CUstream, cuCtxSynchronize, cuPointerGetAttribute, cuStreamSynchronize, cudaError_enum,
};
use gmm_kernels::layout::tiled_len;
use gmm_model::{DataError, Precision, check_weights};
use ndarray::Array2;

use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::table;
use crate::cuda::launch::Launcher;
use crate::cuda::launch::plan::Forced;
use crate::cuda::number::Number;
use crate::cuda::rows::{Rows, upload};
use crate::data::DeviceRows;
use crate::engine::DISTANCE_ROWS;
use crate::hold::too_far;

impl DeviceRows {
    pub(crate) fn number_bytes(&self) -> usize {
        if self.precision == Precision::F32 { 4 } else { 8 }
    }
}

/// Rows of another library on this process's GPU, with optional row weights, which lie on the host. What a
/// [`Dataset`](gmm_model::Dataset) is for rows on the host, but for one thing: whether all numbers are finite is seen when
/// an engine takes them in.
pub struct DeviceData {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) rows: DeviceRows,
    /// Of the rows that count.
    weights: Option<Vec<f64>>,
    /// Which rows count, ascending; all where there is none.
    pub(crate) present: Option<Vec<usize>>,
}

impl DeviceData {
    /// See [`DeviceInput::device_data`](crate::DeviceInput::device_data), whose promises are the caller's.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub(crate) unsafe fn new(gpu: &Arc<Gpu>, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<Self, Error> {
        check(&rows)?;
        if let Some(weights) = &weights {
            check_weights(weights, rows.n)?;
        }
        gpu.enter()?;
        ready(gpu, &rows)?;
        Ok(Self { gpu: gpu.clone(), rows, weights, present: None })
    }
}

impl DeviceData {
    /// `(n, d)`.
    pub fn dim(&self) -> (usize, usize) {
        (self.present.as_ref().map_or(self.rows.n, Vec::len), self.rows.d)
    }

    /// Of the numbers.
    pub const fn precision(&self) -> Precision {
        self.rows.precision
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// The rows of positive weight alone, where some have none. They lie where all do, and must be gone before `self` is.
    ///
    /// An engine that takes them in holds all rows first and gathers these on the device: for as long as that lasts it takes
    /// `tiled_len(n, d)` numbers more than they do, and 16 bytes a row. All rows must be finite, as on the host; what is too
    /// far counts in these alone.
    pub(crate) fn without_absent_rows(&self) -> Option<Self> {
        let weights = self.weights.as_ref()?;
        let present: Vec<usize> = (0..weights.len()).filter(|&row| weights[row] > 0.0).collect();
        (present.len() < weights.len()).then(|| Self {
            gpu: self.gpu.clone(),
            rows: self.rows,
            weights: Some(present.iter().map(|&row| weights[row]).collect()),
            present: Some(present),
        })
    }

    /// Refuses rows on another device than the one that computes.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(crate) fn check_on(&self, gpu: &Gpu) -> Result<(), Error> {
        if self.gpu.ordinal == gpu.ordinal { Ok(()) } else { refused(gpu, format!("cuda:{}", self.gpu.ordinal)) }
    }

    /// Whether a row counts.
    fn has(&self, row: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present.binary_search(&row).is_ok())
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
        table::take_failure();
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

/// What sums up, for a point, the weighted squared distances of each [`DISTANCE_ROWS`] rows.
pub(crate) type DistanceSums<'a, T> = dyn FnMut(&mut Rows<T>, &[f64]) -> Result<Vec<f64>, Error> + 'a;

impl<T: Number> Rows<T> {
    /// Rows held about a shift, from where another library put them; `distances` sums up those from a point.
    ///
    /// # Errors
    /// As [`DeviceInput::load_there`](crate::DeviceInput::load_there).
    pub(crate) fn from_device(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
        forced: Forced,
        distances: &mut DistanceSums<'_, T>,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let weights = data.weights().filter(|_| data.present.is_none());
        let total_weight = weights.map(|weights| weights.iter().sum());
        let mut held = Self::with_room(gpu, (data.rows.n, data.rows.d), total_weight, precision, shift, forced)?;
        // Outside of `run`, which waits for the stream after a failure, and before this goes back to the pool.
        let at = Slot::taken(&held.gpu, "a shift on the GPU", data.rows.d)?;
        held.run(|held| held.tile_from(&data.rows, &at))?;
        // A row counts whatever it weighs.
        let room = held.row_weights.take();
        let checked = held.run(|held| held.check_rows(data, limit, distances));
        held.row_weights = room;
        checked?;
        if let Some(present) = &data.present {
            return held.run(|all| all.sample_here(present, data.weights()));
        }
        if let (Some(to), Some(weights)) = (&held.row_weights, weights) {
            upload::weights(&held.gpu, &held.queue, weights, &mut to.first(held.n))?;
        }
        Ok(held)
    }

    fn tile_from(&mut self, rows: &DeviceRows, shift: &Slot<f64>) -> Result<(), Error> {
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
    fn check_rows(
        &mut self,
        data: &DeviceData,
        limit: Option<f64>,
        distances: &mut DistanceSums<'_, T>,
    ) -> Result<(), Error> {
        let shift = self.shift.clone();
        let sums = distances(self, &shift)?;
        // A distance beyond the limit has its square in the sum, up to rounding. Nothing is beyond an infinite one.
        let most = limit.map_or(f64::MAX, |limit| 0.5 * limit * limit);
        let mut largest = vec![0.0_f64; self.d];
        for group in (0..sums.len()).filter(|&group| sums[group].is_nan() || sums[group] > most) {
            let some = group * DISTANCE_ROWS..self.n.min((group + 1) * DISTANCE_ROWS);
            let first = some.start;
            let here = data.numbers(&self.queue, some)?;
            check_finite(&here, first)?;
            for ((_, column), value) in here.indexed_iter().filter(|((row, _), _)| data.has(first + row)) {
                largest[column] = largest[column].max((value - shift[column]).abs());
            }
        }
        // Without a limit all may be finite, and their squares too large: what that means for a density is no matter of here.
        limit.map_or(Ok(()), |limit| too_far(&largest, limit, self.precision))
    }
}

/// Errors if a number is NaN or infinite; the first of `rows` is row `first`.
///
/// # Errors
/// [`DataError::NotFinite`] with the first row and column.
pub(crate) fn check_finite(rows: &Array2<f64>, first: usize) -> Result<(), DataError> {
    match rows.indexed_iter().find(|(_, v)| !v.is_finite()) {
        Some(((row, column), &value)) => Err(DataError::NotFinite { row: first + row, column, value }),
        None => Ok(()),
    }
}
