//! Log-likelihoods of rows under mixtures: many mixtures at once ([`batches`]), a single one ([`single_mixture`]), or
//! many in fixed point ([`fixed_point`]); and of mixtures whose component densities are stored ([`mixing`]).

pub mod batches;
mod entries;
pub mod fixed_point;
mod fixed_point_sums;
mod logs;
pub mod mixing;
pub mod pass;
pub mod single_mixture;
mod staged;

pub use batches::*;
