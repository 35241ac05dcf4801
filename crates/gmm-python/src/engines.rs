//! The engines, opened once per process.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::{CudaEngine, Device, Error, Opened, Work, estimates};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::raise;
use crate::options::Execution;

/// The engines that this process has opened, by device and threads. Opening one starts threads or creates a CUDA
/// context.
static OPENED: Mutex<Option<Engines>> = Mutex::new(None);

struct Engines {
    process: u32,
    /// Whether the parent of this forked process had opened CUDA, which cannot be used after a fork.
    lost_cuda: bool,
    all: Vec<(Execution, Arc<Opened>)>,
    /// Whether `auto` has tried to open a GPU and found none that can be used.
    no_gpu: bool,
    /// Thread pools for work outside of engines, by the requested number of threads.
    pools: Vec<(usize, Arc<ThreadPool>)>,
}

impl Engines {
    /// The engines of this process; empty at first in a forked process.
    fn of_this_process(slot: &mut Option<Self>) -> &mut Self {
        let process = std::process::id();
        let mut lost_cuda = false;
        if let Some(old) = slot.take_if(|engines| engines.process != process) {
            lost_cuda = old.lost_cuda || old.has_cuda();
            // Its threads and contexts belong to the parent: dropping them here would block forever.
            std::mem::forget(old);
        }
        slot.get_or_insert_with(|| Self { process, lost_cuda, all: Vec::new(), no_gpu: false, pools: Vec::new() })
    }

    fn find(&self, place: &Execution) -> Option<Arc<Opened>> {
        self.all.iter().find(|(known, _)| known.same_engine(place)).map(|(_, opened)| opened.clone())
    }

    /// Keeps an engine, unless another thread has opened the same one meanwhile.
    fn keep(&mut self, place: Execution, opened: Opened) -> Arc<Opened> {
        self.find(&place).unwrap_or_else(|| {
            let opened = Arc::new(opened);
            self.all.push((place, opened.clone()));
            opened
        })
    }

    fn has_cuda(&self) -> bool {
        self.all.iter().any(|(_, opened)| opened.engine.name().starts_with("cuda"))
    }
}

/// Returns the engine for `place`, and opens it if necessary. `auto` is the first GPU if it can be used, else the CPU.
///
/// # Errors
/// [`Error::Device`], also for CUDA in a process that was forked after CUDA was opened; there `auto` uses the CPU.
pub(crate) fn open(place: &Execution) -> Result<Arc<Opened>, Error> {
    let mut slot = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let engines = Engines::of_this_process(&mut slot);
    let on = |device| Execution { device, ..place.clone() };
    let wanted = match place.device {
        Device::Auto if engines.lost_cuda || engines.no_gpu => on(Device::Cpu),
        Device::Auto => on(Device::Cuda(0)),
        _ => place.clone(),
    };
    if let Some(opened) = engines.find(&wanted) {
        return Ok(opened);
    }
    match (place.device, wanted.device) {
        (_, Device::Cuda(_) | Device::CudaGroup(_)) if engines.lost_cuda => Err(Error::Device(FORKED.to_owned())),
        (Device::Auto, Device::Cpu) if engines.lost_cuda => {
            let reason = format!("no GPU can be used: {FORKED}");
            Ok(engines.keep(wanted, Opened { reason, ..Device::Cpu.open(place.threads)? }))
        }
        (Device::Auto, _) => {
            let opened = Device::Auto.open(place.threads)?;
            engines.no_gpu |= opened.engine.name() == "cpu";
            let device = if engines.no_gpu { Device::Cpu } else { Device::Cuda(0) };
            Ok(engines.keep(on(device), opened))
        }
        (_, device) => Ok(engines.keep(wanted, device.open(place.threads)?)),
    }
}

/// Returns the engine for `work` at `place`: `auto` takes the one that is expected to finish first, and does not open a
/// GPU for less work than that takes. Rows that are on a GPU stay there.
///
/// # Errors
/// As for [`open`].
pub(crate) fn open_for(place: &Execution, work: &Work, is_on_gpu: bool) -> Result<Arc<Opened>, Error> {
    if place.device != Device::Auto || is_on_gpu {
        return open(place);
    }
    let on = |device| Execution { device, ..place.clone() };
    let (is_open, has_none) = {
        let mut slot = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let engines = Engines::of_this_process(&mut slot);
        (engines.find(&on(Device::Cuda(0))).is_some(), engines.no_gpu || engines.lost_cuda)
    };
    if has_none || !estimates(work, place.threads, is_open).prefer_gpu() {
        return open(&on(Device::Cpu));
    }
    if is_open {
        return open(&on(Device::Cuda(0)));
    }
    let opened = Device::Auto.open_for(place.threads, work, CudaEngine::first)?;
    let device = if opened.engine.name() == "cpu" { Device::Cpu } else { Device::Cuda(0) };
    let mut slot = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let engines = Engines::of_this_process(&mut slot);
    engines.no_gpu |= device == Device::Cpu && opened.estimates.is_none();
    Ok(engines.keep(on(device), opened))
}

/// A thread pool of this process. In a forked process the global pool has no threads, and would block forever.
///
/// # Errors
/// [`Error::Device`] if the threads cannot be started.
pub(crate) fn pool(threads: usize) -> Result<Arc<ThreadPool>, Error> {
    let mut slot = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let engines = Engines::of_this_process(&mut slot);
    if let Some((_, pool)) = engines.pools.iter().find(|(known, _)| *known == threads) {
        return Ok(pool.clone());
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = Arc::new(pool.map_err(|e| Error::Device(format!("cannot start {threads} threads: {e}")))?);
    engines.pools.push((threads, pool.clone()));
    Ok(pool)
}

const FORKED: &str = "CUDA was used before this process was forked, and cannot be used after a fork: start processes \
                      with multiprocessing's 'spawn' or 'forkserver', or use CUDA only in the child processes";

/// Name and description of the engine for `place`, and the reason why it was selected: `('cpu', '2 threads, avx2',
/// ..)`.
#[pyfunction]
pub(crate) fn engine(py: Python<'_>, place: Execution) -> PyResult<(String, String, String)> {
    let opened = py.detach(|| open(&place)).map_err(|error| raise(py, error))?;
    Ok((opened.engine.name(), opened.engine.description(), opened.reason.clone()))
}
