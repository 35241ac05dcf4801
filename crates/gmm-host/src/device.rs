//! Selecting an engine by the name of its device.

use std::str::FromStr;

use gmm_model::ModelError;

use crate::{CpuEngine, CudaEngine, Engine, Error, ReferenceEngine};

/// Which engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The first GPU if it can be used, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The naive [`ReferenceEngine`], for checks.
    Reference,
    /// The GPU of this ordinal; never falls back to the CPU.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "reference" => Ok(Self::Reference),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(|i| i.parse().ok()).map(Self::Cuda).ok_or_else(|| {
                ModelError::UnknownWord {
                    what: "device",
                    word: text.to_owned(),
                    choices: "auto, cpu, reference, cuda, cuda:I",
                }
            }),
        }
    }
}

/// An engine and the reason why it was selected.
pub struct Opened {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// One line on why this engine was selected.
    pub reason: String,
}

impl Device {
    /// Opens the engine. `threads` is the number of CPU threads; 0 means [`default_threads`](crate::default_threads).
    /// GPUs ignore it.
    ///
    /// # Errors
    /// [`Error::Device`] if the requested device is not available. `Auto` falls back to the CPU and gives the reason.
    pub fn open(self, threads: usize) -> Result<Opened, Error> {
        let cpu = |reason: String| -> Result<Opened, Error> {
            Ok(Opened { engine: Box::new(CpuEngine::new(threads)?), reason })
        };
        match self {
            Self::Auto => match CudaEngine::new(0) {
                Ok(engine) => Ok(Opened { engine: Box::new(engine), reason: "it is the first GPU".to_owned() }),
                Err(why) => cpu(format!("no GPU can be used: {why}")),
            },
            Self::Cpu => cpu("asked for".to_owned()),
            Self::Reference => Ok(Opened { engine: Box::new(ReferenceEngine), reason: "asked for".to_owned() }),
            Self::Cuda(ordinal) => {
                Ok(Opened { engine: Box::new(CudaEngine::new(ordinal)?), reason: "asked for".to_owned() })
            }
        }
    }
}
