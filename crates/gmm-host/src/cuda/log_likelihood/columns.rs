//! Log densities of the rows under single components, which stay on the device and are mixed there.

use std::sync::Arc;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::THREADS;
use gmm_model::Mixture;

use super::Likelihoods;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::staging::receive;
use crate::cuda::launch::StepOutputs;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::outputs::copy_to;
use crate::cuda::rows::parameters;
use crate::cuda::rows::workspace::Extras;

/// Log densities of all rows under one component, on a device: see
/// [`ComponentColumns::column`](crate::ComponentColumns::column).
pub struct DeviceColumn {
    /// `(n,)`.
    numbers: Slot<f64>,
    n: usize,
    /// Last, so that it is dropped last: the context must outlive the buffer.
    gpu: Arc<Gpu>,
}

impl DeviceColumn {
    fn all(&self) -> DeviceSlice<f64> {
        self.numbers.first(self.n)
    }

    /// Whether the column belongs to `n` rows on this device.
    pub(crate) fn is_of(&self, gpu: &Arc<Gpu>, n: usize) -> bool {
        self.n == n && Arc::ptr_eq(&self.gpu, gpu)
    }
}

impl Drop for DeviceColumn {
    fn drop(&mut self) {
        if self.gpu.is_inherited() {
            // The buffer and the pool belong to the parent process, from which this one was forked.
            std::mem::forget(std::mem::replace(&mut self.numbers, Slot::empty()));
            return;
        }
        // Nothing on the device reads it any more: mixing waits for the stream.
        self.gpu.enter_to_drop();
    }
}

const WHAT: &str = "log densities of a component on the GPU";

/// Blocks per multiprocessor: enough reads in flight. The number of blocks affects the result's bits.
const BLOCKS: u32 = 8;

/// Rows per piece when mixed rows are copied to the host.
const PIECE: usize = 1 << 20;

impl Likelihoods {
    /// [`ComponentColumns::column`](crate::ComponentColumns::column).
    pub(crate) fn column<T: Number>(&mut self, data: &mut Rows<T>) -> Result<DeviceColumn, Error> {
        // The column, and what single-component passes need besides, so that these do not have to use small chunks.
        data.room(WHAT, 3 * 8 * data.n as u128, 0)?;
        Ok(DeviceColumn { numbers: Slot::taken(&data.gpu, WHAT, data.n)?, n: data.n, gpu: data.gpu.clone() })
    }

    /// [`ComponentColumns::mix_columns`](crate::ComponentColumns::mix_columns).
    pub(crate) fn mix_columns<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        columns: &[DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        for (c, component) in anew {
            self.fill_column(data, component, &columns[*c].all())?;
        }
        let columns: Vec<DeviceSlice<f64>> = columns.iter().map(DeviceColumn::all).collect();
        let weights = data.row_weights.as_ref().map(|weights| weights.first(data.n));
        let (blocks, partials) = self.mix(data, &columns, log_weights, weights.as_ref(), None)?;
        let sum = self.buffers.values.on_device(1);
        data.launcher().reduce_blocks(&partials, blocks.into(), 1, &sum, false)?;
        data.queue.wait(&data.gpu)?;
        Ok(self.buffers.values.as_slice()[0])
    }

    /// [`ComponentColumns::mixed_rows`](crate::ComponentColumns::mixed_rows).
    pub(crate) fn mixed_rows<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        columns: &[DeviceColumn],
        log_weights: &[f64],
        rows: &mut [f64],
    ) -> Result<(), Error> {
        let piece = PIECE.min(data.n);
        data.room(WHAT, 8 * piece as u128, 0)?;
        let mixed = Slot::<f64>::taken(&data.gpu, WHAT, piece)?;
        for (i, rows) in rows.chunks_mut(piece).enumerate() {
            let here = i * piece..i * piece + rows.len();
            let columns: Vec<DeviceSlice<f64>> = columns.iter().map(|c| c.all().index(here.clone())).collect();
            let to = mixed.first(rows.len());
            let received = self.mix(data, &columns, log_weights, None, Some(&to)).and_then(|_| {
                // `receive` waits for the stream.
                receive(&data.gpu, &data.queue, &to, copy_to(rows))
            });
            // Waits before `mixed` is freed.
            received.inspect_err(|_| data.queue.recover())?;
        }
        Ok(())
    }

    /// Enqueues the mixing of columns: each block's part of Σ w ln p(x), and each row's log density if `rows` is given.
    /// Returns the number of blocks and their partial sums.
    fn mix<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        columns: &[DeviceSlice<f64>],
        log_weights: &[f64],
        row_weights: Option<&DeviceSlice<f64>>,
        rows: Option<&DeviceSlice<f64>>,
    ) -> Result<(u32, DeviceSlice<f64>), Error> {
        let (n, k) = (columns[0].len(), columns.len());
        let blocks = n.div_ceil(THREADS as usize).min((data.gpu.limits.multiprocessors * BLOCKS) as usize);
        self.buffers.reserve(data, 2 * k + blocks, 2 * k, 1)?;
        let memory = &mut self.buffers;
        let numbers = memory.numbers.first(2 * k + blocks);
        let host = &mut memory.coefficients.as_mut_slice()[..2 * k];
        for (to, column) in host.iter_mut().zip(columns) {
            *to = f64::from_bits(column.as_device_ptr().as_raw());
        }
        host[k..].copy_from_slice(log_weights);
        // SAFETY: the host buffer is pinned, and `Rows::run` waits for the stream before it is written again or freed.
        let copied = unsafe { numbers.index(..2 * k).async_copy_from(&*host, &data.queue.stream) };
        data.gpu.check("a copy of addresses to the device", copied)?;
        let (addresses, log_weights, partials) = (numbers.index(..k), numbers.index(k..2 * k), numbers.index(2 * k..));
        let launcher = data.launcher();
        launcher.mix(n as u64, columns, &addresses, &log_weights, row_weights, rows, blocks as u32, &partials)?;
        Ok((blocks as u32, partials))
    }

    /// Enqueues the log densities of all rows under one component.
    fn fill_column<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        component: &Mixture,
        to: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        // The previous component's parameters may still be in transfer from the buffer that is written here.
        data.queue.rest(&data.gpu)?;
        let (shape, plan) = data.prepare(component.covariance_type(), 1, Extras::default())?;
        let model = data.parameters(&shape, false, |shift, at, out| parameters::fill(component, shift, at, out))?;
        for rows in data.sections.chunks(plan.chunk as usize) {
            let (start, chunk) = (rows.start, data.stage(rows)?);
            let log_densities = Some(to.index(start..start + chunk.n as usize));
            let out = StepOutputs { responsibilities: false, weighted: false, log_densities, labels: None };
            data.e_step(&shape, &plan, start, &chunk, &model, &out)?;
        }
        Ok(())
    }
}
