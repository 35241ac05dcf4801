//! The M-step itself, under a rule that is checked.

use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, aview1};

use super::scatter::Means;
use super::{MStepRule, PriorScale, floor};
use crate::factor_analysis::Analyser;
use crate::m_step::{counts_as_noise, empties, refuse_noise, refuse_underflow, rounding_share};
use crate::{Cholesky, CovarianceType, Covariances, FactorLoadings, MStep, Mixture, ModelError, Statistics};

pub(super) fn run(
    rule: &MStepRule,
    statistics: &Statistics,
    reg_covar: f64,
    previous: Option<&Mixture>,
) -> Result<MStep, ModelError> {
    let (k, d) = statistics.dim();
    let kind = statistics.kind;
    let means = means(rule, statistics, previous);
    let weights = weights(rule, statistics, previous);
    let groups = rule.groups(kind, k);
    let same_kind = previous.filter(|p| p.covariance_type() == kind).map(Mixture::covariances);
    let update = Update { rule, means: &means, reg_covar, d };
    // Covariances that do not come from these moments.
    let is_fixed = |group: &[usize]| rule.fixed.covariances.contains(&group[0]);
    let is_empty = |group: &[usize]| rule.prior.is_none() && group.iter().all(|&c| means.empty[c]);
    let kept: Vec<bool> =
        groups.iter().map(|group| is_fixed(group) || (is_empty(group) && same_kind.is_some())).collect();
    let each = groups.iter().map(|group| (!is_fixed(group) && !is_empty(group)).then(|| update.covariance(group)));
    let mut each: Vec<Option<Array2<f64>>> = each.collect();
    let pooled = each.iter().any(Option::is_none).then(|| pooled(&each, &groups, statistics));
    for ((slot, group), &kept) in each.iter_mut().zip(&groups).zip(&kept) {
        let block = match (slot.take(), same_kind) {
            (None, Some(all)) if kept => block(all, group[0]),
            (found, _) => {
                let raw = found.or_else(|| pooled.clone()).expect("pooled if a group has no rows");
                update.bounded(raw, statistics.n_rows)
            }
        };
        *slot = Some(block);
    }
    let blocks: Vec<Array2<f64>> = each.into_iter().map(|block| block.expect("all are set")).collect();
    let mixture = match rule.factors {
        Some(h) => {
            let least = update.least_uniquenesses();
            let loadings = previous.and_then(Mixture::loadings).filter(|found| found.n_factors() == h);
            let analysers: Vec<Analyser> = groups
                .iter()
                .zip(&blocks)
                .zip(&kept)
                .map(|((group, block), &kept)| {
                    let before = loadings.map(|all| Analyser::of_component(all, group[0]));
                    match before {
                        Some(before) if kept => before,
                        before => Analyser::of(block.view(), h, least.view(), before.as_ref()),
                    }
                })
                .collect();
            let loadings = FactorLoadings::of_each(of_components(&groups, &analysers, k));
            Mixture::of_loadings(weights, means.means.clone(), loadings)?
        }
        None => Mixture::new(weights, means.means.clone(), assembled(kind, &groups, &blocks, k, d))?,
    };
    let mut skipped = vec![false; k];
    groups.iter().zip(&kept).for_each(|(group, &kept)| group.iter().for_each(|&c| skipped[c] = kept));
    refuse_underflow(mixture.covariances(), &skipped)?;
    if reg_covar == 0.0 && rule.prior.is_none() && rule.rescue.is_none() && rule.floor.is_none() {
        refuse_noise(&mixture, &skipped, means.share, statistics.n_rows)?;
    }
    let empty = (0..k).filter(|&c| means.empty[c]).collect();
    Ok(MStep { mixture, empty, dropped: Vec::new() })
}

/// The new means: see [`m_step_with`](super::m_step_with).
fn means<'a>(rule: &MStepRule, statistics: &'a Statistics, previous: Option<&Mixture>) -> Means<'a> {
    let (k, d) = statistics.dim();
    let empty = empties(statistics);
    let (mut sample, mut shift) = (Array2::zeros((k, d)), Array2::zeros((k, d)));
    let mut means = statistics.centres.clone();
    let prior = rule.prior.as_ref().filter(|prior| prior.shrinkage > 0.0);
    for c in 0..k {
        let (weight, centre) = (statistics.weight[c], statistics.centres.row(c));
        if !empty[c] {
            sample.row_mut(c).zip_mut_with(&statistics.first.row(c), |s, f| *s = f / weight);
        }
        match (previous, prior) {
            (Some(previous), _) if rule.fixed.means.contains(&c) => {
                means.row_mut(c).assign(&previous.means().row(c));
                shift.row_mut(c).assign(&(&means.row(c) - &centre));
            }
            (_, Some(prior)) => {
                // A convex combination of the two means, relative to the centre.
                let own = if empty[c] { 0.0 } else { weight / (weight + prior.shrinkage) };
                let theirs = prior.shrinkage / (if empty[c] { 0.0 } else { weight } + prior.shrinkage);
                for j in 0..d {
                    shift[[c, j]] = own * sample[[c, j]] + theirs * (prior.mean[j] - centre[j]);
                    means[[c, j]] = if empty[c] { prior.mean[j] } else { centre[j] + shift[[c, j]] };
                }
            }
            (Some(previous), None) if empty[c] => {
                means.row_mut(c).assign(&previous.means().row(c));
                shift.row_mut(c).assign(&(&means.row(c) - &centre));
            }
            _ => {
                shift.row_mut(c).assign(&sample.row(c));
                means.row_mut(c).zip_mut_with(&sample.row(c), |m, s| *m += s);
            }
        }
    }
    Means { statistics, sample, shift, means, empty, share: rounding_share(statistics.n_rows) }
}

/// The new weights: fixed ones, and the others in proportion to `Σr + α − 1`.
fn weights(rule: &MStepRule, statistics: &Statistics, previous: Option<&Mixture>) -> Array1<f64> {
    let k = statistics.dim().0;
    let more = rule.prior.as_ref().map_or(0.0, |prior| prior.concentration - 1.0);
    let fixed = |c: usize| previous.filter(|_| rule.fixed.weights.contains(&c)).map(|p| p.weights()[c]);
    let left = 1.0 - (0..k).filter_map(fixed).sum::<f64>();
    let free: f64 = (0..k).filter(|&c| fixed(c).is_none()).map(|c| statistics.weight[c] + more).sum();
    let n_free = (0..k).filter(|&c| fixed(c).is_none()).count();
    Array1::from_shape_fn(k, |c| match fixed(c) {
        Some(weight) => weight,
        None if rule.fixed.weights.is_empty() => (statistics.weight[c] + more) / free,
        None if free > 0.0 => left.max(0.0) * ((statistics.weight[c] + more) / free),
        // None of them has a row.
        None => left.max(0.0) / n_free as f64,
    })
}

struct Update<'a> {
    rule: &'a MStepRule,
    means: &'a Means<'a>,
    reg_covar: f64,
    d: usize,
}

impl Update<'_> {
    /// The covariance of a group before `reg_covar` and floors: `(d, d)`, `(1, d)` or `(1, 1)`.
    fn covariance(&self, group: &[usize]) -> Array2<f64> {
        let statistics = self.means.statistics;
        let weight: f64 = group.iter().map(|&c| statistics.weight[c]).sum();
        let mut scatter = match statistics.kind {
            CovarianceType::Full | CovarianceType::Tied => self.means.matrix(group),
            CovarianceType::Diag => self.means.diagonal(group).insert_axis(Axis(0)),
            CovarianceType::Spherical => Array2::from_elem((1, 1), self.means.trace(group)),
        };
        // Rows of a spherical covariance count once per dimension.
        let rows = if statistics.kind == CovarianceType::Spherical { weight * self.d as f64 } else { weight };
        let Some(prior) = &self.rule.prior else { return scatter / rows };
        for &c in group {
            let away = &self.means.means.row(c) - &prior.mean;
            match prior.scale {
                PriorScale::Matrix(_) => {
                    let away = away.view().insert_axis(Axis(1));
                    scatter.scaled_add(prior.shrinkage, &away.dot(&away.t()));
                }
                PriorScale::Variances(_) => scatter.row_mut(0).scaled_add(prior.shrinkage, &(&away * &away)),
                PriorScale::Variance(_) => scatter += prior.shrinkage * away.dot(&away),
            }
        }
        let total = match &prior.scale {
            PriorScale::Matrix(scale) => scatter + scale,
            PriorScale::Variances(scale) => scatter + scale,
            PriorScale::Variance(scale) => scatter + *scale,
        };
        total / (rows + prior.divisor(group.len(), self.d))
    }

    /// The smallest uniquenesses of factors, `(d,)`.
    fn least_uniquenesses(&self) -> Array1<f64> {
        let MStepRule { floor, rescue, .. } = self.rule;
        let of = |bound: &Option<Array1<f64>>, j: usize| bound.as_ref().map_or(0.0, |bound| bound[j]);
        Array1::from_shape_fn(self.d, |j| self.reg_covar.max(of(floor, j)).max(of(rescue, j)))
    }

    /// Adds `reg_covar` and applies floor and rescue; to factors they apply later, as bounds of the uniquenesses.
    fn bounded(&self, mut a: Array2<f64>, n_rows: u64) -> Array2<f64> {
        let MStepRule { floor, rescue, prior, factors, .. } = self.rule;
        if factors.is_some() {
            return a;
        }
        match self.means.statistics.kind {
            CovarianceType::Full | CovarianceType::Tied => {
                a.diag_mut().mapv_inplace(|v| v + self.reg_covar);
                let from_moments = self.reg_covar == 0.0 && prior.is_none();
                let noise = from_moments.then_some((self.means.share, n_rows));
                if let Some(least) = rescue.as_ref().filter(|_| !is_usable(a.view(), noise)) {
                    floor::rescue(&mut a, least);
                }
                if let Some(floor) = floor {
                    floor::raise(&mut a, floor);
                }
                // Raising one direction can cost another its last digits.
                if let Some(least) = rescue.as_ref().filter(|_| !is_usable(a.view(), None)) {
                    floor::rescue(&mut a, least);
                }
            }
            CovarianceType::Diag => {
                a += self.reg_covar;
                self.raise_variances(&mut a, floor.as_ref(), rescue.as_ref());
            }
            CovarianceType::Spherical => {
                a += self.reg_covar;
                let mean = |v: &Array1<f64>| Array1::from_elem(1, v.iter().map(|v| v / self.d as f64).sum::<f64>());
                self.raise_variances(&mut a, floor.as_ref().map(mean).as_ref(), rescue.as_ref().map(mean).as_ref());
            }
        }
        a
    }

    fn raise_variances(&self, a: &mut Array2<f64>, floor: Option<&Array1<f64>>, rescue: Option<&Array1<f64>>) {
        for (j, v) in a.iter_mut().enumerate() {
            if let Some(rescue) = rescue
                && *v < f64::MIN_POSITIVE
            {
                *v = rescue[j];
            }
            if let Some(floor) = floor {
                *v = v.max(floor[j]);
            }
        }
    }
}

/// Whether the plain M-step would accept a covariance; `noise` are the share of rounding error and the number of rows,
/// for a matrix of moments only.
fn is_usable(a: ArrayView2<'_, f64>, noise: Option<(f64, u64)>) -> bool {
    if a.diag().iter().any(|&v| v < f64::MIN_POSITIVE) {
        return false;
    }
    match (Cholesky::new(a), noise) {
        (Err(_), _) => false,
        (Ok(_), None) => true,
        (Ok(factor), Some((share, n_rows))) => (0..factor.dim()).all(|j| !counts_as_noise(&factor, j, share, n_rows)),
    }
}

/// The covariance of a component in the form of [`Update::covariance`].
fn block(all: &Covariances, c: usize) -> Array2<f64> {
    match all {
        Covariances::Full(a) => a.index_axis(Axis(0), c).to_owned(),
        Covariances::Tied(a) => a.clone(),
        Covariances::Diag(a) => a.slice(ndarray::s![c..=c, ..]).to_owned(),
        Covariances::Spherical(a) => Array2::from_elem((1, 1), a[c]),
    }
}

/// The average of the covariances of the groups that have rows, weighted by their counts.
fn pooled(each: &[Option<Array2<f64>>], groups: &[Vec<usize>], statistics: &Statistics) -> Array2<f64> {
    let mut sum: Option<Array2<f64>> = None;
    let mut total = 0.0;
    for (one, group) in each.iter().zip(groups) {
        let Some(one) = one else { continue };
        let weight: f64 = group.iter().map(|&c| statistics.weight[c]).sum();
        sum.get_or_insert_with(|| Array2::zeros(one.dim())).scaled_add(weight, one);
        total += weight;
    }
    sum.map_or_else(|| Array2::zeros((1, 1)), |sum| if total > 0.0 { sum / total } else { sum })
}

/// For each of the `k` components the item of its group.
fn of_components<'a, T>(groups: &[Vec<usize>], items: &'a [T], k: usize) -> Vec<&'a T> {
    let of = |c: usize| groups.iter().position(|group| group.contains(&c)).expect("every component has a group");
    (0..k).map(|c| &items[of(c)]).collect()
}

fn assembled(kind: CovarianceType, groups: &[Vec<usize>], blocks: &[Array2<f64>], k: usize, d: usize) -> Covariances {
    let mut blocks = of_components(groups, blocks, k).into_iter();
    match kind {
        CovarianceType::Full => {
            let mut all = Array3::zeros((k, d, d));
            all.outer_iter_mut().zip(blocks).for_each(|(mut slot, block)| slot.assign(block));
            Covariances::Full(all)
        }
        CovarianceType::Tied => Covariances::Tied(blocks.next().expect("k is not 0").clone()),
        CovarianceType::Diag => {
            let mut all = Array2::zeros((k, d));
            all.outer_iter_mut().zip(blocks).for_each(|(mut slot, block)| slot.assign(&block.row(0)));
            Covariances::Diag(all)
        }
        CovarianceType::Spherical => Covariances::Spherical(blocks.map(|block| block[[0, 0]]).collect()),
    }
}

impl Statistics {
    /// The statistics of some components. Tied second moments, which cannot be told apart, are those of all components
    /// about their own means, scaled to the weight of the remaining ones.
    pub(super) fn of_components(&self, kept: &[usize]) -> Self {
        let (k, d) = self.dim();
        if self.kind == CovarianceType::Tied {
            let mut about = self.centres.clone();
            for c in (0..k).filter(|&c| self.weight[c] > 0.0) {
                about.row_mut(c).scaled_add(self.weight[c].recip(), &self.first.row(c));
            }
            let moved = self.clone().recentred(about).expect("the same shape");
            let share = kept.iter().map(|&c| self.weight[c]).sum::<f64>() / self.weight.iter().sum::<f64>();
            let second = moved.second.iter().map(|v| v * share).collect();
            return moved.selected(kept, second);
        }
        let per = self.kind.second_len(1, d);
        let second = kept.iter().flat_map(|&c| aview1(&self.second[c * per..][..per]).to_vec()).collect();
        self.selected(kept, second)
    }

    fn selected(&self, kept: &[usize], second: Vec<f64>) -> Self {
        Self {
            kind: self.kind,
            centres: self.centres.select(Axis(0), kept),
            weight: kept.iter().map(|&c| self.weight[c]).collect(),
            first: self.first.select(Axis(0), kept),
            second,
            ..*self
        }
    }
}

impl Mixture {
    /// The mixture of the components of `kept` only, with weights divided by their sum, or equal ones if that is 0.
    pub(super) fn without(&self, kept: &[usize]) -> Result<Self, ModelError> {
        let weights = self.weights().select(Axis(0), kept);
        let sum = weights.sum();
        let equal = (kept.len() as f64).recip();
        self.selected(kept, if sum > 0.0 { weights / sum } else { Array1::from_elem(kept.len(), equal) })
    }
}
