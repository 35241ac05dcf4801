//! Choosing an engine by name, and saying why.

use std::str::FromStr;

use gmm_model::ModelError;

use crate::{CpuEngine, CudaEngine, Engine, Error, ReferenceEngine};

/// Which engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The first GPU where it can be used, else the CPU.
    Auto,
    /// All cores.
    Cpu,
    /// The naive engine, for checks.
    Reference,
    /// One GPU, by ordinal; never falls back.
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

/// An engine, and one line on why it is this one.
pub struct Opened {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// Why.
    pub reason: String,
}

impl Device {
    /// Opens the engine; `threads` is for the CPU, 0 for all cores.
    ///
    /// # Errors
    /// [`Error::Device`] where the device asked for is not to be had; `Auto` falls back to the CPU and says so.
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
