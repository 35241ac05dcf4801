//! Work on a thread of its own, while the calling thread listens for signals.
//!
//! The working thread knows no Python: it cannot be stopped by the interpreter's end, and other Python threads run
//! meanwhile. Ctrl-C is answered at once, also where the work looks at its flag only once a pass over the data; what it
//! still reads is kept until it is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often signals are looked at: far below the second within which Ctrl-C should act.
const LOOK: Duration = Duration::from_millis(50);

/// How long interrupted work may take to its end before it is left to itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// What whoever follows is told, argument by argument.
pub(crate) enum Progress {
    /// One finished iteration of a fit.
    Iteration { restart: usize, iteration: usize, mean_log_likelihood: f64, change: f64 },
    /// Steps of all chains, of so many, and divergences.
    Steps { done: usize, steps: usize, diverging: usize },
    /// Fits of several, of so many.
    Fits { done: usize, fits: usize },
}

impl Progress {
    /// Tells `follow`, which answers whether the work should end.
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

/// What the work hears and says.
pub(crate) struct Line {
    stop: Arc<AtomicBool>,
    report: Box<dyn Fn(Progress, Option<Sender<bool>>) + Send>,
}

impl Line {
    /// Whether the work should end.
    pub(crate) fn is_cut(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flag that says so, for whatever looks more often.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Tells of what was done.
    pub(crate) fn say(&self, progress: Progress) {
        (self.report)(progress, None);
    }

    /// Tells of what was done, and waits for the answer: whether to end with what there is. `None` where nobody listens any
    /// longer.
    pub(crate) fn ask(&self, progress: Progress) -> Option<bool> {
        let (sender, answer) = mpsc::channel();
        (self.report)(progress, Some(sender));
        answer.recv().ok()
    }
}

enum Message<R> {
    /// With where the answer goes, if the work waits for one.
    Progress(Progress, Option<Sender<bool>>),
    Done(R),
}

/// Interrupted work that is not over yet, and the Python objects whose memory it reads.
static LEFT: Mutex<Vec<(JoinHandle<()>, Py<PyAny>)>> = Mutex::new(Vec::new());

/// Runs `work` to its end and gives what it gives; `owner` is kept until then.
///
/// # Errors
/// `KeyboardInterrupt` and whatever else a signal handler raises; what `follow`, called with each [`Progress`], raises.
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
        // Nobody listens where the work was interrupted.
        let _ = sender.send(Message::Done(done));
    });
    let thread = thread.map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
    loop {
        let listen = &mut messages;
        let heard = match py.detach(move || listen.recv_timeout(LOOK)) {
            Ok(Message::Done(result)) => return Ok(result),
            Ok(Message::Progress(progress, asked)) => follow.map_or(Ok(false), |f| progress.call(f)).map(|answer| {
                // Nobody waits for it where the work has ended.
                let _ = asked.map(|asked| asked.send(answer));
            }),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The work panicked: a fault of this library, which must reach the user as one.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("the work ended without a result")),
            },
        };
        if let Err(error) = heard.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::Relaxed);
            // Whoever waits for an answer gets none.
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

/// Lets go of what interrupted work has come to the end of.
fn sweep() {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).retain(|(thread, _)| !thread.is_finished());
}
