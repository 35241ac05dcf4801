//! Log densities of the rows under one component each, which stay on the device, and are mixed there.

use std::sync::Arc;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::THREADS;
use gmm_model::Mixture;

use super::device::Gpu;
use super::launch::StepOutputs;
use super::parameters;
use super::passes::copy_to;
use super::rows::CudaRows;
use super::staging::receive;
use super::upload::Number;
use super::workspace::{Extras, Slot};
use crate::Error;

/// Log densities of all rows under one component, on a device: see [`Resident::column`](crate::Resident::column).
pub struct DeviceColumn {
    /// `(n,)`.
    numbers: Slot<f64>,
    n: usize,
    /// Last, so that the context outlives what belongs to it.
    gpu: Arc<Gpu>,
}

impl DeviceColumn {
    fn all(&self) -> DeviceSlice<f64> {
        self.numbers.first(self.n)
    }
}

impl Drop for DeviceColumn {
    fn drop(&mut self) {
        // Nothing reads it any more: who mixes waits for the device.
        self.gpu.enter_to_drop();
    }
}

/// Blocks for each multiprocessor: enough reads under way, and part of the result's bits.
const BLOCKS: u32 = 8;

impl<T: Number> CudaRows<T> {
    /// [`Resident::column`](crate::Resident::column).
    pub(super) fn column_here(&mut self) -> Result<DeviceColumn, Error> {
        const WHAT: &str = "log densities of a component on the GPU";
        self.room(WHAT, 8 * self.n as u128, 0)?;
        Ok(DeviceColumn { numbers: Slot::taken(&self.gpu, WHAT, self.n)?, n: self.n, gpu: self.gpu.clone() })
    }

    /// [`Resident::mix_columns`](crate::Resident::mix_columns).
    pub(super) fn mix_columns_here(
        &mut self,
        columns: &[DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
        rows: Option<&mut [f64]>,
    ) -> Result<f64, Error> {
        assert!(columns.len() == log_weights.len() && columns.iter().all(|column| column.n == self.n), "columns");
        for (c, component) in anew {
            self.fill_column(component, &columns[*c].all())?;
        }
        let k = columns.len();
        let blocks = (self.gpu.limits.multiprocessors * BLOCKS).min(self.n.div_ceil(THREADS as usize) as u32);
        let each = rows.as_ref().map_or(0, |_| self.n);
        self.reserve_scores(2 * k + blocks as usize + each, 2 * k, 1)?;
        let memory = &mut self.score_memory;
        let numbers = memory.numbers.first(2 * k + blocks as usize + each);
        let slices: Vec<DeviceSlice<f64>> = columns.iter().map(DeviceColumn::all).collect();
        let host = &mut memory.coefficients.as_mut_slice()[..2 * k];
        for (to, column) in host.iter_mut().zip(&slices) {
            *to = f64::from_bits(column.as_device_ptr().as_raw());
        }
        host[k..].copy_from_slice(log_weights);
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
        let copied = unsafe { numbers.index(..2 * k).async_copy_from(&*host, &self.queue.stream) };
        self.gpu.check("a copy of addresses to the device", copied)?;
        let sum = memory.values.on_device(1);
        let partials = numbers.index(2 * k..2 * k + blocks as usize);
        let to = rows.as_ref().map(|_| numbers.index(2 * k + blocks as usize..));
        let weights = self.row_weights.as_ref().map(|weights| weights.first(self.n));
        let (addresses, log_weights) = (numbers.index(..k), numbers.index(k..2 * k));
        let launcher = self.launcher();
        let n = self.n as u64;
        launcher.mix(n, &slices, &addresses, &log_weights, weights.as_ref(), to.as_ref(), blocks, &partials)?;
        launcher.add_blocks(&partials, blocks, 1, &sum)?;
        if let (Some(rows), Some(from)) = (rows, &to) {
            receive(&self.gpu, &self.queue, from, copy_to(rows))?;
        }
        self.queue.wait(&self.gpu)?;
        Ok(self.score_memory.values.as_slice()[0])
    }

    /// The log density of each row under one component, put on the stream.
    fn fill_column(&mut self, component: &Mixture, to: &DeviceSlice<f64>) -> Result<(), Error> {
        let (shape, plan) = self.prepare(component.covariance_type(), 1, Extras::default())?;
        // The component before it may still be on its way from where this one's parameters are written.
        self.queue.rest(&self.gpu)?;
        let model = self.parameters(&shape, |shift, at, out| parameters::fill(component, shift, at, out))?;
        for (start, chunk) in self.chunks(&plan) {
            let log_densities = Some(to.index(start..start + chunk.n as usize));
            let out = StepOutputs { responsibilities: false, weighted: false, log_densities, labels: None };
            self.e_step(&shape, &plan, start, &chunk, &model, &out)?;
        }
        Ok(())
    }
}
