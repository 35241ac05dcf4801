//! Opens the engine, a GPU while the rows are still being read.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use gmm_host::{CudaEngine, Device, Error, Opened, Work, estimates};
use gmm_model::Precision;

use crate::args::EngineArgs;
use crate::output::{Console, is_stdio};

/// The work of a command on `(n, d)` rows of this precision.
pub(crate) type WorkOf<'a> = &'a dyn Fn((usize, usize), Precision) -> Work;

/// An engine that may be opening already.
pub(crate) struct Opening<'a> {
    args: &'a EngineArgs,
    gpu: Option<JoinHandle<Result<CudaEngine, Error>>>,
}

impl<'a> Opening<'a> {
    /// Begins to open the GPU if it was asked for, or if files of this size are likely to be enough work for it.
    pub(crate) fn begin(args: &'a EngineArgs, inputs: &[PathBuf], work: WorkOf<'_>) -> Self {
        // A path that cannot be read is reported without opening a GPU.
        let is_there = inputs.iter().all(|input| is_stdio(input) || gmm_data::file_of(input).exists());
        let ordinal = match args.device {
            _ if !is_there => None,
            Device::Cuda(ordinal) => Some(ordinal),
            Device::Auto if is_enough(args, inputs, work) => Some(0),
            _ => None,
        };
        // The thread is joined, also after an error: the driver must not be opening while the program exits.
        let open = |ordinal| {
            let open = move || if ordinal == 0 { CudaEngine::first() } else { CudaEngine::new(ordinal) };
            thread::Builder::new().name("gpu".to_owned()).spawn(open).ok()
        };
        Self { args, gpu: ordinal.and_then(open) }
    }

    /// The engine for the work that there is.
    ///
    /// # Errors
    /// Errors if the device is not available.
    pub(crate) fn finish(mut self, work: &Work, console: &Console) -> anyhow::Result<Opened> {
        let begun = self.gpu.take();
        let args = self.args;
        let join = move |begun: JoinHandle<_>| begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let opened = match (args.device, begun) {
            (Device::Cuda(_), Some(begun)) => {
                Opened { engine: Box::new(join(begun)?), reason: "asked for".to_owned(), estimates: None }
            }
            (Device::Auto, Some(begun)) => {
                let gpu = join(begun);
                args.device.open_for(args.threads, work, || gpu)?
            }
            (device, _) => device.open_for(args.threads, work, CudaEngine::first)?,
        };
        console.note(|| match args.device {
            Device::Auto => format!("engine {}; auto: {}", line(&opened), opened.reason),
            _ => format!("engine {}", line(&opened)),
        });
        Ok(opened)
    }
}

/// Opens the engine for work that is known.
///
/// # Errors
/// Errors if the device is not available.
pub(crate) fn open(args: &EngineArgs, work: &Work, console: &Console) -> anyhow::Result<Opened> {
    Opening { args, gpu: None }.finish(work, console)
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.gpu.take() {
            drop(begun.join());
        }
    }
}

/// Whether the rows in files of this size are clearly enough work for a GPU, whatever their number of columns.
fn is_enough(args: &EngineArgs, inputs: &[PathBuf], work: WorkOf<'_>) -> bool {
    /// Bytes of a number: 4 to 8 in binary files, about 10 in text.
    const BYTES: u64 = 10;
    /// Columns to assume: fewer mean less work per number for full covariances only.
    const COLUMNS: u64 = 8;
    /// By how much the GPU must be faster for an estimate from the size alone.
    const MARGIN: f64 = 1.5;
    let length = |input: &PathBuf| std::fs::metadata(gmm_data::file_of(input)).map_or(0, |meta| meta.len());
    let bytes: u64 = inputs.iter().map(length).sum();
    let rows = usize::try_from(bytes / BYTES / COLUMNS).unwrap_or(usize::MAX);
    let found = estimates(&work((rows, COLUMNS as usize), Precision::F32), args.threads, false);
    MARGIN * found.gpu < found.cpu
}

/// An engine in one line.
fn line(opened: &Opened) -> String {
    format!("{} ({})", opened.engine.name(), opened.engine.description())
}

/// An engine and its precision in one line, for the summary of a fit. `-v` prints the estimates, `gmm doctor` the reason
/// why no GPU can be used.
pub(crate) fn describe(opened: &Opened, device: Device, precision: &str) -> String {
    let text = format!("{}, {precision}", line(opened));
    match device {
        Device::Auto if opened.estimates.is_some() => format!("{text}; auto: expected to finish first"),
        Device::Auto => format!("{text}; auto: no GPU can be used, see gmm doctor"),
        _ => text,
    }
}
