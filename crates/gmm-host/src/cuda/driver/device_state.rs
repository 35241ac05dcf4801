//! What a device keeps between calls: its kernels, and pinned memory for uploads.

use std::collections::HashMap;

use cust::event::Event;
use cust::memory::LockedBuffer;
use cust::module::Module;
use cust::sys::CUfunction;

/// What is known of a device's kernels, by name.
#[derive(Default)]
pub(crate) struct Functions {
    pub(super) loaded: HashMap<&'static str, LoadedKernel>,
}

impl Functions {
    /// Lets go of all kernels. The context is current.
    pub(crate) fn clear(&mut self) {
        self.loaded.clear();
    }
}

/// A kernel that the driver has compiled, alone: a fit needs a few of the many.
pub(crate) struct LoadedKernel {
    pub(super) entry: KernelHandle,
    /// Bytes of shared memory that it may be launched with.
    pub(super) shared: u64,
    /// Blocks that run on a multiprocessor together, by threads and bytes of shared memory: as often as it was asked.
    pub(super) together: Vec<(u32, u64, u32)>,
    /// Whose it is.
    pub(super) _module: Module,
}

/// A kernel as launches need it.
#[derive(Clone, Copy)]
pub(crate) struct KernelHandle {
    pub(crate) function: CUfunction,
    /// Whether it waits by itself for the grids before it.
    pub(crate) waits: bool,
}

// SAFETY: a function's handle belongs to the context and may be used from any thread in which that is current.
unsafe impl Send for LoadedKernel {}

/// Two chunks of pinned host memory.
pub(crate) struct Staging {
    pub(super) halves: [Half; 2],
    pub(super) words: usize,
}

pub(super) struct Half {
    /// 8-byte words, so that either number type is aligned.
    pub(super) chunk: LockedBuffer<u64>,
    /// Recorded after the chunk's copy: the chunk may be written again once it has happened.
    pub(super) copied: Event,
}
