//! The GPU engine: the kernels of `gmm-kernels`, launched through cust, over rows that stay resident on the device. The
//! only module that uses cust.
//!
//! Folders, from the ground up. Each imports only from those above it in this table, which a test checks:
//!
//! | folder | what it holds |
//! |---|---|
//! | [`number`], [`shape`] | the two number types, and the shape of a problem |
//! | [`driver`] | the driver's functions (loaded at run time), a device, its streams, memory and kernels |
//! | [`launch`] | one safe function per kernel, and the plan of a pass |
//! | [`rows`] | resident rows: how they are loaded, and the passes over them that the host drives |
//! | [`em`] | EM's loop on the device, and its paths |
//! | [`seeding`] | k-means++ and Lloyd's iterations |
//! | [`log_likelihood`] | likelihoods of many mixtures, gradients, log densities of single components (columns) |
//! | [`products`] | resident matrices and products with them; independent of rows |
//! | [`tune`] | autotune: EM paths timed over the given rows |
//! | [`resident`] | all of these behind the engine traits |
//! | [`parts`] | statistics of many parts of the rows at once |
//! | [`many`] | many small fits, a block of threads each |
//! | [`deconvolution`] | passes over rows with measurement errors |
//! | [`group`] | several GPUs as one engine |

mod deconvolution;
mod driver;
mod em;
mod group;
mod launch;
mod log_likelihood;
mod many;
mod number;
mod parts;
pub(crate) mod products;
mod resident;
mod rows;
mod seeding;
mod shape;
#[cfg(test)]
mod tests;
mod truncated;
mod tune;

#[cfg(test)]
pub(crate) use driver::fake::here as fake_driver;

use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, Mixture, Precision, PrecisionMixture, RowStorage, Statistics};

use crate::adapt::Ratios;
use crate::cpu::few;
use crate::cuda::rows::original::TOGETHER;
use crate::cuda::rows::reach::{LoadOptions, Reach};
use crate::data::DeviceRows;
use crate::deconvolution::MeasuredRows;
use crate::described::LoopCandidate;
use crate::engine::{DeviceInput, RowsAndReach, check_features};
use crate::many::{Job, SmallFit};
use crate::products::{Kind, Multiplier};
use crate::{Engine, Error, Evaluate, EvaluateOptions, Evaluation, FitOptions, Resident, Tuning, missing};
use deconvolution::CudaPasses;
use driver::device::Gpu;
use driver::{ptx, staging};
use launch::plan::ForcedPlan;
use products::CudaMultiplier;
use resident::CudaResident;
use shape::Shape;

pub use driver::report::cuda_report;
pub use driver::staging::UploadRates;
pub use group::CudaGroup;
pub use log_likelihood::columns::DeviceColumn;
pub(crate) use number::Number;
pub use rows::device_input::DeviceData;

/// One NVIDIA GPU. Clones share its context and kernels.
///
/// Memory that rows release is cached for the next ones: up to a 64th of the device's memory, at most 2 GiB, 16 MiB of
/// pinned memory in small blocks, and the 32 MiB staging buffer of uploads. Cached memory counts as free here. It goes
/// back to the driver when the last clone is dropped, or before any request fails for lack of memory.
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
    /// Whether all components are evaluated, also those far from a tile of rows.
    dense: bool,
}

impl CudaEngine {
    pub(crate) const fn on(gpu: Arc<Gpu>) -> Self {
        Self { gpu, dense: false }
    }

    /// The same engine, which evaluates all components, also those that are far from a tile of rows: for comparisons.
    #[must_use]
    pub fn without_skipping(self) -> Self {
        Self { dense: true, ..self }
    }

    fn forced(&self) -> Result<ForcedPlan, Error> {
        let mut forced = ForcedPlan::from_environment()?;
        forced.dense = self.dense;
        Ok(forced)
    }

    /// Opens the visible device with this ordinal and loads the kernels.
    ///
    /// # Errors
    /// [`Error::Device`], with what is missing and what to do: there is no driver, it is too old, it is the toolkit's
    /// stub, there is no such device, or its compute capability is too low.
    pub fn new(ordinal: usize) -> Result<Self, Error> {
        Ok(Self::on(Arc::new(Gpu::open(ordinal, None)?)))
    }

    /// Opens the first GPU, and stores how long that took for the estimates of [`Device::Auto`](crate::Device::Auto).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn first() -> Result<Self, Error> {
        let started = std::time::Instant::now();
        let opened = Self::new(0)?;
        crate::costs::measured::keep_open_seconds(started.elapsed().as_secs_f64());
        Ok(opened)
    }

    /// Like [`new`](Self::new), but with the kernel module of the given name, `sm_75`, `sm_80` or `sm_90a`, instead of
    /// the best one: for tests and comparisons.
    ///
    /// # Errors
    /// As for [`new`](Self::new); [`Error::Device`] if the device does not run the module.
    pub fn with_module(ordinal: usize, module: &str) -> Result<Self, Error> {
        Ok(Self::on(Arc::new(Gpu::open(ordinal, Some(module))?)))
    }

    /// Limits the device memory that this engine and its clones take from now on to `bytes` bytes, as if the rest were
    /// in use. Rows that do not fit stay in host memory and pass through the device in every pass, to the same bits:
    /// see [`load`](Engine::load). Memory that other programs take meanwhile counts too.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn with_memory_limit(self, bytes: u64) -> Result<Self, Error> {
        self.gpu.limit_memory(bytes)?;
        Ok(self)
    }

    /// Returns the bytes of device memory available for rows: free memory plus what this engine holds as idle cache.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn free_memory(&self) -> Result<u64, Error> {
        self.gpu.enter()?;
        Ok(self.gpu.free()? as u64)
    }

    /// Measures how fast `bytes` bytes are copied to the device from pinned and from pageable memory.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Memory`].
    pub fn upload_rates(&self, bytes: usize) -> Result<UploadRates, Error> {
        staging::rates(&self.gpu, bytes)
    }

    /// Returns the file in which fits with [`autotune`](crate::FitOptions::autotune) store their timings:
    /// `autotune.json` in `GMM_CACHE_DIR`, or in the folder `gmm` of the user's cache folder; `None` if there is no
    /// such folder.
    pub fn tuning_file() -> Option<std::path::PathBuf> {
        tune::file()
    }

    /// Returns the stored timings for `shape = (n, d, k)`: `n` unweighted rows of `d` columns, `k` components. A fit of
    /// this shape with autotune starts from them. `None` if the shape was never timed.
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

/// Measures the CPU engine for the estimates of [`Device::Auto`](crate::Device::Auto), if there is a driver.
///
/// # Errors
/// As for [`Engine::load`].
pub(crate) fn measure_cpu(engine: &crate::CpuEngine) -> Result<(), Error> {
    if driver::table::open().is_ok() { crate::costs::measured::measure_cpu(engine) } else { Ok(()) }
}

/// Lists the EM paths for `shape = (n, d, k)`, `n` rows of `d` columns with `k` components, on `engine`, or on an H200
/// if it is `None`; best first. Exactly one of them runs. Nothing is launched. `fast` is
/// [`FitOptions::fast`](crate::FitOptions::fast).
///
/// # Errors
/// [`Error::Option`] if `GMM_PLAN` is invalid, or if `d` or `k` is 0 or exceeds the kernels' 32-bit counters.
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
        options: LoadOptions<'_>,
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(data.n_features(), shift.len())?;
        if data.is_indirect() {
            return self.load_measured(data, precision, shift);
        }
        if data.has_missing() {
            return self.load_incomplete(data, precision, shift);
        }
        let (gpu, forced) = (self.gpu.clone(), self.forced()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaResident::<f32>::load(gpu, data, precision, shift, forced, options)?),
            Precision::F64 => Box::new(CudaResident::<f64>::load(gpu, data, precision, shift, forced, options)?),
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

    fn is_streamed(&self, shape: (usize, usize), precision: Precision, weighted: bool) -> Result<bool, Error> {
        self.gpu.enter()?;
        let bytes = if precision == Precision::F32 { 4 } else { 8 };
        rows::is_streamed(&self.gpu, shape, bytes, weighted, &self.forced()?)
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
        want: &mut EvaluateOptions<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        few::evaluate_beside_a_device(data, precision, shift, mixture, want)
    }

    fn pass_of_parts(
        &self,
        data: &Dataset,
        storage: &RowStorage,
        mixture: &Mixture,
        parts: &[Range<usize>],
        top: Option<usize>,
        each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
    ) -> Result<bool, Error> {
        match storage.precision {
            Precision::F32 => parts::pass::<f32>(&self.gpu, data, storage, mixture, (parts, top), each),
            Precision::F64 => parts::pass::<f64>(&self.gpu, data, storage, mixture, (parts, top), each),
        }
    }

    fn ratios(&self, data: &Dataset, storage: &RowStorage, asked: &Ratios<'_>) -> Result<Option<Vec<f64>>, Error> {
        match storage.precision {
            Precision::F32 => parts::ratios::<f32>(&self.gpu, data, storage, asked),
            Precision::F64 => parts::ratios::<f64>(&self.gpu, data, storage, asked),
        }
    }

    fn takes_small(&self, shape: (usize, usize), options: &FitOptions) -> bool {
        many::takes(&self.gpu, shape, options)
    }

    fn fit_small(&self, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
        many::fit(&self.gpu, data, jobs)
    }

    /// Up to 64 columns by kernels over all patterns of missing values, in `f64`, if there is room on the device, unless each
    /// pattern has many rows.
    fn load_incomplete(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let engine = self.clone();
        let load = move |rows: &Dataset, shift: &[f64]| engine.load(rows, precision, shift);
        if !deconvolution::takes_missing(data.n_features()) {
            return missing::load(&load, data, shift, None);
        }
        match CudaPasses::new(self.gpu.clone(), data) {
            Ok(passes) => {
                let together = missing::Together { passes: Box::new(passes), load: Arc::new(load) };
                missing::load_together(data, shift, together)
            }
            // Rows that have no room are streamed.
            Err(Error::Memory { .. }) => missing::load(&load, data, shift, None),
            Err(error) => Err(error),
        }
    }

    /// Of rows with measurement errors: at most 16 columns, or independent errors and diagonal covariances. All passes over
    /// them are in `f64`.
    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        deconvolution::check(&self.name(), data)?;
        let plain = missing::plain(data, shift, |exact| self.load(exact, precision, shift))?;
        let passes = CudaPasses::new(self.gpu.clone(), data)?;
        Ok(Box::new(MeasuredRows::new(data.clone(), Box::new(passes), plain)))
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, LoadOptions::default())
    }

    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, LoadOptions { to_move: true, ..LoadOptions::default() })
    }

    fn load_with_reach(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
    ) -> Result<Option<RowsAndReach>, Error> {
        let dim = data.rows().dim();
        // Fewer are not copied in pieces.
        if 4 * dim.0 * dim.1 <= TOGETHER || self.is_streamed(dim, precision, data.weights().is_some())? {
            return Ok(None);
        }
        check_features(dim.1, shift.len())?;
        let reach = Reach::about(shift);
        let rows =
            self.load_data(data, precision, shift, LoadOptions { to_move: true, reach: Some(&reach), tiles: None })?;
        Ok(Some((rows, reach.found())))
    }
}

impl DeviceInput for CudaEngine {
    unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
        // SAFETY: the caller upholds `# Safety`: nobody writes or frees `rows` while the result lives, and their
        // writers are done or on a stream that is waited for.
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
        let (gpu, forced) = (self.gpu.clone(), self.forced()?);
        Ok(match precision {
            Precision::F32 => Box::new(CudaResident::<f32>::from_device(gpu, data, precision, shift, limit, forced)?),
            Precision::F64 => Box::new(CudaResident::<f64>::from_device(gpu, data, precision, shift, limit, forced)?),
        })
    }

    fn evaluate_in_place(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        work: &mut dyn FnMut(&mut dyn Evaluate) -> Result<Evaluation, Error>,
    ) -> Result<Evaluation, Error> {
        if data.present.is_some() {
            return work(self.load_there(data, precision, shift, None)?.as_mut());
        }
        check_features(data.dim().1, shift.len())?;
        data.check_on(&self.gpu)?;
        let (gpu, forced) = (self.gpu.clone(), self.forced()?);
        match precision {
            Precision::F32 => work(&mut CudaResident::<f32>::borrow(gpu, data, precision, shift, forced)?),
            Precision::F64 => work(&mut CudaResident::<f64>::borrow(gpu, data, precision, shift, forced)?),
        }
    }
}
