//! The progress of a fit, a sampler or a write: a bar on a terminal, else lines with `-v`.

use std::cell::Cell;

use gmm_host::Iteration;
use gmm_mcmc::{Event, Run, Sampler};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Console;

/// A bar over the iterations of one fit, or of all fits of a selection.
pub(crate) struct Progress<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    max_iter: usize,
}

impl<'a> Progress<'a> {
    /// Creates a bar for `runs` runs of at most `max_iter` iterations. It appears with the first iteration.
    pub(crate) fn new(console: &'a Console, max_iter: usize, runs: usize) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new((max_iter as u64).saturating_mul(runs as u64));
            // `eta` assumes that all iterations run; convergence usually comes sooner.
            let style = "{spinner} {prefix}{msg}  [{bar:24}] {elapsed}, at most {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, max_iter }
    }

    /// Sets the prefix, which names the current one of several fits.
    pub(crate) fn title(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{text}  "));
        }
    }

    /// Shows one iteration of run `run`, counted from 0.
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

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}

/// A bar over the steps of all chains of a sampler.
pub(crate) struct Sampling<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    /// Completed steps, warm-up steps and steps in total, of all chains.
    done: Cell<u64>,
    warmup: u64,
    total: u64,
    diverging: Cell<u64>,
    /// Whether the sampler reports each step; if not, each kept draw counts as a step.
    by_step: bool,
}

impl<'a> Sampling<'a> {
    /// Creates a bar for the remaining steps of a run.
    pub(crate) fn new(console: &'a Console, run: &Run) -> Self {
        let options = &run.options;
        let chains = options.chains as u64;
        let total = chains * (options.draws * options.thin + options.warmup) as u64;
        let done = run.chains.iter().map(|chain| chain.steps).sum();
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new(total).with_position(done);
            let style = "{spinner} {msg}  [{bar:24}] {pos}/{len} steps, {elapsed}, about {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.reset_eta();
            console.attach(&bar);
            bar
        });
        console.note(|| format!("{chains} chains, {} steps of {total} to do", total - done));
        let (done, diverging) = (Cell::new(done), Cell::new(0));
        let warmup = chains * options.warmup as u64;
        Self { console, bar, done, warmup, total, diverging, by_step: options.sampler == Sampler::Nuts }
    }

    /// Shows one event of a chain.
    pub(crate) fn see(&self, event: Event) {
        match event {
            Event::Kept { .. } if self.by_step => return,
            Event::Step { warmup: false, diverging: true, .. } => self.diverging.set(self.diverging.get() + 1),
            _ => {}
        }
        self.done.set(self.done.get() + 1);
        let done = self.done.get();
        let text = || {
            let what = if done <= self.warmup { "warm-up" } else { "sampling" };
            match self.diverging.get() {
                0 => what.to_owned(),
                n => format!("{what}, {n} diverged"),
            }
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text());
            }
            // One line per tenth.
            None if done * 10 / self.total != (done - 1) * 10 / self.total => {
                self.console.note(|| format!("{done} of {} steps, {}", self.total, text()));
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}

/// A bar over the rows drawn and written.
pub(crate) struct Rows<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    n: usize,
    tenths: Cell<usize>,
}

impl<'a> Rows<'a> {
    /// Creates a bar for `n` rows.
    pub(crate) fn new(console: &'a Console, n: usize) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new(n as u64);
            let style = "{spinner} {human_pos} of {human_len} rows  [{bar:24}] {elapsed}, about {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, n, tenths: Cell::new(0) }
    }

    /// Shows that `done` rows have been drawn.
    pub(crate) fn at(&self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            return;
        }
        // One line per tenth.
        let tenths = (done as f64 / self.n as f64 * 10.0) as usize;
        if tenths > self.tenths.replace(tenths) {
            self.console.note(|| format!("{done} of {} rows", self.n));
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}
