//! Independent fits at the same time, which report in their order.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::Engine;
use crate::em::{Iteration, Observer};

/// Jobs of one kind, each a fit or a restart, numbered from 0.
pub(crate) struct Jobs<Run> {
    /// `(n, d)` of the rows.
    pub(crate) shape: (usize, usize),
    /// Number of jobs.
    pub(crate) count: usize,
    /// Runs a job on a part of the engine. The jobs of one part share a state.
    pub(crate) run: Run,
}

/// An iteration of a job, without its mixture.
#[derive(Clone, Copy)]
struct Step {
    restart: usize,
    iteration: usize,
    mean_log_likelihood: f64,
    change: f64,
}

enum Event<R> {
    /// One or more, in order.
    Steps(Vec<Step>),
    Done(R),
}

/// Iterations are reported this often: each message wakes the calling thread, which takes about as long as an iteration
/// over a few hundred rows.
const REPORT_EVERY: Duration = Duration::from_millis(1);

/// Which jobs should end early.
struct Stop {
    next: AtomicUsize,
    all: AtomicBool,
    finish: Vec<AtomicBool>,
}

/// Runs jobs on the parts of an engine ([`Engine::concurrently`]). `observer` gets the iterations, and `done` the
/// results, in the order of the jobs, as if they ran one after another, on the calling thread. If either breaks, the
/// other jobs end and nothing more is reported. Returns whether jobs ran; if not, the caller runs them.
///
/// A job that its observer [finishes](Iteration::finish) does so some iterations later.
pub(crate) fn run<S: Default, R: Send>(
    engine: &dyn Engine,
    jobs: &Jobs<impl Fn(&dyn Engine, &mut S, usize, &mut Observer<'_>) -> R + Sync>,
    observer: &mut Observer<'_>,
    done: &mut dyn FnMut(usize, R) -> ControlFlow<()>,
) -> bool {
    if jobs.count < 2 {
        return false;
    }
    let finish = (0..jobs.count).map(|_| AtomicBool::new(false)).collect();
    let stop = Stop { next: AtomicUsize::new(0), all: AtomicBool::new(false), finish };
    let (sender, receiver) = mpsc::channel();
    let work = |part: &dyn Engine| on_part(part, jobs, &stop, &sender.clone());
    // Tests replace the driver per thread.
    #[cfg(all(test, feature = "cuda"))]
    let fake = crate::cuda::fake_driver();
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            #[cfg(all(test, feature = "cuda"))]
            let _fake = fake.as_ref().map(|fake| fake.enter());
            let _end = End(&sender);
            engine.concurrently(jobs.shape, &work)
        });
        report(&receiver, &stop, observer, done);
        runs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The job and its event; `None` is the last message.
type Message<R> = Option<(usize, Event<R>)>;

/// Sends the last message when it is dropped: also if nothing ran, and if a job panics.
struct End<'a, R>(&'a Sender<Message<R>>);

impl<R> Drop for End<'_, R> {
    fn drop(&mut self) {
        // The receiver outlives all jobs.
        let _ = self.0.send(None);
    }
}

/// Runs jobs on one part of the engine until none is left.
fn on_part<S: Default, R>(
    part: &dyn Engine,
    jobs: &Jobs<impl Fn(&dyn Engine, &mut S, usize, &mut Observer<'_>) -> R>,
    stop: &Stop,
    sender: &Sender<Message<R>>,
) {
    let mut state = S::default();
    loop {
        let job = stop.next.fetch_add(1, Ordering::Relaxed);
        if job >= jobs.count || stop.all.load(Ordering::Relaxed) {
            return;
        }
        let (mut steps, mut reported) = (Vec::new(), Instant::now());
        let mut observer = |seen: &Iteration<'_>| {
            let Iteration { restart, iteration, mean_log_likelihood, change, .. } = *seen;
            steps.push(Step { restart, iteration, mean_log_likelihood, change });
            if reported.elapsed() >= REPORT_EVERY {
                let _ = sender.send(Some((job, Event::Steps(std::mem::take(&mut steps)))));
                reported = Instant::now();
            }
            if stop.finish[job].load(Ordering::Relaxed) {
                seen.finish();
            }
            if stop.all.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let result = (jobs.run)(part, &mut state, job, &mut observer);
        if !steps.is_empty() {
            let _ = sender.send(Some((job, Event::Steps(steps))));
        }
        let _ = sender.send(Some((job, Event::Done(result))));
    }
}

/// Receives from all jobs and reports in their order, until the last message.
fn report<R>(
    receiver: &Receiver<Message<R>>,
    stop: &Stop,
    observer: &mut Observer<'_>,
    done: &mut dyn FnMut(usize, R) -> ControlFlow<()>,
) {
    let mut waiting: Vec<Vec<Event<R>>> = stop.finish.iter().map(|_| Vec::new()).collect();
    let mut current = 0;
    while let Ok(Some((job, event))) = receiver.recv() {
        if stop.all.load(Ordering::Relaxed) {
            continue;
        }
        waiting[job].push(event);
        while current < waiting.len() && !waiting[current].is_empty() {
            let mut ended = false;
            for event in std::mem::take(&mut waiting[current]) {
                let go_on = match event {
                    Event::Steps(steps) => {
                        steps.into_iter().try_for_each(|step| see(step, &stop.finish[current], observer))
                    }
                    Event::Done(result) => {
                        ended = true;
                        done(current, result)
                    }
                };
                if go_on.is_break() {
                    stop.all.store(true, Ordering::Relaxed);
                    break;
                }
            }
            if !ended || stop.all.load(Ordering::Relaxed) {
                break;
            }
            current += 1;
        }
    }
}

fn see(step: Step, finish: &AtomicBool, observer: &mut Observer<'_>) -> ControlFlow<()> {
    let Step { restart, iteration, mean_log_likelihood, change } = step;
    let cell = Cell::new(false);
    let go_on = observer(&Iteration::bare((restart, iteration), mean_log_likelihood, change, &cell));
    finish.fetch_or(cell.get(), Ordering::Relaxed);
    go_on
}
