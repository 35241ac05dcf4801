//! Rows grouped by pattern: the set of their observed columns.

use std::collections::HashMap;

use gmm_model::{Dataset, Matrix, Mixture, Statistics};
use ndarray::Array2;

use super::LoadComplete;
use super::few::FewRows;
use super::lanes::{Lanes, Workspace};
use crate::{Error, EvaluateOptions, Evaluation, Resident};

/// Patterns with fewer rows than this stay on the host. The factors of a pattern cost an engine as much as some rows per
/// column: it makes them one component after another, and copies them.
const fn few(d: usize) -> usize {
    24 + 8 * d
}

/// The rows of one pattern.
pub(super) struct PatternRows {
    /// Observed columns, ascending; at least one.
    observed: Vec<usize>,
    /// Missing columns, ascending.
    missing: Vec<usize>,
    /// Indices of the rows, ascending except in samples.
    rows: Vec<usize>,
    held: Held,
}

/// Where the observed values are, `(rows, observed)`.
enum Held {
    Engine(Box<dyn Resident>),
    Host(FewRows),
}

/// Groups the rows of `data`, and returns the patterns in the order of their first rows, and the rows in which nothing is
/// observed.
///
/// # Errors
/// Any error of `load`.
pub(super) fn of_data(
    data: &Dataset,
    shift: &[f64],
    load: &LoadComplete<'_>,
) -> Result<(Vec<PatternRows>, Vec<usize>), Error> {
    let (groups, unobserved) = of_rows(data.rows());
    let make = |(observed, rows): (Vec<usize>, Vec<usize>)| {
        let weights: Option<Vec<f64>> = data.weights().map(|all| rows.iter().map(|&row| all[row]).collect());
        // An engine refuses rows of which none counts.
        let counts = weights.as_ref().is_none_or(|weights| weights.iter().any(|w| *w > 0.0));
        let values = gathered(data.rows(), &rows, &observed);
        let held = if rows.len() < few(shift.len()) || !counts {
            Held::Host(FewRows::new(values.to_f64(), weights))
        } else {
            let own: Vec<f64> = observed.iter().map(|&j| shift[j]).collect();
            let complete = Dataset::new(values)?;
            let complete = match weights {
                Some(weights) => complete.with_weights(weights)?,
                None => complete,
            };
            Held::Engine(load(&complete, &own)?)
        };
        let missing = (0..shift.len()).filter(|j| observed.binary_search(j).is_err()).collect();
        Ok(PatternRows { observed, missing, rows, held })
    };
    Ok((groups.into_iter().map(make).collect::<Result<_, Error>>()?, unobserved))
}

/// Observed columns and rows of a pattern.
pub(crate) type Group = (Vec<usize>, Vec<usize>);

/// The patterns in the order of their first rows, and the rows in which nothing is observed.
pub(crate) fn of_rows(rows: &Matrix) -> (Vec<Group>, Vec<usize>) {
    let d = rows.dim().1;
    match rows {
        Matrix::F32(a) => grouped(a.as_slice().expect("row-major"), d, f32::is_nan),
        Matrix::F64(a) => grouped(a.as_slice().expect("row-major"), d, f64::is_nan),
    }
}

fn grouped<T: Copy>(values: &[T], d: usize, is_nan: impl Fn(T) -> bool) -> (Vec<Group>, Vec<usize>) {
    let mut known: HashMap<Box<[u64]>, usize> = HashMap::new();
    let (mut groups, mut unobserved) = (Vec::<Group>::new(), Vec::new());
    let mut key = vec![0u64; d.div_ceil(64)];
    for (row, x) in values.chunks_exact(d).enumerate() {
        key.fill(0);
        x.iter().enumerate().for_each(|(j, &v)| key[j / 64] |= u64::from(!is_nan(v)) << (j % 64));
        if key.iter().all(|word| *word == 0) {
            unobserved.push(row);
            continue;
        }
        let group = match known.get(key.as_slice()) {
            Some(&group) => group,
            None => {
                known.insert(key.clone().into(), groups.len());
                groups.push(((0..d).filter(|j| key[j / 64] >> (j % 64) & 1 == 1).collect(), Vec::new()));
                groups.len() - 1
            }
        };
        groups[group].1.push(row);
    }
    (groups, unobserved)
}

/// The given columns of the given rows.
fn gathered(all: &Matrix, rows: &[usize], columns: &[usize]) -> Matrix {
    let shape = (rows.len(), columns.len());
    match all {
        Matrix::F32(a) => Array2::from_shape_fn(shape, |(i, j)| a[[rows[i], columns[j]]]).into(),
        Matrix::F64(a) => Array2::from_shape_fn(shape, |(i, j)| a[[rows[i], columns[j]]]).into(),
    }
}

/// The patterns of a sample of the rows: of `n` rows in `shares`, those of the indices `rows`.
///
/// # Errors
/// As for [`sample`](crate::Passes::sample).
pub(super) fn sampled(
    shares: &mut [Vec<PatternRows>],
    n: usize,
    rows: &[usize],
    weights: Option<&[f64]>,
) -> Result<(Vec<PatternRows>, Vec<usize>), Error> {
    // Pattern of each row, and its place there.
    let mut places = vec![None; n];
    for (p, pattern) in shares.iter().flatten().enumerate() {
        pattern.rows.iter().enumerate().for_each(|(i, &row)| places[row] = Some((p, i)));
    }
    let mut unobserved = Vec::new();
    let mut chosen: Vec<(Vec<usize>, Vec<usize>)> = vec![(Vec::new(), Vec::new()); shares.iter().map(Vec::len).sum()];
    for (i, &row) in rows.iter().enumerate() {
        match places[row] {
            Some((pattern, inner)) => {
                chosen[pattern].0.push(i);
                chosen[pattern].1.push(inner);
            }
            None => unobserved.push(i),
        }
    }
    let mut patterns = Vec::new();
    for (pattern, (own, inner)) in shares.iter_mut().flatten().zip(chosen) {
        if own.is_empty() {
            continue;
        }
        let weights: Option<Vec<f64>> = weights.map(|all| own.iter().map(|&i| all[i]).collect());
        let held = match &mut pattern.held {
            Held::Engine(rows) => Held::Engine(rows.sample(&inner, weights.as_deref())?),
            Held::Host(rows) => Held::Host(rows.sample(&inner, weights)),
        };
        let (observed, missing) = (pattern.observed.clone(), pattern.missing.clone());
        patterns.push(PatternRows { observed, missing, rows: own, held });
    }
    Ok((patterns, unobserved))
}

/// Divides the patterns into consecutive shares of similar cost. Their number depends only on the patterns, since it
/// determines the order of additions.
pub(super) fn shares(patterns: Vec<PatternRows>, d: usize) -> Vec<Vec<PatternRows>> {
    const MOST: usize = 64;
    // The factors of a pattern cost about as much as d of its rows.
    let cost = |pattern: &PatternRows| pattern.rows.len() + d;
    let each = patterns.iter().map(cost).sum::<usize>().div_ceil(MOST);
    let (mut all, mut share, mut sum) = (Vec::new(), Vec::new(), 0);
    for pattern in patterns {
        sum += cost(&pattern);
        share.push(pattern);
        if sum >= each {
            all.push(std::mem::take(&mut share));
            sum = 0;
        }
    }
    all.extend((!share.is_empty()).then_some(share));
    all
}

impl PatternRows {
    pub(super) fn observed(&self) -> &[usize] {
        &self.observed
    }

    /// Observed and missing columns.
    pub(super) fn columns(&self) -> (&[usize], &[usize]) {
        (&self.observed, &self.missing)
    }

    /// The rows, if there are only a few.
    pub(super) const fn few(&self) -> Option<&FewRows> {
        match &self.held {
            Held::Host(rows) => Some(rows),
            Held::Engine(_) => None,
        }
    }

    /// [`Passes::hold_about`](crate::Passes::hold_about), with a shift of all columns.
    pub(super) fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        match &mut self.held {
            Held::Engine(rows) => rows.hold_about(&self.observed.iter().map(|&j| shift[j]).collect::<Vec<_>>()),
            Held::Host(_) => Ok(true),
        }
    }

    /// Statistics under the marginal mixture of the observed columns.
    pub(super) fn pass(&mut self, marginal: &Mixture) -> Result<Statistics, Error> {
        match &mut self.held {
            Held::Engine(rows) => rows.pass(marginal),
            Held::Host(rows) => Ok(rows.pass(marginal)),
        }
    }

    /// [`Passes::expectation`](crate::Passes::expectation) under the marginal mixture of the observed columns.
    pub(super) fn expectation(&mut self, marginal: &Mixture) -> Result<Statistics, Error> {
        match &mut self.held {
            Held::Engine(rows) => rows.expectation(marginal),
            Held::Host(rows) => Ok(rows.pass(marginal)),
        }
    }

    fn marginal(&self, mixture: &Mixture) -> Result<Mixture, Error> {
        let is_complete = self.observed.len() == mixture.n_features();
        Ok(if is_complete { mixture.clone() } else { mixture.marginal(&self.observed)? })
    }

    /// Evaluates a mixture of all columns; `lanes` are its.
    fn evaluate(
        &mut self,
        (mixture, lanes): (&Mixture, Option<&Lanes>),
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        if let (Some(lanes), Held::Host(rows)) = (lanes, &self.held) {
            return Ok(lanes.evaluate(&self.observed, rows, want, &mut Workspace::default())?);
        }
        let marginal = self.marginal(mixture)?;
        match &mut self.held {
            Held::Engine(rows) => rows.evaluate(&marginal, want),
            Held::Host(rows) => Ok(rows.evaluate(&marginal, want)),
        }
    }

    /// The totals under a mixture of all columns.
    pub(super) fn totals(&mut self, mixture: (&Mixture, Option<&Lanes>)) -> Result<Evaluation, Error> {
        self.evaluate(mixture, EvaluateOptions::default())
    }

    /// Evaluates a mixture of all columns, and writes the outputs to those of all rows.
    pub(super) fn evaluate_into(
        &mut self,
        mixture: (&Mixture, Option<&Lanes>),
        want: &mut EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        let (n, k) = (self.rows.len(), mixture.0.n_components());
        let mut densities = want.log_densities.as_ref().map(|_| vec![0.0; n]);
        let mut responsibilities = want.responsibilities.as_ref().map(|_| vec![0.0; n * k]);
        let mut labels = want.labels.as_ref().map(|_| vec![0; n]);
        let own = EvaluateOptions {
            log_densities: densities.as_deref_mut(),
            responsibilities: responsibilities.as_mut().map(Into::into),
            labels: labels.as_deref_mut(),
        };
        let found = self.evaluate(mixture, own)?;
        if let (Some(out), Some(own)) = (&mut want.log_densities, densities) {
            self.rows.iter().zip(own).for_each(|(&row, v)| out[row] = v);
        }
        if let (Some(out), Some(own)) = (&mut want.responsibilities, responsibilities) {
            let own = own.chunks_exact(k);
            self.rows.iter().zip(own).for_each(|(&row, own)| out.put(row * k, own.iter().copied()));
        }
        if let (Some(out), Some(own)) = (&mut want.labels, labels) {
            self.rows.iter().zip(own).for_each(|(&row, v)| out[row] = v);
        }
        Ok(found)
    }

    /// Σ w ln p under each mixture of all columns.
    pub(super) fn log_likelihoods(&mut self, mixtures: &[(&Mixture, Option<Lanes>)]) -> Result<Vec<f64>, Error> {
        if self.few().is_some() {
            let value = |(mixture, lanes): &(&Mixture, Option<Lanes>)| {
                self.totals((*mixture, lanes.as_ref())).map(|totals| totals.log_likelihood)
            };
            return mixtures.iter().map(value).collect();
        }
        let marginals = mixtures.iter().map(|(mixture, _)| self.marginal(mixture)).collect::<Result<Vec<_>, _>>()?;
        match &mut self.held {
            Held::Engine(rows) => rows.log_likelihoods(&marginals),
            Held::Host(_) => unreachable!("evaluated above"),
        }
    }
}
