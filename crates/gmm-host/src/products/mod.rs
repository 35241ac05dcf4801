//! Products with a matrix that stays on an engine: inner products, quadratic forms, distances and searches, in batches.
//!
//! [`ResidentMatrix`] has nothing to do with mixtures, and is not to be confused with [`Resident`](crate::Resident): that
//! is the rows of a data set under an engine's passes, this a plain matrix that is multiplied.

mod answer;
mod factor;
pub(crate) mod operand;
mod quadratic;
mod reference;
mod scalar;
#[cfg(test)]
mod tests;
mod top;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, CowArray, Ix2};

use crate::cpu::products::{NARROW, each, side, workspace_bytes};
use crate::cuda::products::{CudaMatrix, CudaMultiplier};
use crate::{CpuEngine, DeviceData, Engine, Error, memory};
use answer::{allocated, bytes, check_shape, tiles, zeros};
use operand::MatrixData;

pub use crate::cuda::products::DeviceTime;
pub use factor::ResidentFactor;
pub use operand::Operand;
pub(crate) use scalar::Element;
pub use scalar::Scalar;
pub use top::TopK;

/// What multiplies matrices for an engine: see [`Engine::multiplier`].
#[derive(Clone)]
pub struct Multiplier(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Cpu(CpuEngine),
    Cuda(CudaMultiplier),
    /// Naive loops, the oracle.
    Reference,
}

/// A matrix `A`, `(m, k)`, that stays where it is while questions come in batches.
///
/// A batch of questions is a matrix with a question in each row, `(q, k)`; its strides are free, so a transposed view needs
/// no copy, and it may lie on the GPU that multiplies ([`Operand`]). Every question has a form that writes into the caller's memory (`.._into`) and one that allocates.
///
/// **Accuracy.** Sums are f64 whatever the type: f32 numbers are multiplied exactly, added in f64 and rounded once, so an
/// f32 entry is off by half a unit in its last place and `k * 2⁻⁵³ * Σ|a||b|` at most, however long the sum is. f64 entries
/// are off by `k * 2⁻⁵³ * Σ|a||b|` at most. [`fast`](Self::fast) gives some of it away.
///
/// **On a GPU** that holds too, but for f32 products of 2³¹ multiplications or more, with `k` of 64 or more, on tensor cores
/// (Ampere and later): there each number is two halves (f16) and three products are added for one, at most 4128 terms in
/// f32 and those sums in f64, which leaves an entry off by `2⁻¹⁶ |a||b|` at most, the norms of the row and the question, and
/// by some `2⁻²²` of it as a rule, however long the sum is. Rows and questions are scaled by
/// powers of two first. A product with numbers that halves cannot hold goes by f64, as the smaller ones do: NaN,
/// infinities, a row whose largest number is beyond 2±¹⁰⁰, or one in which more than four of 64 neighbours are smaller than
/// 2⁻¹⁸ of the largest and not 0. Forms, distances and f64 are always f64. The matrix goes to the device with the first question
/// that needs it in a form, and stays: 8 bytes for each number as f64, 4 as halves. Batches go in chunks that fit there.
///
/// **Numbers that are none** go the way that IEEE 754 gives them: a NaN or infinity in an operand touches the entries whose
/// sums it is in, and no others. Results beyond the range of the type are infinite. What [`quadratic_form`](Self::quadratic_form),
/// [`ResidentFactor::mahalanobis`] and [`top_k`](Self::top_k) make of them stands there.
///
/// **Determinism.** Same machine, matrix, batch: same bits, for any number of threads and however much memory is free. The
/// same question in a batch of another size may differ in its last digits.
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
    /// The matrix folded onto its lower triangle, from the first quadratic form on.
    folded: std::sync::OnceLock<Array2<T>>,
    /// The matrix where a GPU has it, and the folded one.
    on_device: Option<[CudaMatrix<T::Number>; 2]>,
}

impl<T: Scalar> ResidentMatrix<T> {
    /// Puts the matrix, `(m, k)`, on the engine. Either side may be 0.
    ///
    /// Cost: none on a CPU, where the matrix is kept as it is; a copy where it is not in row-major order. For a GPU the matrix
    /// is kept too, and sent with the first question.
    ///
    /// # Errors
    /// [`Error::Device`] where the engine does not multiply matrices, or the device fails. [`Error::Memory`].
    pub fn new(engine: &dyn Engine, matrix: impl Into<CowArray<'static, T, Ix2>>) -> Result<Self, Error> {
        let (matrix, multiplier) = (matrix.into(), engine.multiplier()?);
        let matrix = if matrix.is_standard_layout() {
            matrix
        } else {
            memory::check("the matrix in row-major order", bytes::<T>(matrix.dim()))?;
            matrix.as_standard_layout().into_owned().into()
        };
        Self::made(MatrixData::Host(matrix), multiplier)
    }

    /// As [`new`](Self::new), for a matrix that lies on the engine's device already, of either precision, and does not come to
    /// the host: to the same bits. Only what the host makes of it does: the fold for the first
    /// [`quadratic_form`](Self::quadratic_form), and the Cholesky factor. The data's row weights do not matter, and its numbers
    /// may be NaN or infinite.
    ///
    /// Cost: none. The first question that needs the matrix in a form makes operands of it, which stay beside it.
    ///
    /// # Errors
    /// [`Error::Device`] where the engine is no GPU's; [`Error::Option`] where it is another GPU's.
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
        Ok(Self { matrix, multiplier, fast: false, folded: std::sync::OnceLock::new(), on_device })
    }

    /// The same matrix, whose f32 products are added in f32, 256 terms at a time, and those sums in f64: entries are then off
    /// by `2⁻¹⁶ * Σ|a||b|` at most and by some `2⁻²¹` of it as a rule, however long the sums are, for up to twice the speed.
    /// f64 stays as it is, and so do quadratic forms, distances, and batches of fewer than 64 questions, which wait for
    /// memory.
    ///
    /// On a GPU it is one product of halves where three would be taken: entries are off by `2⁻⁹ |a||b|` at most, and by some
    /// `2⁻¹² |a||b|/√k` as a rule.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { fast: true, ..self }
    }

    /// `(m, k)`.
    pub fn dim(&self) -> (usize, usize) {
        self.matrix.dim()
    }

    /// The matrix on the host: brought by each call where it lies on a GPU.
    ///
    /// # Errors
    /// None where it is there; [`Error::Memory`]; [`Error::Device`].
    pub fn on_host(&self) -> Result<CowArray<'_, T, Ix2>, Error> {
        self.matrix.on_host()
    }

    /// `A B`, `(m, n)` from `(k, n)`. Cost: `2*m*k*n` flops.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] where `b` has another number of rows than `k`; [`Error::Memory`] before anything
    /// is computed.
    pub fn matmul<'b>(&self, b: impl Into<Operand<'b, T>>) -> Result<Array2<T>, Error> {
        let b = b.into();
        let mut out = allocated((self.dim().0, b.dim().1))?;
        self.matmul_into(b, out.view_mut())?;
        Ok(out)
    }

    /// As [`matmul`](Self::matmul), into `out`, `(m, n)`, of any strides.
    ///
    /// # Errors
    /// As for [`matmul`](Self::matmul), also where `out` has another shape.
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

    /// Inner products of every question, `(q, k)`, with every row of the matrix: `X Aᵀ`, `(q, m)`.
    ///
    /// Cost: `2*q*k*m` flops; of a few questions, one walk through the matrix.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] where `questions` has another number of columns than `k`; [`Error::Memory`].
    pub fn inner<'b>(&self, questions: impl Into<Operand<'b, T>>) -> Result<Array2<T>, Error> {
        let questions = questions.into();
        let mut out = allocated((questions.dim().0, self.dim().0))?;
        self.inner_into(questions, out.view_mut())?;
        Ok(out)
    }

    /// As [`inner`](Self::inner), into `out`, `(q, m)`, of any strides.
    ///
    /// # Errors
    /// As for [`inner`](Self::inner), also where `out` has another shape.
    pub fn inner_into<'b>(&self, questions: impl Into<Operand<'b, T>>, out: ArrayViewMut2<'_, T>) -> Result<(), Error> {
        let questions = questions.into();
        self.check_questions(&questions)?;
        check_shape("the array for the inner products", out.dim(), (questions.dim().0, self.dim().0))?;
        self.matmul_into(questions.reversed_axes(), out.reversed_axes())
    }

    /// xᵀ A x of every question, `(q,)` from `(q, k)`, for a square matrix, symmetric or not. NaN where a question holds a
    /// number that is none.
    ///
    /// Cost: `q*k²` flops, half of those of a product, since the matrix is folded onto its lower triangle; that takes its
    /// memory a second time, from the first call on. An entry of the fold, (aᵢⱼ + aⱼᵢ)/2, is rounded to `T` once.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] where the matrix is not square or `questions` has another number of columns;
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
    /// As for [`quadratic_form`](Self::quadratic_form), also where `out` has another length.
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
    /// [`gmm_model::ModelError::Shape`] where the matrix is not square; [`Error::NotPositiveDefinite`];
    /// [`Error::NotSymmetric`]; [`Error::Memory`].
    pub fn factor(&self) -> Result<ResidentFactor, Error> {
        self.check_square("the matrix to factor")?;
        ResidentFactor::new(self.multiplier.clone(), self.on_host()?.view())
    }

    /// The `count` rows of the matrix with the largest inner products with each question, `(q, k)`, best first.
    ///
    /// They are ranked by the numbers that [`inner`](Self::inner) gives. Equal ones (0 and −0 are) keep the order of the
    /// rows; −∞ comes last but for NaN. Nothing of size `q*m` is held: `16*count` bytes for each question and thread.
    ///
    /// # Errors
    /// [`Error::Option`] where there are fewer than `count` rows; [`gmm_model::ModelError::Shape`]; [`Error::Memory`].
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
                Ok(top::ranked(&indices, &found.mapv(T::from_device)))
            }
            Kind::Reference => top::sorted(&self.inner(questions)?, count),
        }
    }

    /// How long a product with `questions`, `(q, k)`, takes on the device when everything stays there, or their quadratic
    /// forms where `forms`: of each of `repeats` repetitions. None where the engine is no GPU. The questions are sent first
    /// and not counted, and results are not brought back.
    ///
    /// # Errors
    /// As for [`inner`](Self::inner) and [`quadratic_form`](Self::quadratic_form); [`Error::Memory`] where the batch needs
    /// more than one chunk.
    pub fn device_times<'b>(
        &self,
        questions: impl Into<Operand<'b, T>>,
        forms: bool,
        repeats: usize,
    ) -> Result<Option<Vec<DeviceTime>>, Error> {
        let questions = questions.into();
        self.check_questions(&questions)?;
        let Some([matrix, folded]) = &self.on_device else { return Ok(None) };
        let questions = questions.on_device();
        if forms {
            self.check_square("the matrix of a quadratic form")?;
            return folded.times(&T::on_device(self.folded()?).into(), &questions, true, false, repeats).map(Some);
        }
        matrix.times(&self.matrix.operand().on_device(), &questions, false, self.fast, repeats).map(Some)
    }

    fn on_device(&self) -> &[CudaMatrix<T::Number>; 2] {
        self.on_device.as_ref().expect("made for this kind")
    }

    /// The matrix, where the host multiplies.
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

/// Multiplications of a product; each of a narrow one, which waits for memory, counts as eight.
fn cost((m, k): (usize, usize), n: usize) -> u128 {
    let one = if n < NARROW { 8 } else { 1 };
    one * m as u128 * k as u128 * n as u128
}
