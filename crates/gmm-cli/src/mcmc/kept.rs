//! Saves running chains to a checkpoint file, so that an interruption loses little.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use gmm_data::{FileError, Problem};
use gmm_host::Likelihood;
use gmm_mcmc::{Basis, Checkpoint, Error, Event, Run, Target};

use super::McmcArgs;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::{self, Console, is_stdio};
use crate::progress::Sampling;

/// The checkpoint file of a run.
pub(super) struct DrawsOutput {
    pub(super) path: PathBuf,
    /// Whether the user named the file: it is then not deleted after the run.
    pub(super) asked_for: bool,
}

/// Shortest time between two writes.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// Each write contains all draws, so the interval grows until writing takes at most 1/`SHARE` of the time.
pub(super) const SHARE: u32 = 20;

impl DrawsOutput {
    /// Checks all paths before anything is read.
    pub(super) fn new(args: &McmcArgs) -> anyhow::Result<Self> {
        if is_stdio(&args.output) {
            let why = "draws cannot go to standard output: give -o draws.npz, draws.parquet or draws.arrow";
            return Err(Failure::Usage(why.to_owned()).into());
        }
        gmm_data::check_draws_path(&args.output)?;
        Self::beside(args)
    }

    /// Checks the paths of an output whose format is known to be right, and of its checkpoint.
    pub(super) fn beside(args: &McmcArgs) -> anyhow::Result<Self> {
        let usage = |why: String| Err(Failure::Usage(why).into());
        output::check_folder(&args.output)?;
        let asked_for = args.checkpoint.is_some();
        let path = args.checkpoint.clone().unwrap_or_else(|| {
            let mut name = args.output.clone().into_os_string();
            name.push(".checkpoint");
            name.into()
        });
        output::check_checkpoint(&path)?;
        let rows = args.input.source().files()?;
        let inputs: Vec<&Path> = rows.iter().chain(&args.prior).map(PathBuf::as_path).collect();
        output::check_apart(&args.output, &inputs)?;
        output::check_apart(&path, &inputs)?;
        if output::is_same(&path, &args.output) {
            return usage("the draws and the checkpoint are the same file: give them different names".to_owned());
        }
        let (draws, kept) = (args.output.is_file(), path.is_file());
        let there = |path: &Path, ways: &str| usage(format!("{} already exists: {ways}", path.display()));
        if args.resume && draws && !kept && !asked_for {
            return usage(format!(
                "nothing to resume: {} exists and there is no checkpoint {}. A finished run deletes its checkpoint. To run \
                 again, use --overwrite or another -o without --resume. To add draws later, keep a checkpoint with \
                 --checkpoint FILE",
                args.output.display(),
                path.display()
            ));
        }
        match (args.overwrite, args.resume) {
            (false, true) if draws => there(&args.output, "use --overwrite to replace it, or another -o"),
            (false, false) if draws => there(&args.output, "use --overwrite to start a new run, or another -o"),
            (false, false) if kept => there(&path, "use --resume to continue it, or --overwrite to start a new run"),
            _ => Ok(Self { path, asked_for }),
        }
    }

    pub(super) fn read(&self) -> anyhow::Result<Checkpoint> {
        Checkpoint::from_bytes(&self.read_bytes()?).with_context(|| self.path.display().to_string())
    }

    pub(super) fn read_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let bytes = gmm_data::read_bytes(&self.path).map_err(|mut error| {
            if let Problem::Io(e) = &error.problem
                && e.kind() == io::ErrorKind::NotFound
            {
                let why =
                    "there is no checkpoint to resume: name it with --checkpoint, or start a new run without --resume";
                error.problem = Problem::Io(io::Error::new(io::ErrorKind::NotFound, why));
            }
            error
        })?;
        Ok(bytes)
    }

    pub(super) fn write_bytes(&self, bytes: &[u8]) -> Result<(), FileError> {
        gmm_data::atomic::write_bytes(&self.path, bytes)
    }

    fn write(&self, run: &Run, target: &Target, basis: &Basis) -> Result<(), FileError> {
        let bytes = Checkpoint::new(run.clone(), target.prior(), basis.clone()).to_bytes();
        self.write_bytes(&bytes)
    }

    /// Continues the run to its end: shows the progress, writes the checkpoint, and stops at a signal. If the
    /// checkpoint cannot be written, warns once and continues sampling.
    pub(super) fn go_on(
        &self,
        run: &mut Run,
        target: &Target,
        likelihood: &mut Likelihood,
        basis: &Basis,
        console: &Console,
    ) -> anyhow::Result<()> {
        // Before progress reports the start: a signal after that report finds the guard.
        let _held = interrupt::hold();
        let progress = Sampling::new(console, run);
        let (mut written, mut every) = (Instant::now(), EVERY);
        let mut told = false;
        let mut tell = |error: &FileError| {
            if !told {
                console.warn(&format!("the checkpoint cannot be written; sampling continues without it: {error}"));
                told = true;
            }
        };
        let mut observer = |event: Event, run: &Run| {
            progress.see(event);
            if interrupt::received().is_some() {
                return ControlFlow::Break(());
            }
            if matches!(event, Event::Kept { .. }) && written.elapsed() > every {
                let began = Instant::now();
                if let Err(error) = self.write(run, target, basis) {
                    tell(&error);
                }
                written = Instant::now();
                every = EVERY.max(SHARE * began.elapsed());
            }
            ControlFlow::Continue(())
        };
        let result = run.go_on(likelihood, target, &mut observer);
        progress.finish();
        let Err(error) = result else {
            if self.asked_for
                && let Err(error) = self.write(run, target, basis)
            {
                tell(&error);
            }
            return Ok(());
        };
        // Whatever the error: save the chains if any step has been made.
        let draws = run.chains.iter().map(|chain| chain.n_draws()).sum::<usize>();
        let kept = if run.chains.iter().any(|chain| chain.steps > 0) {
            match self.write(run, target, basis) {
                Ok(()) => format!("; the chains are in {}: continue with --resume", self.path.display()),
                Err(error) => format!("; the chains are lost: {error}"),
            }
        } else {
            String::new()
        };
        match error {
            Error::Stopped => {
                let wanted = run.options.draws * run.options.chains;
                Err(Failure::SamplingInterrupted { draws, wanted, kept }.into())
            }
            error if kept.is_empty() => Err(error.into()),
            error => Err(anyhow::Error::new(error).context(format!("after {draws} draws{kept}"))),
        }
    }

    /// Saves the chains after their draws could not be written, and returns a message with their location.
    pub(super) fn instead(&self, run: &Run, target: &Target, basis: &Basis, output: &Path) -> String {
        let what = format!("the draws cannot be written to {}", output.display());
        match self.write(run, target, basis) {
            Ok(()) => format!("{what}; the chains are in {}: continue with --resume", self.path.display()),
            Err(_) => what,
        }
    }

    /// Deletes the checkpoint after the draws have been written, unless `--checkpoint` named it.
    pub(super) fn done(&self) {
        if !self.asked_for {
            // The file may not exist; failing to delete it is not an error.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
