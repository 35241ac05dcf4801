//! Rows known only indirectly: the measurement errors or limits that an array carries, and the true rows.

use gmm_host::{Data, Error, TrueRowMoments, Work, true_rows};
use gmm_model::Dataset;
use gmm_model::deconvolution::MeasurementErrors;
use ndarray::{Array2, Array3};
use numpy::{IntoPyArray, PyArray2, PyArray3, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::options::Execution;
use crate::parameters::Parameters;
use crate::rows::Rows;
use crate::supervise::supervise;

/// The class of arrays of rows known only indirectly (`gmm_rs._measured`).
const MEASURED: &str = "Measured";

/// What the attribute `measurement` of such an array holds, as its Python class documents it.
type Attribute<'py> = (
    bool,
    Option<PyReadonlyArray2<'py, f64>>,
    Option<PyReadonlyArray3<'py, f64>>,
    Option<(PyReadonlyArray2<'py, f64>, PyReadonlyArray3<'py, f64>)>,
    Option<(PyReadonlyArray2<'py, f64>, PyReadonlyArray2<'py, f64>, Option<Ends<'py>>)>,
);

/// Lower and upper ends of a box, `(d,)` each.
type Ends<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>);

/// Unchecked measurement errors or limits of rows.
pub(crate) struct Measurement {
    /// Whether NaN is a missing value.
    pub(crate) holed: bool,
    /// Standard deviations, `(n, m)`.
    deviations: Option<Array2<f64>>,
    /// Covariances, `(n, m, m)`.
    covariances: Option<Array3<f64>>,
    /// Measured values, `(n, m)`, and projections, `(n, m, d)`, if the rows are views.
    views: Option<(Array2<f64>, Array3<f64>)>,
    limits: Option<Ranges>,
}

/// Unchecked limits of rows.
struct Ranges {
    /// `(n, d)` each.
    lower: Array2<f64>,
    upper: Array2<f64>,
    /// Lower and upper ends of the box outside of which no row was recorded, `(d,)` each.
    truncation: Option<(Vec<f64>, Vec<f64>)>,
}

impl Measurement {
    /// The errors that an array carries, if any.
    ///
    /// # Errors
    /// Errors if the attribute has another form.
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if array.get_type().name()? != MEASURED {
            return Ok(None);
        }
        let (holed, deviations, covariances, views, limits) =
            array.getattr("measurement")?.extract::<Attribute<'_>>()?;
        Ok(Some(Self {
            holed,
            deviations: deviations.map(|all| all.as_array().to_owned()),
            covariances: covariances.map(|all| all.as_array().to_owned()),
            views: views
                .map(|(measured, projections)| (measured.as_array().to_owned(), projections.as_array().to_owned())),
            limits: limits.map(|(lower, upper, truncation)| Ranges {
                lower: lower.as_array().to_owned(),
                upper: upper.as_array().to_owned(),
                truncation: truncation.map(|(low, high)| (low.as_array().to_vec(), high.as_array().to_vec())),
            }),
        }))
    }

    /// The rows with their errors or limits, or the views.
    ///
    /// # Errors
    /// [`Error::Data`].
    pub(crate) fn attach(self, data: Dataset) -> Result<Dataset, Error> {
        if let Some(Ranges { lower, upper, truncation }) = self.limits {
            if !self.holed {
                data.check_finite()?;
            }
            let data = Dataset::with_censoring(lower, upper)?;
            return Ok(match truncation {
                Some((low, high)) => data.with_truncation(low, high)?,
                None => data,
            });
        }
        let errors = match (&self.covariances, self.deviations) {
            (Some(all), _) => MeasurementErrors::from_covariances(all)?,
            (None, Some(all)) => MeasurementErrors::from_deviations(all)?,
            (None, None) => {
                let shape = self.views.as_ref().map_or_else(|| data.rows().dim(), |(measured, _)| measured.dim());
                MeasurementErrors::from_deviations(Array2::zeros(shape))?
            }
        };
        Ok(match self.views {
            Some((measured, projections)) => Dataset::of_views(measured, projections, errors)?,
            None => data.with_measurement_errors(errors)?,
        })
    }
}

/// Points, `(n, d)`, whose views by `projections`, `(n, m, d)`, are `measured`, `(n, m)`.
#[pyfunction]
pub(crate) fn view_points<'py>(
    py: Python<'py>,
    measured: PyReadonlyArray2<'py, f64>,
    projections: PyReadonlyArray3<'py, f64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (measured, projections) = (measured.as_array().to_owned(), projections.as_array().to_owned());
    let points = py.detach(move || {
        let exact = MeasurementErrors::from_deviations(Array2::zeros(measured.dim()))?;
        Ok::<_, Error>(Dataset::of_views(measured, projections, exact)?.rows().to_f64())
    });
    Ok(points.map_err(|error| raise(py, error))?.into_pyarray(py))
}

/// Means, `(n, d)`, and covariances, `(n, d, d)`, of the true rows given the noisy ones.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub(crate) fn deconvolve<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray3<f64>>)> {
    let rows = Rows::new(rows, None)?;
    let (shape, given) = (rows.dim(), rows.precision());
    let (parameters, factors) = parameters.split();
    let (unchecked, rows) = rows.split();
    let owners = (rows, factors).into_pyobject(py)?.into_any().unbind();
    let work = move || -> Result<_, Error> {
        let mixture = parameters.precisions()?.to_mixture()?;
        let work = Work::passes(shape, given, mixture.covariance_type(), mixture.n_components(), 1.0);
        let opened = engines::open_for(&place, &work, false)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else { return Err(Error::MeasurementErrors { what: "rows on a GPU" }) };
        true_rows(opened.engine.as_ref(), &mixture, data, place.precision.unwrap_or(given))
    };
    let found = supervise(py, owners, None, move |_| work())?.map_err(|error| raise(py, error))?;
    let TrueRowMoments { means, covariances } = found;
    Ok((means.into_pyarray(py), covariances.into_pyarray(py)))
}
