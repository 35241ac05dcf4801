//! Arrays that come by DLPack: a capsule with a description and a function that gives it back.
//!
//! <https://dmlc.github.io/dlpack/latest/c_api.html>, versions before and after 1.0. The description is another library's:
//! it is read here, judged in `gmm_rs._gpu`, and nothing is read from where it points.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, of versions before 1.0.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

const OLD: (&CStr, &CStr) = (c"dltensor", c"used_dltensor");
const NEW: (&CStr, &CStr) = (c"dltensor_versioned", c"used_dltensor_versioned");

/// What a capsule holds, ours to give back.
enum Taken {
    Old(NonNull<Managed>),
    New(NonNull<Versioned>),
}

// SAFETY: the description does not move, and is given back once, with the interpreter's lock held: `Drop`.
unsafe impl Send for Taken {}
// SAFETY: nobody writes to it.
unsafe impl Sync for Taken {}

/// An array of another library, kept until this is dropped.
#[pyclass(frozen)]
pub(crate) struct Dlpack {
    taken: Taken,
}

impl Drop for Dlpack {
    fn drop(&mut self) {
        // Deleters of most libraries touch Python objects; this is dropped by the interpreter, which is held then.
        // SAFETY: taken once, from a capsule that does not give it back any more; not used after this.
        unsafe {
            match self.taken {
                Taken::Old(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
                Taken::New(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

impl Dlpack {
    fn tensor(&self) -> &Tensor {
        // SAFETY: it lives until it is given back.
        unsafe {
            match &self.taken {
                Taken::Old(managed) => &managed.as_ref().tensor,
                Taken::New(managed) => &managed.as_ref().tensor,
            }
        }
    }

    fn axes(&self, of: *const i64) -> Vec<i64> {
        let len = usize::try_from(self.tensor().ndim).unwrap_or(0);
        if of.is_null() || len == 0 {
            return Vec::new();
        }
        // SAFETY: as many as there are axes, says the standard.
        unsafe { std::slice::from_raw_parts(of, len) }.to_vec()
    }
}

#[pymethods]
impl Dlpack {
    /// Takes what a fresh capsule of `__dlpack__` holds.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = capsule.py();
        let is = |name: &CStr| {
            // SAFETY: any object may be asked, and a name is compared.
            unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
        };
        let take = |(name, used): (&'static CStr, &'static CStr)| {
            // SAFETY: a capsule of that name, as was seen; the new name is never freed. From here on it does not give back
            // what it holds.
            unsafe {
                let held = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
                let renamed = ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) == 0;
                NonNull::new(held).filter(|_| renamed).ok_or_else(|| PyErr::fetch(py))
            }
        };
        if is(NEW.0) {
            // SAFETY: what a capsule of that name holds begins with its version, whatever that is.
            let (major, minor) = unsafe {
                let held: *const Versioned = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NEW.0.as_ptr()).cast();
                ((*held).major, (*held).minor)
            };
            if major != 1 {
                // Left in the capsule, which gives it back.
                return Err(PyValueError::new_err(format!("DLPack of version {major}.{minor} is not known here")));
            }
            return Ok(Self { taken: Taken::New(take(NEW)?.cast()) });
        }
        if is(OLD.0) {
            return Ok(Self { taken: Taken::Old(take(OLD)?.cast()) });
        }
        Err(PyValueError::new_err("__dlpack__ gave no fresh capsule of DLPack"))
    }

    /// Kind and ordinal of the device.
    #[getter]
    fn device(&self) -> (i32, i32) {
        (self.tensor().device_kind, self.tensor().device)
    }

    /// Code, bits and lanes of the numbers.
    #[getter]
    fn dtype(&self) -> (u8, u8, u16) {
        let Tensor { code, bits, lanes, .. } = *self.tensor();
        (code, bits, lanes)
    }

    /// Where the first number is.
    #[getter]
    fn address(&self) -> u64 {
        (self.tensor().data as u64).wrapping_add(self.tensor().byte_offset)
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.axes(self.tensor().shape)
    }

    /// Steps in numbers along each axis; none where the array is in row-major order, one number behind the other.
    #[getter]
    fn strides(&self) -> Option<Vec<i64>> {
        let strides = self.tensor().strides;
        (!strides.is_null()).then(|| self.axes(strides))
    }
}
