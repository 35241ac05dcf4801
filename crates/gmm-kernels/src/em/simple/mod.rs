//! EM's passes as a textbook has them, a thread for a row: what to read first, and the oracle on a device.
//!
//! [`e_step`] computes log joint densities, responsibilities and the log-likelihood, [`moments`] the weighted sums of the M-step about
//! the components' means; one file for each covariance kind.

pub mod e_step;
pub mod moments;
