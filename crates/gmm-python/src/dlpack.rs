//! Arrays exported through DLPack: a capsule with a tensor description and a deleter.
//!
//! <https://dmlc.github.io/dlpack/latest/c_api.html>, versions before and after 1.0. The description comes from another
//! library. This module only reads it; `gmm_rs._gpu` checks it, and the tensor's data are not accessed.

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

/// The managed tensor taken from a capsule; its deleter must be called once.
enum Taken {
    Old(NonNull<Managed>),
    New(NonNull<Versioned>),
}

// SAFETY: the tensor is heap-allocated by the other library and does not move; its deleter is called once, in `Drop`,
// with the GIL held.
unsafe impl Send for Taken {}
// SAFETY: the tensor is only read, never written, until `Drop`.
unsafe impl Sync for Taken {}

/// An array of another library, kept alive until this object is dropped.
#[pyclass(frozen)]
pub(crate) struct Dlpack {
    taken: Taken,
}

impl Drop for Dlpack {
    fn drop(&mut self) {
        // Most deleters use Python objects, which needs the GIL; the interpreter holds it when it drops this object.
        // SAFETY: the pointer was taken from a capsule that was renamed in `new`, so the capsule does not call the
        // deleter; it is called here once, and the pointer is not used afterwards.
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
        // SAFETY: the managed tensor is valid until its deleter is called, which happens only in `Drop`.
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
        // SAFETY: `of` is `shape` or `strides`, which DLPack defines as arrays of `ndim` elements; it is not null.
        unsafe { std::slice::from_raw_parts(of, len) }.to_vec()
    }
}

#[pymethods]
impl Dlpack {
    /// Takes the managed tensor from an unused capsule returned by `__dlpack__`.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = capsule.py();
        let is = |name: &CStr| {
            // SAFETY: `PyCapsule_IsValid` accepts any object; `name` is a C string.
            unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
        };
        let take = |(name, used): (&'static CStr, &'static CStr)| {
            // SAFETY: `is` has checked that this is a capsule of that name; the new name is static. After renaming, the
            // capsule's destructor does not call the deleter.
            unsafe {
                let held = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
                let renamed = ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) == 0;
                NonNull::new(held).filter(|_| renamed).ok_or_else(|| PyErr::fetch(py))
            }
        };
        if is(NEW.0) {
            // SAFETY: a capsule of that name contains a `DLManagedTensorVersioned`, which starts with its version
            // numbers in every version.
            let (major, minor) = unsafe {
                let held: *const Versioned = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NEW.0.as_ptr()).cast();
                ((*held).major, (*held).minor)
            };
            if major != 1 {
                // The tensor stays in the capsule, whose destructor calls the deleter.
                return Err(PyValueError::new_err(format!("DLPack version {major}.{minor} is not supported")));
            }
            return Ok(Self { taken: Taken::New(take(NEW)?.cast()) });
        }
        if is(OLD.0) {
            return Ok(Self { taken: Taken::Old(take(OLD)?.cast()) });
        }
        Err(PyValueError::new_err("__dlpack__ did not return an unused DLPack capsule"))
    }

    /// Type and ordinal of the device.
    #[getter]
    fn device(&self) -> (i32, i32) {
        (self.tensor().device_kind, self.tensor().device)
    }

    /// Type code, bits and lanes of an element.
    #[getter]
    fn dtype(&self) -> (u8, u8, u16) {
        let Tensor { code, bits, lanes, .. } = *self.tensor();
        (code, bits, lanes)
    }

    /// Address of the first element.
    #[getter]
    fn address(&self) -> u64 {
        (self.tensor().data as u64).wrapping_add(self.tensor().byte_offset)
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.axes(self.tensor().shape)
    }

    /// Strides along each axis, in elements; `None` if the array is contiguous and in row-major order.
    #[getter]
    fn strides(&self) -> Option<Vec<i64>> {
        let strides = self.tensor().strides;
        (!strides.is_null()).then(|| self.axes(strides))
    }
}
