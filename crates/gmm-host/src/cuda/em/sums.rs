//! One pass on a path of the loop, for iterations whose M-step the host makes: priors, floors, fixed parts, labels.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::layout::{FeatureLayout, TILE};
use gmm_kernels::em::state::{STATE_LEN, TROUBLE};
use gmm_model::{Cholesky, CovarianceType, Covariances, Factors, Mixture, Statistics, packed_index};
use ndarray::Array2;

use super::device_loop::{Loop, Member, Start};
use super::path::{EmPath, LoopPlan, Operand};
use super::run;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::em::EmOptions;

/// The statistics of a pass under `mixture` on the first of `paths`, best first, that keeps enough precision; `None` if
/// none does.
///
/// Cost: the pass of an iteration on the device, two copies of parameters and sums, and one wait.
///
/// # Errors
/// As for a pass.
pub(crate) fn pass<T: Number>(
    Member { em, rows }: Member<'_, T>,
    paths: &[&'static dyn EmPath],
    mixture: &Mixture,
    options: &EmOptions,
) -> Result<Option<Statistics>, Error> {
    let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
    let one = EmOptions { max_iter: 1, ..*options };
    let mut lost: Option<Operand> = None;
    for &path in paths.iter().filter(|path| !path.leaves_out_components()) {
        if lost.is_some_and(|lost| path.operand() <= lost) {
            continue;
        }
        let Some(plan) = run::plan(rows, shape, path, &one, 0)? else { return Ok(None) };
        match on_path(em, rows, &plan, mixture) {
            Ok(Some(statistics)) => return Ok(Some(statistics)),
            Ok(None) => lost = Some(path.operand()),
            // A path that takes rows in smaller chunks, or the pass without a path, needs less.
            Err(Error::Memory { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// As [`pass`], on one path.
fn on_path<T: Number>(
    em: &mut Loop,
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    mixture: &Mixture,
) -> Result<Option<Statistics>, Error> {
    let workspace = Workspace::of(plan);
    em.reserve(rows, plan, &workspace)?;
    let scatter = rows.scatter.clone();
    em.begin(rows, plan, &workspace, &Start::of(mixture, scatter.as_deref()))?;
    em.pass(rows, plan, &workspace, 1)?;
    let buffers = workspace.buffers(&em.numbers, &em.flags);
    let mut sums = vec![0.0; plan.layout.sums() as usize];
    let mut state = [0; STATE_LEN];
    let stream = &rows.queue.stream;
    // SAFETY: both are read only after the wait below.
    let copied = unsafe {
        let of = buffers.sums.index(..sums.len());
        of.async_copy_to(&mut sums[..], stream)
            .and_then(|()| buffers.state.index(..STATE_LEN).async_copy_to(&mut state[..], stream))
    };
    rows.gpu.check("a copy of sums from the device", copied)?;
    rows.queue.wait(&rows.gpu)?;
    if state[TROUBLE as usize] != 0 {
        return Ok(None);
    }
    let of = Unpacked { plan, sums: &sums, shift: &rows.shift, scatter: scatter.as_deref(), mixture, of_part: false };
    Ok(of.statistics(rows.total_weight, rows.n))
}

/// The sums of a pass, about the shift.
pub(super) struct Unpacked<'a> {
    pub(super) plan: &'a LoopPlan,
    pub(super) sums: &'a [f64],
    pub(super) shift: &'a [f64],
    /// Packed Σ w x xᵀ about the shift, for a tied covariance.
    pub(super) scatter: Option<&'a [f64]>,
    pub(super) mixture: &'a Mixture,
    /// Whether what is left of a moment may be as small as it likes beside the variances of the mixture. No covariance is
    /// made of such statistics alone: a part may be a single row.
    pub(super) of_part: bool,
}

impl Unpacked<'_> {
    /// The statistics about the mixture's means; `None` if a moment lost too much precision or is not finite.
    pub(super) fn statistics(&self, total_weight: f64, n: usize) -> Option<Statistics> {
        let mut out = Statistics::zero(self.mixture.covariance_type(), self.mixture.means().to_owned());
        self.fill(&mut out, total_weight, n).map(|()| out)
    }

    /// The same in `out`, whose kind and centres are those of the mixture.
    pub(super) fn fill(&self, out: &mut Statistics, total_weight: f64, n: usize) -> Option<()> {
        let (k, d) = self.mixture.means().dim();
        let layout = self.plan.layout;
        for (c, weight) in out.weight.iter_mut().enumerate() {
            *weight = self.at(layout.weight(c as u32));
        }
        (out.total_weight, out.n_rows, out.mixture) = (total_weight, n as u64, 0);
        out.log_likelihood = self.at(layout.log_likelihood()) - self.shared();
        // The means of the components' rows less the shift, and less the mixture's means.
        let column = |j: u32, c: u32| match layout {
            FeatureLayout { classes: 0, .. } => layout.column_sum(j, c),
            _ => layout.entry_sum(j, c),
        };
        let of = |c: usize, j: usize, weight: f64| match weight > 0.0 {
            true => {
                let moved = self.at(column(j as u32, c as u32)) / weight;
                (moved, moved - (self.mixture.means()[[c, j]] - self.shift[j]))
            }
            false => (0.0, 0.0),
        };
        if out.kind == CovarianceType::Diag {
            return (self.diagonal(out) && out.is_finite()).then_some(());
        }
        out.second.fill(0.0);
        let mut moved = Array2::zeros((k, d));
        let mut steps = Array2::zeros((k, d));
        for (c, &weight) in out.weight.iter().enumerate() {
            for j in 0..d {
                (moved[[c, j]], steps[[c, j]]) = of(c, j, weight);
                out.first[[c, j]] = weight * steps[[c, j]];
            }
        }
        match out.kind {
            CovarianceType::Full => self.matrices(out, &moved, &steps)?,
            CovarianceType::Tied => self.pooled(out, &moved, &steps)?,
            CovarianceType::Diag | CovarianceType::Spherical => {
                for (c, second) in out.second.iter_mut().enumerate() {
                    let squares = |of: &Array2<f64>| of.row(c).iter().map(|v| v * v).sum::<f64>();
                    let about = self.at(layout.column_sum(d as u32, c as u32));
                    let left = self.left(about, out.weight[c] * squares(&moved), self.known(c, 0, out.weight[c]))?;
                    *second = left + out.weight[c] * squares(&steps);
                }
            }
        }
        out.is_finite().then_some(())
    }

    fn at(&self, position: u64) -> f64 {
        self.sums[position as usize]
    }

    /// `about − moved`, if enough of it is left, or of what is `known`.
    fn left(&self, about: f64, moved: f64, known: f64) -> Option<f64> {
        let v = about - moved;
        // False for NaN.
        (about == 0.0 || v.max(known) >= self.plan.bounds.least_left * about).then_some(v)
    }

    /// The variance of a component in column `j` under the mixture, times its weight, for statistics of parts; else 0.
    fn known(&self, c: usize, j: usize, weight: f64) -> f64 {
        if !self.of_part {
            return 0.0;
        }
        weight
            * match self.mixture.covariances() {
                Covariances::Full(all) => all[[c, j, j]],
                Covariances::Tied(one) => one[[j, j]],
                Covariances::Diag(all) => all[[c, j]],
                Covariances::Spherical(all) => all[c],
            }
    }

    /// The moments of a diagonal kind; false if one of them lost too much precision.
    ///
    /// The sums of a thousand parts come from memory that a device has just written. Reading them from place to place took most
    /// of the time of the whole pass: the tiles of eight components are copied at once, in order.
    fn diagonal(&self, out: &mut Statistics) -> bool {
        let (k, d) = self.mixture.means().dim();
        let layout = self.plan.layout;
        let group = FeatureLayout { groups: 1, ..layout };
        let place = |f: u32, c: u32| group.column_sum(f, c) as usize;
        let places: Vec<(usize, usize)> = (0..d as u32).map(|j| (place(j, 0), place(group.square(j), 0))).collect();
        let mut tiles = vec![0.0; group.coefficients() as usize];
        let mut kept = true;
        for c in 0..k {
            if c.is_multiple_of(8) {
                for (step, tile) in tiles.chunks_exact_mut(TILE).enumerate() {
                    let start = layout.sum_tile(step as u32, c as u32) as usize;
                    tile.copy_from_slice(&self.sums[start..start + TILE]);
                }
            }
            let among = &tiles[place(0, c as u32 % 8) - place(0, 0)..];
            let weight = out.weight[c];
            let means = self.mixture.means();
            let rows = out.first.row_mut(c).into_iter().zip(&mut out.second[c * d..][..d]).zip(means.row(c));
            for (j, (((first, second), mean), &(column, square))) in rows.zip(&places).enumerate() {
                let moved = if weight > 0.0 { among[column] / weight } else { 0.0 };
                let step = if weight > 0.0 { moved - (mean - self.shift[j]) } else { 0.0 };
                let left = self.left(among[square], weight * moved * moved, self.known(c, j, weight));
                kept &= left.is_some();
                *first = weight * step;
                *second = left.unwrap_or(0.0) + weight * step * step;
            }
        }
        kept
    }

    fn matrices(&self, out: &mut Statistics, moved: &Array2<f64>, steps: &Array2<f64>) -> Option<()> {
        let (k, d) = moved.dim();
        for c in 0..k {
            let weight = out.weight[c];
            let second = &mut out.second[c * packed_index(d, 0)..][..packed_index(d, 0)];
            for i in 0..d {
                for j in 0..=i {
                    let about = self.at(self.plan.layout.product_sum(i as u32, j as u32, c as u32));
                    let moved = weight * moved[[c, i]] * moved[[c, j]];
                    let known = self.known(c, i, weight);
                    let left = if i == j { self.left(about, moved, known)? } else { about - moved };
                    second[packed_index(i, j)] = left + weight * steps[[c, i]] * steps[[c, j]];
                }
            }
        }
        Some(())
    }

    fn pooled(&self, out: &mut Statistics, moved: &Array2<f64>, steps: &Array2<f64>) -> Option<()> {
        let d = moved.ncols();
        let scatter = self.scatter.expect("known since `reserve`");
        let sum = |of: &Array2<f64>, i: usize, j: usize| -> f64 {
            out.weight.iter().zip(of.outer_iter()).map(|(weight, of)| weight * of[i] * of[j]).sum()
        };
        for i in 0..d {
            for j in 0..=i {
                let (about, moved) = (scatter[packed_index(i, j)], sum(moved, i, j));
                let left = if i == j { self.left(about, moved, 0.0)? } else { about - moved };
                out.second[packed_index(i, j)] = left + sum(steps, i, j);
            }
        }
        Some(())
    }

    /// The part of −Σ w ln p(x) that all components of a tied covariance share: ½ tr(Σ⁻¹ Σ w x xᵀ) about the shift.
    fn shared(&self) -> f64 {
        let (Some(scatter), Factors::Tied(factor)) = (self.scatter, self.mixture.factors()) else { return 0.0 };
        half_trace(factor, scatter)
    }
}

/// ½ tr(A⁻¹ S), from the factor of A and the packed S.
fn half_trace(factor: &Cholesky, packed: &[f64]) -> f64 {
    let d = factor.dim();
    let mut column = vec![0.0; d];
    let mut trace = 0.0;
    for j in 0..d {
        (0..d).for_each(|i| column[i] = packed[packed_index(i.max(j), i.min(j))]);
        factor.solve_lower(&mut column);
        factor.solve_lower_transposed(&mut column);
        trace += column[j];
    }
    0.5 * trace
}
