//! Matrices that another library put on the device: the resident matrix, or queries to it.

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DevicePointer, DeviceSlice};
use cust::sys::{CUDA_MEMCPY2D, CUmemorytype, cuMemcpy2DAsync_v2};
use gmm_model::Precision;
use ndarray::{Array2, ArrayView2, s};

use super::pinned::is_pinned;
use super::room::reserve;
use super::state::State;
use super::transfer::{is_by_columns, put};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::staging::send;
use crate::cuda::launch::{Launcher, Raw};
use crate::cuda::number::Number;
use crate::cuda::rows::device_input::DeviceData;
use crate::products::operand::{Operand, OperandData};

/// A range of rows and columns of an array on a device, optionally transposed.
#[derive(Clone)]
pub(crate) struct DeviceOperand<'a> {
    data: &'a DeviceData,
    rows: Range<usize>,
    columns: Range<usize>,
    exchanged: bool,
    /// Whether numbers are rounded to f32 first, whatever type they are converted to.
    single: bool,
}

/// The part `some` of the range `all`, in absolute positions.
fn within(all: &Range<usize>, some: Range<usize>) -> Range<usize> {
    assert!(some.start <= some.end && some.end <= all.len(), "{some:?} of {}", all.len());
    all.start + some.start..all.start + some.end
}

impl<'a> DeviceOperand<'a> {
    pub(crate) fn new(data: &'a DeviceData) -> Self {
        let (n, d) = data.dim();
        Self { data, rows: 0..n, columns: 0..d, exchanged: false, single: false }
    }

    /// Rows and columns.
    pub(crate) fn dim(&self) -> (usize, usize) {
        let (n, d) = (self.rows.len(), self.columns.len());
        if self.exchanged { (d, n) } else { (n, d) }
    }

    /// The transposed matrix.
    pub(crate) fn exchanged(&self) -> Self {
        Self { exchanged: !self.exchanged, ..self.clone() }
    }

    /// The matrix with its numbers rounded to f32 first.
    pub(crate) fn single(&self) -> Self {
        Self { single: true, ..self.clone() }
    }

    /// A range of the rows.
    pub(crate) fn rows(&self, some: Range<usize>) -> Self {
        if self.exchanged {
            Self { columns: within(&self.columns, some), ..self.clone() }
        } else {
            Self { rows: within(&self.rows, some), ..self.clone() }
        }
    }

    /// Copies some of the rows, ascending, to the host as f64.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn pick(&self, some: &[usize]) -> Result<Array2<f64>, Error> {
        if self.exchanged {
            let all = self.data.sample(&self.rows.clone().collect::<Vec<_>>())?;
            return Ok(all
                .t()
                .select(ndarray::Axis(0), &some.iter().map(|i| self.columns.start + i).collect::<Vec<_>>()));
        }
        let rows: Vec<usize> = some.iter().map(|i| self.rows.start + i).collect();
        Ok(self.data.sample(&rows)?.slice_move(s![.., self.columns.clone()]))
    }

    fn number_bytes(&self) -> usize {
        self.data.rows.number_bytes()
    }

    fn pitch(&self) -> usize {
        self.data.rows.d * self.number_bytes()
    }

    fn address(&self) -> u64 {
        self.data.rows.address + (self.rows.start * self.pitch() + self.columns.start * self.number_bytes()) as u64
    }

    /// Whether all numbers are contiguous.
    fn is_dense(&self) -> bool {
        self.rows.len() <= 1 || self.columns.len() == self.data.rows.d
    }

    /// Whether f64 numbers are rounded to f32 and converted back to f64.
    fn is_rounded<T: Number>(&self) -> bool {
        self.single && self.number_bytes() == 8 && size_of::<T>() == 8
    }

    /// Whether the numbers are used without conversion.
    fn is_of<T: Number>(&self) -> bool {
        self.number_bytes() == size_of::<T>() && !self.is_rounded::<T>()
    }

    /// Whether ranges of rows are contiguous too.
    fn is_dense_in_parts(&self) -> bool {
        self.is_dense() && !self.exchanged
    }

    /// Errors if the array is on another device.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(super) fn check(&self, gpu: &Gpu) -> Result<(), Error> {
        self.data.check_on(gpu)
    }

    /// Copies the numbers into contiguous memory.
    fn gather<A: Number>(&self, gpu: &Gpu, state: &State<A>, to: DevicePointer<u8>) -> Result<(), Error> {
        let width = self.columns.len() * self.number_bytes();
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: self.address(),
            srcArray: std::ptr::null_mut(),
            srcPitch: self.pitch(),
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.as_raw(),
            dstArray: std::ptr::null_mut(),
            dstPitch: width,
            WidthInBytes: width,
            Height: self.rows.len(),
        };
        state.queue.left();
        // SAFETY: the source is within the array, which `device_data` requires to be readable; the caller allocated
        // `to` for all numbers.
        let code = unsafe { cuMemcpy2DAsync_v2(&raw const copy, state.queue.stream.as_inner()) };
        gpu.check_code(|| "a copy of a matrix on the device".to_owned(), code)
    }
}

/// Tile size for a single column: the conversion kernel writes whole tiles.
const WHOLE: usize = gmm_kernels::layout::TILE_ROWS as usize;

impl<T: Number> Operand<'_, T> {
    /// Errors if the array is on another device.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(super) fn check(&self, gpu: &Gpu) -> Result<(), Error> {
        match &self.0 {
            OperandData::Host(_) => Ok(()),
            OperandData::Device(there) => there.check(gpu),
        }
    }

    /// Length of the buffer that `rows` rows need: 0 if the kernels read them in place.
    pub(super) fn room(&self, rows: usize) -> usize {
        let len = rows * self.dim().1;
        match &self.0 {
            OperandData::Host(_) => len,
            OperandData::Device(there) if there.is_dense_in_parts() && there.is_of::<T>() => 0,
            OperandData::Device(_) => len.next_multiple_of(WHOLE),
        }
    }

    /// Bytes per number in all buffers on the device until it is packed.
    pub(super) fn number_bytes(&self) -> u64 {
        let OperandData::Device(there) = &self.0 else { return T::BYTES.into() };
        let gathered = if there.is_of::<T>() || there.is_dense_in_parts() { 0 } else { there.number_bytes() };
        let rounded = if there.is_rounded::<T>() { size_of::<f32>() } else { 0 };
        (size_of::<T>() + gathered + rounded) as u64
    }
}

impl<T: Number> State<T> {
    /// Makes a matrix available on the device, column-major if only its columns are contiguous. A matrix on the host is
    /// uploaded as `T`; one on the device is gathered and converted if necessary.
    pub(super) fn bring(&mut self, gpu: &Gpu, x: &Operand<'_, T>) -> Result<Raw<T>, Error> {
        match &x.0 {
            OperandData::Host(view) => self.bring_from_host(gpu, *view),
            OperandData::Device(there) => self.bring_from_there(gpu, there),
        }
    }

    fn bring_from_host(&self, gpu: &Gpu, x: ArrayView2<'_, T>) -> Result<Raw<T>, Error> {
        let by_columns = is_by_columns(x);
        let dense = if by_columns { x.reversed_axes() } else { x };
        let mut numbers = self.room.raw.first(x.len());
        match dense.as_slice().filter(|all| is_pinned(gpu, all)) {
            Some(all) => {
                self.queue.left();
                // SAFETY: `x` lives until the query returns, which waits for the stream, in `settle` after a failure.
                let copied = unsafe { numbers.async_copy_from(all, &self.queue.stream) };
                gpu.check("a copy to the device", copied)?;
            }
            None => send(gpu, &self.queue, &mut numbers, 1, |piece, chunk| put(dense, piece.start, chunk))?,
        }
        Ok(Raw { numbers, rows: x.nrows() as u64, k: x.ncols() as u64, by_columns })
    }

    fn bring_from_there(&mut self, gpu: &Gpu, there: &DeviceOperand<'_>) -> Result<Raw<T>, Error> {
        let ((rows, k), by_columns) = (there.dim(), there.exchanged);
        let (len, same) = (rows * k, there.is_of::<T>());
        let raw = |numbers| Raw { numbers, rows: rows as u64, k: k as u64, by_columns };
        let address = match (there.is_dense(), same) {
            (true, _) => DevicePointer::from_raw(there.address()),
            (false, true) => {
                reserve(gpu, &mut self.room.raw, len)?;
                let numbers = self.room.raw.first(len);
                there.gather(gpu, self, numbers.as_device_ptr().cast())?;
                return Ok(raw(numbers));
            }
            (false, false) => {
                let words = (len * there.number_bytes()).div_ceil(8);
                reserve(gpu, &mut self.room.strided, words)?;
                let to = self.room.strided.first(words).as_device_ptr();
                there.gather(gpu, self, to.cast())?;
                to
            }
        };
        if same {
            // SAFETY: the range is within the array, which `device_data` requires to be readable; kernels read it
            // number by number.
            return Ok(raw(unsafe { DeviceSlice::from_raw_parts(address.cast(), len) }));
        }
        // A single column is contiguous in tiles too, so the kernel that shifts rows, with a shift of 0, does the
        // conversion.
        reserve(gpu, &mut self.room.raw, len.next_multiple_of(WHOLE))?;
        reserve(gpu, &mut self.room.zero, 1)?;
        send(gpu, &self.queue, &mut self.room.zero.first(1), 1, |_, zero: &mut [f64]| zero.fill(0.0))?;
        // SAFETY: as above, or the gathered copy. If the last word holds only one `f32`, the kernel reads no further.
        let mut from = unsafe { DeviceSlice::from_raw_parts(address, (len * there.number_bytes()).div_ceil(8)) };
        let mut precision = there.data.precision();
        let whole = len.next_multiple_of(WHOLE);
        if there.is_rounded::<T>() {
            reserve(gpu, &mut self.room.single, whole)?;
            let (to, zero) = (self.room.single.first(whole), self.room.zero.first(1));
            Launcher { gpu, queue: &self.queue }.hold((len as u64, 1), precision, &from, &zero, &to)?;
            // SAFETY: `to` holds `whole` `f32` numbers, an even count, viewed as two per 8-byte word.
            from = unsafe { DeviceSlice::from_raw_parts(to.as_device_ptr().cast(), whole / 2) };
            precision = Precision::F32;
        }
        let (to, zero) = (self.room.raw.first(whole), self.room.zero.first(1));
        Launcher { gpu, queue: &self.queue }.hold((len as u64, 1), precision, &from, &zero, &to)?;
        Ok(raw(self.room.raw.first(len)))
    }
}
