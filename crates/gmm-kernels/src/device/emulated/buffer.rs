//! Global memory: buffers that know where they are, so that a stray access is caught.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Start and end of every live buffer.
static LIVE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// What a word holds that nobody wrote, see [`Buffer::unwritten`]: NaN as `f32` and as `f64`, and one that no arithmetic makes.
const NOTHING: u32 = 0xfff7_dead;

thread_local!(static SEEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) });

fn live() -> std::sync::MutexGuard<'static, BTreeMap<usize, usize>> {
    // A test that panics while it holds the lock leaves the map whole.
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An array in the emulated device's memory, 16-byte aligned. Kernels may touch live buffers only.
pub struct Buffer<T: Copy> {
    /// `u128` for the alignment.
    memory: Box<[u128]>,
    len: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    /// A copy of `values`.
    pub fn new(values: &[T]) -> Self {
        let bytes = std::mem::size_of_val(values);
        let mut memory = vec![0_u128; bytes.div_ceil(16).max(1)].into_boxed_slice();
        let start = memory.as_mut_ptr();
        // SAFETY: the memory is at least as long and as aligned as the values.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), start.cast(), values.len()) };
        live().insert(start as usize, start as usize + bytes);
        Self { memory, len: values.len(), of: std::marker::PhantomData }
    }

    /// Room for `len` values, none of which a kernel may read before it was written.
    pub fn unwritten(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        let word = u128::from(NOTHING);
        let all = word | word << 32 | word << 64 | word << 96;
        let memory = vec![all; bytes.div_ceil(16).max(1)].into_boxed_slice();
        let start = memory.as_ptr() as usize;
        live().insert(start, start + bytes);
        Self { memory, len, of: std::marker::PhantomData }
    }

    /// Where it starts.
    pub fn pointer(&self) -> *const T {
        self.memory.as_ptr().cast()
    }

    /// Where it starts, for writing.
    pub fn pointer_mut(&mut self) -> *mut T {
        self.memory.as_mut_ptr().cast()
    }

    /// A copy of what it holds.
    pub fn to_vec(&self) -> Vec<T> {
        // SAFETY: `len` values were written by `new`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len) }.to_vec()
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        live().remove(&(self.memory.as_ptr() as usize));
    }
}

/// Remembers the live buffers for the launch that starts on this thread.
pub(super) fn snapshot() {
    let all = live().iter().map(|(a, b)| (*a, *b)).collect();
    SEEN.with(|seen| *seen.borrow_mut() = all);
}

/// Panics unless `count` values of type `T` lie in one live buffer, aligned to all of them, and something was written to each.
pub(crate) fn check_load<T: Copy>(p: *const T, count: usize) {
    check_store(p, count);
    const { assert!(size_of::<T>().is_multiple_of(4)) };
    let words = size_of::<T>() / 4;
    // SAFETY: within a live buffer, as was just seen.
    let unwritten = |i: usize| (0..words).all(|w| unsafe { p.cast::<u32>().add(i * words + w).read() } == NOTHING);
    if (0..count).any(unwritten) {
        let thread = super::me();
        panic!("block {:?}, thread {}: global memory read before written", thread.block.at, thread.index);
    }
}

/// Panics unless `count` values of type `T` lie in one live buffer, aligned to all of them.
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
