//! The textbook form of EM's passes, one thread per row: what to read first, and the reference on a device.
//!
//! [`e_step`] computes log joint densities, responsibilities and the log-likelihood; [`moments`] computes the weighted
//! sums of the M-step about the components' means. One file per covariance kind.

pub mod e_step;
pub mod moments;
