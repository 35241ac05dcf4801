//! Variational Bayes: priors and posteriors from Python's dictionaries and back, and what is computed with a posterior.

use gmm_host::{BayesOptions, EmRun, Error, Fit, FitState, Restart, WeightFamily, predictive_log_densities};
use gmm_model::bayes::{BayesPrior, Posterior, PosteriorNumbers, WeightPosterior, WeightPrior};
use gmm_model::{Draws, Mixture, ModelError, PriorScale};
use ndarray::{ArrayD, Ix1, Ix2};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::engines;
use crate::errors::{raise, with_class};
use crate::fit::moments;
use crate::given::{covariances, owned, shaped};
use crate::options::{Execution, Kind};
use crate::rows::Rows;
use crate::supervise::supervise;

/// The key `bayes` of the options of a fit: None or absent, or the dictionary of [`prior`], in which None means the
/// default.
pub(crate) fn options(rule: &Bound<'_, PyAny>) -> PyResult<Option<BayesOptions>> {
    match rule.get_item("bayes") {
        Ok(from) if !from.is_none() => prior(&from).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.is_instance_of::<PyKeyError>(rule.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `{"family": "dp" or "dirichlet", "concentration": float, "mean": (d,), "mean_precision": float,
/// "degrees_of_freedom": float, "scale": (d, d), (d,) or (), "moves": bool}`.
fn prior(from: &Bound<'_, PyAny>) -> PyResult<BayesOptions> {
    let dirichlet = from.get_item("family")?.extract::<&str>()? == "dirichlet";
    let number = |name: &str| from.get_item(name)?.extract::<Option<f64>>();
    let mean = from.get_item("mean")?.extract::<Option<PyReadonlyArray1<'_, f64>>>()?;
    let scale = from.get_item("scale")?.extract::<Option<PyReadonlyArrayDyn<'_, f64>>>()?;
    Ok(BayesOptions {
        weights: if dirichlet { WeightFamily::Dirichlet } else { WeightFamily::DirichletProcess },
        concentration: number("concentration")?,
        mean: mean.map(|mean| mean.as_array().to_owned()),
        mean_precision: number("mean_precision")?,
        degrees_of_freedom: number("degrees_of_freedom")?,
        scale: scale.map(|all| scale_of(owned(&all))).transpose().map_err(|error| raise(from.py(), error))?,
        // Absent from the prior of a posterior.
        moves: from.get_item("moves").map_or(Ok(false), |moves| moves.extract())?,
    })
}

/// One number, a number per column, or a matrix.
fn scale_of(all: ArrayD<f64>) -> Result<PriorScale, ModelError> {
    Ok(match all.ndim() {
        0 => PriorScale::Variance(all.first().copied().unwrap_or(f64::NAN)),
        1 => PriorScale::Variances(shaped::<Ix1>("covariance prior", all)?),
        _ => PriorScale::Matrix(shaped::<Ix2>("covariance prior", all)?),
    })
}

/// A posterior: `{"prior": .., "covariance_type": str, "means": (k, d), "covariances": .., "weight_concentration": (k,) or,
/// for a Dirichlet process, (k, 2), "mean_precision": (k,), "degrees_of_freedom": (k,), for tied (1,)}`.
pub(crate) struct Given(pub(crate) Posterior);

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Array<'py> = PyReadonlyArrayDyn<'py, f64>;
        let array = |name: &str| Ok::<_, PyErr>(owned(&from.get_item(name)?.extract::<Array<'_>>()?));
        let prior = prior(&from.get_item("prior")?)?;
        let kind = from.get_item("covariance_type")?.extract::<Kind>()?.0;
        let (means, all) = (array("means")?, array("covariances")?);
        let concentration = array("weight_concentration")?;
        let (mean_precision, degrees_of_freedom) = (array("mean_precision")?, array("degrees_of_freedom")?);
        let build = || -> Result<Option<Posterior>, ModelError> {
            let Some(prior) = complete(prior) else { return Ok(None) };
            let weights = if concentration.ndim() == 2 {
                WeightPosterior::Sticks(shaped::<Ix2>("weight concentration", concentration)?)
            } else {
                WeightPosterior::Dirichlet(shaped::<Ix1>("weight concentration", concentration)?)
            };
            let mixture = Mixture::new(weights.mean(), shaped::<Ix2>("means", means)?, covariances(kind, all)?)?;
            let numbers = PosteriorNumbers {
                weights,
                mean_precision: shaped::<Ix1>("mean precision", mean_precision)?,
                degrees_of_freedom: shaped::<Ix1>("degrees of freedom", degrees_of_freedom)?,
            };
            Posterior::new(prior, numbers, mixture).map(Some)
        };
        match build() {
            Ok(Some(posterior)) => Ok(Self(posterior)),
            Ok(None) => {
                Err(with_class(from.py(), "ParameterError", "the prior of a posterior is incomplete".to_owned()))
            }
            Err(error) => Err(raise(from.py(), error)),
        }
    }
}

/// The prior, if no part of it is left to the data.
fn complete(options: BayesOptions) -> Option<BayesPrior> {
    let concentration = options.concentration?;
    Some(BayesPrior {
        weights: match options.weights {
            WeightFamily::Dirichlet => WeightPrior::Dirichlet { concentration },
            WeightFamily::DirichletProcess => WeightPrior::DirichletProcess { concentration },
        },
        mean: options.mean?,
        mean_precision: options.mean_precision?,
        degrees_of_freedom: options.degrees_of_freedom?,
        scale: options.scale?,
    })
}

/// What a posterior has beside its mixture, in the form that [`Given`] takes.
pub(crate) fn as_dict<'py>(py: Python<'py>, posterior: &Posterior) -> PyResult<Bound<'py, PyDict>> {
    let BayesPrior { weights, mean, mean_precision, degrees_of_freedom, scale } = posterior.prior();
    let prior = PyDict::new(py);
    prior.set_item("family", weights.name())?;
    prior.set_item("concentration", weights.concentration())?;
    prior.set_item("mean", mean.clone().into_pyarray(py))?;
    prior.set_item("mean_precision", mean_precision)?;
    prior.set_item("degrees_of_freedom", degrees_of_freedom)?;
    let scale = match scale {
        PriorScale::Matrix(a) => a.clone().into_dyn(),
        PriorScale::Variances(v) => v.clone().into_dyn(),
        PriorScale::Variance(v) => ndarray::arr0(*v).into_dyn(),
    };
    prior.set_item("scale", scale.into_pyarray(py))?;
    let out = PyDict::new(py);
    out.set_item("prior", prior)?;
    let concentration = match posterior.weights() {
        WeightPosterior::Dirichlet(all) => all.clone().into_dyn(),
        WeightPosterior::Sticks(all) => all.clone().into_dyn(),
    };
    out.set_item("weight_concentration", concentration.into_pyarray(py))?;
    out.set_item("mean_precision", posterior.mean_precision().clone().into_pyarray(py))?;
    out.set_item("degrees_of_freedom", posterior.degrees_of_freedom().clone().into_pyarray(py))?;
    Ok(out)
}

/// A fit that goes on from a posterior: `(posterior, lower bound of the log evidence per row at the iteration before, or
/// None)`. With a bound the state has one iteration, against which the next one is judged.
#[derive(FromPyObject)]
pub(crate) struct Resumed(Given, Option<f64>);

impl Resumed {
    /// The number of iterations that the state has already.
    pub(crate) fn before(&self) -> usize {
        usize::from(self.1.is_some())
    }

    /// The state to resume, and the mixture of the posterior means.
    pub(crate) fn state(self) -> (Mixture, FitState) {
        let (before, Self(Given(posterior), bound)) = (self.before(), self);
        let mixture = posterior.mixture().clone();
        let run = EmRun {
            posterior: Some(posterior),
            iterations: before,
            trace: bound.into_iter().collect(),
            ..EmRun::new(mixture.clone())
        };
        let running = Some(Restart { index: 0, empty_at_start: 0, run });
        (mixture, FitState { begun: 1, running, best: None })
    }
}

/// Takes the iterations before a fit that went on out of its record.
pub(crate) fn forget(fit: &mut Fit, before: usize) {
    fit.summary.iterations -= before.min(fit.summary.iterations);
    fit.summary.trace.drain(..before.min(fit.summary.trace.len()));
}

/// The weights `(k,)` of the mixture whose E-step is that of the posterior, and what is added to each row's log density.
#[pyfunction]
pub(crate) fn posterior_expectation(py: Python<'_>, posterior: Given) -> PyResult<(Bound<'_, PyArray1<f64>>, f64)> {
    let step = posterior.0.expectation().map_err(|error| raise(py, error))?;
    Ok((step.mixture.weights().to_owned().into_pyarray(py), step.log_scale))
}

/// The log posterior predictive density of each row, `(n,)`, computed on the CPU in f64.
#[pyfunction]
pub(crate) fn posterior_predictive<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    posterior: Given,
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (unchecked, owner) = Rows::new(rows, None)?.split();
    let done = supervise(py, owner, None, move |_| -> Result<_, Error> {
        let opened = engines::open(&Execution { device: gmm_host::Device::Cpu, ..place.clone() })?;
        let rows = unchecked.check(&opened)?;
        let gmm_host::Data::Host(data) = rows.data() else {
            return Err(Error::Device("rows of a predictive density must be on the host".to_owned()));
        };
        predictive_log_densities(&posterior.0, data, place.threads)
    })?;
    Ok(done.map_err(|error| raise(py, error))?.into_pyarray(py))
}

/// Mixtures drawn from the posterior: for each the dictionary of its weights, means and covariances.
#[pyfunction]
pub(crate) fn posterior_draws(py: Python<'_>, posterior: Given, n: u64, seed: u64) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let one = |index| posterior.0.draw(&mut Draws::for_purpose("posterior", seed, index));
    let drawn = py.detach(|| (0..n).map(one).collect::<Result<Vec<_>, _>>());
    drawn.map_err(|error| raise(py, error))?.iter().map(|mixture| moments(py, mixture)).collect()
}
