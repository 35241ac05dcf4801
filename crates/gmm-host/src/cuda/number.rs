//! The two number types in which a device stores rows.

use cust::memory::DeviceCopy;
use cust::memory::bytemuck::Pod;

/// A number type in which a device stores rows: `f32` or `f64`.
pub trait Number: gmm_kernels::Real + DeviceCopy + Pod + Send + Sync + Default {}

impl Number for f32 {}
impl Number for f64 {}
