//! The GPU engine: the kernels of `gmm-kernels`, launched through cust, over rows that stay on the device.
//!
//! This is the only place that knows cust. [`driver`] is the floor: the driver's functions, opened at run time, which
//! tests replace. [`report`] lists devices, [`device`] opens one, [`ptx`] chooses the module, of which [`loading`]
//! loads kernels, [`plan`] the variant and the grids. [`workspace`] states what memory a pass needs, in [`buffers`]
//! that come from a [`pool`], as do the streams of [`queue`]. [`rows`] are what lies on the device; [`upload`] brings
//! them through [`staging`]'s pinned chunks, or [`source`] as they are where they are few or are to be moved;
//! [`foreign`] takes those in that lie there already, of which [`brought`] shows some to the host. [`launch`] has one
//! safe function per kernel, from which [`passes`] are put together, [`em`] EM's loop, whose kernels [`ways`] chooses,
//! or [`tune`] by timing them, [`seeding`] what k-means++ asks, [`lloyd`] Lloyd's iterations, [`scores`] likelihoods of
//! many mixtures, and [`expectation`] the pass of a gradient, both from coefficients that [`expand`] makes, [`columns`]
//! those of one component each, which stay; [`resident`] is their face. [`products`] has nothing to do with rows: matrices that stay, and what is multiplied by
//! them.

mod alone;
mod arena;
mod blocks;
mod brought;
mod buffers;
mod columns;
mod device;
mod digits;
mod driver;
mod em;
mod expand;
mod expectation;
#[cfg(test)]
mod fake;
mod fault;
mod foreign;
mod launch;
mod lloyd;
mod loading;
mod packing;
mod parameters;
mod passes;
mod plan;
mod pool;
pub(crate) mod products;
mod ptx;
mod queue;
mod report;
mod resident;
mod rows;
mod scores;
mod seeding;
mod shape;
mod slices;
mod source;
mod staging;
#[cfg(test)]
mod tests;
mod tune;
mod upload;
mod ways;
mod workspace;

use std::sync::Arc;

use gmm_model::{Dataset, Precision, PrecisionMixture};

use crate::cpu::few;
use crate::engine::check_features;
use crate::products::{Kind, Multiplier};
use crate::{Engine, Error, Evaluation, Resident, Wanted};
use device::Gpu;
use plan::Forced;
use products::CudaMultiplier;
use rows::CudaRows;

pub use columns::DeviceColumn;
pub use foreign::DeviceData;
pub use report::cuda_report;
pub use staging::UploadRates;
pub(crate) use upload::Number;
pub use ways::loop_candidates;

/// One NVIDIA GPU. Clones share its context and kernels.
///
/// What rows held goes to the next ones: up to 64 MiB of device memory and 16 MiB of pinned memory in small pieces lie idle
/// between them, beside the 32 MiB that uploads go through. They count as free here, and go back to the driver with the
/// last clone, or before anything is refused for want of memory.
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

    /// Bytes of device memory that rows can have: those that are free, and those that this engine keeps idle.
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

impl CudaEngine {
    fn load_data(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        to_move: bool,
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(data.n_features(), shift.len())?;
        let (gpu, forced) = (self.gpu.clone(), Forced::from_environment()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaRows::<f32>::load(gpu, data, precision, shift, forced, to_move)?),
            Precision::F64 => Box::new(CudaRows::<f64>::load(gpu, data, precision, shift, forced, to_move)?),
        })
    }
}

impl Engine for CudaEngine {
    fn as_cuda(&self) -> Option<&CudaEngine> {
        Some(self)
    }

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

    fn multiplier(&self) -> Result<Multiplier, Error> {
        Ok(Multiplier(Kind::Cuda(CudaMultiplier::new(self.gpu.clone()))))
    }

    fn evaluate_few(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        mixture: &PrecisionMixture<'_>,
        want: &mut Wanted<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        few::evaluate_beside_a_device(data, precision, shift, mixture, want)
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, false)
    }

    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, true)
    }

    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        self.load_device_data(data, precision, shift, limit)
    }
}
