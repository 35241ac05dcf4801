//! Descriptions of devices and EM paths for display, in builds with and without the GPU engine.

use std::fmt;

/// The GPUs and driver found, and what is missing: for `gmm doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaReport {
    /// The CUDA version that the driver supports: `13.0`.
    pub driver: Option<String>,
    /// Path of the driver's library, if the system reports it.
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
    /// The number after `cuda:` in its device name.
    pub ordinal: usize,
    /// The product name.
    pub name: String,
    /// Compute capability: 9.0 is Hopper.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory_total: u64,
    /// Bytes that are free; `None` if the device cannot be opened.
    pub memory_free: Option<u64>,
    /// The kernel module that would be loaded: `sm_90a`.
    pub module: Option<String>,
    /// Why this module is selected, or why there is none.
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

/// An EM path on a GPU, described for display.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopCandidate {
    /// Name of the path.
    pub name: &'static str,
    /// Whether this path is selected.
    pub runs: bool,
    /// Why the path can run, or why it cannot.
    pub reason: String,
    /// Whether the path has lower precision than the rows.
    pub fast: bool,
}

impl fmt::Display for LoopCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", if self.runs { "*" } else { "-" }, self.name, self.reason)
    }
}
