//! Selecting an engine by the name of its device.

use std::fmt;
use std::str::FromStr;

use gmm_model::ModelError;

use crate::costs::{self, Estimates, Work};
use crate::{CpuEngine, CudaEngine, CudaGroup, Engine, Error, ReferenceEngine};

/// Which engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The first GPU if it can be used, else the CPU. With [`open_for`](Self::open_for), the one of both that is
    /// expected to finish first.
    Auto,
    /// The CPU.
    Cpu,
    /// The naive [`ReferenceEngine`], for checks.
    Reference,
    /// The GPU of this ordinal; never falls back to the CPU.
    Cuda(usize),
    /// Several GPUs, each with a share of the rows ([`CudaGroup`]); never falls back to the CPU.
    CudaGroup(Ordinals),
}

/// Some of the first 64 visible GPUs, in ascending order; or all visible ones, whatever their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordinals(u64);

impl Ordinals {
    /// All visible GPUs.
    pub const ALL: Self = Self(0);

    /// The ordinals in ascending order; empty for all visible GPUs.
    pub fn list(self) -> Vec<usize> {
        (0..64).filter(|ordinal| self.0 >> ordinal & 1 == 1).collect()
    }

    /// Reads a list such as `0,2`. `None` if it is empty, or an ordinal is no number below 64 or occurs twice.
    fn read(text: &str) -> Option<Self> {
        let mut set = 0_u64;
        for word in text.split(',') {
            let bit = 1_u64.checked_shl(word.parse().ok()?).filter(|bit| set & bit == 0)?;
            set |= bit;
        }
        Some(Self(set))
    }
}

impl fmt::Display for Ordinals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.list().iter().map(ToString::to_string).collect();
        write!(f, "cuda:{}", if list.is_empty() { "all".to_owned() } else { list.join(",") })
    }
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "reference" => Ok(Self::Reference),
            "cuda" => Ok(Self::Cuda(0)),
            "cuda:all" => Ok(Self::CudaGroup(Ordinals::ALL)),
            _ => {
                let given = text.strip_prefix("cuda:");
                let one = given.and_then(|i| i.parse().ok()).map(Self::Cuda);
                one.or_else(|| given.and_then(Ordinals::read).map(Self::CudaGroup)).ok_or_else(|| {
                    ModelError::UnknownWord {
                        what: "device",
                        word: text.to_owned(),
                        choices: "auto, cpu, reference, cuda, cuda:I, cuda:I,J,.. (each once), cuda:all",
                    }
                })
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Reference => f.write_str("reference"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::CudaGroup(ordinals) => ordinals.fmt(f),
        }
    }
}

/// An engine and the reason why it was selected.
pub struct Opened {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// One line on why this engine was selected.
    pub reason: String,
    /// The estimates by which [`Device::Auto`] selected it, if it did.
    pub estimates: Option<Estimates>,
}

impl Opened {
    fn new(engine: impl Engine + 'static, reason: impl Into<String>) -> Self {
        Self { engine: Box::new(engine), reason: reason.into(), estimates: None }
    }

    fn by(engine: impl Engine + 'static, estimates: Estimates) -> Self {
        Self { estimates: Some(estimates), ..Self::new(engine, estimates.to_string()) }
    }
}

impl Device {
    /// Opens the engine. `threads` is the number of CPU threads; 0 means [`default_threads`](crate::default_threads).
    /// GPUs ignore it.
    ///
    /// # Errors
    /// [`Error::Device`] if the requested device is not available. `Auto` falls back to the CPU and gives the reason.
    pub fn open(self, threads: usize) -> Result<Opened, Error> {
        match self {
            Self::Auto => match CudaEngine::new(0) {
                Ok(engine) => Ok(Opened::new(engine, "it is the first GPU")),
                Err(why) => no_gpu(CpuEngine::new(threads)?, &why),
            },
            Self::Cpu => Ok(Opened::new(CpuEngine::new(threads)?, "asked for")),
            Self::Reference => Ok(Opened::new(ReferenceEngine, "asked for")),
            Self::Cuda(ordinal) => Ok(Opened::new(CudaEngine::new(ordinal)?, "asked for")),
            Self::CudaGroup(ordinals) => Ok(Opened::new(CudaGroup::open(&ordinals.list())?, "asked for")),
        }
    }

    /// As [`open`](Self::open), but `Auto` opens the engine that is expected to finish `work` first, and does not touch
    /// a GPU if that is the CPU. The speed of the CPU and the time to open the GPU are measured when a choice first
    /// depends on them, and stored in the cache folder (see
    /// [`CudaEngine::tuning_file`]). `open_gpu` opens the first GPU; a caller may have begun that earlier.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_for(
        self,
        threads: usize,
        work: &Work,
        open_gpu: impl FnOnce() -> Result<CudaEngine, Error>,
    ) -> Result<Opened, Error> {
        if self != Self::Auto {
            return self.open(threads);
        }
        let engine = CpuEngine::new(threads)?;
        let first = costs::estimates(work, threads, false);
        if !first.prefer_gpu() {
            return Ok(Opened::by(engine, first));
        }
        // The GPU's advantage may be that of a default value over the true one.
        crate::cuda::measure_cpu(&engine)?;
        let estimates = costs::estimates(work, threads, false);
        if !estimates.prefer_gpu() {
            return Ok(Opened::by(engine, estimates));
        }
        match open_gpu() {
            Ok(gpu) => Ok(Opened::by(gpu, estimates)),
            Err(why) => no_gpu(engine, &why),
        }
    }
}

fn no_gpu(engine: CpuEngine, why: &Error) -> Result<Opened, Error> {
    Ok(Opened::new(engine, format!("no GPU can be used: {why}")))
}
