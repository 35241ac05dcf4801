//! Evaluation of a mixture on rows: log densities, responsibilities, labels and totals.

use bytemuck::Zeroable;
use gmm_host::{Data, DeviceOutputs, Error, EvaluateOptions, Evaluation, FloatsMut, Work, evaluate, memory};
use gmm_model::Precision;
use ndarray::{Array1, Array2};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::options::Execution;
use crate::parameters::Parameters;
use crate::rows::Rows;
use crate::supervise::supervise;

/// Work with fewer rows × components × columns than this ends before it could be interrupted, so it runs unsupervised.
pub(crate) const SHORT: usize = 1 << 22;

/// Rows of fewer values are checked before they are evaluated, also on a GPU.
const LATE: usize = 1 << 22;

/// Log density of each row, `(n,)`.
#[pyfunction]
pub(crate) fn log_densities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = memory::zeros::<f64>(n);
        evaluate(EvaluateOptions { log_densities: Some(&mut out), ..EvaluateOptions::default() })?;
        Ok(Array1::from_vec(out))
    })?;
    Ok(found.into_pyarray(py))
}

/// An array of another library on the GPU of the rows, to which results are written: its address, and the object that
/// keeps it alive.
#[derive(FromPyObject)]
pub(crate) struct OutputArray {
    address: u64,
    owner: Py<PyAny>,
}

/// As [`log_densities`], [`responsibilities`] or [`labels`], by name, for rows on a GPU, written to `out` there: float64,
/// float64 or uint32, in row-major order.
#[pyfunction]
pub(crate) fn evaluate_there(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    parameters: Parameters,
    place: Execution,
    what: &str,
    out: OutputArray,
) -> PyResult<()> {
    let rows = Rows::new(rows, None)?;
    let address = Some(out.address);
    let outputs = match what {
        "log_densities" => DeviceOutputs { log_densities: address, ..DeviceOutputs::default() },
        "responsibilities" => DeviceOutputs { responsibilities: address, ..DeviceOutputs::default() },
        _ => DeviceOutputs { labels: address, ..DeviceOutputs::default() },
    };
    let is_short = is_short(rows.dim(), parameters.n_components());
    let (parameters, factors) = parameters.split();
    let (unchecked, owner) = rows.split();
    let owners = (owner, factors, out.owner).into_pyobject(py)?.into_any().unbind();
    let work = move || -> Result<(), Error> {
        let mixture = parameters.precisions()?;
        let opened = engines::open(&place)?;
        let rows = unchecked.check(&opened)?;
        let Data::Device(data) = rows.data() else { unreachable!("rows on a GPU") };
        let precision = place.precision.unwrap_or_else(|| wider(data.precision(), mixture.precision()));
        // SAFETY: `gmm_rs` has made the array with the library of the rows, on their GPU, of the shape and type of the
        // result; `supervise` keeps it alive, and no one else has it yet.
        unsafe { evaluate::precisions_there(opened.engine.as_ref(), &mixture, data, precision, &outputs) }?;
        Ok(())
    };
    let done = if is_short { py.detach(work) } else { supervise(py, owners.clone_ref(py), None, move |_| work())? };
    drop(owners);
    done.map_err(|error| raise(py, error))
}

/// Results have the precision of the wider type of rows and parameters.
pub(crate) const fn wider(rows: Precision, parameters: Precision) -> Precision {
    match (rows, parameters) {
        (Precision::F32, Precision::F32) => Precision::F32,
        _ => Precision::F64,
    }
}

/// Responsibilities, `(n, k)`; each row sums to 1. Of float32 if `single`, else of float64.
#[pyfunction]
pub(crate) fn responsibilities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
    single: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let rows = Rows::new(rows, None)?;
    Ok(match single {
        true => on(py, rows, parameters, place, responsibilities_of::<f32>)?.into_pyarray(py).into_any(),
        false => on(py, rows, parameters, place, responsibilities_of::<f64>)?.into_pyarray(py).into_any(),
    })
}

fn responsibilities_of<S: Zeroable>((n, k): (usize, usize), evaluate: &mut Evaluate<'_>) -> Result<Array2<S>, Error>
where
    for<'a> FloatsMut<'a>: From<&'a mut Vec<S>>,
{
    memory::check("the responsibilities", size_of::<S>() as u128 * n as u128 * k as u128)?;
    let mut out = memory::zeros::<S>(n * k);
    evaluate(EvaluateOptions { responsibilities: Some((&mut out).into()), ..EvaluateOptions::default() })?;
    Ok(Array2::from_shape_vec((n, k), out).expect("k of each row"))
}

/// Component of largest responsibility of each row, `(n,)` of int64.
#[pyfunction]
pub(crate) fn labels<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    /// Labels that a thread converts at a time.
    const PIECE: usize = 1 << 18;
    let threads = place.threads;
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = memory::zeros::<u32>(n);
        evaluate(EvaluateOptions { labels: Some(&mut out), ..EvaluateOptions::default() })?;
        Ok(out)
    })?;
    // The memory of a large result is new: several threads touch it sooner than one.
    let pool = engines::pool(threads).map_err(|error| raise(py, error))?;
    let wide = py.detach(|| {
        let mut wide = memory::zeros::<i64>(found.len());
        let convert = |(to, from): (&mut [i64], &[u32])| to.iter_mut().zip(from).for_each(|(to, &v)| *to = v.into());
        if found.len() < PIECE {
            convert((&mut wide, &found));
        } else {
            pool.install(|| wide.par_chunks_mut(PIECE).zip(found.par_chunks(PIECE)).for_each(convert));
        }
        wide
    });
    Ok(wide.into_pyarray(py))
}

/// Log-likelihood Σ w ln p(x), and total weight Σ w.
#[pyfunction]
#[pyo3(signature = (rows, parameters, place, weights=None))]
pub(crate) fn score<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<(f64, f64)> {
    on(py, Rows::new(rows, weights)?, parameters, place, |_, evaluate| {
        let totals = evaluate(EvaluateOptions::default())?;
        Ok((totals.log_likelihood, totals.total_weight))
    })
}

/// Whether an evaluation ends before it could be interrupted.
const fn is_short((n, d): (usize, usize), k: usize) -> bool {
    n.saturating_mul(d).saturating_mul(k) < SHORT
}

/// Evaluates once, and writes the requested outputs.
type Evaluate<'a> = dyn FnMut(EvaluateOptions<'_>) -> Result<Evaluation, Error> + 'a;

/// Computes a result from `(n, k)` and an evaluation.
type Evaluator<R> = fn((usize, usize), &mut Evaluate<'_>) -> Result<R, Error>;

fn on<R: Send + 'static>(
    py: Python<'_>,
    rows: Rows,
    parameters: Parameters,
    place: Execution,
    evaluator: Evaluator<R>,
) -> PyResult<R> {
    let ((n, d), given, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let is_short = is_short((n, d), parameters.n_components());
    let (parameters, factors) = parameters.split();
    let (unchecked, rows) = rows.split();
    let work = move || {
        let mixture = parameters.precisions()?;
        let work = Work::passes((n, d), given, mixture.covariance_type(), mixture.n_components(), 1.0);
        let opened = engines::open_for(&place, &work, is_on_gpu)?;
        // On a GPU, a row that is not finite shows in the total.
        let is_late = opened.engine.device_input().is_some() && n * d >= LATE;
        let rows = if is_late { unchecked.unread(&opened)? } else { unchecked.check(&opened)? };
        let precision = place.precision.unwrap_or_else(|| wider(rows.data().precision(), mixture.precision()));
        evaluator((n, mixture.n_components()), &mut |want| {
            let found = evaluate::precisions(opened.engine.as_ref(), &mixture, rows.data(), precision, want)?;
            match rows.data() {
                Data::Host(data) if is_late && !data.has_missing() && !found.log_likelihood.is_finite() => {
                    data.check_finite()?
                }
                _ => {}
            }
            Ok(found)
        })
    };
    // The owners live until the end of this function, after the short work; for supervised work `supervise` keeps
    // clones.
    let owners = (rows, factors);
    let done = if is_short {
        py.detach(work)
    } else {
        let owners = (owners.0.clone_ref(py), owners.1.clone_ref(py)).into_pyobject(py)?;
        supervise(py, owners.into_any().unbind(), None, move |_| work())?
    };
    drop(owners);
    done.map_err(|error| raise(py, error))
}
