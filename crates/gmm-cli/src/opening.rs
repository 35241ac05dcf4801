//! Opens the engine, a GPU while the rows are still being read.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use gmm_host::{CudaEngine, CudaGroup, Device, Engine, Error, Opened, Work, estimates};
use gmm_model::{Dataset, Precision};

use crate::args::EngineArgs;
use crate::output::{Console, is_stdio};

/// The work of a command on `(n, d)` rows of this precision.
pub(crate) type WorkOf<'a> = &'a dyn Fn((usize, usize), Precision) -> Work;

/// An engine that may be opening already.
pub(crate) struct Opening<'a> {
    args: &'a EngineArgs,
    /// Bytes of device memory that a GPU may take: the value of `--memory`.
    memory: Option<u64>,
    gpu: Option<JoinHandle<Result<Gpu, Error>>>,
}

/// One GPU or several.
enum Gpu {
    One(CudaEngine),
    Group(CudaGroup),
}

impl Gpu {
    fn open(device: Device, memory: Option<u64>) -> Result<Self, Error> {
        if let Device::CudaGroup(ordinals) = device {
            let group = CudaGroup::open(&ordinals.list())?;
            return Ok(Self::Group(match memory {
                Some(bytes) => group.with_memory_limit(bytes)?,
                None => group,
            }));
        }
        let engine = match device {
            Device::Cuda(ordinal) if ordinal > 0 => CudaEngine::new(ordinal)?,
            _ => CudaEngine::first()?,
        };
        Ok(Self::One(match memory {
            Some(bytes) => engine.with_memory_limit(bytes)?,
            None => engine,
        }))
    }

    fn into_engine(self) -> Box<dyn Engine> {
        match self {
            Self::One(engine) => Box::new(engine),
            Self::Group(group) => Box::new(group),
        }
    }
}

impl<'a> Opening<'a> {
    /// Begins to open the GPU if it was asked for, or if files of this size are likely to be enough work for it.
    pub(crate) fn begin(args: &'a EngineArgs, memory: Option<u64>, inputs: &[PathBuf], work: WorkOf<'_>) -> Self {
        // A path that cannot be read is reported without opening a GPU.
        let is_there = inputs.iter().all(|input| is_stdio(input) || gmm_data::file_of(input).exists());
        let device = args.device;
        let opens = match device {
            Device::Cuda(_) | Device::CudaGroup(_) => is_there,
            Device::Auto => is_there && is_enough(args, inputs, work),
            _ => false,
        };
        // The thread is joined, also after an error: the driver must not be opening while the program exits.
        let open = || thread::Builder::new().name("gpu".to_owned()).spawn(move || Gpu::open(device, memory)).ok();
        Self { args, memory, gpu: opens.then(open).flatten() }
    }

    /// The engine for the work that there is.
    ///
    /// # Errors
    /// Errors if the device is not available.
    pub(crate) fn finish(mut self, work: &Work, console: &Console) -> anyhow::Result<Opened> {
        let begun = self.gpu.take();
        let (args, memory) = (self.args, self.memory);
        let gpu = move || match begun {
            Some(begun) => begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => Gpu::open(args.device, memory),
        };
        let opened = match args.device {
            Device::Cuda(_) | Device::CudaGroup(_) => {
                Opened { engine: gpu()?.into_engine(), reason: "asked for".to_owned(), estimates: None }
            }
            device => device.open_for(args.threads, work, || match gpu()? {
                Gpu::One(engine) => Ok(engine),
                Gpu::Group(_) => unreachable!("auto takes one GPU"),
            })?,
        };
        console.note(|| match args.device {
            Device::Auto => format!("engine {}; auto: {}", line(&opened), opened.reason),
            _ => format!("engine {}", line(&opened)),
        });
        Ok(opened)
    }
}

/// Notes where a GPU has the rows.
///
/// # Errors
/// Errors if the device fails.
pub(crate) fn note_rows(
    opened: &Opened,
    data: &Dataset,
    asked: Option<Precision>,
    console: &Console,
) -> anyhow::Result<()> {
    let engine = opened.engine.as_ref();
    if !console.verbose || !engine.name().starts_with("cuda") {
        return Ok(());
    }
    let precision = engine.precision(asked.unwrap_or(data.rows().precision()));
    let streamed = engine.is_streamed(data.rows().dim(), precision, data.weights().is_some())?;
    console.note(|| match streamed {
        true => "rows on the GPU: as many as fit; the others pass through it in every pass".to_owned(),
        false => "rows on the GPU: all".to_owned(),
    });
    Ok(())
}

/// Opens the engine for work that is known.
///
/// # Errors
/// Errors if the device is not available.
pub(crate) fn open(args: &EngineArgs, memory: Option<u64>, work: &Work, console: &Console) -> anyhow::Result<Opened> {
    Opening { args, memory, gpu: None }.finish(work, console)
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

/// An engine and its precision in one line, for the summary of a fit. `-v` prints the estimates, `gmm doctor` the
/// reason why no GPU can be used.
pub(crate) fn describe(opened: &Opened, device: Device, precision: &str) -> String {
    let text = format!("{}, {precision}", line(opened));
    match device {
        Device::Auto if opened.estimates.is_some() => format!("{text}; auto: expected to finish first"),
        Device::Auto => format!("{text}; auto: no GPU can be used, see gmm doctor"),
        _ => text,
    }
}
