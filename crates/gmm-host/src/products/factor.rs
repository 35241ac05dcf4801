//! Mahalanobis distances from a Cholesky factor, by forward substitution for a batch of questions.

use gmm_model::Cholesky;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use super::operand::OperandData;
use super::quadratic::undefined;
use super::{Kind, Multiplier, Operand, Scalar, check_shape, cost, reference, zeros};
use crate::cpu::products::{NARROW, TILE, Workspace, add_product, each, workspace_bytes};
use crate::cuda::products::CudaFactor;
use crate::{Error, memory};

/// Number of questions solved for at once.
const TOGETHER: usize = 128;

/// Largest system solved row by row. A larger one is halved: solve the first half, subtract its product from the
/// second.
const BASE: usize = 32;

/// Largest difference between entries (i, j) and (j, i), in eps times √(aᵢᵢ aⱼⱼ): entries summed over many rows in two
/// different orders differ by that much.
const SKEW: f64 = 1024.0;

/// The Cholesky factor `L` of a covariance matrix `A = L Lᵀ`, `(d, d)`, in f64. Computes squared Mahalanobis distances
/// |L⁻¹(x − mean)|², never from the inverse of `A`. A GPU multiplies by `L⁻¹`, computed once by substitution: the relative
/// error of a distance is then about `d * 2⁻⁵² * √cond(A)`, the same bound as for substitution.
///
/// ```
/// use gmm_host::{CpuEngine, ResidentMatrix};
/// use ndarray::array;
///
/// let covariance = ResidentMatrix::new(&CpuEngine::new(1)?, array![[4.0, 0.0], [0.0, 1.0]])?;
/// let factor = covariance.factor()?;
/// assert_eq!(factor.mahalanobis(array![[2.0, 0.0], [3.0, 2.0]].view(), Some(&[1.0, 0.0]))?, [0.25, 5.0]);
/// assert!((factor.ln_det() - 4f64.ln()).abs() < 1e-15);
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub struct ResidentFactor {
    multiplier: Multiplier,
    /// `L`, `(d, d)`, zero above the diagonal.
    lower: Array2<f64>,
    ln_det: f64,
    /// `L⁻¹`, if the engine is a GPU.
    on_device: Option<CudaFactor>,
}

impl ResidentFactor {
    pub(super) fn new<T: Scalar>(multiplier: Multiplier, matrix: ArrayView2<'_, T>) -> Result<Self, Error> {
        let d = matrix.nrows();
        memory::check("the Cholesky factor", 20 * d as u128 * d as u128)?;
        let a = matrix.mapv(T::to_f64);
        let root: Vec<f64> = a.diag().iter().map(|v| v.abs().sqrt()).collect();
        for i in 0..d {
            for j in 0..i {
                if (a[[i, j]] - a[[j, i]]).abs() > SKEW * T::EPSILON * root[i] * root[j] {
                    return Err(Error::NotSymmetric { row: i, column: j });
                }
            }
        }
        let factor = Cholesky::new(a.view())
            .map_err(|why| Error::NotPositiveDefinite { column: why.column, pivot: why.pivot })?;
        let lower = Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor.at(i, j) } else { 0.0 });
        let on_device = match &multiplier.0 {
            Kind::Cuda(gpu) => Some(CudaFactor::new(gpu, lower.view())?),
            Kind::Cpu(_) | Kind::Reference => None,
        };
        Ok(Self { multiplier, lower, ln_det: factor.ln_det(), on_device })
    }

    /// Dimension `d`.
    pub fn dim(&self) -> usize {
        self.lower.nrows()
    }

    /// ln det A.
    pub const fn ln_det(&self) -> f64 {
        self.ln_det
    }

    /// The factor `L`, `(d, d)`, with zeros above its diagonal.
    pub fn lower(&self) -> ArrayView2<'_, f64> {
        self.lower.view()
    }

    /// Squared Mahalanobis distances (x − mean)ᵀ A⁻¹ (x − mean), `(q,)`, of `questions`, `(q, d)`; `mean` is `(d,)`, or
    /// 0 if `None`. Differences, substitution and sums are f64. The distance of a question with a NaN or infinite value
    /// is NaN.
    ///
    /// Cost: `q*d²` flops, and `1 KiB * d` of memory per thread.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if `questions` or `mean` has another `d`; [`Error::Memory`].
    pub fn mahalanobis<'b, T: Scalar>(
        &self,
        questions: impl Into<Operand<'b, T>>,
        mean: Option<&[f64]>,
    ) -> Result<Vec<f64>, Error> {
        let questions = questions.into();
        let mut out = zeros(questions.dim().0)?;
        self.mahalanobis_into(questions, mean, &mut out)?;
        Ok(out)
    }

    /// As [`mahalanobis`](Self::mahalanobis), into `out`, `(q,)`.
    ///
    /// # Errors
    /// As for [`mahalanobis`](Self::mahalanobis), also if `out` has another length.
    pub fn mahalanobis_into<'b, T: Scalar>(
        &self,
        questions: impl Into<Operand<'b, T>>,
        mean: Option<&[f64]>,
        out: &mut [f64],
    ) -> Result<(), Error> {
        let questions = questions.into();
        let ((q, _), d) = (questions.dim(), self.dim());
        check_shape("the batch of questions", questions.dim(), (q, d))?;
        check_shape("the slice for the distances", (out.len(), 1), (q, 1))?;
        if let Some(mean) = mean {
            check_shape("the mean", (mean.len(), 1), (d, 1))?;
        }
        match &self.multiplier.0 {
            Kind::Cpu(engine) => {
                let questions = questions.here()?;
                let (block, cost) = (TOGETHER.min(q), cost((d, d), q) / 2);
                let solved = 8 * (engine.threads() * block) as u128 * d as u128;
                let workspace = workspace_bytes(engine, cost, (TILE.min(d), block.min(TILE)), d);
                memory::check("the distances", solved + workspace)?;
                let jobs = out.chunks_mut(TOGETHER).enumerate();
                let state = || Array2::<f64>::zeros((d, block));
                each(engine, cost, jobs, state, |workspace, solved, (at, out)| {
                    let x = questions.slice(s![at * TOGETHER..at * TOGETHER + out.len(), ..]);
                    let mut z = solved.slice_mut(s![.., ..out.len()]);
                    z.zip_mut_with(&x.t(), |z, x| *z = x.to_f64());
                    if let Some(mean) = mean {
                        z.rows_mut().into_iter().zip(mean).for_each(|(mut z, mean)| z -= *mean);
                    }
                    solve(workspace, self.lower.view(), z.view_mut());
                    out.fill(0.0);
                    for z in z.rows() {
                        out.iter_mut().zip(z).for_each(|(out, z)| *out += z * z);
                    }
                });
            }
            Kind::Cuda(_) => {
                let gpu = self.on_device.as_ref().expect("made for this kind");
                match &questions.0 {
                    // The device converts the values to `T`, which rounds them if `T` is f32, and then to f64.
                    OperandData::Device(there) => {
                        let there = if size_of::<T>() == 4 { there.single() } else { there.clone() };
                        gpu.distances(&Operand(OperandData::Device(there)), mean, out)?;
                    }
                    OperandData::Host(questions) => match T::as_f64(questions.view()) {
                        Some(questions) => gpu.distances(&questions.into(), mean, out)?,
                        None => distances_of_f32(gpu, questions.view(), mean, out)?,
                    },
                }
            }
            Kind::Reference => reference::distances(self.lower(), questions.here()?, mean, out),
        }
        match &questions.0 {
            OperandData::Host(view) if self.on_device.is_none() => {
                undefined(view.view(), out);
                Ok(())
            }
            _ => questions.undefined(out),
        }
    }
}

/// Distances on a GPU for questions in f32: uploads them in f64, the type in which differences are formed, a block at a
/// time.
fn distances_of_f32<T: Scalar>(
    gpu: &CudaFactor,
    questions: ArrayView2<'_, T>,
    mean: Option<&[f64]>,
    out: &mut [f64],
) -> Result<(), Error> {
    const WIDENED: usize = 1 << 23;
    let (q, d) = questions.dim();
    let together = (WIDENED / d.max(1)).max(TOGETHER);
    memory::check("the questions in f64", 8 * together.min(q) as u128 * d as u128)?;
    for (questions, out) in questions.axis_chunks_iter(Axis(0), together).zip(out.chunks_mut(together)) {
        gpu.distances(&questions.mapv(T::to_f64).view().into(), mean, out)?;
    }
    Ok(())
}

/// `z = L⁻¹ z`, `(d, q)`.
fn solve(workspace: &mut Workspace, lower: ArrayView2<'_, f64>, mut z: ArrayViewMut2<'_, f64>) {
    let d = lower.nrows();
    if d <= BASE {
        for i in 0..d {
            let (above, mut here) = z.view_mut().split_at(Axis(0), i);
            let mut here = here.row_mut(0);
            for (&l, above) in lower.row(i).iter().zip(above.rows()) {
                here.scaled_add(-l, &above);
            }
            here /= lower[[i, i]];
        }
        return;
    }
    let half = (d / 2).next_multiple_of(8);
    let (mut first, mut second) = z.split_at(Axis(0), half);
    solve(workspace, lower.slice(s![..half, ..half]), first.view_mut());
    let across = lower.slice(s![half.., ..half]);
    if second.ncols() < NARROW {
        for (mut to, rows) in second.axis_chunks_iter_mut(Axis(0), TILE).zip(across.axis_chunks_iter(Axis(0), TILE)) {
            to -= &workspace.tile(rows, first.view(), false);
        }
    } else {
        add_product(-1.0, across, first.view(), second.view_mut());
    }
    solve(workspace, lower.slice(s![half.., half..]), second);
}
