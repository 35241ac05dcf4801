//! Replaces the module `cuda` in builds without that feature: `lib.rs` takes one of the two. A [`CudaEngine`] cannot be made here:
//! it and what only it gives are empty types, and the compiler drops the code that would use them.

use std::convert::Infallible;
use std::path::PathBuf;

use gmm_model::{CovarianceType, Dataset, Matrix, Precision};
use ndarray::{Array2, ArrayView2};

use crate::described::{CudaReport, LoopCandidate};
use crate::{Engine, Error, Resident, Tuning};

/// Message of every error here: what is missing, and how to get it.
const MISSING: &str = "gmm-host was built without its feature `cuda`: for a GPU, add features = [\"cuda\"] to the dependency, \
                       and outside of gmm-host's workspace the patch that its README shows";

fn missing() -> Error {
    Error::Device(MISSING.to_owned())
}

/// Estimates need no measurement: this build has no GPU to choose.
#[allow(clippy::unnecessary_wraps)]
pub(crate) const fn measure_cpu(_engine: &crate::CpuEngine) -> Result<(), Error> {
    Ok(())
}

/// One NVIDIA GPU. Cannot be created in this build, which lacks the feature `cuda`.
#[derive(Clone)]
pub struct CudaEngine {
    never: Infallible,
}

impl CudaEngine {
    /// Always errors: this build has no GPU engine.
    ///
    /// # Errors
    /// Always [`Error::Device`], which says how to build with the feature `cuda`.
    pub fn new(_ordinal: usize) -> Result<Self, Error> {
        Err(missing())
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn first() -> Result<Self, Error> {
        Err(missing())
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_module(_ordinal: usize, _module: &str) -> Result<Self, Error> {
        Err(missing())
    }

    /// Limits the device memory that the engine takes.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn with_memory_limit(self, _bytes: u64) -> Result<Self, Error> {
        match self.never {}
    }

    /// Bytes of free device memory.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn free_memory(&self) -> Result<u64, Error> {
        match self.never {}
    }

    /// Measures the speed of copies from host memory to the device.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn upload_rates(&self, _bytes: usize) -> Result<UploadRates, Error> {
        match self.never {}
    }

    /// The tuning file: `None` in this build.
    pub fn tuning_file() -> Option<PathBuf> {
        None
    }

    /// The result stored in the tuning file for a shape.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn kept_tuning(
        &self,
        _kind: CovarianceType,
        _precision: Precision,
        _shape: (usize, usize, usize),
    ) -> Result<Option<Tuning>, Error> {
        match self.never {}
    }
}

/// Several NVIDIA GPUs as one engine. Cannot be created in this build, which lacks the feature `cuda`.
#[derive(Clone)]
pub struct CudaGroup {
    never: Infallible,
}

impl CudaGroup {
    /// Always errors: this build has no GPU engine.
    ///
    /// # Errors
    /// Always [`Error::Device`], which says how to build with the feature `cuda`.
    pub fn new(_engines: Vec<CudaEngine>) -> Result<Self, Error> {
        Err(missing())
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn open(_ordinals: &[usize]) -> Result<Self, Error> {
        Err(missing())
    }

    /// Limits the memory of each device.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn with_memory_limit(self, _bytes: u64) -> Result<Self, Error> {
        match self.never {}
    }
}

impl Engine for CudaGroup {
    fn name(&self) -> String {
        match self.never {}
    }

    fn description(&self) -> String {
        match self.never {}
    }

    fn load(&self, _data: &Dataset, _precision: Precision, _shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        match self.never {}
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        match self.never {}
    }

    fn description(&self) -> String {
        match self.never {}
    }

    fn load(&self, _data: &Dataset, _precision: Precision, _shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        match self.never {}
    }
}

/// Rows of another library in GPU memory. Cannot be created in this build.
pub struct DeviceData {
    never: Infallible,
}

impl DeviceData {
    /// `(n, d)`.
    pub fn dim(&self) -> (usize, usize) {
        match self.never {}
    }

    /// Precision of the values.
    pub const fn precision(&self) -> Precision {
        match self.never {}
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(&self) -> Option<&[f64]> {
        match self.never {}
    }

    /// Copies all rows to the host, in their own precision.
    ///
    /// # Errors
    /// None: there are no such rows.
    pub fn fetch(&self) -> Result<Matrix, Error> {
        match self.never {}
    }

    pub(crate) fn without_absent_rows(&self) -> Option<Self> {
        match self.never {}
    }

    pub(crate) fn fetch_present(&self) -> Result<Option<Dataset>, Error> {
        match self.never {}
    }

    pub(crate) fn walk(&self, _see: &mut dyn FnMut(usize, ArrayView2<'_, f64>)) -> Result<(), Error> {
        match self.never {}
    }

    pub(crate) fn pick(&self, _rows: &[usize]) -> Result<Array2<f64>, Error> {
        match self.never {}
    }

    pub(crate) fn sample(&self, _rows: &[usize]) -> Result<Array2<f64>, Error> {
        match self.never {}
    }
}

/// Log densities of all rows under one component, in device memory. Cannot be created in this build.
pub struct DeviceColumn {
    _never: Infallible,
}

/// Speed of copies from host memory to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UploadRates {
    /// Bytes per second from pinned memory, with nothing else running.
    pub pinned: f64,
    /// Bytes per second from pageable memory, with nothing else running.
    pub pageable: f64,
}

/// A report without devices, which says that this build lacks the feature `cuda`.
pub fn cuda_report() -> CudaReport {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    CudaReport { driver: None, library: None, problem: Some(MISSING.to_owned()), visible, devices: Vec::new() }
}

/// The EM paths of a GPU: this build has none.
///
/// # Errors
/// Always [`Error::Device`], which says how to build with the feature `cuda`.
pub fn loop_candidates(
    _engine: Option<&CudaEngine>,
    _kind: CovarianceType,
    _precision: Precision,
    _shape: (usize, usize, usize),
    _fast: bool,
) -> Result<Vec<LoopCandidate>, Error> {
    Err(missing())
}

/// A number type in device memory.
pub trait Number: Copy + Send + Sync {}

impl Number for f32 {}
impl Number for f64 {}

/// Products with a matrix on a device.
pub(crate) mod products {
    use std::convert::Infallible;
    use std::marker::PhantomData;
    use std::ops::Range;
    use std::time::Duration;

    use ndarray::{Array2, ArrayView2, ArrayViewMut2};

    use super::{DeviceData, Number};
    use crate::Error;
    use crate::products::Operand;

    /// Device time of a product whose operands and result stay on the device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceTime {
        /// The whole product.
        pub total: Duration,
        /// The part that converts the questions to the operand format.
        pub packing: Duration,
        /// The part that multiplies. The rest of `total` converts the sums to results.
        pub multiplying: Duration,
    }

    #[derive(Clone)]
    pub(crate) struct CudaMultiplier {
        never: Infallible,
    }

    impl CudaMultiplier {
        pub(crate) fn check(&self, _matrix: &DeviceData) -> Result<(), Error> {
            match self.never {}
        }
    }

    pub(crate) enum CudaPinned {}

    impl CudaPinned {
        pub(crate) unsafe fn new(multiplier: &CudaMultiplier, _start: *mut u8, _len: usize) -> Result<Self, Error> {
            match multiplier.never {}
        }
    }

    pub(crate) struct CudaRows<T: Number> {
        never: Infallible,
        _of: PhantomData<T>,
    }

    impl<T: Number> CudaRows<T> {
        pub(crate) fn new(multiplier: &CudaMultiplier, _rows: ArrayView2<'_, T>) -> Result<Self, Error> {
            match multiplier.never {}
        }

        pub(crate) const fn data(&self) -> &DeviceData {
            match self.never {}
        }
    }

    pub(crate) struct CudaMatrix<T: Number> {
        never: Infallible,
        _of: PhantomData<T>,
    }

    impl<T: Number> CudaMatrix<T> {
        pub(crate) fn new(multiplier: &CudaMultiplier) -> Result<Self, Error> {
            match multiplier.never {}
        }

        pub(crate) fn product(
            &self,
            _matrix: &Operand<'_, T>,
            _x: &Operand<'_, T>,
            _out: ArrayViewMut2<'_, T>,
            _fast: bool,
        ) -> Result<(), Error> {
            match self.never {}
        }

        pub(crate) fn forms(&self, _: &Operand<'_, T>, _: &Operand<'_, T>, _out: &mut [f64]) -> Result<(), Error> {
            match self.never {}
        }

        pub(crate) fn largest(
            &self,
            _matrix: &Operand<'_, T>,
            _x: &Operand<'_, T>,
            _count: usize,
            _fast: bool,
        ) -> Result<(Array2<u32>, Array2<T>), Error> {
            match self.never {}
        }

        pub(crate) fn times(
            &self,
            _matrix: &Operand<'_, T>,
            _x: &Operand<'_, T>,
            _forms: bool,
            _fast: bool,
            _repeats: usize,
        ) -> Result<Vec<DeviceTime>, Error> {
            match self.never {}
        }
    }

    pub(crate) struct CudaFactor {
        never: Infallible,
    }

    impl CudaFactor {
        pub(crate) fn new(multiplier: &CudaMultiplier, _lower: ArrayView2<'_, f64>) -> Result<Self, Error> {
            match multiplier.never {}
        }

        pub(crate) fn distances(&self, _: &Operand<'_, f64>, _: Option<&[f64]>, _: &mut [f64]) -> Result<(), Error> {
            match self.never {}
        }
    }

    #[derive(Clone)]
    pub(crate) struct DeviceOperand<'a> {
        never: Infallible,
        _of: PhantomData<&'a DeviceData>,
    }

    impl<'a> DeviceOperand<'a> {
        pub(crate) fn new(data: &'a DeviceData) -> Self {
            match data.never {}
        }

        pub(crate) fn dim(&self) -> (usize, usize) {
            match self.never {}
        }

        pub(crate) fn exchanged(&self) -> Self {
            match self.never {}
        }

        pub(crate) fn single(&self) -> Self {
            match self.never {}
        }

        pub(crate) fn rows(&self, _some: Range<usize>) -> Self {
            match self.never {}
        }

        pub(crate) fn pick(&self, _some: &[usize]) -> Result<Array2<f64>, Error> {
            match self.never {}
        }
    }
}
