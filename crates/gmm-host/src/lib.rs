//! Engines, initialisation, the EM loop and evaluators: the library that other crates use.
//!
//! [`fit()`] runs a whole fit: an [`Engine`] loads a [`Dataset`](gmm_model::Dataset) and returns a [`Resident`]; an
//! initialisation ([`init`]) gives the first mixture; the EM loop ([`run_em`]) alternates [`Passes::pass`] and
//! [`m_step`](gmm_model::m_step()). [`Likelihood`] loads the rows once and evaluates any number of mixtures on them.
//! [`pass()`] and [`maximise`] are the steps of the loop for data that several machines or processes hold.
//! [`ResidentMatrix`] multiplies by a matrix that stays on an engine; it is independent of mixtures.
//!
//! # GPUs
//!
//! The feature `cuda` adds the engine for NVIDIA GPUs. Without it the same names exist, but [`CudaEngine::new`] returns
//! an error and [`Device::Auto`] selects the CPU. Outside this workspace the feature also needs a patch in the root
//! `Cargo.toml` of your workspace, because Cargo ignores the patches of dependencies:
//!
//! ```toml
//! gmm-host = { path = "../gmm-rs/crates/gmm-host", features = ["cuda"] }
//!
//! [patch.crates-io]
//! find_cuda_helper = { path = "../gmm-rs/crates/find_cuda_helper" }
//! ```

// Without the feature `cuda`, items that only the GPU engine uses are dead code.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

pub mod adapt;
mod blrt;
mod bootstrap;
#[cfg(feature = "cuda")]
mod cache_folder;
mod censoring;
mod choose;
mod concurrent;
mod costs;
mod cpu;
#[cfg_attr(not(feature = "cuda"), path = "no_cuda.rs")]
mod cuda;
mod data;
mod deconvolution;
mod described;
mod device;
mod em;
mod engine;
mod error;
pub mod evaluate;
mod fast;
mod fit;
mod hold;
pub mod impute;
pub mod init;
mod labels_icl;
mod likelihood;
pub mod many;
pub mod memory;
mod missing;
mod nearby;
pub mod noise;
mod online;
mod outliers;
mod path_names;
mod predictive;
mod predictor;
pub mod products;
mod reference;
pub mod regress;
mod restarts;
mod rule;
mod sample;
mod select;
pub mod shift;
pub mod spikes;
mod steps;
pub mod structure;
mod threads;
mod truncated;
mod tuning;
mod wrapped;

pub use blrt::{BlrtFit, BlrtOptions, BlrtTest, blrt};
pub use bootstrap::{Bootstrap, BootstrapOptions, Resampling, Spread, Spreads, bootstrap, flat as flat_covariances};
pub use choose::{Choice, Chosen, TestOptions, choose};
pub use costs::{Estimates, Work, estimates};
pub use cpu::{CpuEngine, Loops, exp_in_place, vectorised};
pub use cuda::{CudaEngine, CudaGroup, DeviceColumn, DeviceData, UploadRates, cuda_report, loop_candidates};
pub use data::{Data, DeviceOutputs, DeviceRows};
pub use deconvolution::{TrueRowMoments, true_rows};
pub use described::{CudaDevice, CudaReport, LoopCandidate};
pub use device::{Device, Opened, Ordinals};
pub use em::{EmOptions, EmRun, Iteration, Observer, OnDevice, run as run_em};
pub use engine::{
    ComponentColumns, DISTANCE_ROWS, DeviceInput, Engine, Evaluate, EvaluateOptions, Evaluation, FillResponsibilities,
    FloatsMut, Inherit, OwnPasses, Passes, Resident, RowsAndReach, Scorer, Seeding,
};
pub use error::Error;
pub use fast::{FastLoss, loss as fast_loss};
pub use fit::{Fit, FitOptions, Warning, fit, fit_observed, fit_resumed};
pub use init::Init;
pub use labels_icl::labels_icl;
pub use likelihood::{ComponentCache, ComponentChange, Gradient, Likelihood, Unconstrained};
pub use noise::{NoiseOptions, NoisePass, NoiseStart};
pub use online::{EpochOptions, OnlineFit, OnlineOptions, OnlineStep, fit_online};
pub use outliers::threshold_of_region;
pub use predictive::predictive_log_densities;
pub use predictor::{ModelParts, Predictions, Predictor};
pub use products::{ResidentFactor, ResidentMatrix};
pub use reference::ReferenceEngine;
pub use restarts::{FitState, Restart};
pub use rule::{BayesOptions, FitRule, Floor, Prior, PriorParts, WeightFamily};
pub use sample::sample_rows;
pub use select::{Candidate, best, select};
pub use steps::{PassRows, maximise, maximise_with, pass, pass_beside, storage};
pub use threads::{MAX_THREADS, default_threads, limit_global_threads, on_threads};
pub use truncated::{Search, TruncatedOptions, TruncatedPass};
pub use tuning::{Tuning, TuningSource};
pub use wrapped::{Hooks, Wrapped};
