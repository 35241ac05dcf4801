//! Chains in a file while they run, so that what stops them loses little.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use gmm_host::Likelihood;
use gmm_mcmc::{Checkpoint, Error, Event, Run, Target};

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
        if is_stdio(&path) {
            return usage("--checkpoint needs a file".to_owned());
        }
        output::check_folder(&path)?;
        let inputs: Vec<&Path> =
            [Some(&args.input.input), args.prior.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
        output::check_apart(&args.output, &inputs)?;
        output::check_apart(&path, &inputs)?;
        if path == args.output {
            return usage("the draws and the checkpoint are one file: give them different names".to_owned());
        }
        let there = [&args.output, &path].into_iter().find(|p| p.is_file());
        if let Some(there) = there.filter(|_| !args.overwrite && !args.resume) {
            let resume = if path.is_file() { "--resume goes on with it, " } else { "" };
            let there = there.display();
            return usage(format!("{there} is there already: {resume}--overwrite begins anew, -o takes another name"));
        }
        Ok(Self { path, asked_for })
    }

    pub(super) fn read(&self) -> anyhow::Result<Checkpoint> {
        let name = || self.path.display().to_string();
        let bytes = std::fs::read(&self.path).with_context(name)?;
        Checkpoint::from_bytes(&bytes).with_context(name)
    }

    fn write(&self, run: &Run, target: &Target, print: u64) -> anyhow::Result<()> {
        let bytes = Checkpoint::new(run.clone(), target.prior(), print).to_bytes();
        Ok(gmm_data::atomic::write_bytes(&self.path, &bytes)?)
    }

    /// Draws what is missing, shows the progress, keeps the chains, and stops at a signal.
    pub(super) fn go_on(
        &self,
        run: &mut Run,
        target: &Target,
        likelihood: &mut Likelihood,
        print: u64,
        console: &Console,
    ) -> anyhow::Result<()> {
        let progress = Sampling::new(console, run);
        let _held = interrupt::hold();
        let (mut written, mut every) = (Instant::now(), EVERY);
        let mut failed = None;
        let mut observer = |event: Event, run: &Run| {
            progress.see(event);
            if interrupt::received().is_some() {
                return ControlFlow::Break(());
            }
            if matches!(event, Event::Kept { .. }) && written.elapsed() > every {
                let began = Instant::now();
                if let Err(error) = self.write(run, target, print) {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
                written = Instant::now();
                every = EVERY.max(SHARE * began.elapsed());
            }
            ControlFlow::Continue(())
        };
        let result = run.go_on(likelihood, target, &mut observer);
        progress.finish();
        if let Some(error) = failed {
            return Err(error);
        }
        let Err(error) = result else {
            return if self.asked_for { self.write(run, target, print) } else { Ok(()) };
        };
        // Whatever it was: what was done is kept, where it is more than nothing.
        let draws = run.chains.iter().map(|chain| chain.n_draws()).sum::<usize>();
        let kept = if run.chains.iter().any(|chain| chain.steps > 0) {
            self.write(run, target, print)?;
            format!("; {} keeps the chains, and --resume goes on", self.path.display())
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

    /// Forgets the checkpoint, unless it was asked for by name: the draws are written.
    pub(super) fn done(&self) {
        if !self.asked_for {
            // What was never written, or cannot be deleted, is no error now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
