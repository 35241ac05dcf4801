//! Many fits in one call: the groups of a table, each fitted alone.

mod groups;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fit::fit_observed;
use crate::{Engine, Error, Fit, FitOptions, FitRule, NoiseOptions, NoiseStart};

pub use groups::{Grouping, Groups};

/// What happened to one of many fits.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// The fit of a group made an iteration.
    Iteration {
        /// Index of the group.
        group: usize,
    },
    /// The fit of a group ended.
    Done {
        /// Index of the group.
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
/// Each fit has the bits of [`fit()`](crate::fit()) of the group's rows alone on this engine. A group that fails, for
/// example for lack of rows, has its own error and changes no other. All fits have the same options, the seed included;
/// what it has for each row ([`FitRule::labels`], [`NoiseStart::Rows`]) it has for all rows of the table.
///
/// Groups so small that one does not fill the engine are fitted at the same time ([`Engine::concurrently`]), unless
/// [`FitOptions::concurrent`] is `false`.
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
    let fits = Fits {
        groups,
        options,
        watch,
        done: Mutex::new((0..groups.len()).map(|_| None).collect()),
        stopped: AtomicBool::new(false),
    };
    fits.run(engine, (0..groups.len()).collect());
    let all = fits.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.into_iter().map(|fit| fit.unwrap_or(Err(Error::Interrupted { iterations: 0 }))).collect()
}

/// Fits that run.
struct Fits<'a> {
    groups: &'a Groups<'a>,
    options: &'a FitOptions,
    watch: &'a Watch<'a>,
    /// The fits that ended.
    done: Mutex<Vec<Option<Result<Fit, Error>>>>,
    stopped: AtomicBool,
}

impl Fits<'_> {
    /// Fits the given groups, at the same time where the engine offers it.
    fn run(&self, engine: &dyn Engine, chosen: Vec<usize>) {
        let d = self.groups.data.n_features();
        let size = |group: &usize| self.groups.rows[*group].len();
        let next = AtomicUsize::new(0);
        let work = |part: &dyn Engine| {
            loop {
                match chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    Some(&group) if !self.stopped.load(Ordering::Relaxed) => self.fit(part, group),
                    _ => return,
                }
            }
        };
        let largest = chosen.iter().map(size).max().unwrap_or(0);
        if chosen.len() < 2 || !self.options.concurrent || !engine.concurrently((largest, d), &work) {
            work(engine);
        }
    }

    fn fit(&self, part: &dyn Engine, group: usize) {
        let result = self.groups.part(group).and_then(|data| {
            let own = self.own_options(group)?;
            fit_observed(part, &data, own.as_ref().unwrap_or(self.options), &mut |_| {
                self.see(Progress::Iteration { group })
            })
        });
        let _ = self.see(Progress::Done { group, fit: &result });
        self.done.lock().unwrap_or_else(PoisonError::into_inner)[group] = Some(result);
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

    /// The options of a group, if some of them have a value for each row.
    fn own_options(&self, group: usize) -> Result<Option<FitOptions>, Error> {
        let FitRule { labels, noise, .. } = &self.options.rule;
        let noisy = noise.as_ref().and_then(|noise| match &noise.start {
            NoiseStart::Rows(rows) => Some((noise, rows)),
            _ => None,
        });
        if labels.is_none() && noisy.is_none() {
            return Ok(None);
        }
        let mut own = self.options.clone();
        if let Some(labels) = labels {
            own.rule.labels = Some(self.own_values("labels", labels, group)?);
        }
        if let Some((noise, rows)) = noisy {
            let start = NoiseStart::Rows(self.own_values("noise", rows, group)?);
            own.rule.noise = Some(NoiseOptions { start, ..noise.clone() });
        }
        Ok(Some(own))
    }

    /// The values of a group's rows.
    fn own_values<V: Clone>(&self, option: &'static str, values: &[V], group: usize) -> Result<Arc<Vec<V>>, Error> {
        let n = self.groups.data.n_rows();
        if values.len() != n {
            let (value, must) = (format!("{} values", values.len()), format!("one for each of the {n} rows"));
            return Err(Error::Option { option, value, must });
        }
        Ok(Arc::new(values[self.groups.rows[group].clone()].to_vec()))
    }
}
