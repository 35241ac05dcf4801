//! A matrix that is resident on the device, and queries to it, in chunks: see [`gmm_kernels::products`].
//!
//! Queries are rows, `(n, k)`. They are uploaded in their own layout, row-major or column-major. On the device they are
//! packed, multiplied by the matrix's rows, and converted to the requested result. [`plan`] chooses form, slices and
//! chunks. Only the chunks depend on free memory, and they do not change the result's bits.

mod device_operand;
mod factor;
mod matrix;
mod operand_cache;
mod pinned;
mod plan;
mod question;
mod room;
mod rows;
mod state;
mod times;
mod transfer;

pub(crate) use device_operand::DeviceOperand;
pub(crate) use factor::CudaFactor;
pub(crate) use matrix::{CudaMatrix, CudaMultiplier};
pub(crate) use pinned::CudaPinned;
#[cfg(test)]
pub(crate) use question::FORM;
pub(crate) use rows::CudaRows;
pub use times::DeviceTime;
