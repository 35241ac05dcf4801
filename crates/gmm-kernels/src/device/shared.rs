//! Dynamic shared memory, typed.

use core::marker::PhantomData;

use crate::Real;

/// An array of `T` in the block's dynamic shared memory, identified by a 32-bit byte offset.
///
/// It is not a pointer, since the compiler would use generic loads for one. Threads see each other's stores only across
/// [`sync_threads`](super::thread::sync_threads) (or, within a warp, [`sync_warp`](super::warp::sync_warp)). The
/// emulator panics if a kernel omits the barrier.
#[derive(Clone, Copy)]
pub struct Shared<T> {
    offset: u32,
    of: PhantomData<T>,
}

impl<T: Real> Shared<T> {
    /// The array that starts `offset` bytes into the block's dynamic shared memory. It must be 16-byte aligned for
    /// [`load4`](Self::load4).
    #[inline(always)]
    pub fn at(offset: u32) -> Self {
        Self { offset, of: PhantomData }
    }

    /// The array from element `i` on.
    #[inline(always)]
    pub fn skip(self, i: u32) -> Self {
        Self::at(self.offset + i * T::BYTES)
    }

    /// Element `i`.
    #[inline(always)]
    pub fn load(self, i: u32) -> T {
        T::shared_load(self.offset + i * T::BYTES)
    }

    /// Sets element `i`.
    #[inline(always)]
    pub fn store(self, i: u32, value: T) {
        T::shared_store(self.offset + i * T::BYTES, value);
    }

    /// Elements `i..i+4`; `i` times the size of `T` is a multiple of 16.
    #[inline(always)]
    pub fn load4(self, i: u32) -> [T; 4] {
        T::shared_load4(self.offset + i * T::BYTES)
    }

    /// Sets elements `i..i+4`; alignment as for [`load4`](Self::load4).
    #[inline(always)]
    pub fn store4(self, i: u32, values: [T; 4]) {
        T::shared_store4(self.offset + i * T::BYTES, values);
    }
}

/// Integers in shared memory, as the bits of numbers.
#[derive(Clone, Copy)]
pub struct Integers(Shared<f32>);

impl Integers {
    /// The array that starts `word` words of 4 bytes into the block's dynamic shared memory.
    #[inline(always)]
    pub fn at(word: u32) -> Self {
        Self(Shared::at(4 * word))
    }

    /// Element `i`.
    #[inline(always)]
    pub fn load(self, i: u32) -> u32 {
        self.0.load(i).to_bits()
    }

    /// Sets element `i`.
    #[inline(always)]
    pub fn store(self, i: u32, value: u32) {
        self.0.store(i, f32::from_bits(value));
    }
}

impl Shared<f64> {
    /// The same memory as `f32`.
    #[inline(always)]
    pub fn as_f32(self) -> Shared<f32> {
        Shared::at(self.offset)
    }

    /// Elements `i` and `i+1`; `i` is even and the array 16-byte aligned.
    #[inline(always)]
    pub fn load2(self, i: u32) -> [f64; 2] {
        super::words::shared_load_u64x2(self.offset + i * 8).map(f64::from_bits)
    }

    /// Sets elements `i` and `i+1`; alignment as for [`load2`](Self::load2).
    #[inline(always)]
    pub fn store2(self, i: u32, values: [f64; 2]) {
        super::words::shared_store_u64x2(self.offset + i * 8, values.map(f64::to_bits));
    }

    /// Starts copying `*from` to element `i`. The element is valid after [`arrive`](Self::arrive) in this thread, and
    /// for other threads after a further barrier.
    ///
    /// # Safety
    /// `from` must be in a live allocation of the device, and nothing may write it in this launch.
    #[inline(always)]
    pub unsafe fn send(self, i: u32, from: *const f64) {
        // SAFETY: the caller upholds `# Safety`: `*from` is live and constant.
        unsafe { super::words::copy_ahead_u64(self.offset + i * 8, from.cast()) };
    }

    /// Waits for all copies that this thread started.
    #[inline(always)]
    pub fn arrive() {
        super::words::copies_arrive();
    }
}
