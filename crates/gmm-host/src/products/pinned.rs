//! Memory of others that a GPU reads without a copy on the host.

use super::{Kind, Multiplier};
use crate::Error;
use crate::cuda::products::CudaPinned;

/// Memory that stays pinned for a GPU while this lives.
pub struct PinnedMemory {
    _pages: CudaPinned,
}

impl Multiplier {
    /// Pins memory that others own, such as shared memory: questions in it are then copied to the GPU at the speed of its bus.
    /// `None` if the engine is not a GPU.
    ///
    /// # Safety
    /// The `len` bytes from `start` on are mapped, and stay so while the result lives.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver cannot pin the memory, or has pinned a part of it already.
    pub unsafe fn pin(&self, start: *mut u8, len: usize) -> Result<Option<PinnedMemory>, Error> {
        match &self.0 {
            // SAFETY: the caller keeps the memory mapped while the result lives.
            Kind::Cuda(gpu) => Ok(Some(PinnedMemory { _pages: unsafe { CudaPinned::new(gpu, start, len) }? })),
            Kind::Cpu(_) | Kind::Reference => Ok(None),
        }
    }
}
