//! The GPU engine: the kernels of `gmm-kernels`, launched through cust, over rows that stay on the device.
//!
//! This is the only place that knows cust. [`driver`] is the floor: the driver's functions, opened at run time, which
//! tests replace. [`report`] lists devices, [`device`] opens one, [`ptx`] chooses the module, [`plan`] the variant and the grids,
//! [`workspace`] states and takes the memory, [`upload`] brings rows in through [`staging`]'s pinned chunks,
//! [`launch`] has one safe function per kernel, [`rows`] puts passes together from them, [`em`]
//! EM's loop, whose kernels [`ways`] chooses, [`seeding`] what k-means++ asks, and [`lloyd`] Lloyd's iterations.

mod device;
mod driver;
mod em;
#[cfg(test)]
mod fake;
mod fault;
mod launch;
mod lloyd;
mod parameters;
mod plan;
mod ptx;
mod report;
mod rows;
mod seeding;
mod staging;
#[cfg(test)]
mod tests;
mod upload;
mod ways;
mod workspace;

use std::sync::Arc;

use gmm_model::{Dataset, Precision};

use crate::engine::check_features;
use crate::{Engine, Error, Resident};
use device::Gpu;
use plan::Forced;
use rows::CudaRows;

pub use report::{CudaDevice, CudaReport, cuda_report};
pub use staging::UploadRates;
pub use ways::{LoopCandidate, loop_candidates};

/// One NVIDIA GPU. Clones share its context and kernels.
///
/// ```
/// use gmm_host::{CpuEngine, CudaEngine, Engine};
///
/// let engine: Box<dyn Engine> = match CudaEngine::new(0) {
///     Ok(gpu) => Box::new(gpu),
///     Err(why) => {
///         eprintln!("{why}");
///         Box::new(CpuEngine::new(1)?)
///     }
/// };
/// println!("{}: {}", engine.name(), engine.description());
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaEngine {
    gpu: Arc<Gpu>,
}

impl CudaEngine {
    /// Opens the device of this ordinal among the visible ones, and loads the kernels.
    ///
    /// # Errors
    /// [`Error::Device`] that says what is missing and what to do: no driver, one that is too old, the toolkit's stub,
    /// no such device, one whose compute capability is too low.
    pub fn new(ordinal: usize) -> Result<Self, Error> {
        Ok(Self { gpu: Arc::new(Gpu::open(ordinal, None)?) })
    }

    /// As [`new`](Self::new) with a kernel module by name, `sm_75`, `sm_80` or `sm_90a`, and not the best one: for tests
    /// and comparisons.
    ///
    /// # Errors
    /// As for [`new`](Self::new); [`Error::Device`] where the device does not run the module.
    pub fn with_module(ordinal: usize, module: &str) -> Result<Self, Error> {
        Ok(Self { gpu: Arc::new(Gpu::open(ordinal, Some(module))?) })
    }

    /// Bytes of device memory that are free.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn free_memory(&self) -> Result<u64, Error> {
        self.gpu.enter()?;
        Ok(self.gpu.free()? as u64)
    }

    /// Measures how fast `bytes` bytes go to the device from pinned and from pageable memory.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Memory`].
    pub fn upload_rates(&self, bytes: usize) -> Result<UploadRates, Error> {
        staging::rates(&self.gpu, bytes)
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        format!("cuda:{}", self.gpu.ordinal)
    }

    fn description(&self) -> String {
        let Gpu { name, choice, driver, .. } = self.gpu.as_ref();
        format!(
            "{name}, module {} ({}), driver for CUDA {}",
            choice.module.target,
            choice.reason,
            ptx::version_text(*driver)
        )
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        check_features(data.n_features(), shift.len())?;
        let (gpu, forced) = (self.gpu.clone(), Forced::from_environment()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaRows::<f32>::load(gpu, data, precision, shift, forced)?),
            Precision::F64 => Box::new(CudaRows::<f64>::load(gpu, data, precision, shift, forced)?),
        })
    }
}
