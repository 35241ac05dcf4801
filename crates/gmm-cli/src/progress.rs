//! The progress of a fit: a bar on a terminal, lines with `-v` elsewhere.

use gmm_host::Iteration;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Console;

/// A bar over the iterations of one fit, or of all fits of a selection.
pub(crate) struct Progress<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    max_iter: usize,
}

impl<'a> Progress<'a> {
    /// A bar for `runs` runs of at most `max_iter` iterations; nothing is drawn before the first iteration.
    pub(crate) fn new(console: &'a Console, max_iter: usize, runs: usize) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new((max_iter as u64).saturating_mul(runs as u64));
            // `eta` is for all iterations: convergence usually comes sooner.
            let style = "{spinner} {prefix}{msg}  [{bar:24}] {elapsed}, at most {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, max_iter }
    }

    /// Which fit of several is running.
    pub(crate) fn title(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{text}  "));
        }
    }

    /// Shows one iteration of run number `run`, from 0.
    pub(crate) fn step(&self, run: usize, step: &Iteration<'_>) {
        let text = || {
            let change = if step.change.is_finite() { format!("{:+.2e}", step.change) } else { "–".to_owned() };
            format!("iteration {}  log-likelihood {:.6}  change {change}", step.iteration, step.mean_log_likelihood)
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position((run * self.max_iter + step.iteration) as u64);
                bar.set_message(text());
            }
            None => self.console.note(|| format!("run {run}, {}", text())),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}
