//! Requests that come together are evaluated as one batch.
//!
//! A request adds its rows to the queue of its model. The first one starts a task, which lets all sockets that are ready be
//! read, waits for the stated delay if there is one, and evaluates what is queued by then. No thread waits for another:
//! on an idle server a row is evaluated at once, and on a busy one batches grow by themselves.
//!
//! A request of many rows is a batch of its own, beside others on as many threads as there are cores: together they would
//! gain nothing, and requests of few rows do not wait behind it.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::{Semaphore, oneshot};

use crate::Refusal;
use crate::metrics::Metrics;
use crate::model::{Model, Outputs, Results};
use crate::tensor::Elements;

/// Above this many floating-point operations, about a millisecond of a core with wide vectors, a batch is evaluated on a
/// thread of its own, so that the sockets of others are served meanwhile.
const LONG: usize = 32_000_000;

/// Rows and floating-point operations from which a request is a batch of its own: engines are as fast with as many as with
/// more.
const MANY: (usize, usize) = (2048, 4_000_000);

/// Limits of a batch and of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchOptions {
    /// How long the first row of a batch waits for others.
    pub(crate) delay: Duration,
    /// Rows at which a batch does not wait any longer.
    pub(crate) rows: usize,
    /// Rows that may wait for one model.
    pub(crate) queue_rows: usize,
}

/// The results of one request: some rows of those of a batch.
pub(crate) type Share = (Arc<Results>, Range<usize>);

struct Job {
    /// `(n, d)`.
    rows: Elements,
    n: usize,
    has_missing: bool,
    outputs: Outputs,
    since: Instant,
    answer: oneshot::Sender<Result<Share, Refusal>>,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    rows: usize,
    /// Whether a task takes jobs from the queue.
    is_served: bool,
}

/// A model with the queue of its requests.
pub(crate) struct Batcher {
    pub(crate) model: Model,
    options: BatchOptions,
    metrics: Arc<Metrics>,
    queue: Mutex<Queue>,
    n_cores: usize,
    /// A permit for each batch of one request that may be evaluated at a time, as many as there are cores.
    cores: Arc<Semaphore>,
}

impl Batcher {
    pub(crate) fn new(model: Model, options: BatchOptions, metrics: Arc<Metrics>) -> Arc<Self> {
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = Arc::new(Semaphore::new(n_cores));
        Arc::new(Self { model, options, metrics, queue: Mutex::default(), n_cores, cores })
    }

    /// The results of the rows, `(n, d)`, which are finite, or NaN where `has_missing`.
    ///
    /// # Errors
    /// 429 if the queue is full; errors of the evaluation.
    pub(crate) async fn evaluate(
        self: &Arc<Self>,
        rows: Elements,
        has_missing: bool,
        outputs: Outputs,
    ) -> Result<Share, Refusal> {
        let n = rows.len() / self.model.n_features();
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = self.lock();
            // A request larger than the queue is served when nothing else waits.
            if queue.rows > 0 && queue.rows + n > self.options.queue_rows {
                self.metrics.refused_queue.inc();
                let message = format!("{} rows wait already: try again later, or raise --queue-rows", queue.rows);
                return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
            }
            queue.rows += n;
            let job = Job { rows, n, has_missing, outputs, since: Instant::now(), answer };
            if n >= MANY.0.min(self.options.rows) && self.takes(MANY.1, n, outputs) {
                tokio::spawn(self.clone().run_apart(job));
            } else {
                queue.jobs.push(job);
            }
            if !queue.is_served && !queue.jobs.is_empty() {
                queue.is_served = true;
                tokio::spawn(Server(self.clone()).serve());
            }
        }
        // The sender is dropped without an answer only if the evaluation panicked.
        answered.await.unwrap_or_else(|_| Err(Refusal::fault("the evaluation failed: see the server's log")))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the batch is due.
    async fn wait(&self) {
        let Some(due) = self.lock().jobs.first().map(|job| job.since + self.options.delay) else { return };
        loop {
            // Everything that is ready runs before this task goes on.
            tokio::task::yield_now().await;
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() || self.lock().rows >= self.options.rows {
                return;
            }
            // Timers have a resolution of a millisecond.
            if left > Duration::from_millis(2) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Takes jobs from the front of the queue, one or more, up to the rows of a batch. None if the queue is empty, and then
    /// the next request starts a new task.
    fn take(&self) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        let mut rows = 0;
        let fits = |job: &&Job| {
            rows += job.n;
            rows <= self.options.rows
        };
        let count = queue.jobs.iter().take_while(fits).count().max(1).min(queue.jobs.len());
        if count == 0 {
            queue.is_served = false;
            return None;
        }
        let jobs: Vec<Job> = queue.jobs.drain(..count).collect();
        queue.rows -= jobs.iter().map(|job| job.n).sum::<usize>();
        Some(jobs)
    }

    /// Whether rows take more than this many floating-point operations.
    fn takes(&self, operations: usize, n: usize, outputs: Outputs) -> bool {
        n.saturating_mul(self.model.work_of_a_row()) > operations || outputs.conditional_means
    }

    /// Evaluates a request as a batch of its own, once a core is free.
    async fn run_apart(self: Arc<Self>, job: Job) {
        // An error would mean that the semaphore is closed, which it never is.
        let permit = self.cores.clone().acquire_owned().await;
        self.lock().rows -= job.n;
        let (n, outputs) = (job.n, job.outputs);
        self.run_beside_sockets(vec![job], n, outputs);
        drop(permit);
    }

    /// As [`run`](Self::run), on a thread of its own if that takes long.
    fn run_beside_sockets(&self, jobs: Vec<Job>, n: usize, outputs: Outputs) {
        if self.takes(LONG, n, outputs) {
            tokio::task::block_in_place(|| self.run(jobs));
        } else {
            self.run(jobs);
        }
    }

    /// Evaluates jobs and answers them. Rows with missing values are evaluated apart: each pattern of them is work of its
    /// own, for which complete rows must not wait.
    fn run(&self, mut jobs: Vec<Job>) {
        // The client of a closed channel has gone.
        jobs.retain(|job| !job.answer.is_closed());
        let (incomplete, complete): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.has_missing);
        for part in [complete, incomplete] {
            if !part.is_empty() {
                self.run_together(part);
            }
        }
    }

    fn run_together(&self, mut jobs: Vec<Job>) {
        let outputs = jobs.iter().fold(Outputs::default(), |all, job| all.or(job.outputs));
        let n: usize = jobs.iter().map(|job| job.n).sum();
        self.metrics.batch_rows.observe(n as f64);
        self.metrics.rows.inc_by(n as u64);
        let rows = match jobs.as_mut_slice() {
            [only] => std::mem::take(&mut only.rows),
            all => {
                let mut rows = Vec::with_capacity(n * self.model.n_features());
                all.iter().for_each(|job| rows.extend_from_slice(&job.rows));
                rows.into()
            }
        };
        // The jobs of a batch are alike in this.
        let has_missing = jobs.iter().any(|job| job.has_missing);
        let started = Instant::now();
        // As many others as there are cores keep them busy, by reading bodies or with batches of their own. A long batch does
        // not trust in that: they may be clients that wait.
        let are_busy = self.metrics.requests_in_progress.get() >= self.n_cores as i64;
        let on_all_threads = !are_busy || self.takes(LONG, n, outputs);
        let found = self.model.evaluate(rows, has_missing, outputs, on_all_threads);
        self.metrics.evaluation_seconds.observe(started.elapsed().as_secs_f64());
        match found {
            Ok(results) => {
                let (results, mut first) = (Arc::new(results), 0);
                for job in jobs {
                    let share = (results.clone(), first..first + job.n);
                    first += job.n;
                    // A client that has gone needs no answer.
                    let _gone = job.answer.send(Ok(share));
                }
            }
            // One request's error is not the others'.
            Err(_) if jobs.len() > 1 => {
                for job in jobs {
                    self.run_together(vec![job]);
                }
            }
            Err(refusal) => {
                for job in jobs {
                    let _gone = job.answer.send(Err(refusal.clone()));
                }
            }
        }
    }
}

/// The task that serves a queue. If it panics, the next request starts another.
struct Server(Arc<Batcher>);

impl Server {
    async fn serve(self) {
        let batcher = &self.0;
        loop {
            batcher.wait().await;
            let Some(jobs) = batcher.take() else { break };
            let n = jobs.iter().map(|job| job.n).sum();
            let outputs = jobs.iter().fold(Outputs::default(), |all, job| all.or(job.outputs));
            batcher.run_beside_sockets(jobs, n, outputs);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        if queue.is_served && std::thread::panicking() {
            // The jobs left are answered with an error, as those of the batch that panicked are.
            let waiting = queue.jobs.iter().map(|job| job.n).sum::<usize>();
            queue.rows -= waiting;
            queue.jobs.clear();
            queue.is_served = false;
        }
    }
}
