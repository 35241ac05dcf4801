//! Checks answers against the naive f64 reference before anything is timed.
//!
//! The engine gets as many rows as will be timed, so that it takes the code path that will be timed. The rows repeat
//! `m` distinct ones: the reference sums those `m` and multiplies by `n/m`. A tile that is left out or counted twice
//! changes the result, since `m` is not a multiple of any tile's size.
//!
//! With only a few rows per component, an M-step gives covariances with few significant digits, and a loop on the
//! device falls back to paths that will not be timed. If `m` is that small, the loop gets the rows that will be timed,
//! up to a million distinct ones, and is compared with passes over them; the kernels of these passes are checked
//! against the reference.

mod again;
mod kmeans;

use std::fmt;
use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use gmm_bench::difference::frobenius;
use gmm_bench::source::effective_components;
use gmm_host::{EmOptions, Engine, Resident, fast_loss, run_em, shift};
use gmm_model::{Mixture, Precision, Statistics, m_step, reference};
use ndarray::{ArrayView2, Axis, s};
use rayon::prelude::*;

use self::again::{rounding_of_means, sums_again};
pub(crate) use self::kmeans::check_kmeans;
use super::data::Source;
use super::timing;
use super::workloads::{Tolerance, Workload, tolerance};
use crate::definition::Shape;

/// `reg_covar` when the loop is checked with the reference's few rows. Without it covariances could be singular, and
/// the next responsibilities all 0 or 1. It is subtracted again when the sums are reconstructed.
const FEW_ROWS_REG_COVAR: f64 = 1.0;

/// Iterations of the loop that are compared with the same number of single passes and M-steps of the library.
const STEPS: usize = 3;

/// Minimum number of distinct rows per component, on average, with which a loop is checked.
const ROWS_OF_COMPONENT: usize = 32;

/// Distinct rows for a loop if the reference's are too few: a divisor of all larger numbers of rows that are timed.
const DIFFERENT: usize = 1_000_000;

/// Number of rows from whose responsibilities the components' overlap is computed.
const OVERLAP_ROWS: usize = 512;

/// Errors of sums against the reference: relative Frobenius errors, and the absolute error of the log-likelihood per
/// row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errors {
    pub(crate) weight: f64,
    pub(crate) first: f64,
    pub(crate) second: f64,
    pub(crate) log_likelihood: f64,
}

impl Errors {
    /// The errors of `found`, the sums over rows that repeat the rows of `truth` `times` times.
    pub(crate) fn of(found: &Statistics, truth: &Statistics, times: f64) -> Self {
        let rows = truth.n_rows as f64;
        let rows_agree = found.n_rows as f64 == times * rows && found.total_weight == times * rows;
        let log_likelihood = (found.log_likelihood / (times * rows) - truth.log_likelihood / rows).abs();
        Self {
            weight: if rows_agree { frobenius(&found.weight, &truth.weight, times) } else { f64::INFINITY },
            first: frobenius(flat(&found.first), flat(&truth.first), times),
            second: frobenius(&found.second, &truth.second, times),
            log_likelihood: if log_likelihood.is_finite() { log_likelihood } else { f64::INFINITY },
        }
    }

    /// The largest error of the three sums.
    pub(crate) const fn sums(&self) -> f64 {
        self.weight.max(self.first).max(self.second)
    }

    /// Whether sums and log-likelihood are within the tolerance; false for NaN.
    pub(crate) fn within(&self, tolerance: Tolerance) -> bool {
        self.sums() <= tolerance.sums && self.log_likelihood <= tolerance.log_likelihood
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weight, first, second, log_likelihood } = self;
        write!(f, "weight {weight:.1e} first {first:.1e} second {second:.1e} log-likelihood {log_likelihood:.1e}")
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// Errors of one pass over data at the origin.
    pub(crate) origin: Errors,
    /// Errors of one pass over data a hundred standard deviations away.
    pub(crate) offset: Errors,
    /// Errors of the EM loop at both places, in sums reconstructed from the mixture that it returns: one iteration
    /// against the reference (or against a pass, if the reference has too few rows), and three against single passes
    /// and M-steps.
    pub(crate) looped: Errors,
    /// The distinct code paths of the loop's iterations in the checks, named by [`timing::way`].
    pub(crate) ways: Vec<&'static str>,
    /// Mean over rows of exp(entropy of the responsibilities).
    pub(crate) effective_components: f64,
    /// A description of the first wrong answer, if there is one.
    pub(crate) wrong: Option<String>,
}

impl Checked {
    /// The objection, if any, that the timed code path is not the one that was checked.
    pub(crate) fn other_than(&self, timed: &str) -> Option<String> {
        let others = self.ways.iter().any(|way| *way != timed);
        others.then(|| format!("timed was {timed}, but checked {}", self.ways.join(" and ")))
    }
}

/// Compares a pass and the loop with the reference, at the origin and at the offset.
///
/// # Errors
/// Any error of the engine. A wrong answer is not an error; it is reported in [`Checked::wrong`].
pub(crate) fn check(engine: &dyn Engine, source: &Source, workload: &Workload) -> Result<Checked> {
    let Workload { kind, precision, shape: Shape { n, d, .. }, checked, fast, .. } = *workload;
    let mut out = Checked {
        origin: Errors::default(),
        offset: Errors::default(),
        looped: Errors::default(),
        ways: Vec::new(),
        effective_components: 0.0,
        wrong: None,
    };
    let Looped { different, reg_covar } = Looped::of(workload);
    for offset in [false, true] {
        let start = source.start(kind, offset)?;
        let load = |different: usize, n: usize| -> Result<_> {
            let (distinct, data) = source.repeated(different, n, precision, offset)?;
            Ok((distinct, engine.load(&data, precision, &shift::of_data(&data))?))
        };
        let (distinct, mut rows) = load(checked, n)?;
        let mut truth = statistics(&start, distinct.view());
        let errors = Errors::of(&rows.pass(&start)?, &truth, (n / checked) as f64);
        if different != checked {
            drop(rows);
            rows = load(different, n)?.1;
            truth = rows.pass(&start)?;
        }
        let options = EmOptions { tol: 0.0, max_iter: 1, reg_covar, precision, autotune: false, fast };
        let stepped = sums_again(&one_by_one(rows.as_mut(), &start, reg_covar)?, &start, n as u64, reg_covar);
        let mut looped = |max_iter: usize| -> Result<Statistics> {
            let (stepped, way) = looped(rows.as_mut(), &start, &EmOptions { max_iter, ..options })?;
            if !out.ways.contains(&way) {
                out.ways.push(way);
            }
            Ok(sums_again(&stepped, &start, n as u64, reg_covar))
        };
        let first = Errors::of(&looped(1)?, &truth, n as f64 / truth.n_rows as f64);
        let later = Errors::of(&looped(STEPS)?, &stepped, 1.0);
        let place = if offset { "at the offset" } else { "at the origin" };
        let mut judge = |what: &str, errors: Errors, allowed: Tolerance| {
            if !errors.within(allowed) && out.wrong.is_none() {
                out.wrong = Some(format!("{what} {place}: {errors}"));
            }
        };
        judge("pass", errors, tolerance(precision));
        let allowed = |of: Tolerance, truth: &Statistics| {
            let of = of.and(rounding_of_means(start.means(), truth));
            if fast { of.and_halves(d) } else { of }
        };
        judge("loop", first, allowed(tolerance(precision), &truth));
        judge("loop's later iterations", later, allowed(of_fit(precision, STEPS), &stepped));
        *(if offset { &mut out.offset } else { &mut out.origin }) = errors;
        out.looped = worst(out.looped, worst(first, later));
        if !offset {
            out.effective_components =
                effective_components(&start, distinct.slice(s![..checked.min(OVERLAP_ROWS), ..]));
        }
    }
    Ok(out)
}

/// The data with which the loop is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Looped {
    /// Number of distinct rows: the reference's, or more if components would get too few.
    different: usize,
    /// Added to the covariances' diagonals.
    reg_covar: f64,
}

impl Looped {
    fn of(workload: &Workload) -> Self {
        let Workload { shape: Shape { n, k, .. }, checked, .. } = *workload;
        if checked >= ROWS_OF_COMPONENT * k {
            Self { different: checked, reg_covar: FEW_ROWS_REG_COVAR }
        } else {
            Self { different: DIFFERENT.min(n), reg_covar: timing::REG_COVAR }
        }
    }
}

/// Runs the loop; returns its result and the code path of its iterations.
fn looped(rows: &mut dyn Resident, start: &Mixture, options: &EmOptions) -> Result<(Stepped, &'static str)> {
    let run = run_em(rows, start.clone(), options, 0, &mut |_| ControlFlow::Continue(()))?;
    let (made, iterations) = ((run.iterations, run.trace.len()), options.max_iter);
    ensure!(made == (iterations, iterations), "{iterations} iterations were asked for, {made:?} made");
    let way = timing::way(&run);
    Ok((Stepped { mixture: run.mixture, mean_log_likelihood: run.trace[iterations - 1] }, way))
}

/// Describes the difference between an iteration with `fast` and one in full precision over the given rows; `Err` if it
/// exceeds the tolerance.
pub(crate) fn loss(
    rows: &mut dyn Resident,
    start: &Mixture,
    precision: Precision,
) -> Result<std::result::Result<String, String>> {
    let reg_covar = timing::REG_COVAR;
    let options = EmOptions { tol: 0.0, max_iter: 1, reg_covar, precision, autotune: false, fast: true };
    let Some(loss) = fast_loss(rows, start, &options)? else {
        return Ok(Ok("lower precision is not faster for this shape".to_owned()));
    };
    let allowed = tolerance(precision).and_halves(start.n_features());
    let sums = loss.weights.max(loss.means).max(loss.covariances);
    let well = sums <= allowed.sums && loss.log_likelihood <= allowed.log_likelihood;
    Ok(if well { Ok(loss.to_string()) } else { Err(loss.to_string()) })
}

/// Makes [`STEPS`] iterations by single passes and the library's M-steps.
fn one_by_one(rows: &mut dyn Resident, start: &Mixture, reg_covar: f64) -> Result<Stepped> {
    let mut at = Stepped { mixture: start.clone(), mean_log_likelihood: f64::NAN };
    for _ in 0..STEPS {
        let statistics = rows.pass(&at.mixture)?;
        at.mean_log_likelihood = statistics.mean_log_likelihood();
        at.mixture = m_step(&statistics, reg_covar, Some(&at.mixture))?.mixture;
    }
    Ok(at)
}

/// A mixture, and the mean log-likelihood at the E-step from which it was made.
struct Stepped {
    mixture: Mixture,
    mean_log_likelihood: f64,
}

/// The reference's statistics: pieces of the rows are summed in parallel, and added in order.
pub(crate) fn statistics(mixture: &Mixture, rows: ArrayView2<'_, f64>) -> Statistics {
    let threads = rayon::current_num_threads();
    // Short pieces keep the reference's rounding errors small; for large statistics there are few pieces, to save
    // memory.
    let large = mixture.covariance_type().second_len(mixture.n_components(), mixture.n_features()) > 1 << 20;
    let longest = if large { usize::MAX } else { 2048 };
    let piece = rows.nrows().div_ceil(if large { threads } else { 4 * threads }).clamp(1, longest);
    let pieces: Vec<ArrayView2<'_, f64>> = rows.axis_chunks_iter(Axis(0), piece).collect();
    let parts: Vec<Statistics> =
        pieces.into_par_iter().map(|rows| reference::statistics(mixture, rows, None)).collect();
    let mut parts = parts.into_iter();
    let mut sum = parts.next().expect("at least one row");
    parts.for_each(|part| sum.add(&part).expect("the same centres"));
    sum
}

fn worst(a: Errors, b: Errors) -> Errors {
    Errors {
        weight: a.weight.max(b.weight),
        first: a.first.max(b.first),
        second: a.second.max(b.second),
        log_likelihood: a.log_likelihood.max(b.log_likelihood),
    }
}

fn flat(values: &ndarray::Array2<f64>) -> &[f64] {
    values.as_slice().expect("row-major")
}

/// The tolerance of a fit of several iterations: that of one iteration, with sums times the number of iterations.
pub(crate) fn of_fit(precision: Precision, iterations: usize) -> Tolerance {
    let one = tolerance(precision);
    Tolerance { sums: one.sums * iterations as f64, log_likelihood: one.log_likelihood }
}

#[cfg(test)]
mod tests {
    use super::super::workloads::WORKLOADS;
    use super::*;

    #[test]
    fn times_of_a_way_that_was_not_checked_are_refused() {
        let of = |ways: &[&'static str]| Checked {
            origin: Errors::default(),
            offset: Errors::default(),
            looped: Errors::default(),
            ways: ways.to_vec(),
            effective_components: 1.0,
            wrong: None,
        };
        assert_eq!(of(&["halves"]).other_than("halves"), None);
        assert!(of(&["device and host"]).other_than("halves").is_some());
        let said = of(&["halves", "large"]).other_than("halves").unwrap();
        assert_eq!(said, "timed was halves, but checked halves and large");
    }

    #[test]
    fn a_loop_is_checked_with_enough_different_rows_for_each_component() {
        for workload in WORKLOADS {
            let (Shape { n, k, .. }, Looped { different, .. }) = (workload.shape, Looped::of(&workload));
            assert!(different >= ROWS_OF_COMPONENT * k && n.is_multiple_of(different), "{}", workload.name());
        }
        // All rows that will be timed, if the reference's are too few.
        let few = Workload { shape: Shape { n: 2_000, k: 100, d: 4 }, checked: 500, ..WORKLOADS[0] };
        assert_eq!(Looped::of(&few), Looped { different: 2_000, reg_covar: timing::REG_COVAR });
    }
}
