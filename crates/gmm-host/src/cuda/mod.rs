//! The GPU engine: the kernels of `gmm-kernels`, launched through cust, over rows that stay on the device. The only place that knows
//! cust.
//!
//! Folders, from the ground up; each imports from those above it in this list alone, which a test checks:
//!
//! | folder | what it holds |
//! |---|---|
//! | [`number`], [`shape`] | the two types of numbers, and the shape of a problem |
//! | [`driver`] | the driver's functions, opened at run time, a device, its streams, memory and kernels |
//! | [`launch`] | one safe function per kernel, and the plan of a pass |
//! | [`rows`] | resident rows: how they come, and the passes over them that the host puts together |
//! | [`em`] | EM's loop on the device, and its paths |
//! | [`seeding`] | k-means++ and Lloyd's iterations |
//! | [`log_likelihood`] | likelihoods of many mixtures, gradients, columns of one component each |
//! | [`products`] | matrices that stay, and what is multiplied by them; nothing to do with rows |
//! | [`tune`] | EM paths timed over the rows at hand |
//! | [`resident`] | all of these as the engines' trait has them |

mod driver;
mod em;
mod launch;
mod log_likelihood;
mod number;
pub(crate) mod products;
mod resident;
mod rows;
mod seeding;
mod shape;
#[cfg(test)]
mod tests;
mod tune;

use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, Precision, PrecisionMixture};

use crate::cpu::few;
use crate::data::DeviceRows;
use crate::described::LoopCandidate;
use crate::engine::{DeviceInput, check_features};
use crate::products::{Kind, Multiplier};
use crate::{Engine, Error, Evaluation, Resident, Tuning, Wanted};
use driver::device::Gpu;
use driver::{ptx, staging};
use launch::plan::Forced;
use products::CudaMultiplier;
use resident::CudaResident;
use shape::Shape;

pub use driver::report::cuda_report;
pub use driver::staging::UploadRates;
pub use log_likelihood::columns::DeviceColumn;
pub(crate) use number::Number;
pub use rows::device_input::DeviceData;

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

    /// Where fits with [`autotune`](crate::FitOptions::autotune) keep what they find: `autotune.json` in `GMM_CACHE_DIR`, or
    /// in the folder `gmm` of the user's cache folder; none where there is no such folder.
    pub fn tuning_file() -> Option<std::path::PathBuf> {
        tune::file()
    }

    /// What that file has for `n` rows of `d` columns and `k` components, `(n, d, k)`, all of weight 1: with autotune fits of such
    /// a shape begin so. None where none was timed.
    ///
    /// # Errors
    /// As for [`loop_candidates`].
    pub fn kept_tuning(
        &self,
        kind: CovarianceType,
        precision: Precision,
        shape: (usize, usize, usize),
    ) -> Result<Option<Tuning>, Error> {
        Ok(tune::kept(&self.gpu, &Shape::new(kind, precision, shape)?))
    }
}

/// The EM paths for `shape`, `n` rows of `d` columns with `k` components, `(n, d, k)`, on `engine`, or, without one, on an H200; best
/// first. One of them runs. Nothing is launched. `fast`: as [`FitOptions::fast`](crate::FitOptions::fast).
///
/// # Errors
/// [`Error::Option`] where `GMM_PLAN` says what cannot be, or a number is beyond what the kernels count with.
pub fn loop_candidates(
    engine: Option<&CudaEngine>,
    kind: CovarianceType,
    precision: Precision,
    shape: (usize, usize, usize),
    fast: bool,
) -> Result<Vec<LoopCandidate>, Error> {
    em::select::described(engine.map(|engine| &*engine.gpu), Shape::new(kind, precision, shape)?, fast)
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
            Precision::F32 => Box::new(CudaResident::<f32>::load(gpu, data, precision, shift, forced, to_move)?),
            Precision::F64 => Box::new(CudaResident::<f64>::load(gpu, data, precision, shift, forced, to_move)?),
        })
    }
}

impl Engine for CudaEngine {
    fn device_input(&self) -> Option<&dyn DeviceInput> {
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
}

impl DeviceInput for CudaEngine {
    unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
        // SAFETY: the caller's promise.
        unsafe { DeviceData::new(&self.gpu, rows, weights) }
    }

    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(data.dim().1, shift.len())?;
        data.check_on(&self.gpu)?;
        let (gpu, forced) = (self.gpu.clone(), Forced::from_environment()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaResident::<f32>::from_device(gpu, data, precision, shift, limit, forced)?),
            Precision::F64 => Box::new(CudaResident::<f64>::from_device(gpu, data, precision, shift, limit, forced)?),
        })
    }
}
