//! An open device: its context, its memory, and how its errors are reported.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::error::{CudaError, CudaResult};
use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::sys::{CUdevice_attribute, cudaError_enum};
use cust::{CudaApiVersion, CudaFlags};

use super::device_state::{Functions, Staging};
use super::fault;
use super::pool::{self, Pool};
use super::ptx::{self, Choice, version_text};
use super::table::{self, code};
use crate::{Error, Tuning};

/// Initialises the driver. Returns its version as `cuDriverGetVersion` encodes it.
///
/// # Errors
/// [`Error::Device`] if there is no driver, it is the toolkit's stub or too old, or there is no device.
pub(crate) fn start() -> Result<u32, Error> {
    table::take_failure();
    if let Err(absent) = table::open() {
        return Err(Error::Device(fault::absent(&absent)));
    }
    if let Err(error) = cust::init(CudaFlags::empty()) {
        return Err(not_started(fault::error("the NVIDIA driver cannot be initialised", error)));
    }
    let version = CudaApiVersion::get().map_err(|e| fault::error("the driver's version", e))?;
    let version = version.major() as u32 * 1000 + version.minor() as u32 * 10;
    let needed = ptx::oldest_driver();
    if version < needed {
        return Err(Error::Device(format!(
            "the NVIDIA driver is too old: it supports CUDA {}, and at least {} is needed: update the NVIDIA driver",
            version_text(version),
            version_text(needed)
        )));
    }
    Ok(version)
}

/// Adds the stub library's path and CUDA_VISIBLE_DEVICES to an error of the driver's initialisation.
fn not_started(error: Error) -> Error {
    let mut text = error.to_string();
    if let Some(path) = table::library_path().filter(|p| p.contains("/stubs/")) {
        text = format!("{text} (it was loaded from {path}, the toolkit's stub)");
    }
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(value) => Error::Device(format!("{text} (CUDA_VISIBLE_DEVICES is '{value}')")),
        Err(_) => Error::Device(text),
    }
}

/// Number of visible devices, at least one.
///
/// # Errors
/// [`Error::Device`] if there is none.
pub(crate) fn count() -> Result<usize, Error> {
    match Device::num_devices().map_err(|e| fault::error("the number of devices", e))? {
        0 => Err(not_started(Error::Device(
            "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
        ))),
        n => Ok(n as usize),
    }
}

/// A device's properties, queried once.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) capability: (u32, u32),
    pub(crate) memory: u64,
    pub(crate) limits: Limits,
}

impl Facts {
    pub(crate) fn of(device: Device) -> Result<Self, Error> {
        let failed = |e| fault::error("the device's properties", e);
        let ask = |attribute| device.get_attribute(attribute).map(|v| v as u32).map_err(failed);
        Ok(Self {
            name: device.name().map_err(failed)?,
            capability: (ask(DeviceAttribute::ComputeCapabilityMajor)?, ask(DeviceAttribute::ComputeCapabilityMinor)?),
            memory: device.total_memory().map_err(failed)? as u64,
            limits: Limits {
                multiprocessors: ask(DeviceAttribute::MultiprocessorCount)?,
                shared_bytes: shared_opt_in(device)?,
                l2_bytes: ask(DeviceAttribute::L2CacheSize)?,
                f32_to_f64: ask(DeviceAttribute::SingleToDoublePrecisionPerfRatio)?,
            },
        })
    }
}

/// A device's hardware limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) multiprocessors: u32,
    /// Shared memory that one block can opt in to, in bytes.
    pub(crate) shared_bytes: u32,
    pub(crate) l2_bytes: u32,
    /// Ratio of f32 to f64 throughput: 2 on data-centre GPUs, 32 or 64 on others.
    pub(crate) f32_to_f64: u32,
}

/// Shared memory that one block can opt in to, in bytes. cust's enum lacks this attribute.
fn shared_opt_in(device: Device) -> Result<u32, Error> {
    let mut value = 0;
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    // SAFETY: the call writes one integer to `value`.
    let code = unsafe { cust::sys::cuDeviceGetAttribute(&raw mut value, attribute, device.as_raw()) };
    match code {
        cust::sys::cudaError_enum::CUDA_SUCCESS => Ok(value as u32),
        _ => Err(fault::error("the device's shared memory", CudaError::UnknownError)),
    }
}

/// One device, its context and its kernels.
///
/// The current context is a property of each thread, and a context does not survive a fork: every function that uses
/// the device calls [`enter`](Self::enter) first.
pub(crate) struct Gpu {
    pub(crate) ordinal: usize,
    pub(crate) name: String,
    pub(crate) choice: Choice,
    pub(crate) driver: u32,
    pub(crate) capability: (u32, u32),
    pub(crate) limits: Limits,
    process: u32,
    /// Set after a fatal error, which makes the context unusable.
    lost: AtomicBool,
    /// The limit of device memory, and how much was free when it was set.
    limit: Mutex<Option<(u128, u128)>>,
    /// Number of calls, other than allocations, that failed for lack of memory.
    lacked_memory: AtomicUsize,
    /// Staging buffers that no upload is using, cached because pinning takes longer than a small fit.
    pub(crate) staging: Mutex<Option<Staging>>,
    /// Autotune results by shape, timed in this process or read from the file.
    pub(crate) tuned: Mutex<HashMap<String, Tuning>>,
    /// Addresses of host memory of others that the driver has pinned.
    pub(crate) pinned: Mutex<Vec<std::ops::Range<usize>>>,
    /// Cached memory of released rows.
    pub(crate) pool: Arc<Pool>,
    // The fields are dropped in this order, the context last.
    pub(crate) functions: Mutex<Functions>,
    context: Context,
}

impl Gpu {
    /// Opens a device and loads the best module, or the named one.
    ///
    /// # Errors
    /// [`Error::Device`], which says what is missing.
    pub(crate) fn open(ordinal: usize, module: Option<&str>) -> Result<Self, Error> {
        Self::open_here(ordinal, module).map_err(|e| match e {
            Error::Device(text) => Error::Device(format!("cuda:{ordinal}: {text}")),
            other => other,
        })
    }

    fn open_here(ordinal: usize, module: Option<&str>) -> Result<Self, Error> {
        let driver = start()?;
        let devices = count()?;
        if ordinal >= devices {
            let there =
                if devices == 1 { "cuda:0 is".to_owned() } else { format!("cuda:0 to cuda:{} are", devices - 1) };
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let visible = visible.map_or(String::new(), |v| format!(" (CUDA_VISIBLE_DEVICES is '{v}')"));
            return Err(Error::Device(format!("no such device: only {there} visible{visible}")));
        }
        let device = Device::get_device(ordinal as u32).map_err(|e| fault::error("a device's handle", e))?;
        let facts = Facts::of(device)?;
        let choice = match module {
            Some(name) => ptx::named(name, facts.capability)?,
            None => ptx::choose(facts.capability, driver)?,
        };
        let context = Context::new(device).map_err(|e| fault::error("the device's context", e))?;
        CurrentContext::set_current(&context).map_err(|e| fault::error("the device's context", e))?;
        let gpu = Self {
            ordinal,
            name: facts.name,
            choice,
            driver,
            capability: facts.capability,
            limits: facts.limits,
            process: std::process::id(),
            lost: AtomicBool::new(false),
            limit: Mutex::default(),
            lacked_memory: AtomicUsize::new(0),
            staging: Mutex::new(None),
            pinned: Mutex::default(),
            tuned: Mutex::default(),
            pool: Pool::new(facts.memory),
            functions: Mutex::default(),
            context,
        };
        // Loads one kernel now, so that a driver that cannot compile the kernels fails here.
        gpu.function("reduce_partials", 0)?;
        Ok(gpu)
    }

    /// [`check`](Self::check) for functions that cust does not wrap.
    pub(crate) fn check_code(&self, what: impl FnOnce() -> String, code: cudaError_enum) -> Result<(), Error> {
        match code {
            cudaError_enum::CUDA_SUCCESS => Ok(()),
            _ => self.check(&what(), Err(CudaError::UnknownError)),
        }
    }

    /// Makes this device's context current on the calling thread.
    ///
    /// # Errors
    /// [`Error::Device`] if the context is lost, or if this process is a fork of the one that opened the device.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let ordinal = self.ordinal;
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::Device(format!(
                "cuda:{ordinal}: the device's context was lost in an earlier failure: restart the program"
            )));
        }
        if self.is_inherited() {
            return Err(Error::Device(format!(
                "cuda:{ordinal}: opened before this process was forked, and CUDA does not work after a fork: open the \
                 device after the fork, or start processes with 'spawn'"
            )));
        }
        self.check("the device's context", CurrentContext::set_current(&self.context))
    }

    /// Whether this process is a fork of the one that opened the device.
    pub(crate) fn is_inherited(&self) -> bool {
        std::process::id() != self.process
    }

    /// [`enter`](Self::enter) for destructors: if it fails, the frees that follow fail harmlessly.
    pub(crate) fn enter_to_drop(&self) {
        if !self.is_inherited() {
            let _ = CurrentContext::set_current(&self.context);
        }
        table::take_failure();
    }

    /// Converts a driver's result into ours, and records whether the context is lost.
    pub(crate) fn check<A>(&self, what: &str, answer: CudaResult<A>) -> Result<A, Error> {
        answer.map_err(|error| {
            let failure = table::take_failure();
            let Some(failure) = failure else {
                return Error::Device(format!("cuda:{}: {what}: {error:?}", self.ordinal));
            };
            if fault::is_fatal(failure.code) {
                self.lost.store(true, Ordering::Relaxed);
            }
            if failure.code == code::OUT_OF_MEMORY {
                self.lacked_memory.fetch_add(1, Ordering::Relaxed);
            }
            Error::Device(format!("cuda:{}: {}", self.ordinal, fault::text(what, failure.function, failure.code)))
        })
    }

    /// Like [`check`](Self::check), but returns [`Error::Memory`] if the device is out of memory.
    pub(crate) fn check_memory<A>(&self, what: &'static str, bytes: u128, answer: CudaResult<A>) -> Result<A, Error> {
        if matches!(answer, Err(CudaError::OutOfMemory)) {
            table::take_failure();
            return Err(Error::Memory { what, wanted: bytes, free: self.free().unwrap_or(0) });
        }
        self.check(what, answer)
    }

    /// Number of calls so far that failed for lack of memory. Device allocations are not counted: their errors state
    /// the size.
    pub(crate) fn lacked_memory(&self) -> usize {
        self.lacked_memory.load(Ordering::Relaxed)
    }

    /// Available bytes of device memory: free memory plus the idle blocks of the pool, within the limit.
    pub(crate) fn free(&self) -> Result<u128, Error> {
        let free = self.free_here()?;
        let limit = *self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let within = limit.map_or(free, |(bytes, before)| free.min(bytes.saturating_sub(before.saturating_sub(free))));
        Ok(within + self.pool.device_bytes() as u128)
    }

    /// Free bytes of the whole device.
    fn free_here(&self) -> Result<u128, Error> {
        Ok(self.check("free memory", cust::memory::mem_get_info())?.0 as u128)
    }

    /// Limits the memory that this device's buffers take from now on to `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn limit_memory(&self, bytes: u64) -> Result<(), Error> {
        self.enter()?;
        let before = self.free_here()?;
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some((bytes.into(), before));
        Ok(())
    }

    /// [`free`](Self::free) plus `have`, the bytes that the caller would release. If the pool and `have` already reach
    /// `enough`, the driver is not asked and the result is a lower bound: asking takes longer than a pass over small
    /// data.
    pub(crate) fn within_reach(&self, enough: u128, have: u128) -> Result<u128, Error> {
        let held = self.pool.device_bytes() as u128 + have;
        if held >= enough { Ok(held) } else { Ok(self.free()? + have) }
    }

    /// Errors if `wanted` bytes would not fit, before anything is allocated; `have` as for
    /// [`within_reach`](Self::within_reach).
    ///
    /// # Errors
    /// [`Error::Memory`] with the bytes wanted and free.
    pub(crate) fn room(&self, what: &'static str, wanted: u128, have: u128) -> Result<(), Error> {
        if wanted <= have {
            return Ok(());
        }
        let free = self.within_reach(wanted, have)?;
        if wanted > free { Err(Error::Memory { what, wanted, free }) } else { Ok(()) }
    }

    /// Takes device memory of at least `bytes` bytes, from the pool if it has a block of that size. If the allocation
    /// fails, frees the pool's blocks and tries again.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn take_memory(&self, what: &'static str, bytes: usize) -> Result<DeviceBuffer<u8>, Error> {
        let length = pool::rounded(bytes);
        if let Some(block) = self.pool.take_device(length) {
            return Ok(block);
        }
        // SAFETY: uninitialised bytes are never read: kernels and copies write every number before it is read.
        let take = |length| unsafe { DeviceBuffer::uninitialized(length) };
        let mut answer = take(length);
        if matches!(answer, Err(CudaError::OutOfMemory)) && self.pool.drain() {
            answer = take(length);
        }
        self.check_memory(what, bytes as u128, answer)
    }

    /// Takes pinned host memory of at least `bytes` bytes, like [`take_memory`](Self::take_memory).
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn take_pinned(&self, bytes: usize) -> Result<LockedBuffer<u64>, Error> {
        let words = pool::rounded(bytes).div_ceil(8);
        if let Some(block) = self.pool.take_pinned(words) {
            return Ok(block);
        }
        let mut answer = LockedBuffer::new(&0, words);
        if matches!(answer, Err(CudaError::OutOfMemory)) && self.pool.drain() {
            answer = LockedBuffer::new(&0, words);
        }
        self.check("pinned host memory", answer)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.enter_to_drop();
        if std::process::id() != self.process {
            return;
        }
        // Kernels and cached memory belong to the context, which is current here.
        self.functions.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        drop(self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        self.pool.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::fake::{Fake, Machine};

    #[test]
    fn a_fork_is_told_to_open_the_device_itself() {
        let fake = Fake::install(Machine::default());
        let mut gpu = Gpu::open(0, None).unwrap();
        let process = std::mem::replace(&mut gpu.process, 1);
        let error = gpu.enter().unwrap_err().to_string();
        assert!(error.contains("fork") && error.contains("spawn"), "{error}");
        gpu.process = process;
        gpu.enter().unwrap();
        drop(gpu);
        fake.0.assert_clean("fork");
    }
}
