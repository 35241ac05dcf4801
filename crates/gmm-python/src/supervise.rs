//! Runs work on a separate thread while the calling thread handles signals.
//!
//! The worker thread does not use the interpreter, so interpreter shutdown cannot stop it, and other Python threads
//! continue. Ctrl-C takes effect at once, even if the work checks its stop flag only once per pass over the data; the
//! arrays that it still reads are kept alive until it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Interval between checks for signals: far below one second, within which Ctrl-C should take effect.
const LOOK: Duration = Duration::from_millis(50);

/// How long to wait for interrupted work to end before returning without it.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress report; its fields are the arguments of `follow`.
pub(crate) enum Progress {
    /// One finished iteration of a fit.
    Iteration { restart: usize, iteration: usize, mean_log_likelihood: f64, change: f64 },
    /// Completed steps of all chains, steps in total, and divergences.
    Steps { done: usize, steps: usize, diverging: usize },
    /// Completed fits, and fits in total.
    Fits { done: usize, fits: usize },
}

impl Progress {
    /// Calls `follow` and returns whether the work should stop.
    fn call(self, follow: &Bound<'_, PyAny>) -> PyResult<bool> {
        let answer = match self {
            Self::Iteration { restart, iteration, mean_log_likelihood, change } => {
                follow.call1((restart, iteration, mean_log_likelihood, change))?
            }
            Self::Steps { done, steps, diverging } => follow.call1((done, steps, diverging))?,
            Self::Fits { done, fits } => follow.call1((done, fits))?,
        };
        answer.is_truthy()
    }
}

/// The worker's end of the communication: the stop flag and progress reports.
pub(crate) struct Line {
    stop: Arc<AtomicBool>,
    report: Box<dyn Fn(Progress, Option<Sender<bool>>) + Send>,
}

impl Line {
    /// Whether the work should stop.
    pub(crate) fn is_cut(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The stop flag, for code that checks it more often.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Reports progress.
    pub(crate) fn say(&self, progress: Progress) {
        (self.report)(progress, None);
    }

    /// Reports progress and waits for the answer: whether to stop with the current result. `None` if the caller was
    /// interrupted and no longer answers.
    pub(crate) fn ask(&self, progress: Progress) -> Option<bool> {
        let (sender, answer) = mpsc::channel();
        (self.report)(progress, Some(sender));
        answer.recv().ok()
    }
}

enum Message<R> {
    /// A progress report, and the channel for the answer if the work waits for one.
    Progress(Progress, Option<Sender<bool>>),
    Done(R),
}

/// Interrupted work that is still running, and the Python objects whose memory it reads.
static LEFT: Mutex<Vec<(JoinHandle<()>, Py<PyAny>)>> = Mutex::new(Vec::new());

/// Runs `work` and returns its result; `owner` is kept alive until the work ends.
///
/// # Errors
/// `KeyboardInterrupt` and other exceptions of signal handlers; exceptions of `follow`, which is called with each
/// [`Progress`].
pub(crate) fn supervise<R: Send + 'static>(
    py: Python<'_>,
    owner: Py<PyAny>,
    follow: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Line) -> R + Send + 'static,
) -> PyResult<R> {
    sweep();
    let (sender, mut messages) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let line = Line { stop: stop.clone(), report: report(follow.is_some(), sender.clone()) };
    let thread = thread::Builder::new().name("gmm-work".to_owned()).spawn(move || {
        let done = work(&line);
        drop(line);
        // Fails if the work was interrupted: nobody receives the result.
        let _ = sender.send(Message::Done(done));
    });
    let thread = thread.map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
    loop {
        let listen = &mut messages;
        let heard = match py.detach(move || listen.recv_timeout(LOOK)) {
            Ok(Message::Done(result)) => return Ok(result),
            Ok(Message::Progress(progress, asked)) => follow.map_or(Ok(false), |f| progress.call(f)).map(|answer| {
                // Fails if the work has ended: nobody waits for the answer.
                let _ = asked.map(|asked| asked.send(answer));
            }),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The work panicked: a bug in this library, which is passed on as a panic.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("the work ended without a result")),
            },
        };
        if let Err(error) = heard.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::Relaxed);
            // Work that waits for an answer then gets `None`.
            drop(messages);
            let until = Instant::now() + PATIENCE;
            py.detach(|| {
                while !thread.is_finished() && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((thread, owner));
            sweep();
            return Err(error);
        }
    }
}

fn report<R: Send + 'static>(
    wanted: bool,
    sender: Sender<Message<R>>,
) -> Box<dyn Fn(Progress, Option<Sender<bool>>) + Send> {
    if !wanted {
        return Box::new(|_, _| ());
    }
    Box::new(move |progress, asked| {
        let _ = sender.send(Message::Progress(progress, asked));
    })
}

/// Releases the owners of interrupted work that has ended.
fn sweep() {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).retain(|(thread, _)| !thread.is_finished());
}
