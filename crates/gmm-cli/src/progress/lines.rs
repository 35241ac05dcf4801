//! Progress as lines of JSON on standard error, for logs and for programs that watch a run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::output::Console;

/// Shortest time between two lines: a loop on a GPU makes thousands of iterations per second.
const EVERY: Duration = Duration::from_millis(500);

/// Whether and how the progress of long work is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProgressMode {
    /// A bar on a terminal, else lines with `-v`.
    #[default]
    Auto,
    /// Lines of JSON.
    Json,
    /// Nothing.
    Off,
}

impl std::str::FromStr for ProgressMode {
    type Err = std::convert::Infallible;

    /// Words other than `json` and `off` are `auto`: the command line has checked them.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "json" => Self::Json,
            "off" => Self::Off,
            _ => Self::Auto,
        })
    }
}

/// How far a piece of work is.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// Units of work done, those of an earlier process included.
    pub(super) done: u64,
    /// Units of work in total, at most.
    pub(super) total: u64,
}

/// The first report of a run: what came before was preparation, such as an initialisation.
#[derive(Clone, Copy)]
struct First {
    run: usize,
    at: Instant,
    done: u64,
}

/// Speed and remaining time of one piece of work, and its lines.
pub(super) struct Lines<'a> {
    console: &'a Console,
    phase: &'static str,
    started: Instant,
    first: Cell<Option<First>>,
    printed: Cell<Option<Instant>>,
    /// The latest line, if it is not printed yet.
    pending: RefCell<Option<Value>>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(console: &'a Console, phase: &'static str) -> Self {
        let (first, printed) = (Cell::new(None), Cell::new(None));
        Self { console, phase, started: Instant::now(), first, printed, pending: RefCell::new(None) }
    }

    /// Units per second since the first report of this run; `None` at the first.
    pub(super) fn speed(&self, at: Done, run: usize) -> Option<f64> {
        let Some(first) = self.first.get().filter(|first| first.run == run) else {
            self.first.set(Some(First { run, at: Instant::now(), done: at.done }));
            return None;
        };
        let seconds = first.at.elapsed().as_secs_f64();
        let done = at.done.saturating_sub(first.done) as f64;
        (done > 0.0 && seconds > 0.0).then(|| done / seconds)
    }

    /// Prints a line with `fields`, if lines are wanted and the last one is long enough ago.
    pub(super) fn offer(&self, at: Done, speed: Option<f64>, fields: impl FnOnce() -> Map<String, Value>) {
        if self.console.progress() != ProgressMode::Json {
            return;
        }
        let left = speed.map(|speed| at.total.saturating_sub(at.done) as f64 / speed);
        let mut line = Map::new();
        line.insert("phase".to_owned(), self.phase.into());
        line.extend(fields());
        line.insert("done".to_owned(), at.done.into());
        line.insert("total".to_owned(), at.total.into());
        line.insert("elapsed_s".to_owned(), json!(self.started.elapsed().as_secs_f64()));
        line.insert("left_s".to_owned(), json!(left));
        self.pending.replace(Some(line.into()));
        if self.printed.get().is_none_or(|at| at.elapsed() >= EVERY) {
            self.flush();
        }
    }

    /// Prints the latest line, if it is not printed yet.
    pub(super) fn flush(&self) {
        if let Some(line) = self.pending.take() {
            self.console.json_line(&line);
            self.printed.set(Some(Instant::now()));
        }
    }
}

/// Fields of a line from pairs of names and values.
pub(super) fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
