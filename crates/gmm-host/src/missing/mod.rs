//! Rows with missing values on any engine: one pass per pattern over its observed columns.
//!
//! Rows are grouped by pattern (the set of observed columns) once, when they are loaded. A pattern of many rows is loaded
//! into the engine as complete rows of its observed columns; a pattern of few rows stays on the host ([`few`], [`lanes`]). A pass of EM
//! makes, for each pattern, a pass under the marginal mixture, and a [`Completion`] turns its statistics into those of all
//! columns. So the cost beside the passes is that of the factors of each pattern, and no row is touched twice.
//!
//! A GPU has passes over the patterns of all rows at once, which take the place of all that.
//!
//! k-means and the moments of given responsibilities use the observed values of each row only ([`available`]). A start
//! by a tree completes its sample of rows itself.

mod available;
mod few;
mod lanes;
pub(crate) mod patterns;
mod seeding;

use std::sync::Arc;

use gmm_model::missing::Completion;
use gmm_model::{CovarianceType, Dataset, Matrix, Mixture, Statistics};
use ndarray::ArrayView2;
use rayon::prelude::*;

use crate::deconvolution::MeasuredPasses;
use crate::engine::{ComponentColumns, Evaluate, Passes, check_features};
use crate::{Data, Error, EvaluateOptions, Evaluation, FillResponsibilities, FitOptions, Resident, memory};
use available::Available;
use lanes::{Lanes, Workspace};
use patterns::{PatternRows, shares};

/// The line of a fit's record about missing values.
pub(crate) fn line(data: Data<'_>) -> Option<String> {
    let Data::Host(data) = data else { return None };
    let (missing, all) = (data.n_missing(), data.n_rows() * data.n_features());
    (missing > 0).then(|| format!("{missing} of {all} values missing at random"))
}

/// Checks what a fit of rows with missing values needs.
///
/// # Errors
/// [`DataError::Unobserved`](gmm_model::DataError::Unobserved) with the first column that has no observed value;
/// [`Error::Missing`] for what needs complete rows.
pub(crate) fn check(data: Data<'_>, options: &FitOptions) -> Result<(), Error> {
    if let Data::Host(data) = data {
        data.check_columns_observed()?;
    }
    if options.rule.noise.is_some() {
        data.require_exact("uniform noise")?;
    }
    Ok(())
}

/// Loads complete rows, `(n, d)`, less a shift, `(d,)`.
pub(crate) type LoadComplete<'a> = dyn Fn(&Dataset, &[f64]) -> Result<Box<dyn Resident>, Error> + 'a;

/// Loads rows with missing values: each pattern of many rows by `load`. With a `pool`, patterns are passed over in parallel.
///
/// # Errors
/// Any error of `load`; [`Error::Memory`].
pub(crate) fn load(
    load: &LoadComplete<'_>,
    data: &Dataset,
    shift: &[f64],
    pool: Option<Arc<rayon::ThreadPool>>,
) -> Result<Box<dyn Resident>, Error> {
    check_features(data.n_features(), shift.len())?;
    let (n, d) = data.rows().dim();
    memory::check("the rows of each pattern of missing values", 8 * n as u128 * d as u128)?;
    let (patterns, unobserved) = patterns::of_data(data, shift, load)?;
    let weights = data.weights().map(<[f64]>::to_vec);
    Ok(Box::new(HoledRows::new(data.rows().clone(), weights, shift, (patterns, unobserved), pool)))
}

/// Loads complete rows for as long as an engine's rows live.
pub(crate) type KeepLoading = dyn Fn(&Dataset, &[f64]) -> Result<Box<dyn Resident>, Error> + Send + Sync;

/// Passes over the patterns of all rows at once.
pub(crate) struct Together {
    pub(crate) passes: Box<dyn MeasuredPasses>,
    /// Loads the rows of a pattern, if they are passed over pattern by pattern after all.
    pub(crate) load: Arc<KeepLoading>,
}

/// Rows with missing values whose sums and densities are computed for all patterns at once, while that is faster and there is
/// memory for it.
///
/// # Errors
/// If the shift has another number of columns.
pub(crate) fn load_together(data: &Dataset, shift: &[f64], together: Together) -> Result<Box<dyn Resident>, Error> {
    let patterns = patterns::of_rows(data.rows()).0.len();
    let mut rows = for_starts(data, shift)?;
    rows.together = Some((together, patterns));
    Ok(Box::new(rows))
}

/// Rows with missing values for k-means and the moments of given responsibilities, and nothing else.
///
/// # Errors
/// If the shift has another number of columns.
pub(crate) fn for_starts(data: &Dataset, shift: &[f64]) -> Result<HoledRows, Error> {
    check_features(data.n_features(), shift.len())?;
    let weights = data.weights().map(<[f64]>::to_vec);
    Ok(HoledRows::new(data.rows().clone(), weights, shift, (Vec::new(), Vec::new()), None))
}

/// The rows of `data` without their measurement errors, for starts: by `load` if no value is missing.
///
/// # Errors
/// As for [`for_starts`] and `load`.
pub(crate) fn plain(
    data: &Dataset,
    shift: &[f64],
    load: impl Fn(&Dataset) -> Result<Box<dyn Resident>, Error>,
) -> Result<Box<dyn Resident>, Error> {
    let exact = data.without_measurement_errors();
    if exact.has_missing() { Ok(Box::new(for_starts(&exact, shift)?)) } else { load(&exact) }
}

/// Whether to pass over `n` rows pattern by pattern, where an engine also has passes over all patterns at once: if a pattern has
/// so many rows that the engine's fastest passes make up for some 50 µs for each pattern. Measured on an H200.
fn by_pattern_is_faster(n: usize, patterns: usize, mixture: &Mixture) -> bool {
    let (k, d) = mixture.means().dim();
    let (each, enough) = match mixture.covariance_type() {
        CovarianceType::Full | CovarianceType::Tied => (k * d * d, 20_000_000),
        CovarianceType::Diag | CovarianceType::Spherical => (k * d, 8_000_000),
    };
    (n / patterns.max(1)).saturating_mul(each) >= enough
}

/// Rows with missing values, grouped by pattern.
pub(crate) struct HoledRows {
    /// The rows as they were given, `(n, d)`, with NaN where a value is missing.
    rows: Matrix,
    weights: Option<Vec<f64>>,
    shift: Vec<f64>,
    /// Passes over all patterns at once, and the number of patterns; there are then no shares.
    together: Option<(Together, usize)>,
    /// The patterns in the order of their first rows, in shares of similar cost. Sums are taken per share, and added in order.
    shares: Vec<Vec<PatternRows>>,
    /// Rows without an observed value, ascending.
    unobserved: Vec<usize>,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// Squared distance of each row to the nearest centre, `(n,)`; empty if there is none.
    near: Vec<f64>,
    /// The rows of the last draws; cleared by the next centre.
    drawn: Vec<usize>,
}

/// Above this many bytes of sums, the shares are passed over one after another.
const LARGE_SUMS: usize = 1 << 28;

impl HoledRows {
    fn new(
        rows: Matrix,
        weights: Option<Vec<f64>>,
        shift: &[f64],
        (patterns, unobserved): (Vec<PatternRows>, Vec<usize>),
        pool: Option<Arc<rayon::ThreadPool>>,
    ) -> Self {
        let shares = shares(patterns, shift.len());
        let (near, drawn) = (Vec::new(), Vec::new());
        Self { rows, weights, shift: shift.to_vec(), together: None, shares, unobserved, pool, near, drawn }
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights[row])
    }

    /// Runs `run` on the passes over all patterns at once. `None` if there are none, if they would be slower for this mixture, or
    /// if they had no memory: then the rows are from now on in patterns.
    fn at_once<A>(
        &mut self,
        mixture: Option<&Mixture>,
        run: impl FnOnce(&dyn MeasuredPasses) -> Result<A, Error>,
    ) -> Result<Option<A>, Error> {
        let Some((Together { passes, .. }, patterns)) = &self.together else { return Ok(None) };
        let n = self.rows.dim().0;
        if !mixture.is_some_and(|mixture| by_pattern_is_faster(n, *patterns, mixture)) {
            match run(passes.as_ref()) {
                Err(Error::Memory { .. }) => {}
                found => return found.map(Some),
            }
        }
        self.part()?;
        Ok(None)
    }

    /// Loads the rows pattern by pattern, in place of the passes over all patterns at once.
    fn part(&mut self) -> Result<(), Error> {
        // First, so that their memory is free.
        let Some((Together { load, .. }, _)) = self.together.take() else { return Ok(()) };
        let mut data = Dataset::with_holes(self.rows.clone())?;
        if let Some(weights) = &self.weights {
            data = data.with_weights(weights.clone())?;
        }
        let (patterns, unobserved) = patterns::of_data(&data, &self.shift, &*load)?;
        (self.shares, self.unobserved) = (shares(patterns, self.shift.len()), unobserved);
        Ok(())
    }

    /// Runs `run` on each share, in parallel if `alike` such results have room, and returns the results in order.
    fn each<A: Send>(
        &mut self,
        bytes: usize,
        run: impl Fn(&mut [PatternRows]) -> Result<A, Error> + Sync,
    ) -> Result<Vec<A>, Error> {
        let Self { shares, pool, .. } = self;
        match pool {
            Some(pool) if shares.len() > 1 && bytes.saturating_mul(shares.len()) <= LARGE_SUMS => {
                pool.install(|| shares.par_iter_mut().map(|share| run(share)).collect())
            }
            _ => shares.iter_mut().map(|share| run(share)).collect(),
        }
    }

    /// Adds up the statistics that `run` gives for the marginal mixture of each pattern.
    fn sum(
        &mut self,
        mixture: &Mixture,
        run: impl Fn(&mut PatternRows, &Mixture) -> Result<Statistics, Error> + Sync,
    ) -> Result<Statistics, Error> {
        check_features(self.shift.len(), mixture.n_features())?;
        if let Some(found) = self.at_once(Some(mixture), |passes| passes.pass(mixture))? {
            return Ok(found);
        }
        let kind = mixture.covariance_type();
        let zero = || Statistics::zero(kind, mixture.means().to_owned());
        let lanes = Lanes::new(mixture);
        let bytes =
            8 * (zero().second.len() + CovarianceType::Full.second_len(mixture.n_components(), self.shift.len()));
        let all = self.each(bytes, |share| {
            let mut total = zero();
            let mut few = lanes.as_ref().map(|lanes| (lanes, lanes.zero(), Workspace::default()));
            for pattern in share {
                if let (Some((lanes, sums, work)), Some(rows)) = (&mut few, pattern.few()) {
                    lanes.add(pattern.columns(), rows, sums, work)?;
                    continue;
                }
                let completion = Completion::new(mixture, pattern.observed())?;
                completion.add(&run(pattern, completion.marginal())?, &mut total);
            }
            if let Some((lanes, sums, _)) = &few {
                lanes.add_to(sums, &mut total);
            }
            Ok(total)
        })?;
        let mut total = Statistics::sum(all).map_err(|(_, error)| error)?.unwrap_or_else(zero);
        total.n_rows += self.unobserved.len() as u64;
        Ok(total)
    }

    /// Writes the outputs of rows without an observed value, and returns their totals: their density is 1, and their
    /// responsibilities are the weights of the components.
    fn evaluate_unobserved(&self, mixture: &Mixture, want: &mut EvaluateOptions<'_>) -> Evaluation {
        let mut total = Evaluation::NOTHING;
        for &row in &self.unobserved {
            total.add_row(self.weight(row), 0.0, mixture.weights());
            want.put_row(row, 0.0, mixture.weights());
        }
        total
    }
}

impl Passes for HoledRows {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        check_features(self.shift.len(), shift.len())?;
        for pattern in self.shares.iter_mut().flatten() {
            if !pattern.hold_about(shift)? {
                return Ok(false);
            }
        }
        (self.near, self.drawn) = (Vec::new(), Vec::new());
        self.shift = shift.to_vec();
        Ok(true)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        if self.together.is_some() {
            let some = Dataset::with_holes(self.rows.select_rows(rows))?;
            let weighed = match weights {
                // Weights that are all 0 are for the caller to refuse.
                Some(weights) if weights.iter().all(|w| *w == 0.0) => None,
                Some(weights) => Some(some.with_weights(weights.to_vec())?),
                None => Some(some),
            };
            if let Some(weighed) = weighed
                && let Some(passes) = self.at_once(None, |passes| passes.of_rows(weighed.clone()))?
            {
                let load = self.together.as_ref().expect("passes that were just asked").0.load.clone();
                return load_together(&weighed, &self.shift, Together { passes, load });
            }
            self.part()?;
        }
        let found = patterns::sampled(&mut self.shares, self.rows.dim().0, rows, weights)?;
        let (some, weights) = (self.rows.select_rows(rows), weights.map(<[f64]>::to_vec));
        Ok(Box::new(Self::new(some, weights, &self.shift, found, self.pool.clone())))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.sum(mixture, PatternRows::pass)
    }

    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.sum(mixture, PatternRows::expectation)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.shift.len(), centres.ncols())?;
        let of = |first: usize, _: &[f64], out: &mut [f64]| fill(first, out);
        Ok(Available::of(self).statistics(kind, centres, &of))
    }
}

impl Evaluate for HoledRows {
    fn evaluate(&mut self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        check_features(self.shift.len(), mixture.n_features())?;
        if let Some(found) = self.at_once(Some(mixture), |passes| passes.evaluate(mixture, want.again()))? {
            return Ok(found);
        }
        let mut total = self.evaluate_unobserved(mixture, &mut want);
        let wants_rows = want.log_densities.is_some() || want.responsibilities.is_some() || want.labels.is_some();
        let lanes = Lanes::new(mixture);
        let mixture = (mixture, lanes.as_ref());
        let nothing = Evaluation::NOTHING;
        let all = if wants_rows {
            // The outputs of a pattern are scattered over those of all rows.
            let mut all = Vec::with_capacity(self.shares.len());
            for share in &mut self.shares {
                let mut sum = nothing;
                for pattern in share {
                    sum = sum + pattern.evaluate_into(mixture, &mut want)?;
                }
                all.push(sum);
            }
            all
        } else {
            self.each(0, |share| share.iter_mut().try_fold(nothing, |sum, p| Ok(sum + p.totals(mixture)?)))?
        };
        for one in all {
            total = total + one;
        }
        Ok(total)
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        for mixture in mixtures {
            check_features(self.shift.len(), mixture.n_features())?;
        }
        if self.together.is_some() {
            let value = |mixture| Ok(self.evaluate(mixture, EvaluateOptions::default())?.log_likelihood);
            return mixtures.iter().map(value).collect();
        }
        let lanes: Vec<_> = mixtures.iter().map(|mixture| (mixture, Lanes::new(mixture))).collect();
        let all = self.each(8 * mixtures.len(), |share| {
            let mut sums = vec![0.0; mixtures.len()];
            for pattern in share {
                let of_pattern = pattern.log_likelihoods(&lanes)?;
                sums.iter_mut().zip(of_pattern).for_each(|(sum, v)| *sum += v);
            }
            Ok(sums)
        })?;
        let mut out = vec![0.0; mixtures.len()];
        for sums in all {
            out.iter_mut().zip(sums).for_each(|(sum, v)| *sum += v);
        }
        Ok(out)
    }
}

impl ComponentColumns for HoledRows {}
