//! A matrix that stays on the device, and the questions to it, in chunks: see [`gmm_kernels::products`].
//!
//! Questions are rows, `(n, k)`, and go to the device as they lie, row by row or column by column; there they are packed,
//! multiplied by the matrix's rows, and made into what was asked. [`plan`] says in which form, slices and chunks: of these
//! only chunks depend on memory, and they change no bit.

mod device_operand;
mod factor;
mod matrix;
mod operand_cache;
mod plan;
mod question;
mod room;
mod state;
mod times;
mod transfer;

pub(crate) use device_operand::DeviceOperand;
pub(crate) use factor::CudaFactor;
pub(crate) use matrix::{CudaMatrix, CudaMultiplier};
#[cfg(test)]
pub(crate) use question::FORM;
pub use times::DeviceTime;
