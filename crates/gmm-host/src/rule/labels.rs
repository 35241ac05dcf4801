//! Rows whose component is known are taken out of the rows of the engine: sums of each group follow from one pass.

use gmm_model::{CovarianceType, Dataset, LabelledRows, Precision};
use ndarray::Array2;

use crate::em::check;
use crate::shift::Sample;
use crate::{Data, Engine, Error, FitOptions, hold};

/// The unlabelled rows of positive weight, if there are any, and the sums of the labelled ones; `None` if no labels are
/// given.
///
/// Cost: a copy of the rows, and two passes over each group of equal labels.
///
/// # Errors
/// [`Error::Option`] if the number of labels is not that of rows; any error of the engine.
pub(crate) fn separate(
    engine: &dyn Engine,
    data: Data<'_>,
    options: &FitOptions,
) -> Result<Option<(Option<Dataset>, LabelledRows)>, Error> {
    let Some(labels) = &options.rule.labels else { return Ok(None) };
    data.require_exact("known components of rows")?;
    let (n, k) = (data.dim().0, options.n_components);
    if labels.len() != n {
        let must = format!("{n}, the number of rows");
        return Err(Error::Option { option: "number of labels", value: labels.len().to_string(), must });
    }
    let fetched;
    let data = match data {
        Data::Host(data) => data,
        Data::Device(there) => {
            let rows = Dataset::new(there.fetch()?)?;
            fetched = match there.weights() {
                Some(weights) => rows.with_weights(weights.to_vec())?,
                None => rows,
            };
            &fetched
        }
    };
    let of = |wanted: Option<usize>| -> Result<Option<Dataset>, Error> {
        let weights: Vec<f64> = (0..n).map(|i| if labels[i] == wanted { data.weight(i) } else { 0.0 }).collect();
        if weights.iter().all(|w| *w == 0.0) {
            return Ok(None);
        }
        let some = data.clone().with_weights(weights)?;
        Ok(Some(some.without_absent_rows().unwrap_or(some)))
    };
    let unlabelled = of(None)?;
    let precision = options.precision.unwrap_or(data.rows().precision());
    let mut labelled = LabelledRows::new(options.covariance_type, k);
    for c in 0..k {
        if let Some(group) = of(Some(c))? {
            let kind = LabelledRows::group_kind(options.covariance_type);
            labelled.insert(c, sums(engine, &group, kind, precision, options)?)?;
        }
    }
    Ok(Some((unlabelled, labelled)))
}

/// The sums of some rows, as one component, about their mean.
fn sums(
    engine: &dyn Engine,
    group: &Dataset,
    kind: CovarianceType,
    precision: Precision,
    options: &FitOptions,
) -> Result<gmm_model::Statistics, Error> {
    let sample = Sample::of(group.into())?;
    let at = sample.shift();
    let (mut rows, ..) = hold::for_rule(group.into(), engine, precision, &sample, &at, options)?;
    let centre = Array2::from_shape_vec((1, at.len()), at).expect("d values");
    // The first pass finds the mean, from which the second takes differences.
    let first = rows.nearest(CovarianceType::Spherical, centre.view())?;
    check(&first, 0)?;
    let mean = &first.centres + &(&first.first / first.weight[0]);
    let about = rows.nearest(kind, mean.view())?;
    check(&about, 0)?;
    Ok(about)
}
