//! Many fits in one call: the groups of a table, each fitted alone.
//!
//! A fit of a few hundred rows takes a fraction of a millisecond, too little to divide among threads. So each thread
//! runs fits of its own ([`Engine::concurrently`]), the largest first, and a pass within such a fit has the same shares
//! of rows as in a fit alone: the bits are the same. Fits of rows that fill the engine run one after another, each on
//! all threads.
//!
//! An engine may run many small fits in a way of its own ([`Engine::fit_small`]), for those that [`refusal`] does not
//! exclude; [`GroupRun`] is what it returns, and the rest is common.

mod each;
mod groups;
pub(crate) mod small;

use std::cmp::Reverse;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gmm_model::Dataset;

use crate::cpu::FEW_NUMBERS;
use crate::fit::fit_observed;
use crate::{Engine, Error, Fit, FitOptions, FitRule, NoiseOptions, NoiseStart};

pub use each::{GroupWork, map_groups};
pub use groups::{Grouping, Groups};
pub use small::{GroupRun, SmallFit, refusal};

/// One of many fits.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The rows, of those of the table.
    pub rows: Range<usize>,
    /// The options of the fit. What they have for each row ([`FitRule::labels`], [`NoiseStart::Rows`]) they have for all
    /// rows of the table.
    pub options: &'a FitOptions,
}

/// What happened to one of many fits.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// A fit made an iteration.
    Iteration {
        /// Its index.
        group: usize,
    },
    /// A fit ended.
    Done {
        /// Its index.
        group: usize,
        /// Its result.
        fit: &'a Result<Fit, Error>,
    },
}

/// Called after every iteration and every fit, on the thread that made it and perhaps on several threads at the same
/// time. [`ControlFlow::Break`] ends all fits.
pub type Watch<'a> = dyn Fn(Progress<'_>) -> ControlFlow<()> + Sync + 'a;

/// Fits a mixture to each group of rows. The result has one entry per group, in their order.
///
/// Each fit has the bits of [`fit()`](crate::fit()) of the group's rows alone on this engine; on a GPU small fits that it
/// runs in a way of its own ([`Engine::fit_small`]) agree with that up to rounding, with bits that depend on no other group,
/// unless [`FitOptions::concurrent`] is `false`. A group that fails, for
/// example for lack of rows, has its own error and changes no other. All fits have the same options, the seed included;
/// what these have for each row ([`FitRule::labels`], [`NoiseStart::Rows`]) they have for all rows of the table.
///
/// Groups so small that one does not fill the engine are fitted at the same time ([`Engine::concurrently`]), unless
/// [`FitOptions::concurrent`] is `false`: on a CPU with the same bits, and on several GPUs with those of a fit on one.
///
/// # Errors
/// Each entry: as for [`fit()`](crate::fit()); [`Error::Data`] for an empty group.
///
/// ```
/// use gmm_host::many::{Groups, fit_many};
/// use gmm_host::{CpuEngine, FitOptions};
/// use gmm_model::Dataset;
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [0.2], [5.0], [5.2], [7.0]])?;
/// let fits = fit_many(&CpuEngine::new(2)?, &Groups::new(&data, &[0..2, 2..4, 4..5]), &FitOptions::new(1));
/// assert!((fits[1].as_ref().unwrap().mixture.means()[[0, 0]] - 5.1).abs() < 1e-12);
/// assert!(fits[2].is_err(), "one row is too few");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit_many(engine: &dyn Engine, groups: &Groups<'_>, options: &FitOptions) -> Vec<Result<Fit, Error>> {
    fit_many_watched(engine, groups, options, &|_| ControlFlow::Continue(()))
}

/// As [`fit_many`], with `watch` to show progress and to stop. Groups whose fit did not end before `watch` broke have
/// [`Error::Interrupted`].
///
/// # Errors
/// Each entry: as for [`fit_many`].
pub fn fit_many_watched(
    engine: &dyn Engine,
    groups: &Groups<'_>,
    options: &FitOptions,
    watch: &Watch<'_>,
) -> Vec<Result<Fit, Error>> {
    let jobs: Vec<Job<'_>> = groups.rows.iter().map(|rows| Job { rows: rows.clone(), options }).collect();
    fit_jobs(engine, groups.data, &jobs, watch)
}

/// As [`fit_many_watched`], for fits with options of their own, also of the same rows.
///
/// # Errors
/// Each entry: as for [`fit_many`].
pub fn fit_jobs(engine: &dyn Engine, data: &Dataset, jobs: &[Job<'_>], watch: &Watch<'_>) -> Vec<Result<Fit, Error>> {
    let mut fits = Fits { data, jobs, watch, done: Mutex::default(), stopped: AtomicBool::new(false) };
    let done = fits.on_engine(engine);
    let mut others: Vec<usize> = (0..jobs.len()).filter(|&job| done[job].is_none()).collect();
    // The largest first: the last to run are then short, and no thread waits long for another.
    others.sort_by_key(|&job| Reverse(fits.size(job)));
    fits.done = Mutex::new(done);
    let (large, small): (Vec<usize>, Vec<usize>) = others.into_iter().partition(|&job| fits.size(job) > FEW_NUMBERS);
    fits.run(engine, &large);
    fits.run(engine, &small);
    let all = fits.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.into_iter().map(|fit| fit.unwrap_or(Err(Error::Interrupted { iterations: 0 }))).collect()
}

/// Fits that run.
struct Fits<'a> {
    data: &'a Dataset,
    jobs: &'a [Job<'a>],
    watch: &'a Watch<'a>,
    /// The fits that ended.
    done: Mutex<Vec<Option<Result<Fit, Error>>>>,
    stopped: AtomicBool,
}

impl Fits<'_> {
    /// Numbers that a fit reads in each pass.
    fn size(&self, job: usize) -> usize {
        self.jobs[job].rows.len().saturating_mul(self.data.n_features())
    }

    /// Runs the fits that the engine has a way of its own for. Returns all fits, `None` for the others.
    fn on_engine(&self, engine: &dyn Engine) -> Vec<Option<Result<Fit, Error>>> {
        let ended = small::run(engine, self.data, self.jobs);
        for (group, fit) in ended.iter().enumerate() {
            if let Some(fit) = fit
                && self.see(Progress::Done { group, fit }).is_break()
            {
                break;
            }
        }
        ended
    }

    /// Runs fits, at the same time where the engine offers it.
    fn run(&self, engine: &dyn Engine, chosen: &[usize]) {
        let concurrent = chosen.iter().all(|&job| self.jobs[job].options.concurrent);
        let n = chosen.first().map_or(0, |&largest| self.jobs[largest].rows.len());
        each::share_out(engine, (n, self.data.n_features()), (chosen.len(), concurrent), &|part, i| {
            if self.stopped.load(Ordering::Relaxed) {
                return false;
            }
            self.end(chosen[i], self.fit(part, chosen[i]));
            true
        });
    }

    fn fit(&self, part: &dyn Engine, job: usize) -> Result<Fit, Error> {
        let Job { rows, options } = &self.jobs[job];
        let data = Groups::new(self.data, std::slice::from_ref(rows)).part(0)?;
        let own = self.own_options(rows, options)?;
        let mut observer = |_: &crate::Iteration<'_>| self.see(Progress::Iteration { group: job });
        fit_observed(part, &data, own.as_ref().unwrap_or(options), &mut observer)
    }

    fn end(&self, job: usize, fit: Result<Fit, Error>) {
        let _ = self.see(Progress::Done { group: job, fit: &fit });
        self.done.lock().unwrap_or_else(PoisonError::into_inner)[job] = Some(fit);
    }

    fn see(&self, progress: Progress<'_>) -> ControlFlow<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        let go_on = (self.watch)(progress);
        if go_on.is_break() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        go_on
    }

    /// The options for some rows, if they have a value for each row.
    fn own_options(&self, rows: &Range<usize>, options: &FitOptions) -> Result<Option<FitOptions>, Error> {
        let FitRule { labels, noise, .. } = &options.rule;
        let noisy = noise.as_ref().and_then(|noise| match &noise.start {
            NoiseStart::Rows(rows) => Some((noise, rows)),
            _ => None,
        });
        if labels.is_none() && noisy.is_none() {
            return Ok(None);
        }
        let mut own = options.clone();
        if let Some(labels) = labels {
            own.rule.labels = Some(self.own_values("labels", labels, rows)?);
        }
        if let Some((noise, all)) = noisy {
            let start = NoiseStart::Rows(self.own_values("noise", all, rows)?);
            own.rule.noise = Some(NoiseOptions { start, ..noise.clone() });
        }
        Ok(Some(own))
    }

    fn own_values<V: Clone>(
        &self,
        option: &'static str,
        values: &[V],
        rows: &Range<usize>,
    ) -> Result<Arc<Vec<V>>, Error> {
        let n = self.data.n_rows();
        if values.len() != n {
            let (value, must) = (format!("{} values", values.len()), format!("one for each of the {n} rows"));
            return Err(Error::Option { option, value, must });
        }
        Ok(Arc::new(values[rows.clone()].to_vec()))
    }
}
