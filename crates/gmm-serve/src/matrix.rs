//! A matrix that stays on the engine: inner products, quadratic forms, Mahalanobis distances and the best rows.
//!
//! Questions of several requests are not multiplied together: the last bits of a product depend on the size of the batch.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use gmm_host::products::Scalar;
use gmm_host::{Engine, ResidentFactor, ResidentMatrix};
use gmm_model::{Matrix, RowArray};
use ndarray::ArrayView2;

use crate::Refusal;
use crate::tensor::Elements;

/// What a request asks of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// `X Aᵀ`, `(q, m)`.
    Inner,
    /// `xᵀ A x`, `(q,)`.
    QuadraticForm,
    /// `xᵀ A⁻¹ x`, `(q,)`, of a symmetric positive definite matrix.
    Mahalanobis,
    /// The rows of largest inner product, `(q, count)`.
    Best,
}

/// The best rows of each question, `(q, count)`.
#[derive(Debug, PartialEq)]
pub(crate) struct Best {
    pub(crate) indices: Vec<u64>,
    pub(crate) values: Vec<f64>,
}

/// A resident matrix in the precision of its file.
pub(crate) struct ServedMatrix {
    matrix: Stored,
    engine: Arc<dyn Engine>,
    factor: OnceLock<Result<ResidentFactor, Refusal>>,
}

enum Stored {
    F32(ResidentMatrix<f32>),
    F64(ResidentMatrix<f64>),
}

/// Calls the same method on a matrix of either precision.
macro_rules! of {
    ($stored:expr, $matrix:ident => $call:expr) => {
        match $stored {
            Stored::F32($matrix) => $call,
            Stored::F64($matrix) => $call,
        }
    };
}

impl ServedMatrix {
    /// A matrix that stays. It is uploaded now if the engine is a GPU.
    ///
    /// # Errors
    /// Errors if the engine has no products, or its memory is short.
    pub(crate) fn resident(matrix: Matrix, engine: &Arc<dyn Engine>) -> Result<Self, gmm_host::Error> {
        let found = Self::new(matrix, engine)?;
        of!(&found.matrix, a => a.prepare())?;
        Ok(found)
    }

    fn new(matrix: Matrix, engine: &Arc<dyn Engine>) -> Result<Self, gmm_host::Error> {
        let matrix = match matrix {
            Matrix::F32(a) => Stored::F32(ResidentMatrix::of_rows(&**engine, a)?),
            Matrix::F64(a) => Stored::F64(ResidentMatrix::of_rows(&**engine, a)?),
        };
        Ok(Self { matrix, engine: engine.clone(), factor: OnceLock::new() })
    }

    /// A square matrix, `(k, k)`, for one request about this matrix's rows, of `k` columns.
    ///
    /// # Errors
    /// As for [`resident`](Self::resident).
    pub(crate) fn beside(&self, values: Elements) -> Result<Self, Refusal> {
        let k = self.dim().1;
        let square = match values.into_singles() {
            Ok(singles) => RowArray::shared(Arc::new(singles), (k, k)).map(Matrix::F32),
            Err(values) => RowArray::shared(Arc::new(values), (k, k)).map(Matrix::F64),
        };
        Ok(Self::new(square.map_err(|e| Refusal::fault(e.to_string()))?, &self.engine)?)
    }

    /// `(m, k)`.
    pub(crate) fn dim(&self) -> (usize, usize) {
        of!(&self.matrix, a => a.dim())
    }

    /// The type of its numbers in the protocol.
    pub(crate) const fn is_f32(&self) -> bool {
        matches!(self.matrix, Stored::F32(_))
    }

    /// Numbers of the answer to `q` questions.
    pub(crate) fn answer_len(&self, product: Product, q: usize, count: usize) -> usize {
        match product {
            Product::Inner => q.saturating_mul(self.dim().0),
            Product::QuadraticForm | Product::Mahalanobis => q,
            Product::Best => q.saturating_mul(count),
        }
    }

    /// The values of any product but [`Product::Best`], in row-major order, of `q` questions, `(q, k)`.
    ///
    /// # Errors
    /// Errors if the matrix is not of the kind that the product needs, or memory is short.
    pub(crate) fn values(&self, product: Product, questions: &Elements, q: usize) -> Result<Vec<f64>, Refusal> {
        fn values<T: Scalar>(
            matrix: &ResidentMatrix<T>,
            product: Product,
            questions: ArrayView2<'_, T>,
        ) -> Result<Vec<f64>, gmm_host::Error> {
            match product {
                Product::QuadraticForm => matrix.quadratic_form(questions),
                _ => Ok(matrix.inner(questions)?.iter().map(|v| v.to_f64()).collect()),
            }
        }
        let shape = (q, self.dim().1);
        Ok(match (product, &self.matrix) {
            // The differences are f64, whatever the precision of the matrix.
            (Product::Mahalanobis, _) => match questions.singles() {
                Some(singles) => self.factor()?.mahalanobis(view(shape, singles)?, None)?,
                None => self.factor()?.mahalanobis(view(shape, questions)?, None)?,
            },
            (_, Stored::F32(a)) => values(a, product, view(shape, &rounded(questions))?)?,
            (_, Stored::F64(a)) => values(a, product, view(shape, questions)?)?,
        })
    }

    /// The best rows of `q` questions, `(q, k)`.
    ///
    /// # Errors
    /// Errors if the matrix has fewer than `count` rows.
    pub(crate) fn best(&self, questions: &Elements, q: usize, count: usize) -> Result<Best, Refusal> {
        fn best<T: Scalar>(
            matrix: &ResidentMatrix<T>,
            questions: ArrayView2<'_, T>,
            count: usize,
        ) -> Result<Best, gmm_host::Error> {
            let found = matrix.top_k(questions, count)?;
            Ok(Best {
                indices: found.indices.iter().map(|i| *i as u64).collect(),
                values: found.values.iter().map(|v| v.to_f64()).collect(),
            })
        }
        let shape = (q, self.dim().1);
        Ok(match &self.matrix {
            Stored::F32(a) => best(a, view(shape, &rounded(questions))?, count)?,
            Stored::F64(a) => best(a, view(shape, questions)?, count)?,
        })
    }

    /// A quadratic form or distances of this matrix's own rows, `(m,)`: those of a square matrix, `(k, k)`. Forms are in the
    /// precision of the rows.
    ///
    /// # Errors
    /// As for [`values`](Self::values).
    pub(crate) fn values_of_rows(&self, product: Product, square: &Self) -> Result<Vec<f64>, Refusal> {
        if product == Product::Mahalanobis {
            let factor = square.factor()?;
            return Ok(of!(&self.matrix, rows => factor.mahalanobis(rows.as_questions()?, None))?);
        }
        Ok(match (&self.matrix, &square.matrix) {
            (Stored::F32(rows), Stored::F32(a)) => a.quadratic_form(rows.as_questions()?)?,
            (Stored::F64(rows), Stored::F64(a)) => a.quadratic_form(rows.as_questions()?)?,
            (Stored::F32(rows), Stored::F64(a)) => {
                let a = ResidentMatrix::<f32>::new(&*self.engine, a.on_host()?.mapv(|v| v as f32))?;
                a.quadratic_form(rows.as_questions()?)?
            }
            (Stored::F64(rows), Stored::F32(a)) => {
                let a = ResidentMatrix::<f64>::new(&*self.engine, a.on_host()?.mapv(f64::from))?;
                a.quadratic_form(rows.as_questions()?)?
            }
        })
    }

    /// The factor, which the first distance computes.
    fn factor(&self) -> Result<&ResidentFactor, Refusal> {
        let factor = self.factor.get_or_init(|| of!(&self.matrix, a => a.factor().map_err(Refusal::from)));
        factor.as_ref().map_err(Clone::clone)
    }
}

fn view<T>(shape: (usize, usize), numbers: &[T]) -> Result<ArrayView2<'_, T>, Refusal> {
    ArrayView2::from_shape(shape, numbers).map_err(|e| Refusal::fault(e.to_string()))
}

/// The numbers in f32, without a copy if they came so.
fn rounded(questions: &Elements) -> Cow<'_, [f32]> {
    match questions.singles() {
        Some(singles) => singles.into(),
        None => questions.iter().map(|v| *v as f32).collect(),
    }
}
