//! The two types of numbers that rows have on a device.

use cust::memory::DeviceCopy;
use cust::memory::bytemuck::Pod;

/// A number as the device holds it.
pub trait Number: gmm_kernels::Real + DeviceCopy + Pod + Send + Sync + Default {}

impl Number for f32 {}
impl Number for f64 {}
