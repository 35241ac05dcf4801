//! Engines, initialisation, the EM loop and evaluators: the library that other crates use.

mod engine;
mod error;

pub use engine::{Engine, Evaluation, FillResponsibilities, Resident, Wanted};
pub use error::Error;
