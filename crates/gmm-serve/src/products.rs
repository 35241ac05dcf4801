//! Requests to a resident matrix: products with the questions of the request, or of the matrix's own rows with a square
//! matrix.

use std::sync::Arc;

use crate::infer::{Sink, no_output, one_input, two_sides, wrong_shape};
use crate::matrix::{Product, ServedMatrix};
use crate::registry::{Models, Served};
use crate::tensor::{Elements, Request, Tensor, Values};
use crate::{Limits, Refusal};

/// The outputs of a matrix.
const OUTPUTS: [&str; 5] = ["indices", "values", "inner", "quadratic_form", "mahalanobis"];

/// The outputs for a request that names none.
pub(crate) const DEFAULT_OUTPUTS: [&str; 2] = ["indices", "values"];

/// The input whose rows are multiplied by the matrix.
pub(crate) const QUESTIONS: &str = "questions";

/// The input, or the parameter with a name, of a square matrix for the rows that are served.
const SQUARE: &str = "matrix";

/// Rows that a search returns if the request does not say how many.
pub(crate) const COUNT: usize = 10;

/// What is asked of a matrix.
pub(crate) enum MatrixRequest {
    /// Products with questions, `(q, k)`; of a search `count` rows for each.
    Questions { questions: Elements, q: usize, count: usize },
    /// Forms and distances of the own rows, by the square matrix of the request.
    Sent(Box<ServedMatrix>),
    /// As [`Sent`](Self::Sent), by one that is served too.
    Resident(Arc<Served>),
}

impl MatrixRequest {
    /// # Errors
    /// 400 for inputs that do not fit; 404 for a matrix that is not served; 413 for too many questions.
    pub(crate) fn of(
        matrix: &ServedMatrix,
        request: Request,
        models: &Models,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        let (m, k) = matrix.dim();
        if let Some(name) = &request.matrix {
            if !request.inputs.is_empty() {
                return Err(Refusal::bad("the parameter 'matrix' replaces the inputs: give one or the other"));
            }
            return resident(name, k, models);
        }
        let [input] = <[Tensor; 1]>::try_from(request.inputs).map_err(|all| one_input(QUESTIONS, all.len()))?;
        let Tensor { name, shape, values } = input;
        if name == SQUARE {
            if shape != [k, k] {
                let must = format!("[{k}, {k}], for rows of {k} columns");
                return Err(Refusal::bad(format!("input '{SQUARE}' has shape {shape:?}: it must be {must}")));
            }
            return Ok(Self::Sent(Box::new(matrix.beside(values)?)));
        }
        let q = two_sides(&shape, k).ok_or_else(|| wrong_shape(QUESTIONS, &shape, k))?;
        limits.check_rows(q)?;
        Ok(Self::Questions { questions: values, q, count: request.count.unwrap_or(COUNT.min(m)) })
    }
}

/// The square matrix of `k` columns that is served as `NAME` or `NAME:VERSION`.
fn resident(name: &str, k: usize, models: &Models) -> Result<MatrixRequest, Refusal> {
    let (own, version) = name.split_once(':').map_or((name, None), |(own, version)| (own, Some(version)));
    let served = models.find(own, version)?.served();
    let shown = gmm_model::shown(name);
    match &*served {
        Served::Model(_) => Err(Refusal::bad(format!("'{shown}' is a model: the parameter 'matrix' names a matrix"))),
        Served::Matrix(square) if square.dim() != (k, k) => {
            let (rows, columns) = square.dim();
            Err(Refusal::bad(format!("'{shown}' is {rows} × {columns}, and must be {k} × {k} for rows of {k} columns")))
        }
        Served::Matrix(_) => Ok(MatrixRequest::Resident(served)),
    }
}

/// Gives what is asked to the sink.
///
/// # Errors
/// 400 for other outputs, or a matrix of the wrong kind; 413 for an answer that is too large.
pub(crate) fn put(
    matrix: &ServedMatrix,
    asked: &MatrixRequest,
    outputs: &[&str],
    limits: &Limits,
    sink: &mut (impl Sink + ?Sized),
) -> Result<(), Refusal> {
    let square = match asked {
        MatrixRequest::Questions { questions, q, count } => {
            return put_products(matrix, (questions, *q), *count, outputs, limits, sink);
        }
        MatrixRequest::Sent(square) => square,
        MatrixRequest::Resident(served) => match &**served {
            Served::Matrix(square) => square,
            Served::Model(_) => return Err(Refusal::fault("a model instead of a matrix")),
        },
    };
    let m = matrix.dim().0;
    for (i, name) in outputs.iter().enumerate() {
        let product = product(name)?;
        if !matches!(product, Product::QuadraticForm | Product::Mahalanobis) {
            let message =
                format!("'{name}' needs the input '{QUESTIONS}': a matrix gives quadratic_form and mahalanobis");
            return Err(Refusal::bad(message));
        }
        limits.check_answer(m)?;
        sink.put(name, &[m], Values::F64(&matrix.values_of_rows(product, square)?), i)?;
    }
    Ok(())
}

fn product(output: &str) -> Result<Product, Refusal> {
    match output {
        "indices" | "values" => Ok(Product::Best),
        "inner" => Ok(Product::Inner),
        "quadratic_form" => Ok(Product::QuadraticForm),
        "mahalanobis" => Ok(Product::Mahalanobis),
        other => Err(no_output(other, &OUTPUTS)),
    }
}

/// Gives the products of the questions to the sink.
fn put_products(
    matrix: &ServedMatrix,
    (questions, q): (&Elements, usize),
    count: usize,
    outputs: &[&str],
    limits: &Limits,
    sink: &mut (impl Sink + ?Sized),
) -> Result<(), Refusal> {
    let mut best = None;
    for (i, name) in outputs.iter().enumerate() {
        let product = product(name)?;
        limits.check_answer(matrix.answer_len(product, q, count))?;
        if product == Product::Best {
            let best = match &mut best {
                Some(best) => best,
                none => none.insert(matrix.best(questions, q, count)?),
            };
            match *name {
                "indices" => sink.put(name, &[q, count], Values::U64(&best.indices), i)?,
                _ => sink.put(name, &[q, count], Values::F64(&best.values), i)?,
            }
            continue;
        }
        let values = matrix.values(product, questions, q)?;
        match product {
            Product::Inner => sink.put(name, &[q, matrix.dim().0], Values::F64(&values), i)?,
            _ => sink.put(name, &[q], Values::F64(&values), i)?,
        }
    }
    Ok(())
}
