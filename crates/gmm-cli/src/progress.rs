//! The progress of a fit, a sampler or a write: a bar on a terminal, lines with `-v` elsewhere.

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

/// A bar over the steps of all chains of a sampler.
pub(crate) struct Sampling<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    /// Steps of all chains: done, in their warm-up, and in all.
    done: Cell<u64>,
    warmup: u64,
    total: u64,
    diverging: Cell<u64>,
    /// Whether steps are told one by one; else what was kept is the step.
    by_step: bool,
}

impl<'a> Sampling<'a> {
    /// A bar for what is missing of a run.
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

    /// Shows what a chain did.
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
            // A line for each tenth.
            None if done * 10 / self.total != (done - 1) * 10 / self.total => {
                self.console.note(|| format!("{done} of {} steps, {}", self.total, text()));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}

/// A bar over the rows that are drawn and written.
pub(crate) struct Rows<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    n: usize,
    tenths: Cell<usize>,
}

impl<'a> Rows<'a> {
    /// A bar for `n` rows.
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

    /// So many rows are drawn.
    pub(crate) fn at(&self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            return;
        }
        // A line for each tenth.
        let tenths = (done as f64 / self.n as f64 * 10.0) as usize;
        if tenths > self.tenths.replace(tenths) {
            self.console.note(|| format!("{done} of {} rows", self.n));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.console.finish();
    }
}
