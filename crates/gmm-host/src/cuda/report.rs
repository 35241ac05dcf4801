//! Which devices there are, which module each takes, and what is missing: for people.

use std::fmt;

use cust::context::Context;
use cust::device::Device;

use super::device::{Facts, count, start};
use super::ptx::{self, version_text};
use super::{driver, fault};
use crate::Error;

/// What there is to compute on, and what is missing: for `gmm doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaReport {
    /// The driver's version, as the CUDA version that it speaks: `13.0`.
    pub driver: Option<String>,
    /// Where the driver's library was found, where the system says so.
    pub library: Option<String>,
    /// Why no device can be used, and what to do about it.
    pub problem: Option<String>,
    /// The value of `CUDA_VISIBLE_DEVICES`, which hides devices.
    pub visible: Option<String>,
    /// All visible devices.
    pub devices: Vec<CudaDevice>,
}

/// One device of a [`CudaReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// What to write after `cuda:`.
    pub ordinal: usize,
    /// The maker's name.
    pub name: String,
    /// Compute capability: 9.0 is Hopper.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory_total: u64,
    /// Bytes that are free; `None` where the device cannot be opened.
    pub memory_free: Option<u64>,
    /// The kernel module that would be loaded: `sm_90a`.
    pub module: Option<String>,
    /// Why this module, or why none.
    pub reason: String,
}

impl fmt::Display for CudaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.driver, &self.library) {
            (Some(version), Some(path)) => writeln!(f, "driver: CUDA {version} ({path})")?,
            (Some(version), None) => writeln!(f, "driver: CUDA {version}")?,
            (None, _) => writeln!(f, "driver: none")?,
        }
        if let Some(visible) = &self.visible {
            writeln!(f, "CUDA_VISIBLE_DEVICES: '{visible}'")?;
        }
        for device in &self.devices {
            writeln!(f, "{device}")?;
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "missing: {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let Self { ordinal, name, capability: (major, minor), .. } = self;
        write!(f, "cuda:{ordinal}: {name}, compute capability {major}.{minor}, {:.1} GiB", gib(self.memory_total))?;
        if let Some(free) = self.memory_free {
            write!(f, " of which {:.1} free", gib(free))?;
        }
        match &self.module {
            Some(module) => write!(f, "; module {module}: {}", self.reason),
            None => write!(f, "; cannot be used: {}", self.reason),
        }
    }
}

/// Looks for devices. Opens each for a moment to ask what memory is free; never fails.
pub fn cuda_report() -> CudaReport {
    let mut report = CudaReport {
        driver: None,
        library: library_path(),
        problem: None,
        visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        devices: Vec::new(),
    };
    let version = match start() {
        Ok(version) => version,
        Err(error) => {
            report.library = library_path();
            report.problem = Some(error.to_string());
            return report;
        }
    };
    report.library = library_path();
    report.driver = Some(version_text(version));
    let listed = count().and_then(|n| (0..n).map(|ordinal| list(ordinal, version)).collect());
    match listed {
        Ok(devices) => report.devices = devices,
        Err(error) => report.problem = Some(error.to_string()),
    }
    if report.problem.is_none() && report.devices.iter().all(|d| d.module.is_none()) {
        report.problem = Some("no device that this program's kernels run on".to_owned());
    }
    report
}

fn list(ordinal: usize, driver: u32) -> Result<CudaDevice, Error> {
    let device = Device::get_device(ordinal as u32).map_err(|e| fault::error("a device's handle", e))?;
    let facts = Facts::of(device)?;
    let choice = ptx::choose(facts.capability, driver);
    let free = choice.is_ok().then(|| {
        let _context = Context::new(device).ok()?;
        Some(cust::memory::mem_get_info().ok()?.0 as u64)
    });
    driver::take_failure();
    Ok(CudaDevice {
        ordinal,
        name: facts.name,
        capability: facts.capability,
        memory_total: facts.memory,
        memory_free: free.flatten(),
        module: choice.as_ref().ok().map(|c| c.module.target.to_owned()),
        reason: choice.map_or_else(|e| e.to_string(), |c| c.reason),
    })
}

/// Where the loader found the driver's library (Linux).
pub(crate) fn library_path() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    maps.lines().filter_map(path).find(|p| p.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so")))
}
