//! Every launch of a kernel: one safe function each, which checks buffer lengths against the formulas of the arguments.
//!
//! A [`DeviceSlice`](cust::memory::DeviceSlice) does not keep its buffer alive. The slices passed here come from
//! [`Rows`](crate::cuda::rows::Rows), which owns the buffers and waits for its stream before it frees one.

mod arguments;
mod deconvolution;
mod launcher;
mod lloyd;
mod log_likelihood;
mod many;
mod mixing;
pub(crate) mod plan;
mod products;
mod rows;
mod seeding;
mod sort;

pub(crate) use arguments::{Chunk, Model, StepOutputs, at_least, or_null, pointer};
pub(crate) use deconvolution::{NoisyChunk, NoisyModel, NoisyOutputs, PatternFactors, noisy_numbers};
pub(crate) use launcher::Launcher;
pub(crate) use lloyd::{End, LloydBuffers, LloydPlan, ProductSplits};
pub(crate) use log_likelihood::{FixedPointPlan, LogLikelihoodPlan, SingleMixturePlan};
pub(crate) use many::{ManyBuffers, ManyShape};
pub(crate) use products::{Factor, ProductShape, Raw, Side};
pub(crate) use seeding::{Distances, DrawBuffers, NextBuffers, Weighed};
pub(crate) use sort::SortBuffers;
