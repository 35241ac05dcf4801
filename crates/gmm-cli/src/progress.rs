//! The progress of a fit, a sampler or a write: a bar on a terminal, else lines with `-v`, or lines of JSON.

mod lines;

use std::cell::Cell;

use gmm_host::{Iteration, OnlineStep};
use gmm_mcmc::{Event, Run, Sampler};
use gmm_model::{Dataset, Precision};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Console;
use crate::size;
pub(crate) use lines::ProgressMode;
use lines::{Done, Lines, fields};

/// A bar over the iterations of one fit, or of all fits of a selection.
pub(crate) struct Progress<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    lines: Lines<'a>,
    rows: RowSize,
    max_iter: usize,
    runs: usize,
}

/// How many rows each pass reads, and the bytes of one.
#[derive(Clone, Copy)]
pub(crate) struct RowSize {
    count: usize,
    bytes: usize,
}

impl RowSize {
    pub(crate) fn of(data: &Dataset) -> Self {
        let number = if data.rows().precision() == Precision::F32 { 4 } else { 8 };
        Self { count: data.n_rows(), bytes: number * data.n_features() }
    }

    /// Bytes of `rows` rows.
    const fn bytes(self, rows: u64) -> u64 {
        rows.saturating_mul(self.bytes as u64)
    }
}

impl<'a> Progress<'a> {
    /// Creates a bar for `runs` runs over `rows` rows of at most `max_iter` iterations. It appears with the first
    /// iteration.
    pub(crate) fn new(console: &'a Console, rows: RowSize, max_iter: usize, runs: usize) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new((max_iter as u64).saturating_mul(runs as u64));
            // `eta` assumes that all iterations run; convergence usually comes sooner.
            let style = "{spinner} {prefix}{msg}  [{bar:24}] {elapsed}, at most {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, lines: Lines::new(console, "fit"), rows, max_iter, runs }
    }

    /// Sets the prefix, which names the current one of several fits.
    pub(crate) fn title(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{text}  "));
        }
    }

    /// Shows one iteration of run `run`, counted from 0.
    pub(crate) fn step(&self, run: usize, step: &Iteration<'_>) {
        let before = (run as u64).saturating_mul(self.max_iter as u64);
        let total = (self.runs as u64).saturating_mul(self.max_iter as u64);
        let at = Done { done: before.saturating_add(step.iteration as u64), total };
        // Counts iterations within a run only: between two runs the count jumps if the first converged.
        let speed = self.lines.speed(Done { done: step.iteration as u64, total }, run);
        let rows = speed.map(|speed| speed * self.rows.count as f64);
        let bytes = self.rows.bytes((step.iteration as u64).saturating_mul(self.rows.count as u64));
        self.lines.offer(at, speed, || {
            fields([
                ("run", run.into()),
                ("restart", step.restart.into()),
                ("iteration", step.iteration.into()),
                ("mean_log_likelihood", step.mean_log_likelihood.into()),
                ("change", step.change.into()),
                ("rows_per_second", rows.into()),
                ("bytes_read", bytes.into()),
            ])
        });
        let text = || {
            let change = if step.change.is_finite() { format!("{:+.2e}", step.change) } else { "–".to_owned() };
            format!("iteration {}  log-likelihood {:.6}  change {change}", step.iteration, step.mean_log_likelihood)
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position(at.done);
                bar.set_message(text() + &pace(rows, bytes));
            }
            None => self.console.step_note(|| format!("run {run}, {}", text())),
        }
    }

    /// Removes the bar, and prints the last line.
    pub(crate) fn finish(&self) {
        self.lines.flush();
        self.console.finish();
    }
}

/// A bar over the rows of all epochs of an online fit.
pub(crate) struct Epochs<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    lines: Lines<'a>,
    rows: RowSize,
    done: Cell<u64>,
    total: u64,
}

impl<'a> Epochs<'a> {
    /// Creates a bar for at most `epochs` passes over the rows.
    pub(crate) fn new(console: &'a Console, rows: RowSize, epochs: usize) -> Self {
        let total = (rows.count as u64).saturating_mul(epochs as u64);
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new(total);
            let style = "{spinner} {msg}  [{bar:24}] {elapsed}, at most {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, lines: Lines::new(console, "online"), rows, done: Cell::new(0), total }
    }

    /// Shows one step, with a batch of `rows` rows.
    pub(crate) fn step(&self, epoch: usize, step: &OnlineStep) {
        self.done.set(self.done.get() + step.rows);
        let at = Done { done: self.done.get(), total: self.total };
        let speed = self.lines.speed(at, 0);
        let bytes = self.rows.bytes(at.done);
        self.lines.offer(at, speed, || {
            fields([
                ("epoch", epoch.into()),
                ("step", step.step.into()),
                ("mean_log_likelihood", step.mean_log_likelihood.into()),
                ("rows_per_second", speed.into()),
                ("bytes_read", bytes.into()),
            ])
        });
        let text = || format!("epoch {epoch}  step {}  log-likelihood {:.6}", step.step, step.mean_log_likelihood);
        match &self.bar {
            Some(bar) => {
                bar.set_position(at.done);
                bar.set_message(text() + &pace(speed, bytes));
            }
            None => self.console.step_note(text),
        }
    }

    /// Removes the bar, and prints the last line.
    pub(crate) fn finish(&self) {
        self.lines.flush();
        self.console.finish();
    }
}

/// The speed, once it is known, and the bytes of rows read so far.
fn pace(rows_per_second: Option<f64>, bytes: u64) -> String {
    rows_per_second
        .map_or_else(String::new, |rows| format!("  {}, {} read", per_second(rows), size::shown(bytes.into())))
}

/// A speed in rows per second, with three digits and a unit.
fn per_second(rows: f64) -> String {
    let (value, unit) = match rows {
        r if r >= 1e9 => (r / 1e9, "G"),
        r if r >= 1e6 => (r / 1e6, "M"),
        r if r >= 1e3 => (r / 1e3, "k"),
        r => (r, ""),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}{unit} rows/s")
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
    lines: Lines<'a>,
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
        let (lines, by_step) = (Lines::new(console, "mcmc"), options.sampler == Sampler::Nuts);
        Self { console, bar, done, warmup, total, diverging, lines, by_step }
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
        let what = if done <= self.warmup { "warm-up" } else { "sampling" };
        let at = Done { done, total: self.total };
        self.lines.offer(at, self.lines.speed(at, 0), || {
            fields([("stage", what.into()), ("diverging", self.diverging.get().into())])
        });
        let text = || match self.diverging.get() {
            0 => what.to_owned(),
            n => format!("{what}, {n} diverged"),
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text());
            }
            // One line per tenth.
            None if done * 10 / self.total != (done - 1) * 10 / self.total => {
                self.console.step_note(|| format!("{done} of {} steps, {}", self.total, text()));
            }
            None => {}
        }
    }

    /// Removes the bar, and prints the last line.
    pub(crate) fn finish(&self) {
        self.lines.flush();
        self.console.finish();
    }
}

/// A bar over the rows drawn and written, or over many fits.
pub(crate) struct Count<'a> {
    console: &'a Console,
    bar: Option<ProgressBar>,
    lines: Lines<'a>,
    n: usize,
    unit: &'static str,
    tenths: Cell<usize>,
}

impl<'a> Count<'a> {
    /// Creates a bar for `n` units: rows or fits.
    pub(crate) fn new(console: &'a Console, n: usize, unit: &'static str) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = ProgressBar::new(n as u64);
            let style = format!(
                "{{spinner}} {{human_pos}} of {{human_len}} {unit}  [{{bar:24}}] {{elapsed}}, about {{eta}} left"
            );
            bar.set_style(ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.attach(&bar);
            bar
        });
        Self { console, bar, lines: Lines::new(console, unit), n, unit, tenths: Cell::new(0) }
    }

    /// Shows that `done` units are done.
    pub(crate) fn at(&self, done: usize) {
        let so_far = Done { done: done as u64, total: self.n as u64 };
        let speed = self.lines.speed(so_far, 0);
        self.lines.offer(so_far, speed, || {
            let per_second = if self.unit == "rows" { "rows_per_second" } else { "fits_per_second" };
            fields([(per_second, speed.into())])
        });
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            return;
        }
        // One line per tenth.
        let tenths = (done as f64 / self.n as f64 * 10.0) as usize;
        if tenths > self.tenths.replace(tenths) {
            self.console.step_note(|| format!("{done} of {} {}", self.n, self.unit));
        }
    }

    /// Removes the bar, and prints the last line.
    pub(crate) fn finish(&self) {
        self.lines.flush();
        self.console.finish();
    }
}
