//! Host memory of others that the driver has pinned: questions in it are copied to the device without staging.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use cust::sys::{cuMemHostRegister_v2, cuMemHostUnregister};

use super::matrix::CudaMultiplier;
use crate::Error;
use crate::cuda::driver::device::Gpu;

/// The driver pins whole pages.
const PAGE: usize = 4096;

/// Pages that are pinned while this lives.
pub(crate) struct CudaPinned {
    gpu: Arc<Gpu>,
    pages: Range<usize>,
}

impl CudaPinned {
    /// Pins the pages of `len` bytes from `start` on.
    ///
    /// # Safety
    /// The pages stay mapped while the result lives.
    ///
    /// # Errors
    /// [`Error::Device`], also if one of the pages is pinned already.
    pub(crate) unsafe fn new(multiplier: &CudaMultiplier, start: *mut u8, len: usize) -> Result<Self, Error> {
        let gpu = multiplier.gpu().clone();
        gpu.enter()?;
        let first = start as usize / PAGE * PAGE;
        let pages = first..(start as usize + len).next_multiple_of(PAGE);
        // SAFETY: the caller keeps these pages mapped, and `drop` releases them before.
        let code = unsafe { cuMemHostRegister_v2(pages.start as *mut c_void, pages.len(), 0) };
        gpu.check_code(|| "pinning memory".to_owned(), code)?;
        gpu.pinned.lock().unwrap_or_else(PoisonError::into_inner).push(pages.clone());
        Ok(Self { gpu, pages })
    }
}

impl Drop for CudaPinned {
    fn drop(&mut self) {
        self.gpu.pinned.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != self.pages);
        self.gpu.enter_to_drop();
        // SAFETY: `new` pinned these pages, and no copy of them is in flight: a query waits for its copies.
        let _after_a_fault = unsafe { cuMemHostUnregister(self.pages.start as *mut c_void) };
    }
}

/// Whether all numbers are in pinned memory of others.
pub(super) fn is_pinned<T>(gpu: &Gpu, numbers: &[T]) -> bool {
    let bytes = numbers.as_ptr_range();
    let all = gpu.pinned.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|pages| pages.start <= bytes.start as usize && bytes.end as usize <= pages.end)
}
