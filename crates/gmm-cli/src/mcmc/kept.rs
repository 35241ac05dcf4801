//! Chains in a file while they run, so that what stops them loses little.

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

/// Where chains are kept while they run.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    /// Whether the user named it: it then stays when all is done.
    asked_for: bool,
}

/// Often enough to lose little, seldom enough to cost nothing: and no more than a part in [`SHARE`] of the time, since
/// each time all draws are written.
const EVERY: Duration = Duration::from_secs(10);
const SHARE: u32 = 20;

impl Kept {
    /// Checks all paths before anything is read.
    pub(super) fn new(args: &McmcArgs) -> anyhow::Result<Self> {
        let usage = |why: String| Err(Failure::Usage(why).into());
        if is_stdio(&args.output) {
            return usage("draws go to a file: -o draws.npz, draws.parquet or draws.arrow".to_owned());
        }
        gmm_data::check_draws_path(&args.output)?;
        output::check_folder(&args.output)?;
        let asked_for = args.checkpoint.is_some();
        let path = args.checkpoint.clone().unwrap_or_else(|| {
            let mut name = args.output.clone().into_os_string();
            name.push(".checkpoint");
            name.into()
        });
        output::check_checkpoint(&path)?;
        let inputs: Vec<&Path> =
            [Some(&args.input.input), args.prior.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
        output::check_apart(&args.output, &inputs)?;
        output::check_apart(&path, &inputs)?;
        if output::is_same(&path, &args.output) {
            return usage("the draws and the checkpoint are one file: give them different names".to_owned());
        }
        let (draws, kept) = (args.output.is_file(), path.is_file());
        let there = |path: &Path, ways: &str| usage(format!("{} is there already: {ways}", path.display()));
        if args.resume && draws && !kept && !asked_for {
            return usage(format!(
                "nothing to resume: {} exists and there is no checkpoint {}. A finished run deletes its checkpoint. To run again, \
                 use --overwrite or another -o without --resume. To add draws later, keep a checkpoint with --checkpoint FILE",
                args.output.display(),
                path.display()
            ));
        }
        match (args.overwrite, args.resume) {
            (false, true) if draws => there(&args.output, "--overwrite replaces it, -o takes another name"),
            (false, false) if draws => there(&args.output, "--overwrite begins anew, -o takes another name"),
            (false, false) if kept => there(&path, "--resume goes on with it, --overwrite begins anew"),
            _ => Ok(Self { path, asked_for }),
        }
    }

    pub(super) fn read(&self) -> anyhow::Result<Checkpoint> {
        let name = || self.path.display().to_string();
        let bytes = gmm_data::read_bytes(&self.path).map_err(|mut error| {
            if let Problem::Io(e) = &error.problem
                && e.kind() == io::ErrorKind::NotFound
            {
                let why = "there is no checkpoint to go on from: --checkpoint says where it is; without --resume a run begins";
                error.problem = Problem::Io(io::Error::new(io::ErrorKind::NotFound, why));
            }
            error
        })?;
        Checkpoint::from_bytes(&bytes).with_context(name)
    }

    fn write(&self, run: &Run, target: &Target, basis: &Basis) -> Result<(), FileError> {
        let bytes = Checkpoint::new(run.clone(), target.prior(), basis.clone()).to_bytes();
        gmm_data::atomic::write_bytes(&self.path, &bytes)
    }

    /// Draws what is missing, shows the progress, keeps the chains, and stops at a signal. A checkpoint that cannot be written
    /// is told of once and costs no draw.
    pub(super) fn go_on(
        &self,
        run: &mut Run,
        target: &Target,
        likelihood: &mut Likelihood,
        basis: &Basis,
        console: &Console,
    ) -> anyhow::Result<()> {
        let progress = Sampling::new(console, run);
        let _held = interrupt::hold();
        let (mut written, mut every) = (Instant::now(), EVERY);
        let mut told = false;
        let mut tell = |error: &FileError| {
            if !told {
                console.warn(&format!("the checkpoint cannot be written, which costs no draw: {error}"));
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
        // Whatever it was: what was done is kept, where it is more than nothing.
        let draws = run.chains.iter().map(|chain| chain.n_draws()).sum::<usize>();
        let kept = if run.chains.iter().any(|chain| chain.steps > 0) {
            match self.write(run, target, basis) {
                Ok(()) => format!("; {} keeps the chains, and --resume goes on", self.path.display()),
                Err(error) => format!("; the chains are not kept: {error}"),
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

    /// Keeps the chains whose draws could not be written, and says where they are.
    pub(super) fn instead(&self, run: &Run, target: &Target, basis: &Basis, output: &Path) -> String {
        let what = format!("the draws cannot be written to {}", output.display());
        match self.write(run, target, basis) {
            Ok(()) => format!("{what}; {} keeps the chains, and --resume goes on", self.path.display()),
            Err(_) => what,
        }
    }

    /// Forgets the checkpoint, unless it was asked for by name: the draws are written.
    pub(super) fn done(&self) {
        if !self.asked_for {
            // What was never written, or cannot be deleted, is no error now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
