//! The log-likelihood of one mixture of diagonal or spherical covariances over `f32` rows: see
//! [`gmm_kernels::log_likelihood::single_mixture`].

use gmm_kernels::device::WARP;
use gmm_kernels::layout::TILE_ROWS;
use gmm_kernels::log_likelihood::single_mixture::{self, PLACES};
use gmm_model::{CovarianceType, Factors, Mixture};

use super::buffers::{Expected, typical};
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, pin, pinned_empty};
use crate::cuda::launch::SingleMixturePlan;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// State that is kept between calls.
pub(crate) struct SingleMixture {
    /// Each block's value, pinned: kernels write to it directly.
    values: Pinned<f64>,
    /// The last shape that was planned, and its plan.
    planned: Option<(Shape, Option<SingleMixturePlan>)>,
}

impl SingleMixture {
    pub(crate) fn empty() -> Self {
        Self { values: pinned_empty(), planned: None }
    }
}

/// Most mixtures of a call that are computed one after another: more are faster in a batch.
pub(crate) const MOST: usize = 3;

impl SingleMixture {
    fn plan<T: Number>(&mut self, data: &mut Rows<T>, shape: Shape) -> Result<Option<SingleMixturePlan>, Error> {
        if let Some((known, plan)) = self.planned
            && known == shape
        {
            return Ok(plan);
        }
        let plan = self.new_plan(data, shape);
        tracing::debug!(plan = format!("{plan:?}"), "likelihoods of single mixtures");
        if let Some(plan) = plan {
            pin(&data.gpu, &mut self.values, MOST * plan.blocks as usize)?;
        }
        self.planned = Some((shape, plan));
        Ok(plan)
    }

    fn new_plan<T: Number>(&self, data: &mut Rows<T>, shape: Shape) -> Option<SingleMixturePlan> {
        let kinds = [CovarianceType::Diag, CovarianceType::Spherical];
        let takes = T::BYTES == 4 && data.row_weights.is_none() && kinds.contains(&shape.kind);
        let columns = single_mixture::columns(shape.d).filter(|_| takes && !data.forced.host_loop())?;
        if single_mixture::entry(columns, shape.k, 0) > PLACES || !data.gpu.has(single_mixture::kernel(columns).name) {
            return None;
        }
        // One block uses all registers of a multiprocessor. The number of blocks affects the result's bits.
        let of_block = u64::from(single_mixture::THREADS / WARP * TILE_ROWS);
        let blocks = u64::from(data.gpu.limits.multiprocessors).min(shape.n.div_ceil(of_block)) as u32;
        // Rows beyond the cache's capacity would be evicted before they are read again, and the cache also holds other
        // data.
        let tile = 4 * u64::from(TILE_ROWS * shape.d);
        let kept = u64::from(data.gpu.limits.l2_bytes) * 4 / 5 / tile;
        Some(SingleMixturePlan { shape, columns, blocks, kept })
    }

    /// Σ ln p(x) under those of a few mixtures for which `f32` is precise enough; the others' values stay unchanged.
    pub(super) fn log_likelihoods<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        shape: Shape,
        mixtures: &[Mixture],
        out: &mut [f64],
    ) -> Result<(), Error> {
        if mixtures.len() > MOST {
            return Ok(());
        }
        let Some(plan) = self.plan(data, shape)? else { return Ok(()) };
        let (blocks, rows) = (plan.blocks as usize, data.whole());
        // Index of each launched mixture, and the offset subtracted from its constants.
        let mut launched = Vec::with_capacity(MOST);
        // Marks the values, so that results of an earlier call are not mistaken for new ones.
        let expected = Expected::of(&mut self.values, blocks * mixtures.len());
        for (i, mixture) in mixtures.iter().enumerate() {
            let mut coefficients = [0; PLACES];
            let Some(typical) = write(mixture, &data.shift, plan.columns, &mut coefficients) else { continue };
            let all = self.values.on_device(blocks * mixtures.len());
            data.launcher().single_mixture(&plan, &rows, coefficients, &all.index(blocks * launched.len()..))?;
            launched.push((i, typical));
        }
        if launched.is_empty() {
            return Ok(());
        }
        if !expected.come(&mut self.values, blocks * launched.len()) {
            data.queue.wait(&data.gpu)?;
        }
        let parts = self.values.as_slice().chunks_exact(blocks);
        for ((i, typical), parts) in launched.into_iter().zip(parts) {
            out[i] = parts.iter().sum::<f64>() + typical * plan.shape.n as f64;
        }
        Ok(())
    }
}

/// Writes a mixture's coefficients. Returns the offset subtracted from its constants; `None` if `f32` is not precise
/// enough.
fn write(mixture: &Mixture, shift: &[f64], columns: u32, out: &mut [u64; PLACES]) -> Option<f64> {
    /// The largest |mean × scale|: rounding moves a mean by at most 2⁻¹⁹ of a standard deviation.
    const LARGEST: f64 = 64.0;
    /// The largest distance of a constant from the typical log density: rounding changes a row's log density by at most
    /// 2⁻¹⁷.
    const FARTHEST: f64 = 256.0;
    let (log2, root) = (std::f64::consts::LOG2_E, (0.5 * std::f64::consts::LOG2_E).sqrt());
    let (typical, means) = (typical(mixture), mixture.means());
    for c in 0..mixture.n_components() {
        let known = mixture.log_weight(c) + mixture.log_normalizer(c);
        let at = |j: usize| single_mixture::entry(columns, c as u32, j as u32);
        let mut constant = f32::NEG_INFINITY;
        if known > f64::NEG_INFINITY {
            let exact = (known - typical) * log2;
            if exact.abs() > FARTHEST {
                return None;
            }
            constant = exact as f32;
            for (j, shift) in shift.iter().enumerate() {
                let sd = match mixture.factors() {
                    Factors::Diag(all) => all[[c, j]],
                    Factors::Spherical(all) => all[c],
                    Factors::Full(_) | Factors::Tied(_) => return None,
                };
                // The mean is scaled by the rounded scale, so both have the same rounding error.
                let scale = (root / sd) as f32;
                let moved = -(means[[c, j]] - shift) * f64::from(scale);
                // The negated comparison also catches NaN.
                if !(moved.abs() <= LARGEST && scale.is_finite()) {
                    return None;
                }
                out[at(j)] = single_mixture::place(scale, moved as f32);
            }
        }
        out[single_mixture::constant(columns, c as u32)] = single_mixture::place(constant, 0.0);
    }
    Some(typical)
}
