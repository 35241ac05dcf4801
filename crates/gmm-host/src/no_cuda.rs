//! Stands in for `cuda/` where the feature `cuda` is off: the same names, and no device.
//!
//! `lib.rs` takes one of the two as the module `cuda`, so that nothing else asks for the feature. A [`CudaEngine`] cannot
//! be made here, and neither can what only such an engine gives: these types are empty, and the compiler drops the code
//! that would use them.

use std::convert::Infallible;
use std::path::PathBuf;

use gmm_model::{CovarianceType, Dataset, Matrix, Precision};
use ndarray::{Array2, ArrayView2};

use crate::described::{CudaReport, LoopCandidate};
use crate::{Engine, Error, Resident, Tuning};

/// What is missing, and how to get it.
const MISSING: &str = "gmm-host was built without its feature `cuda`: for a GPU, add features = [\"cuda\"] to the dependency, \
                       and outside of gmm-host's workspace the patch that its README shows";

fn missing() -> Error {
    Error::Device(MISSING.to_owned())
}

/// One NVIDIA GPU: none in this build, which is without the feature `cuda`.
#[derive(Clone)]
pub struct CudaEngine {
    never: Infallible,
}

impl CudaEngine {
    /// Errors: this build has no GPU engine.
    ///
    /// # Errors
    /// [`Error::Device`], always, which says how to build with one.
    pub fn new(_ordinal: usize) -> Result<Self, Error> {
        Err(missing())
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_module(_ordinal: usize, _module: &str) -> Result<Self, Error> {
        Err(missing())
    }

    /// Bytes of device memory that are free.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn free_memory(&self) -> Result<u64, Error> {
        match self.never {}
    }

    /// How fast host memory goes to the device.
    ///
    /// # Errors
    /// None: there is no such engine.
    pub fn upload_rates(&self, _bytes: usize) -> Result<UploadRates, Error> {
        match self.never {}
    }

    /// Where timings of GPUs are kept: nowhere.
    pub fn tuning_file() -> Option<PathBuf> {
        None
    }

    /// What the file of timings has for a shape.
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

/// Rows of another library on a GPU: none in this build.
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

    /// Brings all rows to the host, as they are.
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

/// Log densities of all rows under one component, on a device: none in this build.
pub struct DeviceColumn {
    _never: Infallible,
}

/// How fast host memory goes to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UploadRates {
    /// Bytes per second from pinned memory, alone.
    pub pinned: f64,
    /// Bytes per second from pageable memory, alone.
    pub pageable: f64,
}

/// Looks for no devices, and says why.
pub fn cuda_report() -> CudaReport {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    CudaReport { driver: None, library: None, problem: Some(MISSING.to_owned()), visible, devices: Vec::new() }
}

/// The ways to run EM on a GPU: this build has none.
///
/// # Errors
/// [`Error::Device`], always, which says how to build with them.
pub fn loop_candidates(
    _engine: Option<&CudaEngine>,
    _kind: CovarianceType,
    _precision: Precision,
    _shape: (usize, usize, usize),
    _fast: bool,
) -> Result<Vec<LoopCandidate>, Error> {
    Err(missing())
}

/// A number as a device would hold it.
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

    /// How long a product took on the device, where all of it stays.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceTime {
        /// From the questions as they came to the answers.
        pub total: Duration,
        /// Of that, until questions were operands.
        pub packing: Duration,
        /// And until sums were there.
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
