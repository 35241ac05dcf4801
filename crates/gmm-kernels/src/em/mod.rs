//! EM: the kernels of one iteration, by path.
//!
//! ```text
//! x       n rows of d columns less the shift, in tiles of 128 rows       layout of rows: crate::layout
//! theta   k components: weights, means, covariances about the shift
//!
//! before the first iteration
//!     operands <- encode(theta)                    factor of the features: m_step/expand, or the path's own encode
//!
//! iteration
//!     for each group of rows                                        the path's kernels, shown one row at a time
//!         features <- (x_i), (x_i x_j)                              generated in registers: features, layout
//!         for each component c
//!             log p(x, c) <- features . operands_c + constant_c     densities: matrix products on tensor cores
//!         top    <- max_c log p(x, c)                               approx_max: a value near the maximum suffices
//!         sum    <- sum_c exp(log p(x, c) - top)
//!         r_c    <- exp(log p(x, c) - top) / sum                    responsibilities, times the row's weight
//!         loglik <- loglik + weight (top + ln sum)                  likelihood
//!         sums_c <- sums_c + r_c features                           moments: matrix products on tensor cores
//!     sums <- sum over blocks or splits, in a fixed order           crate::reduce
//!     for each component c                                          m_step: one thread block per component
//!         N, m, S <- sums_c                                         maximise
//!         if a term is too large or S cancels too far               TROUBLE: the host continues on another path
//!         theta_c  <- N / n, m / N, S / N - m m' + reg
//!         L        <- cholesky(Sigma_c)                             in shared memory, or blocked_cholesky
//!         operands <- encode(theta_c)
//!     with a prior, m_step/bayes in place of maximise: a posterior and its bound, before and after the factorisation
//!     if |loglik - before| < tol                                    convergence: DONE; later launches return at once
//!
//! the host polls the state from time to time
//! ```
//!
//! | path | requirements | precision | when it is best |
//! |---|---|---|---|
//! | [`simple`] | any device; the host runs the M-step | differences from the means, in the rows' precision | before Ampere; where the other paths lose precision |
//! | [`small_d`] | f32 rows, full, up to 3 columns | differences from the means, in f32 | always, where it runs |
//! | [`nearby`] | full, diag or spherical, few columns | f64, differences from the means | thousands of components, most of them far from a tile of rows |
//! | [`fused`] | sums that fit into registers | f64 | few columns and components |
//! | [`chunked::double_precision`] | Ampere | f64 | many columns or components of f64 rows |
//! | [`chunked::half_precision`] | f32 rows without weights | split fp16, 22 bits; or fp16, 11 bits | many columns or components of f32 rows |
//! | [`wgmma`] | Hopper, f32 rows without weights | as `half_precision` | still more columns or components |
//!
//! [`fused`] and [`chunked::double_precision`] compute everything between the rows and the new parameters in `f64`,
//! except the exponential, which uses the rows' precision. On tensor cores, `f64` costs what `f32` costs elsewhere.

pub(crate) mod approx_max;
pub mod chunked;
pub mod features;
pub mod fused;
pub(crate) mod lanes;
pub mod layout;
pub(crate) mod likelihood;
pub mod m_step;
pub mod nearby;
pub mod simple;
pub mod small_d;
pub(crate) mod staging;
pub mod state;
pub mod wgmma;
