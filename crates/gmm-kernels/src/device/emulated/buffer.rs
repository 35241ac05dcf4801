//! Global memory: buffers registered by address, so that accesses outside them are detected.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Start and end address of every live buffer.
static LIVE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Content of an unwritten word, see [`Buffer::unwritten`]: NaN as `f32` and as `f64`, with a bit pattern that
/// arithmetic never produces.
const NOTHING: u32 = 0xfff7_dead;

thread_local!(static SEEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) });

fn live() -> std::sync::MutexGuard<'static, BTreeMap<usize, usize>> {
    // A test that panics while it holds the lock leaves the map consistent.
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An array in the emulated device's memory, 16-byte aligned. Kernels may access live buffers only.
pub struct Buffer<T: Copy> {
    /// `u128` for its alignment.
    memory: Box<[u128]>,
    len: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    /// Creates a buffer that holds a copy of `values`.
    pub fn new(values: &[T]) -> Self {
        let bytes = std::mem::size_of_val(values);
        let mut memory = vec![0_u128; bytes.div_ceil(16).max(1)].into_boxed_slice();
        let start = memory.as_mut_ptr();
        // SAFETY: the memory is at least as long and as aligned as the values.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), start.cast(), values.len()) };
        live().insert(start as usize, start as usize + bytes);
        Self { memory, len: values.len(), of: std::marker::PhantomData }
    }

    /// Creates a buffer of `len` values that a kernel must write before it reads them.
    pub fn unwritten(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        let word = u128::from(NOTHING);
        let all = word | word << 32 | word << 64 | word << 96;
        let memory = vec![all; bytes.div_ceil(16).max(1)].into_boxed_slice();
        let start = memory.as_ptr() as usize;
        live().insert(start, start + bytes);
        Self { memory, len, of: std::marker::PhantomData }
    }

    /// Pointer to the first value.
    pub fn pointer(&self) -> *const T {
        self.memory.as_ptr().cast()
    }

    /// Pointer to the first value, for writing.
    pub fn pointer_mut(&mut self) -> *mut T {
        self.memory.as_mut_ptr().cast()
    }

    /// Returns a copy of the values.
    pub fn to_vec(&self) -> Vec<T> {
        // SAFETY: the buffer has `len` initialised values, set by `new` or `unwritten`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len) }.to_vec()
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        live().remove(&(self.memory.as_ptr() as usize));
    }
}

/// Takes a snapshot of the live buffers for the launch that starts on this thread.
pub(super) fn snapshot() {
    let all = live().iter().map(|(a, b)| (*a, *b)).collect();
    SEEN.with(|seen| *seen.borrow_mut() = all);
}

/// Panics unless `count` values of type `T` lie in one live buffer, aligned to the size of all of them, and each was
/// written.
pub(crate) fn check_load<T: Copy>(p: *const T, count: usize) {
    check_store(p, count);
    const { assert!(size_of::<T>().is_multiple_of(4)) };
    let words = size_of::<T>() / 4;
    // SAFETY: `check_store` verified that all `count` values lie within a live buffer.
    let unwritten = |i: usize| (0..words).all(|w| unsafe { p.cast::<u32>().add(i * words + w).read() } == NOTHING);
    if (0..count).any(unwritten) {
        let thread = super::me();
        panic!("block {:?}, thread {}: global memory read before written", thread.block.at, thread.index);
    }
}

/// Panics unless `count` values of type `T` lie in one live buffer, aligned to the size of all of them.
pub(crate) fn check_store<T>(p: *const T, count: usize) {
    let (at, bytes) = (p as usize, count * size_of::<T>());
    let inside = SEEN.with(|seen| {
        let seen = seen.borrow();
        let after = seen.partition_point(|(start, _)| *start <= at);
        after > 0 && at + bytes <= seen[after - 1].1
    });
    if !(inside && at.is_multiple_of(count * align_of::<T>())) {
        let thread = super::me();
        let what = if inside { "misaligned" } else { "outside every buffer" };
        panic!("block {:?}, thread {}: access to {bytes} bytes of global memory {what}", thread.block.at, thread.index);
    }
}
