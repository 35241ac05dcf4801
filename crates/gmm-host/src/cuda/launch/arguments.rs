//! What the kernels of a pass take: rows, a model, and where results go.

use cust::memory::{DeviceCopy, DeviceSlice};
use gmm_kernels::THREADS;
use gmm_kernels::layout::{TILE_ROWS, factor_len, tiled_len};

use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// A chunk of rows on the device.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<T: Number> {
    /// `(n, d)` tiled.
    pub(crate) x: DeviceSlice<T>,
    /// `(n,)`.
    pub(crate) row_weights: Option<DeviceSlice<f64>>,
    pub(crate) n: u64,
}

/// A mixture's parameters, or centres, on the device.
#[derive(Clone, Copy)]
pub(crate) struct Model<T: Number> {
    /// `(k, d)`: means minus the shift, rounded to `T`.
    pub(crate) mean_high: DeviceSlice<T>,
    /// `(k, d)`: the rounding errors of `mean_high`.
    pub(crate) mean_low: DeviceSlice<T>,
    /// `factor_len(kind, k, d)`.
    pub(crate) factor: DeviceSlice<T>,
    /// Whether the factors of full and tied covariances are factors of precisions.
    pub(crate) of_precisions: bool,
    /// `(k,)`.
    pub(crate) log_scale: DeviceSlice<T>,
    /// `(k,)`: the rounding errors of `log_scale`.
    pub(crate) log_scale_low: DeviceSlice<T>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<T>,
    /// The same once more for the tensor cores, `Whitening::count`, if they are to be used.
    pub(crate) whitening: Option<DeviceSlice<f64>>,
}

/// What the E-step writes in addition to the block totals.
#[derive(Clone, Copy)]
pub(crate) struct StepOutputs {
    /// Whether the responsibilities are needed after the kernel.
    pub(crate) responsibilities: bool,
    /// Whether they are multiplied by the row weights.
    pub(crate) weighted: bool,
    /// `(n,)`.
    pub(crate) log_densities: Option<DeviceSlice<f64>>,
    /// `(n,)`.
    pub(crate) labels: Option<DeviceSlice<u32>>,
}

pub(super) fn check_chunk<T: Number>(shape: &Shape, chunk: &Chunk<T>) {
    at_least(&chunk.x, tiled_len(chunk.n, shape.d), "rows");
    chunk.row_weights.iter().for_each(|w| at_least(w, chunk.n, "row weights"));
    assert!(chunk.n > 0 && shape.k > 0 && shape.d > 0 && THREADS == TILE_ROWS);
}

pub(super) fn check_centres<T: Number>(shape: &Shape, model: &Model<T>) {
    let kd = u64::from(shape.k) * u64::from(shape.d);
    at_least(&model.mean_high, kd, "means");
    at_least(&model.mean_low, kd, "means");
}

pub(super) fn check_model<T: Number>(shape: &Shape, model: &Model<T>) {
    check_centres(shape, model);
    at_least(&model.factor, factor_len(shape.kernel_kind(), shape.k, shape.d), "factors");
    at_least(&model.log_scale, shape.k.into(), "scales");
    at_least(&model.log_scale_low, shape.k.into(), "rounding errors of scales");
    at_least(&model.weights, shape.k.into(), "weights");
}

pub(crate) fn pointer<A: DeviceCopy>(slice: &DeviceSlice<A>) -> *mut A {
    slice.as_device_ptr().as_raw() as *mut A
}

pub(crate) fn or_null<A: DeviceCopy>(slice: Option<&DeviceSlice<A>>) -> *mut A {
    slice.map_or(std::ptr::null_mut(), pointer)
}

pub(crate) fn at_least<A: DeviceCopy>(slice: &DeviceSlice<A>, len: u64, what: &str) {
    assert!(slice.len() as u64 >= len, "{what}: {} of {len} numbers", slice.len());
}
