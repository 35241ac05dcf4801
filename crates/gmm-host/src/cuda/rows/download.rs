//! Copies rows that another library put on the device to the host: all of them, some, or piece by piece.

use std::ffi::c_void;
use std::ops::Range;

use cust::memory::bytemuck::{Pod, cast_slice};
use cust::memory::{DeviceCopy, DevicePointer, DeviceSlice};
use cust::sys::{CUDA_MEMCPY2D, CUmemorytype, cuMemcpy2DAsync_v2};
use gmm_model::{Dataset, Matrix, Precision};
use ndarray::{Array2, ArrayView2, Axis};

use crate::cuda::driver::buffers::{pin, pinned_empty};
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::{CHUNK_BYTES, receive};
use crate::cuda::rows::blocks::{Block, blocks_of};
use crate::cuda::rows::device_input::{DeviceData, check_finite};
use crate::{Error, memory};

impl DeviceData {
    /// Copies all rows to the host, unchanged.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is allocated; [`Error::Device`].
    pub fn fetch(&self) -> Result<Matrix, Error> {
        let all = self.all()?;
        Ok(match &self.present {
            Some(present) => all.select_rows(present),
            None => all,
        })
    }

    fn all(&self) -> Result<Matrix, Error> {
        let rows = &self.rows;
        memory::check("rows from the GPU", (rows.n * rows.d * rows.number_bytes()) as u128)?;
        self.gpu.enter()?;
        let queue = Queue::new(&self.gpu)?;
        Ok(match rows.precision {
            Precision::F32 => self.some::<f32>(&queue, 0..rows.n)?.into(),
            Precision::F64 => self.some::<f64>(&queue, 0..rows.n)?.into(),
        })
    }

    /// Copies the rows to the host if some are absent, as a data set that keeps only the present ones; `None` if all
    /// are present.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch); [`Error::Data`] if any row has NaN or infinite values.
    pub(crate) fn fetch_present(&self) -> Result<Option<Dataset>, Error> {
        let (Some(present), Some(some)) = (&self.present, self.weights()) else { return Ok(None) };
        let mut weights = vec![0.0; self.rows.n];
        present.iter().zip(some).for_each(|(&row, &weight)| weights[row] = weight);
        Ok(Dataset::new(self.all()?)?.with_weights(weights)?.without_absent_rows())
    }

    /// Passes all rows to `see` in order, piece by piece: the number of the piece's first row, and the rows, converted
    /// exactly.
    ///
    /// # Errors
    /// [`Error::Data`] with the first row and column that is NaN or infinite; [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn walk(&self, see: &mut dyn FnMut(usize, ArrayView2<'_, f64>)) -> Result<(), Error> {
        let (n, d) = (self.rows.n, self.rows.d);
        let piece = (CHUNK_BYTES / (8 * d)).clamp(1, n);
        memory::check("some rows from the GPU", 16 * (piece * d) as u128)?;
        self.gpu.enter()?;
        let queue = Queue::new(&self.gpu)?;
        let mut seen = 0;
        for first in (0..n).step_by(piece) {
            let some = first..n.min(first + piece);
            let mut rows = self.numbers(&queue, some.clone())?;
            check_finite(&rows, first)?;
            if let Some(present) = &self.present {
                let here =
                    present.partition_point(|&row| row < some.start)..present.partition_point(|&row| row < some.end);
                rows = rows.select(Axis(0), &present[here].iter().map(|row| row - first).collect::<Vec<_>>());
            }
            see(seen, rows.view());
            seen += rows.nrows();
        }
        Ok(())
    }

    /// Copies some rows to the host, `(rows.len(), d)`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn pick(&self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        let place = |row: usize| self.present.as_ref().map_or(row, |present| present[row]);
        let blocks: Vec<Block> =
            rows.iter().map(|&row| Block { first: place(row), pitch: 1, height: 1, width: 1 }).collect();
        let picks: Vec<(usize, usize)> = (0..rows.len()).map(|block| (block, 0)).collect();
        self.rows_of_blocks(&blocks, &picks)
    }

    /// Copies rows in ascending order to the host, `(rows.len(), d)`. There are at most a thousand, and a copy for each
    /// would take longer than copying a small data set. So they are copied in blocks that include other rows.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn sample(&self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        let row_bytes = self.rows.d * self.rows.number_bytes();
        let placed = self.present.as_ref().map(|present| rows.iter().map(|&row| present[row]).collect::<Vec<_>>());
        let (blocks, picks) = blocks_of(placed.as_deref().unwrap_or(rows), self.rows.n, row_bytes);
        self.rows_of_blocks(&blocks, &picks)
    }

    /// Copies blocks of rows to the host, and returns some of their rows, each given by its block and its place there,
    /// `(picks.len(), d)`.
    fn rows_of_blocks(&self, blocks: &[Block], picks: &[(usize, usize)]) -> Result<Array2<f64>, Error> {
        match self.rows.precision {
            Precision::F32 => self.rows_of_blocks_as::<f32>(blocks, picks),
            Precision::F64 => self.rows_of_blocks_as::<f64>(blocks, picks),
        }
    }

    fn rows_of_blocks_as<A: DeviceCopy + Pod + Into<f64>>(
        &self,
        blocks: &[Block],
        picks: &[(usize, usize)],
    ) -> Result<Array2<f64>, Error> {
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
                // A block of height 1 has no pitch.
                srcPitch: if block.height == 1 { width } else { block.pitch * row_bytes },
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
                // SAFETY: `at` is within the pinned buffer, which is as long as all blocks together.
                dstHost: unsafe { base.add(at) }.cast::<c_void>(),
                dstDevice: 0,
                dstArray: std::ptr::null_mut(),
                dstPitch: width,
                WidthInBytes: width,
                Height: block.height,
            };
            at += block.height * width;
            queue.left();
            // SAFETY: the source is within the rows, which `device_data` requires to be readable. The target is pinned
            // memory that is neither read nor freed before the stream has been waited for.
            let code = unsafe { cuMemcpy2DAsync_v2(&raw const copy, queue.stream.as_inner()) };
            gpu.check_code(|| "a copy of rows from the device".to_owned(), code)
        });
        if let Err(error) = copies.and_then(|()| queue.wait(gpu)) {
            queue.recover();
            return Err(error);
        }
        let numbers = cast_slice::<u64, A>(host.as_slice());
        let starts: Vec<usize> =
            blocks.iter().scan(0, |next, block| Some(std::mem::replace(next, *next + block.rows() * d))).collect();
        let mut out = Array2::zeros((picks.len(), d));
        for (mut row, &(block, at)) in out.outer_iter_mut().zip(picks) {
            let from = &numbers[starts[block] + at * d..];
            row.iter_mut().zip(from).for_each(|(to, &v)| *to = v.into());
        }
        Ok(out)
    }

    /// Copies some rows to the host, converted exactly to f64.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn numbers(&self, queue: &Queue, some: Range<usize>) -> Result<Array2<f64>, Error> {
        Ok(match self.rows.precision {
            Precision::F32 => self.some::<f32>(queue, some)?.mapv(f64::from),
            Precision::F64 => self.some::<f64>(queue, some)?,
        })
    }

    /// Copies a range of rows to the host.
    fn some<A: DeviceCopy + Pod + Default>(&self, queue: &Queue, some: Range<usize>) -> Result<Array2<A>, Error> {
        let d = self.rows.d;
        let mut out = Array2::from_elem((some.len(), d), A::default());
        let slots = out.as_slice_mut().expect("row-major");
        let start = self.rows.address + (some.start * d * size_of::<A>()) as u64;
        // SAFETY: the range is within the rows, which `device_data` requires to be readable.
        let from = unsafe { DeviceSlice::<A>::from_raw_parts(DevicePointer::from_raw(start), some.len() * d) };
        receive(&self.gpu, queue, &from, |piece, numbers| slots[piece].copy_from_slice(numbers))?;
        Ok(out)
    }
}
