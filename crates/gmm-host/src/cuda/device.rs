//! A device opened for use: its context, its kernels, and the faults that it meets.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaResult;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys::{
    CUdevice_attribute, CUfunction, CUfunction_attribute, cuFuncSetAttribute,
    cuOccupancyMaxActiveBlocksPerMultiprocessor, cudaError_enum,
};
use cust::{CudaApiVersion, CudaFlags};

use super::driver::{self, code};
use super::ptx::{self, Choice, version_text};
use super::report::library_path;
use super::staging::Staging;
use super::{fault, plan};
use crate::Error;

/// Opens the driver; its version as `cuDriverGetVersion` counts.
///
/// # Errors
/// [`Error::Device`]: no driver, the toolkit's stub, one that is too old, or no device.
pub(crate) fn start() -> Result<u32, Error> {
    driver::take_failure();
    if let Err(absent) = driver::open() {
        return Err(Error::Device(fault::absent(&absent)));
    }
    if let Err(error) = cust::init(CudaFlags::empty()) {
        return Err(not_started(fault::error("the NVIDIA driver does not start", error)));
    }
    let version = CudaApiVersion::get().map_err(|e| fault::error("the driver's version", e))?;
    let version = version.major() as u32 * 1000 + version.minor() as u32 * 10;
    let needed = ptx::oldest_driver();
    if version < needed {
        return Err(Error::Device(format!(
            "the NVIDIA driver is too old: it speaks CUDA {}, at least {} is needed: update the NVIDIA driver",
            version_text(version),
            version_text(needed)
        )));
    }
    Ok(version)
}

/// Adds what the environment says to the driver's refusal.
fn not_started(error: Error) -> Error {
    let mut text = error.to_string();
    if let Some(path) = library_path().filter(|p| p.contains("/stubs/")) {
        text = format!("{text} (it was loaded from {path}, the toolkit's stub)");
    }
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(value) => Error::Device(format!("{text} (CUDA_VISIBLE_DEVICES is '{value}')")),
        Err(_) => Error::Device(text),
    }
}

/// Visible devices, at least one.
///
/// # Errors
/// [`Error::Device`] where there is none.
pub(crate) fn count() -> Result<usize, Error> {
    match Device::num_devices().map_err(|e| fault::error("the number of devices", e))? {
        0 => Err(not_started(Error::Device(
            "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
        ))),
        n => Ok(n as usize),
    }
}

/// What is asked of a device once.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) capability: (u32, u32),
    pub(crate) memory: u64,
    pub(crate) limits: plan::Limits,
}

impl Facts {
    pub(crate) fn of(device: Device) -> Result<Self, Error> {
        let failed = |e| fault::error("the device's properties", e);
        let ask = |attribute| device.get_attribute(attribute).map(|v| v as u32).map_err(failed);
        Ok(Self {
            name: device.name().map_err(failed)?,
            capability: (ask(DeviceAttribute::ComputeCapabilityMajor)?, ask(DeviceAttribute::ComputeCapabilityMinor)?),
            memory: device.total_memory().map_err(failed)? as u64,
            limits: plan::Limits {
                multiprocessors: ask(DeviceAttribute::MultiprocessorCount)?,
                shared_bytes: shared_opt_in(device)?,
                l2_bytes: ask(DeviceAttribute::L2CacheSize)?,
            },
        })
    }
}

/// Bytes of shared memory that one block may ask for. cust's list of attributes ends before it.
fn shared_opt_in(device: Device) -> Result<u32, Error> {
    let mut value = 0;
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    // SAFETY: writes one integer.
    let code = unsafe { cust::sys::cuDeviceGetAttribute(&raw mut value, attribute, device.as_raw()) };
    match code {
        cust::sys::cudaError_enum::CUDA_SUCCESS => Ok(value as u32),
        _ => Err(fault::error("the device's shared memory", cust::error::CudaError::UnknownError)),
    }
}

/// One device, its context and its kernels.
///
/// Contexts are current per thread, and a context does not survive a fork: everything that talks to the device calls
/// [`enter`](Self::enter) first.
pub(crate) struct Gpu {
    pub(crate) ordinal: usize,
    pub(crate) name: String,
    pub(crate) choice: Choice,
    pub(crate) driver: u32,
    pub(crate) limits: plan::Limits,
    process: u32,
    /// Set once the context is lost.
    lost: AtomicBool,
    /// Calls other than allocations that failed for want of memory.
    lacked_memory: AtomicUsize,
    /// Chunks of pinned memory that no upload is using: pinning takes longer than a small fit.
    pub(crate) staging: Mutex<Option<Staging>>,
    // Dropped in this order, the context last.
    functions: Mutex<HashMap<&'static str, Loaded>>,
    context: Context,
}

/// A kernel that the driver has compiled, alone: a fit needs a few of the many.
struct Loaded {
    function: CUfunction,
    /// Bytes of shared memory that it may be launched with.
    shared: u64,
    /// Whose it is.
    _module: Module,
}

// SAFETY: a function's handle belongs to the context and may be used from any thread in which that is current.
unsafe impl Send for Loaded {}

/// Shared memory that a block gets without asking.
const SHARED_WITHOUT_ASKING: u64 = 48 << 10;

impl Gpu {
    /// Opens a device and loads its module, or the one of that name.
    ///
    /// # Errors
    /// [`Error::Device`] that says what is missing.
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
            return Err(Error::Device(format!("no such device: {there} there{visible}")));
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
            limits: facts.limits,
            process: std::process::id(),
            lost: AtomicBool::new(false),
            lacked_memory: AtomicUsize::new(0),
            staging: Mutex::new(None),
            functions: Mutex::new(HashMap::new()),
            context,
        };
        // A driver that cannot compile the kernels says so now.
        gpu.function("reduce_partials", 0)?;
        Ok(gpu)
    }

    /// Whether the module that was chosen has a kernel.
    pub(crate) fn has(&self, kernel: &str) -> bool {
        self.choice.module.alone(kernel).is_some()
    }

    /// A kernel, for launches with this much shared memory; compiled when it is first asked for.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn function(&self, kernel: &'static str, shared: u64) -> Result<CUfunction, Error> {
        let mut functions = self.functions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = match functions.entry(kernel) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(load(&self.choice, kernel)?),
        };
        if shared > loaded.shared {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of a loaded module; the driver checks the value.
            let code = unsafe { cuFuncSetAttribute(loaded.function, attribute, shared as i32) };
            self.check_code(&format!("shared memory of kernel {kernel}"), code)?;
            loaded.shared = shared;
        }
        Ok(loaded.function)
    }

    /// Blocks of a kernel that run on a multiprocessor together.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn occupancy(&self, kernel: &'static str, threads: u32, shared: u64) -> Result<u32, Error> {
        let function = self.function(kernel, shared)?;
        let mut blocks = 0;
        // SAFETY: writes one integer.
        let code = unsafe {
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads as i32, shared as usize)
        };
        self.check_code(&format!("blocks of kernel {kernel}"), code)?;
        Ok(blocks.max(1) as u32)
    }

    /// [`check`](Self::check) for a function that cust does not wrap.
    pub(crate) fn check_code(&self, what: &str, code: cudaError_enum) -> Result<(), Error> {
        match code {
            cudaError_enum::CUDA_SUCCESS => Ok(()),
            _ => self.check(what, Err(cust::error::CudaError::UnknownError)),
        }
    }

    /// Makes the context that of the calling thread.
    ///
    /// # Errors
    /// [`Error::Device`] where the context is lost, or the process is a fork of the one that opened it.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let ordinal = self.ordinal;
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::Device(format!(
                "cuda:{ordinal}: the device's context was lost in an earlier failure: start the program again"
            )));
        }
        if std::process::id() != self.process {
            return Err(Error::Device(format!(
                "cuda:{ordinal}: opened before this process was forked off, and CUDA does not survive a fork: open the \
                 device after the fork, or start processes with 'spawn'"
            )));
        }
        self.check("the device's context", CurrentContext::set_current(&self.context))
    }

    /// [`enter`](Self::enter) for a destructor, whose frees fail harmlessly where this does.
    pub(crate) fn enter_to_drop(&self) {
        if std::process::id() == self.process {
            let _ = CurrentContext::set_current(&self.context);
        }
        driver::take_failure();
    }

    /// Turns a driver's answer into ours, and remembers where it means that the context is lost.
    pub(crate) fn check<A>(&self, what: &str, answer: CudaResult<A>) -> Result<A, Error> {
        answer.map_err(|error| {
            let failure = driver::take_failure();
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

    /// As [`check`](Self::check), with [`Error::Memory`] where memory is what lacks.
    pub(crate) fn check_memory<A>(&self, what: &'static str, bytes: u128, answer: CudaResult<A>) -> Result<A, Error> {
        if matches!(answer, Err(cust::error::CudaError::OutOfMemory)) {
            driver::take_failure();
            return Err(Error::Memory { what, wanted: bytes, free: self.free().unwrap_or(0) });
        }
        self.check(what, answer)
    }

    /// How many calls so far failed for want of memory, allocations of device memory aside: those say what they want.
    pub(crate) fn lacked_memory(&self) -> usize {
        self.lacked_memory.load(Ordering::Relaxed)
    }

    /// Bytes of device memory that are free.
    pub(crate) fn free(&self) -> Result<u128, Error> {
        Ok(self.check("free memory", cust::memory::mem_get_info())?.0 as u128)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.enter_to_drop();
        if std::process::id() != self.process {
            return;
        }
        // What it holds belongs to the context, which is current now.
        self.functions.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        drop(self.staging.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

/// Hands a kernel to the driver, which compiles it for the device and keeps the result in its own cache.
fn load(choice: &Choice, kernel: &'static str) -> Result<Loaded, Error> {
    let what = format!("loading kernel {kernel} of module {}", choice.module.target);
    let Some(text) = choice.module.alone(kernel) else {
        return Err(Error::Device(format!("{what}: it has none of that name")));
    };
    let module = Module::from_ptx(&text, &[]).map_err(|error| {
        let failure = driver::take_failure();
        match failure {
            Some(f) if f.code == code::INVALID_PTX => {
                let log = compiler_log(&text).unwrap_or_default();
                Error::Device(format!("{}{log}", fault::text(&what, f.function, f.code)))
            }
            Some(f) => Error::Device(fault::text(&what, f.function, f.code)),
            None => Error::Device(format!("{what}: {error:?}")),
        }
    })?;
    let function = module.get_function(kernel).map(|f| f.to_raw()).map_err(|e| fault::error(&what, e))?;
    Ok(Loaded { function, shared: SHARED_WITHOUT_ASKING, _module: module })
}

/// What the driver's compiler says about a kernel that it refused.
fn compiler_log(text: &str) -> Option<String> {
    use cust::sys::CUjit_option::{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    let driver = driver::open().ok()?;
    let source = std::ffi::CString::new(text).ok()?;
    let mut log = vec![0_u8; 4096];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), log.len() as *mut std::ffi::c_void];
    let mut module = std::ptr::null_mut();
    // SAFETY: two options with two values; the log is as long as stated. The driver takes sizes by value there.
    let code = unsafe {
        (driver.cuModuleLoadDataEx)(
            &raw mut module,
            source.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if code == 0 {
        // SAFETY: just loaded, and nothing refers to it.
        unsafe { (driver.cuModuleUnload)(module) };
        return None;
    }
    let text = String::from_utf8_lossy(&log);
    let text = text.trim_end_matches('\0').trim();
    (!text.is_empty()).then(|| format!("\n{text}"))
}

/// Work in order: a stream, and the name of the last kernel put on it, since a kernel's fault shows at a later wait.
pub(crate) struct Queue {
    pub(crate) stream: Stream,
    last: Cell<&'static str>,
}

impl Queue {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let stream = gpu.check("a stream", Stream::new(StreamFlags::DEFAULT, None))?;
        Ok(Self { stream, last: Cell::new("") })
    }

    /// Notes that a kernel was put on the stream.
    pub(crate) fn launched(&self, kernel: &'static str) {
        self.last.set(kernel);
    }

    /// Waits for everything on the stream.
    ///
    /// # Errors
    /// [`Error::Device`] that names the last kernel.
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result<(), Error> {
        self.explain(gpu, self.stream.synchronize())
    }

    /// [`Gpu::check`] for an answer that tells of work done earlier.
    pub(crate) fn explain<A>(&self, gpu: &Gpu, answer: CudaResult<A>) -> Result<A, Error> {
        match self.last.get() {
            "" => gpu.check("a copy", answer),
            kernel => gpu.check(&format!("kernel {kernel}"), answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, Machine};
    use super::*;

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
