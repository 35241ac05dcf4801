//! Checks that enough memory is free before it is allocated, and memory for large results.

use crate::Error;

/// Bytes that this process can still allocate, from [`gmm_model::memory::available`]; `None` if the system does not
/// report it.
pub fn available() -> Option<u128> {
    gmm_model::memory::available().map(u128::from)
}

/// Smaller sizes, in bytes, are not checked: the free memory is read from system files, which takes longer than a small
/// fit should.
const SMALL: u128 = 1 << 20;

/// Errors if `wanted` bytes for `what` exceed the free memory.
///
/// # Errors
/// [`Error::Memory`] with the bytes needed and free.
pub fn check(what: &'static str, wanted: u128) -> Result<(), Error> {
    if wanted <= SMALL {
        return Ok(());
    }
    // If the system reports nothing, the address space is still a bound.
    let free = available().unwrap_or(isize::MAX as u128);
    if wanted > free { Err(Error::Memory { what, wanted, free }) } else { Ok(()) }
}

/// `len` zeros, in huge pages if they are many and the system has such pages: memory is mapped when it is first written,
/// which takes longer than computing what is written, page by page.
pub fn zeros<T: bytemuck::Zeroable>(len: usize) -> Vec<T> {
    let mut all = bytemuck::zeroed_vec(len);
    prefer_huge_pages(&mut all);
    all
}

#[cfg(target_os = "linux")]
fn prefer_huge_pages<T>(memory: &mut [T]) {
    /// Smaller memory is left as it is.
    const LARGE: usize = 8 << 20;
    const PAGE: usize = 4096;
    let range = memory.as_mut_ptr_range();
    let (first, end) = ((range.start as usize).next_multiple_of(PAGE), range.end as usize / PAGE * PAGE);
    if size_of_val(memory) < LARGE {
        return;
    }
    // SAFETY: the whole pages lie within `memory`, and the advice changes no contents. If the system refuses it, the
    // pages stay as they are.
    unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages<T>(_: &mut [T]) {}
