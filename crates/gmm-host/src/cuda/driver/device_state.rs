//! What a device caches between calls: its kernels, and pinned memory for uploads.

use std::collections::HashMap;
use std::sync::Arc;

use cust::event::Event;
use cust::memory::LockedBuffer;
use cust::module::Module;
use cust::sys::CUfunction;

/// The machine code loaded so far, by the address of its image; `None` if the driver did not accept it.
pub(super) type Images = HashMap<usize, Option<Arc<Module>>>;

/// The kernels loaded so far, by name.
#[derive(Default)]
pub(crate) struct Functions {
    pub(super) loaded: HashMap<&'static str, LoadedKernel>,
    pub(super) images: Images,
}

impl Functions {
    /// Unloads all kernels. The context must be current.
    pub(crate) fn clear(&mut self) {
        self.loaded.clear();
        self.images.clear();
    }
}

/// A loaded kernel. If it was compiled from PTX it has a module of its own, since a fit needs only a few of the many
/// kernels; machine code has a module per family.
pub(crate) struct LoadedKernel {
    pub(super) entry: KernelHandle,
    /// The shared memory with which it may be launched, in bytes.
    pub(super) shared: u64,
    /// Blocks per multiprocessor that run concurrently, by `(threads, shared bytes, blocks)`, for each query so far.
    pub(super) together: Vec<(u32, u64, u32)>,
    /// The module that owns the entry point.
    pub(super) _module: Arc<Module>,
}

/// A kernel as launches need it.
#[derive(Clone, Copy)]
pub(crate) struct KernelHandle {
    pub(crate) function: CUfunction,
    /// Whether it waits for the preceding grids itself, by `griddepcontrol.wait`.
    pub(crate) waits: bool,
}

// SAFETY: a function handle belongs to the context, and may be used from any thread on which that context is current.
unsafe impl Send for Functions {}

/// Two chunks of pinned host memory, for double buffering.
pub(crate) struct Staging {
    pub(super) halves: [Half; 2],
    pub(super) words: usize,
}

pub(super) struct Half {
    /// 8-byte words, so that both number types are aligned.
    pub(super) chunk: LockedBuffer<u64>,
    /// Recorded after the chunk's copy: the chunk may be overwritten once this event has completed.
    pub(super) copied: Event,
}
