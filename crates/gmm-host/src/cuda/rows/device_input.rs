//! Rows that another library put on the device, read from where they are.

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
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::number::Number;
use crate::cuda::rows::borrowed::Borrowed;
use crate::cuda::rows::{Rows, upload};
use crate::data::DeviceRows;
use crate::engine::DISTANCE_ROWS;
use crate::hold::too_far;

impl DeviceRows {
    pub(crate) fn number_bytes(&self) -> usize {
        if self.precision == Precision::F32 { 4 } else { 8 }
    }
}

/// Rows of another library on this process's GPU, with optional row weights in host memory. The counterpart of
/// [`Dataset`](gmm_model::Dataset), except that the check for NaN and infinity happens only when an engine loads the
/// rows.
pub struct DeviceData {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) rows: DeviceRows,
    /// Weights of the rows that are present.
    weights: Option<Vec<f64>>,
    /// Numbers of the rows that are present, ascending; `None` if all are.
    pub(crate) present: Option<Vec<usize>>,
}

impl DeviceData {
    /// Wraps rows on the device: see [`DeviceInput::device_data`](crate::DeviceInput::device_data).
    ///
    /// # Safety
    /// As for [`DeviceInput::device_data`](crate::DeviceInput::device_data): nobody writes or frees `rows` while the
    /// result lives, and their writers are done or on a stream that is waited for.
    ///
    /// # Errors
    /// As for [`DeviceInput::device_data`](crate::DeviceInput::device_data).
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

    /// Precision of the values.
    pub const fn precision(&self) -> Precision {
        self.rows.precision
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Returns only the rows of positive weight; `None` if all have one. The result uses the same memory, and must be
    /// dropped before `self`.
    ///
    /// An engine that loads the result first loads all rows and then gathers these on the device, which temporarily
    /// takes `tiled_len(n, d)` more numbers and 16 bytes per row. All rows must be finite, as on the host; the distance
    /// limit applies only to the rows that are present.
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

    /// Errors if the rows are on another device than the one that computes.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(crate) fn check_on(&self, gpu: &Gpu) -> Result<(), Error> {
        if self.gpu.ordinal == gpu.ordinal { Ok(()) } else { refused(gpu, format!("cuda:{}", self.gpu.ordinal)) }
    }

    /// Whether a row is present.
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
    Err(Error::Option { option: "the location of the rows", value, must })
}

/// Checks that the rows are on this device, whose context must be current, and waits for pending writes to them.
fn ready(gpu: &Gpu, rows: &DeviceRows) -> Result<(), Error> {
    let mut ordinal = -1_i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: the call writes one integer to `ordinal`; the driver accepts any address.
    let code = unsafe { cuPointerGetAttribute((&raw mut ordinal).cast::<c_void>(), attribute, rows.address) };
    if code != cudaError_enum::CUDA_SUCCESS {
        table::take_failure();
        return refused(gpu, "memory that the driver does not know".to_owned());
    }
    if ordinal != gpu.ordinal as i32 {
        return refused(gpu, format!("cuda:{ordinal}"));
    }
    if let Some(stream) = rows.stream {
        // SAFETY: the caller guarantees that `stream` is a live stream, or it is one of the driver's special handles.
        let code = unsafe { cuStreamSynchronize(stream as CUstream) };
        gpu.check_code(|| "waiting for rows".to_owned(), code)?;
    }
    // Libraries may write on streams that they do not report.
    // SAFETY: waits for all work in the current context.
    let code = unsafe { cuCtxSynchronize() };
    gpu.check_code(|| "waiting for rows".to_owned(), code)
}

/// Function that returns, for a point, the weighted squared distances summed over each [`DISTANCE_ROWS`] rows.
pub(crate) type DistanceSums<'a, T> = dyn FnMut(&mut Rows<T>, &[f64]) -> Result<Vec<f64>, Error> + 'a;

impl<T: Number> Rows<T> {
    /// Loads rows, minus a shift, from another library's device memory; `distances` sums squared distances from a
    /// point.
    ///
    /// # Errors
    /// As [`DeviceInput::load_there`](crate::DeviceInput::load_there).
    pub(crate) fn from_device(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
        forced: ForcedPlan,
        distances: &mut DistanceSums<'_, T>,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let weights = data.weights().filter(|_| data.present.is_none());
        let total_weight = weights.map(|weights| weights.iter().sum());
        let mut held = Self::with_room(gpu, (data.rows.n, data.rows.d), total_weight, precision, shift, forced)?;
        // Allocated outside `run`: after a failure `run` waits for the stream before this returns to the pool.
        let at = Slot::taken(&held.gpu, "a shift on the GPU", data.rows.d)?;
        held.run(|held| held.tile_from(&data.rows, &at))?;
        // The check uses weight 1 for every row.
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
        held.original = limit.map(|_| data.rows);
        Ok(held)
    }

    /// Borrows rows of another library, all of which are present, for evaluations.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn borrow(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let total_weight = data.weights().map(|weights| weights.iter().sum());
        let mut rows = Self::taken(gpu, (data.rows.n, data.rows.d), 0, total_weight, precision, shift, forced)?;
        rows.borrowed = Some(Borrowed::new(&rows.gpu, data.rows)?);
        rows.run(|rows| {
            if let (Some(to), Some(weights)) = (&rows.row_weights, data.weights()) {
                upload::weights(&rows.gpu, &rows.queue, weights, &mut to.first(rows.n))?;
            }
            let Some(borrowed) = &rows.borrowed else { return Ok(()) };
            // SAFETY: the stream is waited for below, or in `run` after a failure.
            let copied = unsafe { borrowed.shift().async_copy_from(&rows.shift[..], &rows.queue.stream) };
            rows.gpu.check("a copy of a shift to the device", copied)?;
            rows.queue.wait(&rows.gpu)
        })?;
        Ok(rows)
    }

    pub(super) fn tile_from(&mut self, rows: &DeviceRows, shift: &Slot<f64>) -> Result<(), Error> {
        let (n, d) = (self.n as u64, self.d as u32);
        let words = (rows.n * rows.d * rows.number_bytes()).div_ceil(8);
        // SAFETY: the words cover the `n*d` numbers of `rows`, which `device_data` requires to be readable. If the last
        // word holds only one `f32`, the kernel reads no further.
        let from = unsafe { DeviceSlice::<f64>::from_raw_parts(DevicePointer::from_raw(rows.address), words) };
        // SAFETY: `self` and the slot live until the stream has been waited for: below, or in `run` after a failure.
        let copied = unsafe { shift.first(self.d).async_copy_from(&self.shift[..], &self.queue.stream) };
        self.gpu.check("a copy of a shift to the device", copied)?;
        let to = self.x.first(tiled_len(n, d) as usize);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.hold((n, d), rows.precision, &from, &shift.first(self.d), &to)?;
        self.queue.wait(&self.gpu)
    }

    /// Checks that all rows are finite and within the limit. Sums of squared distances from the shift show which groups
    /// of rows may violate this; only those rows are copied to the host and checked.
    fn check_rows(
        &mut self,
        data: &DeviceData,
        limit: Option<f64>,
        distances: &mut DistanceSums<'_, T>,
    ) -> Result<(), Error> {
        let shift = self.shift.clone();
        let sums = distances(self, &shift)?;
        // If a distance exceeds the limit, its square exceeds the sum's bound; 0.5 allows for rounding. With no limit
        // only overflow counts.
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
        // Without a limit the rows may be finite while their squares overflow. Whether that matters is decided
        // elsewhere.
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
