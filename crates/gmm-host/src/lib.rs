//! Engines, initialisation, the EM loop and evaluators: the library that other crates use.
//!
//! The way through: a [`Dataset`](gmm_model::Dataset) is loaded on an [`Engine`], which leaves a [`Resident`]; an
//! initialisation gives a first mixture; the EM loop alternates [`Passes::pass`] and
//! [`m_step`](gmm_model::m_step()); [`fit()`] does all of it. [`Likelihood`] keeps the rows where they are and answers for
//! any number of mixtures. [`ResidentMatrix`] is for products with a matrix that stays, which knows nothing of mixtures.
//!
//! # GPUs
//!
//! The feature `cuda` adds the engine for NVIDIA GPUs. Without it the names are the same, [`CudaEngine::new`] returns an error,
//! and [`Device::Auto`] takes the CPU. Outside this workspace the feature also needs a patch in your workspace's root
//! `Cargo.toml`, because Cargo ignores the patches of dependencies:
//!
//! ```toml
//! gmm-host = { path = "../gmm-rs/crates/gmm-host", features = ["cuda"] }
//!
//! [patch.crates-io]
//! find_cuda_helper = { path = "../gmm-rs/crates/find_cuda_helper" }
//! ```

// What only the GPU engine calls is dead code in a build without it.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

mod cpu;
#[cfg_attr(not(feature = "cuda"), path = "no_cuda.rs")]
mod cuda;
mod data;
mod described;
mod device;
mod em;
mod engine;
mod error;
pub mod evaluate;
mod fast;
mod fit;
mod hold;
pub mod init;
mod likelihood;
pub mod memory;
mod path_names;
pub mod products;
mod reference;
mod sample;
mod select;
pub mod shift;
pub mod spikes;
mod threads;
mod tuning;
mod wrapped;

pub use cpu::CpuEngine;
pub use cuda::{CudaEngine, DeviceColumn, DeviceData, UploadRates, cuda_report, loop_candidates};
pub use data::{Data, DeviceRows};
pub use described::{CudaDevice, CudaReport, LoopCandidate};
pub use device::{Device, Opened};
pub use em::{EmOptions, EmRun, Iteration, Observer, OnDevice, run as run_em};
pub use engine::{
    ComponentColumns, DISTANCE_ROWS, DeviceInput, Engine, Evaluate, Evaluation, FillResponsibilities, Inherit,
    OwnPasses, Passes, Resident, Seeding, Wanted,
};
pub use error::Error;
pub use fast::{FastLoss, loss as fast_loss};
pub use fit::{Fit, FitOptions, Warning, fit, fit_observed};
pub use init::Init;
pub use likelihood::{ComponentCache, ComponentChange, Gradient, Likelihood, Unconstrained};
pub use products::{ResidentFactor, ResidentMatrix};
pub use reference::ReferenceEngine;
pub use sample::sample_rows;
pub use select::{Candidate, best, select};
pub use threads::{MAX_THREADS, default_threads, limit_global_threads};
pub use tuning::{Tuning, TuningSource};
pub use wrapped::{Hooks, Wrapped};
