//! Merges of components that keep the moments.

use ndarray::{Array1, Array2, Array3, ArrayView1, Axis};

use super::distance::check_component;
use crate::{Covariances, Mixture, ModelError};

impl Mixture {
    /// `Σ_c w_c (Σ_c + (μ_c − μ)(μ_c − μ)ᵀ)`, the covariance of the mixture's density, `(d, d)`.
    pub fn covariance(&self) -> Array2<f64> {
        let d = self.n_features();
        let mean = self.mean();
        let mut sum = Array2::zeros((d, d));
        for (c, &w) in self.weights().iter().enumerate() {
            sum.scaled_add(w, &self.covariances().matrix(c, d));
            let delta = &self.means().row(c) - &mean;
            add_outer(&mut sum, w, delta.view());
        }
        sum
    }
}

/// Merges all components with the same number in `clusters`, `(k,)`, into one: the result has a component for each of
/// the numbers `0..K`, with the weight, mean and covariance of its members together (the moment-matching merge; Runnalls
/// 2007). Components that are alone keep their bits.
///
/// Mean and covariance of the whole mixture are kept as far as the covariance kind can hold them:
///
/// - full: mean and covariance.
/// - tied: mean and covariance. The scatter of the merged means goes to the covariance that all components share, which
///   therefore becomes wider for the components that were not merged, too.
/// - diag: mean, and the diagonal of the covariance.
/// - spherical: mean, and the trace of the covariance.
///
/// A cluster without weight has the plain averages of its members.
///
/// # Errors
/// [`ModelError::Shape`] if there is not one number per component; [`ModelError::Range`] if a number between 0 and the
/// largest is missing; [`ModelError::NotPositiveDefinite`] if a merged covariance is singular within rounding.
///
/// Cost: `k*d²` for the moments, `K*d³/3` for the factors.
pub fn merge(mixture: &Mixture, clusters: &[usize]) -> Result<Mixture, ModelError> {
    let members = members(mixture.n_components(), clusters)?;
    let groups: Vec<Group> = members.iter().map(|members| Group::new(mixture, members)).collect();
    let d = mixture.n_features();
    let weights = Array1::from_iter(groups.iter().map(|g| g.weight));
    let mut means = Array2::zeros((groups.len(), d));
    means.outer_iter_mut().zip(&groups).for_each(|(mut row, g)| row.assign(&g.mean));
    let covariances = match mixture.covariances() {
        Covariances::Full(all) => {
            let mut merged = Array3::zeros((groups.len(), d, d));
            for (mut slot, g) in merged.outer_iter_mut().zip(&groups) {
                let mut sum = g.averaged(|c| all.index_axis(Axis(0), c));
                g.scatter(mixture, |share, delta| add_outer(&mut sum, share, delta));
                slot.assign(&sum);
            }
            Covariances::Full(merged)
        }
        Covariances::Tied(one) => {
            let mut sum = one.clone();
            for g in &groups {
                g.scatter(mixture, |share, delta| add_outer(&mut sum, share * g.weight, delta));
            }
            Covariances::Tied(sum)
        }
        Covariances::Diag(all) => {
            let mut merged = Array2::zeros((groups.len(), d));
            for (mut slot, g) in merged.outer_iter_mut().zip(&groups) {
                let mut sum = g.averaged(|c| all.row(c));
                g.scatter(mixture, |share, delta| sum.zip_mut_with(&delta, |v, x| *v += share * x * x));
                slot.assign(&sum);
            }
            Covariances::Diag(merged)
        }
        Covariances::Spherical(all) => Covariances::Spherical(Array1::from_iter(groups.iter().map(|g| {
            let mut sum = g.averaged(|c| ndarray::aview0(&all[c]))[()];
            g.scatter(mixture, |share, delta| sum += share * delta.dot(&delta) / d as f64);
            sum
        }))),
    };
    Mixture::new(weights, means, covariances)
}

/// [`merge`] of two components: the result takes the place of the one with the smaller index, and the other is removed.
///
/// # Errors
/// [`ModelError::Range`] if there is no such component or both are the same.
pub fn merge_pair(mixture: &Mixture, i: usize, j: usize) -> Result<Mixture, ModelError> {
    check_component(mixture, i)?;
    check_component(mixture, j)?;
    if i == j {
        return Err(ModelError::Range { what: "component", value: j.to_string(), must: "another than the first" });
    }
    let (first, second) = (i.min(j), i.max(j));
    let clusters: Vec<usize> = (0..mixture.n_components())
        .map(|c| match c {
            c if c == second => first,
            c if c > second => c - 1,
            c => c,
        })
        .collect();
    merge(mixture, &clusters)
}

/// The components of each cluster, in ascending order.
fn members(k: usize, clusters: &[usize]) -> Result<Vec<Vec<usize>>, ModelError> {
    if clusters.len() != k {
        return Err(ModelError::Shape { what: "clusters", found: vec![clusters.len()], expected: vec![k] });
    }
    let count = clusters.iter().max().map_or(0, |&most| most.saturating_add(1)).min(k + 1);
    let mut members = vec![Vec::new(); count];
    for (c, &cluster) in clusters.iter().enumerate() {
        if let Some(members) = members.get_mut(cluster) {
            members.push(c);
        }
    }
    if members.iter().any(Vec::is_empty) {
        let must = "the numbers from 0 on, without a gap";
        return Err(ModelError::Range { what: "clusters", value: format!("{clusters:?}"), must });
    }
    Ok(members)
}

/// The members of one cluster, with their shares of its weight.
struct Group {
    weight: f64,
    mean: Array1<f64>,
    shares: Vec<(usize, f64)>,
}

impl Group {
    fn new(mixture: &Mixture, members: &[usize]) -> Self {
        let weight: f64 = members.iter().map(|&c| mixture.weights()[c]).sum();
        let share = |c: usize| match weight {
            0.0 => 1.0 / members.len() as f64,
            _ => mixture.weights()[c] / weight,
        };
        let shares: Vec<_> = members.iter().map(|&c| (c, share(c))).collect();
        // Differences from the first member, so that a common offset costs no precision.
        let origin = mixture.means().row(members[0]).to_owned();
        let mut mean = origin.clone();
        for &(c, share) in &shares[1..] {
            mean.scaled_add(share, &(&mixture.means().row(c) - &origin));
        }
        Self { weight, mean, shares }
    }

    /// The averaged covariance of the members.
    fn averaged<'a, D: ndarray::Dimension>(
        &self,
        covariance: impl Fn(usize) -> ndarray::ArrayView<'a, f64, D>,
    ) -> ndarray::Array<f64, D> {
        let (first, share) = self.shares[0];
        // A component that is alone keeps its bits.
        let mut sum = if self.shares.len() == 1 { covariance(first).to_owned() } else { &covariance(first) * share };
        for &(c, share) in &self.shares[1..] {
            sum.scaled_add(share, &covariance(c));
        }
        sum
    }

    /// Visits the members' shares and the differences of their means from the cluster's.
    fn scatter(&self, mixture: &Mixture, mut visit: impl FnMut(f64, ArrayView1<'_, f64>)) {
        if self.shares.len() > 1 {
            for &(c, share) in &self.shares {
                visit(share, (&mixture.means().row(c) - &self.mean).view());
            }
        }
    }
}

/// Adds `share δδᵀ`, to the same bits in both triangles.
pub(super) fn add_outer(sum: &mut Array2<f64>, share: f64, delta: ArrayView1<'_, f64>) {
    for ((i, j), v) in sum.indexed_iter_mut() {
        *v += share * (delta[i] * delta[j]);
    }
}
