//! Structure of mixtures by what rows say: components combined into clusters, merges by likelihood, and EM that splits
//! and merges. The mathematics without rows is in [`gmm_model::structure`].

mod blocks;
mod combine;
mod likelihoods;
mod split_merge;

pub use combine::combine;
pub use likelihoods::{Criteria, along, merge_by_likelihood};
pub use split_merge::{SplitMergeOptions, split_merge};
