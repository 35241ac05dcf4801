//! Products with a matrix stored on an engine.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::products::{Operand, Scalar, TopK};
use gmm_host::{Engine, Error, Opened, ResidentFactor, ResidentMatrix, memory};
use gmm_model::{Matrix, ModelError, Precision, RowArray};
use ndarray::{Array2, s};
use numpy::{Element, IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::evaluate::SHORT;
use crate::options::Execution;
use crate::per_process::PerProcess;
use crate::rows::{At, Rows, there};
use crate::supervise::supervise;

/// Number of multiplications between two checks of the stop flag: far less than one second of work.
const LONG: usize = 1 << 32;

/// As [`LONG`] for a GPU, where a batch should be divided into as few parts as possible.
const LONG_ON_GPU: usize = 1 << 42;

/// Smallest part of a batch. On a CPU, parts whose sizes are multiples of it give the same bits as the whole batch.
const TOGETHER: usize = 256;

/// A matrix loaded once for many batches. `gmm_rs.Resident` converts the arguments.
#[pyclass(frozen, name = "Resident")]
pub(crate) struct Resident {
    held: Arc<Mutex<Loadable>>,
    /// The Python object that owns the matrix's memory.
    owner: Py<PyAny>,
    dim: (usize, usize),
}

/// A matrix on an engine, and what is needed to load it again: a forked process does not have the engine's threads.
struct Loadable {
    matrix: At,
    /// Precision of the matrix, the questions and the answers.
    precision: Precision,
    place: Execution,
    fast: bool,
    loaded: PerProcess<Loaded>,
}

enum Loaded {
    F32(Held<f32>),
    F64(Held<f64>),
}

struct Held<T: Scalar> {
    matrix: ResidentMatrix<T>,
    /// The Cholesky factor, computed by the first distance.
    factor: Option<ResidentFactor>,
    /// Number of multiplications per part.
    long: usize,
}

#[derive(Clone)]
enum Question {
    Product,
    Inner,
    Form,
    Distance(Option<Vec<f64>>),
    Best(usize),
}

enum Answer<T> {
    Matrix(Array2<T>),
    Numbers(Vec<f64>),
    Best(TopK<T>),
}

impl Loadable {
    /// The matrix, loaded by this process, and its engine.
    fn get(&mut self) -> Result<(&mut Loaded, Arc<Opened>), Error> {
        let Self { matrix, precision, place, fast, loaded } = self;
        let opened = engines::open(place)?;
        let loaded = loaded.get(|| {
            let engine = opened.engine.as_ref();
            let long = if engine.device_input().is_some() { LONG_ON_GPU } else { LONG };
            Ok::<_, Error>(match (matrix, precision) {
                (At::Host(Matrix::F32(here)), _) => Loaded::F32(Held::here(engine, here.clone(), *fast, long)?),
                (At::Host(Matrix::F64(here)), _) => Loaded::F64(Held::here(engine, here.clone(), *fast, long)?),
                (At::Device(rows), precision) => {
                    let matrix = there(&opened, *rows, None)?;
                    match precision {
                        Precision::F32 => {
                            Loaded::F32(Held::new(ResidentMatrix::from_device(engine, matrix)?, *fast, long))
                        }
                        Precision::F64 => {
                            Loaded::F64(Held::new(ResidentMatrix::from_device(engine, matrix)?, *fast, long))
                        }
                    }
                }
            })
        })?;
        Ok((loaded, opened))
    }
}

impl<T: Scalar> Held<T> {
    fn new(matrix: ResidentMatrix<T>, fast: bool, long: usize) -> Self {
        Self { matrix: if fast { matrix.fast() } else { matrix }, factor: None, long }
    }

    fn here(engine: &dyn Engine, matrix: RowArray<T>, fast: bool, long: usize) -> Result<Self, Error> {
        Ok(Self::new(ResidentMatrix::of_rows(engine, matrix)?, fast, long))
    }

    fn factor(&mut self) -> Result<&ResidentFactor, Error> {
        let factor = match self.factor.take() {
            Some(factor) => factor,
            None => self.matrix.factor()?,
        };
        Ok(self.factor.insert(factor))
    }

    /// Computes the answer in parts, and checks `is_cut` before each.
    fn ask(&mut self, x: &Operand<'_, T>, question: &Question, is_cut: &dyn Fn() -> bool) -> Result<Answer<T>, Error> {
        let (m, k) = self.matrix.dim();
        let is_product = matches!(question, Question::Product);
        // The questions of a product are the columns of its right factor.
        let (rows, columns) = x.dim();
        let (len, width) = if is_product { (columns, rows) } else { (rows, columns) };
        if width != k {
            let what = if is_product { "the right factor" } else { "the batch of questions" };
            let expected = if is_product { vec![k, len] } else { vec![len, k] };
            return Err(ModelError::Shape { what, found: vec![rows, columns], expected }.into());
        }
        let part = (self.long / m.saturating_mul(k).max(1)).next_multiple_of(TOGETHER).max(TOGETHER);
        let parts = (0..len).step_by(part).map(|first| first..len.min(first + part));
        let parts = parts.map(|part| if is_cut() { Err(Error::Interrupted { iterations: 0 }) } else { Ok(part) });
        let of = |count: usize| -> Result<Array2<T>, Error> {
            memory::check("the answers of a batch", (count as u128) * len as u128 * size_of::<T>() as u128)?;
            Ok(Array2::zeros(if is_product { (count, len) } else { (len, count) }))
        };
        match question {
            Question::Product => {
                let mut out = of(m)?;
                for part in parts {
                    let part = part?;
                    self.matrix.matmul_into(x.columns(part.clone()), out.slice_mut(s![.., part]))?;
                }
                Ok(Answer::Matrix(out))
            }
            Question::Inner => {
                let mut out = of(m)?;
                for part in parts {
                    let part = part?;
                    self.matrix.inner_into(x.rows(part.clone()), out.slice_mut(s![part, ..]))?;
                }
                Ok(Answer::Matrix(out))
            }
            Question::Form => {
                let mut out = Vec::new();
                // Also for an empty batch, so that a matrix that is not square is an error.
                out.extend(self.matrix.quadratic_form(x.rows(0..0))?);
                for part in parts {
                    out.extend(self.matrix.quadratic_form(x.rows(part?))?);
                }
                Ok(Answer::Numbers(out))
            }
            Question::Distance(mean) => {
                let factor = self.factor()?;
                let mut out = Vec::new();
                for part in parts {
                    out.extend(factor.mahalanobis(x.rows(part?), mean.as_deref())?);
                }
                Ok(Answer::Numbers(out))
            }
            Question::Best(count) => {
                let mut all = self.matrix.top_k(x.rows(0..0), *count)?;
                (all.values, all.indices) = (of(*count)?, Array2::zeros((len, *count)));
                for part in parts {
                    let part = part?;
                    let found = self.matrix.top_k(x.rows(part.clone()), *count)?;
                    all.values.slice_mut(s![part.clone(), ..]).assign(&found.values);
                    all.indices.slice_mut(s![part, ..]).assign(&found.indices);
                }
                Ok(Answer::Best(all))
            }
        }
    }
}

impl Loaded {
    /// As [`Held::ask`]; questions are converted to the precision of the matrix.
    fn ask(
        &mut self,
        opened: &Opened,
        x: &At,
        question: &Question,
        is_cut: &dyn Fn() -> bool,
    ) -> Result<AnyAnswer, Error> {
        let x = match x {
            At::Host(x) => x,
            At::Device(rows) => {
                let x = there(opened, *rows, None)?;
                return Ok(match self {
                    Self::F32(held) => AnyAnswer::F32(held.ask(&(&x).into(), question, is_cut)?),
                    Self::F64(held) => AnyAnswer::F64(held.ask(&(&x).into(), question, is_cut)?),
                });
            }
        };
        Ok(match (self, x) {
            (Self::F32(held), Matrix::F32(x)) => AnyAnswer::F32(held.ask(&x.view().into(), question, is_cut)?),
            (Self::F32(held), Matrix::F64(x)) => {
                AnyAnswer::F32(held.ask(&x.mapv(|v| v as f32).view().into(), question, is_cut)?)
            }
            (Self::F64(held), Matrix::F64(x)) => AnyAnswer::F64(held.ask(&x.view().into(), question, is_cut)?),
            (Self::F64(held), Matrix::F32(x)) => {
                AnyAnswer::F64(held.ask(&x.mapv(f64::from).view().into(), question, is_cut)?)
            }
        })
    }
}

enum AnyAnswer {
    F32(Answer<f32>),
    F64(Answer<f64>),
}

fn to_numpy<'py, T: Element>(py: Python<'py>, answer: Answer<T>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match answer {
        Answer::Matrix(matrix) => matrix.into_pyarray(py).into_any(),
        Answer::Numbers(numbers) => numbers.into_pyarray(py).into_any(),
        Answer::Best(TopK { indices, values }) => {
            let indices = indices.mapv(|index| index as i64);
            (indices.into_pyarray(py), values.into_pyarray(py)).into_pyobject(py)?.into_any()
        }
    })
}

impl Resident {
    fn ask<'py>(
        &self,
        py: Python<'py>,
        questions: &Bound<'py, PyAny>,
        question: Question,
    ) -> PyResult<Bound<'py, PyAny>> {
        let questions = Rows::new(questions, None)?;
        let (q, columns) = questions.dim();
        let ((m, k), is_product) = (self.dim, matches!(question, Question::Product));
        let count = if is_product { columns } else { q };
        let (questions, memory_of_both) = questions.into_numbers(py, &self.owner)?;
        let held = self.held.clone();
        // A poisoned lock can be ignored: a matrix is never left half loaded.
        let work = move |is_cut: &dyn Fn() -> bool| {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let (loaded, opened) = held.get()?;
            loaded.ask(&opened, &questions, &question, is_cut)
        };
        let done = if m.saturating_mul(k).saturating_mul(count) < SHORT {
            py.detach(|| work(&|| false))
        } else {
            supervise(py, memory_of_both, None, move |line| work(&|| line.is_cut()))?
        };
        match done.map_err(|error| raise(py, error))? {
            AnyAnswer::F32(answer) => to_numpy(py, answer),
            AnyAnswer::F64(answer) => to_numpy(py, answer),
        }
    }
}

#[pymethods]
impl Resident {
    #[new]
    fn new(py: Python<'_>, matrix: &Bound<'_, PyAny>, place: Execution, fast: bool) -> PyResult<Self> {
        let matrix = Rows::new(matrix, None)?;
        let dim = matrix.dim();
        let (matrix, owner) = matrix.into_numbers(py, &py.None())?;
        let made = py.detach(|| {
            let own = match &matrix {
                At::Host(matrix) => matrix.precision(),
                At::Device(rows) => rows.precision,
            };
            let precision = place.precision.unwrap_or(own);
            let matrix = match (matrix, precision) {
                (At::Host(Matrix::F64(a)), Precision::F32) => At::Host(a.mapv(|v| v as f32).into()),
                (At::Host(Matrix::F32(a)), Precision::F64) => At::Host(a.mapv(f64::from).into()),
                // A matrix on a GPU is converted when its operands are created.
                (matrix, _) => matrix,
            };
            let mut held = Loadable { matrix, precision, place, fast, loaded: PerProcess::empty() };
            held.get()?;
            Ok::<_, Error>(held)
        });
        let held = made.map_err(|error| raise(py, error))?;
        Ok(Self { held: Arc::new(Mutex::new(held)), owner, dim })
    }

    /// `A b`, `(m, n)` from `(k, n)`.
    fn matmul<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, b, Question::Product)
    }

    /// `X Aᵀ`, `(q, m)` from `(q, k)`.
    fn inner<'py>(&self, py: Python<'py>, questions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, questions, Question::Inner)
    }

    /// xᵀ A x, `(q,)`.
    fn quadratic_form<'py>(&self, py: Python<'py>, questions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, questions, Question::Form)
    }

    /// (x − mean)ᵀ A⁻¹ (x − mean), `(q,)`.
    #[pyo3(signature = (questions, mean=None))]
    fn mahalanobis<'py>(
        &self,
        py: Python<'py>,
        questions: &Bound<'py, PyAny>,
        mean: Option<PyReadonlyArray1<'py, f64>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, questions, Question::Distance(mean.map(|mean| mean.as_array().to_vec())))
    }

    /// Indices and values, `(q, count)` each.
    fn top_k<'py>(&self, py: Python<'py>, questions: &Bound<'py, PyAny>, count: usize) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, questions, Question::Best(count))
    }
}
