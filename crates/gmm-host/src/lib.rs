//! Engines, initialisation, the EM loop and evaluators: the library that other crates use.

mod cpu;
mod em;
mod engine;
mod error;
mod memory;
mod reference;
pub mod shift;

pub use cpu::CpuEngine;
pub use em::{EmOptions, EmRun, Iteration, Observer, run as run_em};
pub use engine::{Engine, Evaluation, FillResponsibilities, Resident, Wanted};
pub use error::Error;
pub use reference::ReferenceEngine;
