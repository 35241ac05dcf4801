//! Products with a matrix that stays on an engine: inner products, quadratic forms, distances and top-k searches, in
//! batches.
//!
//! [`ResidentMatrix`] is independent of mixtures. Do not confuse it with [`Resident`](crate::Resident), which stores
//! the rows of a data set for passes of EM; this is a plain matrix to multiply by.

mod answer;
mod as_questions;
mod device_times;
mod factor;
pub(crate) mod operand;
mod pinned;
mod quadratic;
mod reference;
mod scalar;
#[cfg(test)]
mod tests;
mod top;

use std::sync::OnceLock;

use gmm_model::RowArray;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, CowArray, Ix2};

use crate::cpu::products::{NARROW, each, side, workspace_bytes};
use crate::cuda::products::{CudaMatrix, CudaMultiplier, CudaRows};
use crate::{CpuEngine, DeviceData, Engine, Error, memory};
use answer::{allocated, bytes, check_shape, tiles, zeros};
use operand::MatrixData;

pub use crate::cuda::products::DeviceTime;
pub use factor::ResidentFactor;
pub use operand::Operand;
pub use pinned::PinnedMemory;
pub(crate) use scalar::Element;
pub use scalar::Scalar;
pub use top::TopK;

/// An engine's implementation of matrix products: see [`Engine::multiplier`].
#[derive(Clone)]
pub struct Multiplier(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Cpu(CpuEngine),
    Cuda(CudaMultiplier),
    /// Naive loops, against which the others are tested.
    Reference,
}

/// A matrix `A`, `(m, k)`, stored on an engine, that multiplies batches of vectors ("questions").
///
/// A batch is a matrix with one question per row, `(q, k)`. Its strides are arbitrary, so a transposed view needs no
/// copy, and it may be in the memory of the GPU that multiplies ([`Operand`]). Every method has a form that writes into
/// the caller's memory (`.._into`) and one that allocates.
///
/// **Accuracy.** Sums are f64 for both types: f32 values are multiplied exactly, added in f64, and the sum is rounded
/// once. So the error of an f32 entry is at most half a unit in its last place plus `k * 2⁻⁵³ * Σ|a||b|`, for sums of
/// any length. The error of an f64 entry is at most `k * 2⁻⁵³ * Σ|a||b|`. [`fast`](Self::fast) trades accuracy for
/// speed.
///
/// **On a GPU** the same bounds hold, except for f32 products of at least 2³¹ multiplications with `k ≥ 64`, which run
/// on tensor cores (Ampere and later) in split fp16: each number is split into hi and lo fp16 parts, and three partial
/// products are added, up to 4128 terms in f32 and those sums in f64. The error of an entry is then at most `2⁻¹⁶
/// |a||b|`, with the norms of the matrix row and the question, and typically about `2⁻²² |a||b|`, for sums of any
/// length. Rows and questions are first scaled by powers of two. A product falls back to f64, which smaller products
/// always use, if its operands do not fit split fp16: if they contain a NaN, an infinity, a row whose largest magnitude
/// is outside 2⁻¹⁰⁰ to 2¹⁰⁰, or a row in which more than four of 64 neighbours are nonzero and smaller than 2⁻¹⁸ of the
/// largest. Quadratic forms, distances and f64 products are always f64. The matrix is uploaded in f64 (8 bytes per
/// number) or split fp16 (4 bytes) by the first call that needs that format, and stays on the device. Batches are
/// divided into chunks that fit its memory.
///
/// **NaN and infinity** follow IEEE 754: one in an operand affects the entries whose sums include it, and no others.
/// Results beyond the range of the type are infinite. [`quadratic_form`](Self::quadratic_form),
/// [`ResidentFactor::mahalanobis`] and [`top_k`](Self::top_k) document their own rules.
///
/// **Determinism.** The same machine, matrix and batch give the same bits, for any number of threads and any amount of
/// free memory. The same question in a batch of another size may differ in its last bits.
///
/// ```
/// use gmm_host::{CpuEngine, ResidentMatrix};
/// use ndarray::array;
///
/// let pages = array![[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]];
/// let matrix = ResidentMatrix::new(&CpuEngine::new(1)?, pages)?;
/// assert_eq!(matrix.inner(array![[1.0, 1.0]].view())?, array![[1.0, 1.4, 1.0]]);
///
/// let best = matrix.top_k(array![[1.0, 1.0], [-1.0, 0.0]].view(), 2)?;
/// assert_eq!(best.indices, array![[1, 0], [2, 1]]); // equal values: the first row first
/// assert_eq!(best.values, array![[1.4, 1.0], [0.0, -0.6]]);
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub struct ResidentMatrix<T: Scalar> {
    matrix: MatrixData<T>,
    multiplier: Multiplier,
    fast: bool,
    /// The matrix folded onto its lower triangle; computed by the first quadratic form.
    folded: OnceLock<Array2<T>>,
    /// On a GPU: the device operands of the matrix and of the folded matrix.
    on_device: Option<[CudaMatrix<T::Number>; 2]>,
    /// On a GPU: the rows as questions to other matrices.
    rows_there: OnceLock<CudaRows<T::Number>>,
}

impl<T: Scalar> ResidentMatrix<T> {
    /// Puts the matrix, `(m, k)`, on the engine. Either side may be 0.
    ///
    /// Cost: none on a CPU if the matrix is in row-major order; otherwise a copy. For a GPU the matrix also stays on
    /// the host, and is uploaded by the first question.
    ///
    /// # Errors
    /// [`Error::Device`] if the engine has no matrix products or the device fails; [`Error::Memory`].
    pub fn new(engine: &dyn Engine, matrix: impl Into<CowArray<'static, T, Ix2>>) -> Result<Self, Error> {
        let (matrix, multiplier) = (matrix.into(), engine.multiplier()?);
        if !matrix.is_standard_layout() {
            memory::check("the matrix in row-major order", bytes::<T>(matrix.dim()))?;
        }
        Self::made(MatrixData::Host(matrix.into()), multiplier)
    }

    /// As [`new`](Self::new), for the array of a [`Matrix`](gmm_model::Matrix), such as a file mapped into memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the engine has no matrix products or the device fails; [`Error::Memory`].
    pub fn of_rows(engine: &dyn Engine, matrix: RowArray<T>) -> Result<Self, Error> {
        Self::made(MatrixData::Host(matrix), engine.multiplier()?)
    }

    /// As [`new`](Self::new), to the same bits, for a matrix of either precision that is already in the memory of the
    /// engine's device. It is copied to the host only to compute what the host computes from it: the fold for the first
    /// [`quadratic_form`](Self::quadratic_form), and the Cholesky factor. The row weights of `matrix` are ignored, and
    /// its values may be NaN or infinite.
    ///
    /// Cost: none. The first question that needs the matrix in another format makes operands of it, which are stored in
    /// addition.
    ///
    /// # Errors
    /// [`Error::Device`] if the engine is not a GPU; [`Error::Option`] if it is another GPU.
    pub fn from_device(engine: &dyn Engine, matrix: DeviceData) -> Result<Self, Error> {
        let multiplier = engine.multiplier()?;
        let Kind::Cuda(gpu) = &multiplier.0 else { return Err(operand::elsewhere()) };
        gpu.check(&matrix)?;
        Self::made(MatrixData::Device(matrix), multiplier)
    }

    fn made(matrix: MatrixData<T>, multiplier: Multiplier) -> Result<Self, Error> {
        let on_device = match &multiplier.0 {
            Kind::Cuda(gpu) => Some([CudaMatrix::new(gpu)?, CudaMatrix::new(gpu)?]),
            Kind::Cpu(_) | Kind::Reference => None,
        };
        let (folded, rows_there) = (OnceLock::new(), OnceLock::new());
        Ok(Self { matrix, multiplier, fast: false, folded, on_device, rows_there })
    }

    /// The same matrix with faster, less accurate f32 products: 256 terms at a time are added in f32, and those sums in
    /// f64. The error of an entry is then at most `2⁻¹⁶ * Σ|a||b|`, and typically about `2⁻²¹ * Σ|a||b|`, for sums of
    /// any length, at up to twice the speed. Has no effect on f64, on quadratic forms and distances, or on batches of
    /// fewer than 64 questions, which are limited by memory bandwidth.
    ///
    /// On a GPU one fp16 product replaces the three of split fp16: the error of an entry is at most `2⁻⁹ |a||b|`, and
    /// typically about `2⁻¹² |a||b|/√k`.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { fast: true, ..self }
    }

    /// `(m, k)`.
    pub fn dim(&self) -> (usize, usize) {
        self.matrix.dim()
    }

    /// The matrix on the host. If it is in GPU memory, every call copies it.
    ///
    /// # Errors
    /// None if it is in host memory; otherwise [`Error::Memory`] and [`Error::Device`].
    pub fn on_host(&self) -> Result<CowArray<'_, T, Ix2>, Error> {
        self.matrix.on_host()
    }

    /// The product `A B`, `(m, n)`, with `b`, `(k, n)`. Cost: `2*m*k*n` flops.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if `b` does not have `k` rows; [`Error::Memory`], checked before anything is
    /// computed.
    pub fn matmul<'b>(&self, b: impl Into<Operand<'b, T>>) -> Result<Array2<T>, Error> {
        let b = b.into();
        let mut out = allocated((self.dim().0, b.dim().1))?;
        self.matmul_into(b, out.view_mut())?;
        Ok(out)
    }

    /// As [`matmul`](Self::matmul), into `out`, `(m, n)`, of any strides.
    ///
    /// # Errors
    /// As for [`matmul`](Self::matmul), also if `out` has another shape.
    pub fn matmul_into<'b>(&self, b: impl Into<Operand<'b, T>>, out: ArrayViewMut2<'_, T>) -> Result<(), Error> {
        let (b, (m, k)) = (b.into(), self.dim());
        let n = b.dim().1;
        check_shape("the right factor", b.dim(), (k, n))?;
        check_shape("the array for the product", out.dim(), (m, n))?;
        match &self.multiplier.0 {
            Kind::Cpu(engine) => self.product(engine, self.here()?, b.here()?, out),
            Kind::Cuda(_) => {
                let [matrix, _] = self.on_device();
                let x = b.reversed_axes();
                matrix.product(&self.matrix.operand().on_device(), &x.on_device(), T::on_device_mut(out), self.fast)
            }
            Kind::Reference => reference::matmul(self.here()?, b.here()?, out),
        }
    }

    /// The inner products of every question, `(q, k)`, with every row of the matrix: `X Aᵀ`, `(q, m)`.
    ///
    /// Cost: `2*q*k*m` flops; for a few questions, one read of the matrix.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if `questions` does not have `k` columns; [`Error::Memory`].
    pub fn inner<'b>(&self, questions: impl Into<Operand<'b, T>>) -> Result<Array2<T>, Error> {
        let questions = questions.into();
        let mut out = allocated((questions.dim().0, self.dim().0))?;
        self.inner_into(questions, out.view_mut())?;
        Ok(out)
    }

    /// As [`inner`](Self::inner), into `out`, `(q, m)`, of any strides.
    ///
    /// # Errors
    /// As for [`inner`](Self::inner), also if `out` has another shape.
    pub fn inner_into<'b>(&self, questions: impl Into<Operand<'b, T>>, out: ArrayViewMut2<'_, T>) -> Result<(), Error> {
        let questions = questions.into();
        self.check_questions(&questions)?;
        check_shape("the array for the inner products", out.dim(), (questions.dim().0, self.dim().0))?;
        self.matmul_into(questions.reversed_axes(), out.reversed_axes())
    }

    /// The quadratic form xᵀ A x of every question, `(q,)` from `(q, k)`, for a square matrix, symmetric or not. NaN if
    /// a question has a NaN or infinite value.
    ///
    /// Cost: `q*k²` flops, half of those of a product, because the matrix is folded onto its lower triangle. The fold
    /// takes the memory of a second matrix from the first call on. An entry of the fold, (aᵢⱼ + aⱼᵢ)/2, is rounded to
    /// `T` once.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if the matrix is not square or `questions` does not have `k` columns;
    /// [`Error::Memory`].
    pub fn quadratic_form<'b>(&self, questions: impl Into<Operand<'b, T>>) -> Result<Vec<f64>, Error> {
        let questions = questions.into();
        let mut out = zeros(questions.dim().0)?;
        self.quadratic_form_into(questions, &mut out)?;
        Ok(out)
    }

    /// As [`quadratic_form`](Self::quadratic_form), into `out`, `(q,)`.
    ///
    /// # Errors
    /// As for [`quadratic_form`](Self::quadratic_form), also if `out` has another length.
    pub fn quadratic_form_into<'b>(&self, questions: impl Into<Operand<'b, T>>, out: &mut [f64]) -> Result<(), Error> {
        let questions = questions.into();
        self.check_square("the matrix of a quadratic form")?;
        self.check_questions(&questions)?;
        check_shape("the slice for the quadratic forms", (out.len(), 1), (questions.dim().0, 1))?;
        match &self.multiplier.0 {
            Kind::Cpu(engine) => quadratic::forms(engine, self.folded()?, questions.here()?, out),
            Kind::Cuda(_) => {
                let [_, folded] = self.on_device();
                folded.forms(&T::on_device(self.folded()?).into(), &questions.on_device(), out)?;
                questions.undefined(out)
            }
            Kind::Reference => {
                reference::forms(self.here()?, questions.here()?, out);
                Ok(())
            }
        }
    }

    /// The Cholesky factor of a symmetric positive definite matrix, for Mahalanobis distances.
    ///
    /// Cost: `k³/3` flops on one thread, in f64, and `12*k²` bytes.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if the matrix is not square; [`Error::NotPositiveDefinite`];
    /// [`Error::NotSymmetric`]; [`Error::Memory`].
    pub fn factor(&self) -> Result<ResidentFactor, Error> {
        self.check_square("the matrix to factor")?;
        ResidentFactor::new(self.multiplier.clone(), self.on_host()?.view())
    }

    /// For each question, `(q, k)`, the `count` rows of the matrix with the largest inner products, best first.
    ///
    /// Ranked by the values that [`inner`](Self::inner) gives. Equal values (0 and −0 are equal) are ranked by row
    /// index. −∞ ranks after all numbers, and NaN last. Nothing of size `q*m` is stored: memory is `16*count` bytes per
    /// question and thread.
    ///
    /// # Errors
    /// [`Error::Option`] if the matrix has fewer than `count` rows; [`gmm_model::ModelError::Shape`];
    /// [`Error::Memory`].
    pub fn top_k<'b>(&self, questions: impl Into<Operand<'b, T>>, count: usize) -> Result<TopK<T>, Error> {
        let questions = questions.into();
        self.check_questions(&questions)?;
        let m = self.dim().0;
        if count > m {
            let must = format!("at most {m}, the rows of the matrix");
            return Err(Error::Option { option: "count", value: count.to_string(), must });
        }
        match &self.multiplier.0 {
            Kind::Cpu(engine) => top::search(engine, self.here()?, questions.here()?, count, self.fast),
            Kind::Cuda(_) => {
                let [matrix, _] = self.on_device();
                memory::check("the best rows of a search", questions.dim().0 as u128 * count as u128 * 48)?;
                let (all, questions) = (self.matrix.operand(), questions.on_device());
                let (indices, found) = matrix.largest(&all.on_device(), &questions, count, self.fast)?;
                Ok(top::ranked(&indices, &found.mapv(T::from_device), count))
            }
            Kind::Reference => top::sorted(&self.inner(questions)?, count),
        }
    }

    fn on_device(&self) -> &[CudaMatrix<T::Number>; 2] {
        self.on_device.as_ref().expect("made for this kind")
    }

    /// The matrix in host memory, for engines that multiply on the host.
    fn here(&self) -> Result<ArrayView2<'_, T>, Error> {
        match &self.matrix {
            MatrixData::Host(matrix) => Ok(matrix.view()),
            MatrixData::Device(_) => Err(operand::elsewhere()),
        }
    }

    fn product(
        &self,
        engine: &CpuEngine,
        matrix: ArrayView2<'_, T>,
        b: ArrayView2<'_, T>,
        out: ArrayViewMut2<'_, T>,
    ) -> Result<(), Error> {
        let (cost, (r, c), side) = (cost(self.dim(), b.ncols()), out.dim(), side(out.dim()));
        memory::check(
            "the workspace of a product",
            workspace_bytes(engine, cost, (r.min(side), c.min(side)), b.nrows()),
        )?;
        each(
            engine,
            cost,
            tiles(out, side).into_iter(),
            || (),
            |workspace, (), (row, column, mut out)| {
                let (r, c) = out.dim();
                let a = matrix.slice(ndarray::s![row..row + r, ..]);
                let b = b.slice(ndarray::s![.., column..column + c]);
                if c < NARROW || !T::multiply_in_f64(a, b, &mut out) {
                    out.zip_mut_with(&workspace.tile(a, b, self.fast), |out, &sum| *out = T::of(sum));
                }
            },
        );
        Ok(())
    }

    fn folded(&self) -> Result<ArrayView2<'_, T>, Error> {
        if let Some(folded) = self.folded.get() {
            return Ok(folded.view());
        }
        memory::check("the folded matrix", bytes::<T>(self.dim()))?;
        let matrix = self.on_host()?;
        Ok(self.folded.get_or_init(|| quadratic::fold(matrix.view())).view())
    }

    fn check_square(&self, what: &'static str) -> Result<(), Error> {
        let (m, k) = self.dim();
        check_shape(what, (m, k), (k, k))
    }

    fn check_questions(&self, questions: &Operand<'_, T>) -> Result<(), Error> {
        check_shape("the batch of questions", questions.dim(), (questions.dim().0, self.dim().1))
    }
}

/// Cost of a product in multiplications. Those of a narrow product, which is limited by memory bandwidth, count
/// eightfold.
fn cost((m, k): (usize, usize), n: usize) -> u128 {
    let one = if n < NARROW { 8 } else { 1 };
    one * m as u128 * k as u128 * n as u128
}
