//! Engines by name, opened once per process.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::{Device, Error, Opened};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::raise;
use crate::options::Place;

/// The engines that this process has opened, by device and threads. Opening one starts threads or a GPU's context.
static OPENED: Mutex<Option<Engines>> = Mutex::new(None);

struct Engines {
    process: u32,
    /// Whether a process that this one was forked from had opened CUDA, which does not survive that.
    lost_cuda: bool,
    all: Vec<(Place, Arc<Opened>)>,
    /// Threads for work that is no engine's, by their number as it was asked for.
    pools: Vec<(usize, Arc<ThreadPool>)>,
}

impl Engines {
    /// Those of this process, with nothing opened where it is a forked one.
    fn of_this_process(slot: &mut Option<Self>) -> &mut Self {
        let process = std::process::id();
        let mut lost_cuda = false;
        if let Some(old) = slot.take_if(|engines| engines.process != process) {
            lost_cuda = old.lost_cuda || old.has_cuda();
            // Its threads and contexts are the parent's: to end them from here would wait for ever.
            std::mem::forget(old);
        }
        slot.get_or_insert_with(|| Self { process, lost_cuda, all: Vec::new(), pools: Vec::new() })
    }

    fn has_cuda(&self) -> bool {
        self.all.iter().any(|(_, opened)| opened.engine.name().starts_with("cuda"))
    }
}

/// The engine for `place`, opened where it is not yet.
///
/// # Errors
/// [`Error::Device`], also for CUDA in a process forked after CUDA was opened; `auto` takes the CPU there.
pub(crate) fn open(place: &Place) -> Result<Arc<Opened>, Error> {
    let mut slot = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let engines = Engines::of_this_process(&mut slot);
    if let Some((_, opened)) = engines.all.iter().find(|(known, _)| known.same_engine(place)) {
        return Ok(opened.clone());
    }
    let opened = Arc::new(match place.device {
        Device::Cuda(_) if engines.lost_cuda => return Err(Error::Device(FORKED.to_owned())),
        Device::Auto if engines.lost_cuda => {
            let reason = format!("no GPU can be used: {FORKED}");
            Opened { reason, ..Device::Cpu.open(place.threads)? }
        }
        device => device.open(place.threads)?,
    });
    engines.all.push((place.clone(), opened.clone()));
    Ok(opened)
}

/// Threads of this process: the global ones of a forked process would never answer.
///
/// # Errors
/// [`Error::Device`] where they cannot be started.
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

const FORKED: &str = "CUDA was in use before this process was forked, and does not survive that: start processes with \
                      multiprocessing's 'spawn' or 'forkserver', or use CUDA in the children alone";

/// Name, description and reason of the engine that would run: `('cpu', '2 threads, avx2', 'asked for')`.
#[pyfunction]
pub(crate) fn engine(py: Python<'_>, place: Place) -> PyResult<(String, String, String)> {
    let opened = py.detach(|| open(&place)).map_err(|error| raise(py, error))?;
    Ok((opened.engine.name(), opened.engine.description(), opened.reason.clone()))
}
