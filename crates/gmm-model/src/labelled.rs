//! Rows whose component is known: their part of every E-step, from sums that are taken once.

use ndarray::{Array2, Axis};

use crate::{CovarianceType, Factors, Mixture, Statistics, StatisticsError, packed_index, packed_len};

/// The sums of rows whose component is known, for each component.
///
/// A labelled row has responsibility 1 for its component in every E-step, so its sums about any centre follow from those
/// about one point. A fit passes over such rows once, however many iterations it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledRows {
    /// One component each: of kind full, or of kind diag for diag and spherical mixtures. `None` without labelled rows.
    groups: Vec<Option<Statistics>>,
    kind: CovarianceType,
}

impl LabelledRows {
    /// No labelled rows, for mixtures of `k` components.
    pub fn new(kind: CovarianceType, k: usize) -> Self {
        Self { groups: vec![None; k], kind }
    }

    /// The kind of the statistics of a group: full for full and tied, else diag.
    pub const fn group_kind(kind: CovarianceType) -> CovarianceType {
        match kind {
            CovarianceType::Full | CovarianceType::Tied => CovarianceType::Full,
            CovarianceType::Diag | CovarianceType::Spherical => CovarianceType::Diag,
        }
    }

    /// Adds the rows of component `c`: statistics of one component and of the kind [`group_kind`](Self::group_kind),
    /// under responsibilities of 1. The nearer their centre is to the mean of the rows, the smaller the rounding error.
    ///
    /// # Errors
    /// [`StatisticsError::Shape`] if the statistics have another kind or number of components.
    ///
    /// # Panics
    /// If `c` is `k` or more.
    pub fn insert(&mut self, c: usize, rows: Statistics) -> Result<(), StatisticsError> {
        if rows.kind != Self::group_kind(self.kind) || rows.dim().0 != 1 {
            let left = format!("{} k=1", Self::group_kind(self.kind));
            return Err(StatisticsError::Shape { left, right: format!("{} k={}", rows.kind, rows.dim().0) });
        }
        self.groups[c] = Some(rows);
        Ok(())
    }

    /// The components that have labelled rows, each with the statistics of its rows.
    pub fn groups(&self) -> impl Iterator<Item = (usize, &Statistics)> {
        self.groups.iter().enumerate().filter_map(|(c, rows)| Some((c, rows.as_ref()?)))
    }

    /// The total weight of the labelled rows.
    pub fn total_weight(&self) -> f64 {
        self.groups().map(|(_, rows)| rows.total_weight).sum()
    }

    /// The statistics of all labelled rows under `mixture`, about its means. The log-likelihood is that of row and
    /// label: `Σ w ln(w_c N(x | μ_c, Σ_c))`.
    ///
    /// Cost: `O(k*d²)` for the moments and `O(k*d³)` for the log-likelihood (full and tied), whatever the number of
    /// rows.
    ///
    /// # Errors
    /// [`StatisticsError::Shape`] if the mixture has another kind or shape.
    pub fn expectation(&self, mixture: &Mixture) -> Result<Statistics, StatisticsError> {
        let mut all = self.about(mixture.means().to_owned())?;
        let d = mixture.n_features();
        for (c, rows) in self.groups() {
            let centre = mixture.means().row(c).to_owned().insert_axis(Axis(0));
            let second = rows.clone().recentred(centre)?.second;
            let normalisers = mixture.log_weight(c) + mixture.log_normalizer(c);
            all.log_likelihood +=
                rows.weight[0] * normalisers - 0.5 * standardised_trace(mixture.factors(), c, &second, d);
        }
        Ok(all)
    }

    /// The statistics of all labelled rows about given centres, `(k, d)`. The log-likelihood is 0.
    ///
    /// # Errors
    /// [`StatisticsError::Shape`] if the centres have another shape.
    pub fn about(&self, centres: Array2<f64>) -> Result<Statistics, StatisticsError> {
        let (k, d) = centres.dim();
        if k != self.groups.len() {
            return Err(StatisticsError::Shape { left: format!("k={}", self.groups.len()), right: format!("k={k}") });
        }
        let mut all = Statistics::zero(self.kind, centres);
        for (c, rows) in self.groups() {
            let centre = all.centres.row(c).to_owned().insert_axis(Axis(0));
            let rows = rows.clone().recentred(centre)?;
            all.weight[c] = rows.weight[0];
            all.first.row_mut(c).assign(&rows.first.row(0));
            all.total_weight += rows.total_weight;
            all.n_rows += rows.n_rows;
            match self.kind {
                CovarianceType::Full => all.second[c * packed_len(d)..][..packed_len(d)].copy_from_slice(&rows.second),
                CovarianceType::Tied => all.second.iter_mut().zip(&rows.second).for_each(|(a, b)| *a += b),
                CovarianceType::Diag => all.second[c * d..][..d].copy_from_slice(&rows.second),
                CovarianceType::Spherical => all.second[c] = rows.second.iter().sum(),
            }
        }
        Ok(all)
    }
}

/// `tr(Σ_c⁻¹ S)`, with packed S for matrices and the diagonal of S for variances.
fn standardised_trace(factors: &Factors, c: usize, second: &[f64], d: usize) -> f64 {
    let factor = match factors {
        Factors::Full(all) => &all[c],
        Factors::Tied(one) => one,
        Factors::Diag(sd) => return second.iter().zip(sd.row(c)).map(|(s, sd)| s / sd / sd).sum(),
        Factors::Spherical(sd) => return second.iter().map(|s| s / sd[c] / sd[c]).sum(),
    };
    // L⁻¹ S, a column at a time; then the diagonal of (L⁻¹ S) L⁻ᵀ.
    let mut half = Array2::zeros((d, d));
    let mut column = vec![0.0; d];
    for j in 0..d {
        (0..d).for_each(|i| column[i] = second[packed_index(i.max(j), i.min(j))]);
        factor.solve_lower(&mut column);
        (0..d).for_each(|i| half[[i, j]] = column[i]);
    }
    let mut trace = 0.0;
    for i in 0..d {
        column.iter_mut().zip(half.row(i)).for_each(|(v, h)| *v = *h);
        factor.solve_lower(&mut column);
        trace += column[i];
    }
    trace
}
