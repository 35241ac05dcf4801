//! Defaults of priors, computed from the data, and checks of the user's values.

use gmm_host::Data;
use gmm_model::{CovarianceType, Matrix};

use super::{CovariancesPrior, MeansPrior, PerColumn, Scales, WeightsPrior};
use crate::Error;

/// The summary of a data column from which defaults are computed.
pub(super) struct Column {
    /// The column for messages: its index, and its name if it has one.
    place: String,
    middle: f64,
    range: f64,
    variance: f64,
}

/// Middle of the range, range and variance of each column, over the rows of positive weight. Cost: two reads of the
/// data.
pub(super) fn columns(data: Data<'_>) -> Result<Vec<Column>, Error> {
    let (d, total) = (data.dim().1, data.total_weight());
    let weight = |row: usize| data.weights().map_or(1.0, |weights| weights[row]);
    let (mut ends, mut mean) = (vec![(f64::INFINITY, f64::NEG_INFINITY); d], vec![0.0; d]);
    data.walk(&mut |first, rows| {
        for (i, row) in rows.outer_iter().enumerate().filter(|(i, _)| weight(first + i) > 0.0) {
            let share = weight(first + i) / total;
            for ((&v, (low, high)), mean) in row.iter().zip(&mut ends).zip(&mut mean) {
                (*low, *high) = (low.min(v), high.max(v));
                *mean += share * v;
            }
        }
    })?;
    let mut variance = vec![0.0; d];
    data.walk(&mut |first, rows| {
        for (i, row) in rows.outer_iter().enumerate().filter(|(i, _)| weight(first + i) > 0.0) {
            let share = weight(first + i) / total;
            for ((v, mean), variance) in row.iter().zip(&mean).zip(&mut variance) {
                *variance += share * (v - mean) * (v - mean);
            }
        }
    })?;
    let names = match data {
        Data::Host(here) => here.names(),
        Data::Device(_) => None,
    };
    let place = |j: usize| names.map_or_else(|| format!("column {j}"), |names| format!("column {j} ('{}')", names[j]));
    let column = |(j, ((low, high), variance)): (usize, ((f64, f64), f64))| Column {
        place: place(j),
        middle: low + 0.5 * (high - low),
        range: high - low,
        variance,
    };
    Ok(ends.into_iter().zip(variance).enumerate().map(column).collect())
}

pub(super) fn concentration(options: Option<&WeightsPrior>) -> Result<f64, Error> {
    match options {
        None | Some(WeightsPrior::Flat | WeightsPrior::Dirichlet { concentration: None }) => Ok(1.0),
        Some(WeightsPrior::Dirichlet { concentration: Some(value) }) => {
            positive("weights: concentration", vec![*value]).map(|v| v[0])
        }
    }
}

/// Mean and standard deviation for each column; `None` for a flat prior.
pub(super) fn means(
    options: Option<&MeansPrior>,
    k: usize,
    columns: &[Column],
) -> Result<Option<Vec<[f64; 2]>>, Error> {
    let d = columns.len();
    let (mean, sd) = match options {
        Some(MeansPrior::Flat) if k == 1 => return Ok(None),
        Some(MeansPrior::Flat) => {
            let why = "means: flat is improper with more than one component, and so is the posterior: a component \
                       without rows could be anywhere; use normal with a large sd";
            return Err(Error::Prior(why.to_owned()));
        }
        Some(MeansPrior::Normal { mean, sd }) => (mean.as_ref(), sd.as_ref()),
        None => (None, None),
    };
    let mean = match mean {
        Some(given) => given.spread("means: mean", d)?,
        None => columns.iter().map(|c| c.middle).collect(),
    };
    if let Some(value) = mean.iter().find(|v| !v.is_finite()) {
        return Err(Error::Prior(format!("means: mean is {value}: it must be finite")));
    }
    let sd = given_or(sd, "means: sd", columns, |c| c.range)?;
    Ok(Some(mean.into_iter().zip(sd).map(|(mean, sd)| [mean, sd]).collect()))
}

pub(super) fn scales(
    options: Option<&CovariancesPrior>,
    kind: CovarianceType,
    k: usize,
    columns: &[Column],
) -> Result<Scales, Error> {
    let d = columns.len();
    let matrices = matches!(kind, CovarianceType::Full | CovarianceType::Tied);
    let shrink = (k as f64).powf(-2.0 / d as f64);
    // Spherical covariances have one variance for all columns.
    let pooled;
    let columns = if kind == CovarianceType::Spherical {
        let variance = columns.iter().map(|c| c.variance).sum::<f64>() / d as f64;
        pooled = [Column { place: "all columns together".to_owned(), variance, ..columns[0] }];
        &pooled
    } else {
        columns
    };
    let per_column = |given: &Option<PerColumn>, default: &dyn Fn(&Column) -> f64| {
        given_or(given.as_ref(), "covariances: scale", columns, default)
    };
    let number = |what: &str, given: &Option<f64>, default: f64| match given {
        Some(value) => positive(what, vec![*value]).map(|v| v[0]),
        None => Ok(default),
    };
    let (inverse_wishart, inverse_gamma);
    let options = match options {
        Some(options) => options,
        None if matrices => {
            inverse_wishart = CovariancesPrior::InverseWishart { degrees_of_freedom: None, scale: None };
            &inverse_wishart
        }
        None => {
            inverse_gamma = CovariancesPrior::InverseGamma { shape: None, scale: None };
            &inverse_gamma
        }
    };
    let other = |word: &str, choices: &str| {
        let why = format!("covariances: {word} is not for {kind} covariances: use {choices}");
        Err(Error::Prior(why))
    };
    const MATRICES: &str = "inverse-wishart or lkj";
    const VARIANCES: &str = "inverse-gamma or half-normal";
    match options {
        CovariancesPrior::Flat => {
            let choices = if matrices { MATRICES } else { VARIANCES };
            let why = "a component could collapse onto a single row";
            Err(Error::Prior(format!("covariances: flat is improper, and so is the posterior: {why}; use {choices}")))
        }
        CovariancesPrior::InverseWishart { degrees_of_freedom, scale } if matrices => {
            let nu = number("covariances: degrees_of_freedom", degrees_of_freedom, d as f64 + 2.0)?;
            if nu <= d as f64 - 1.0 {
                let why = format!("covariances: degrees_of_freedom is {nu}: it must be above d - 1 = {}", d - 1);
                return Err(Error::Prior(why));
            }
            Ok(Scales::InverseWishart { nu, scale: per_column(scale, &|c| c.variance * shrink)? })
        }
        CovariancesPrior::Lkj { eta, scale } if matrices => {
            let eta = number("covariances: eta", eta, 2.0)?;
            Ok(Scales::Lkj { eta, scale: per_column(scale, &|c| c.variance.sqrt())? })
        }
        CovariancesPrior::InverseGamma { shape, scale } if !matrices => {
            let shape = number("covariances: shape", shape, 1.5)?;
            Ok(Scales::InverseGamma { shape, scale: per_column(scale, &|c| 0.5 * c.variance * shrink)? })
        }
        CovariancesPrior::HalfNormal { scale } if !matrices => {
            Ok(Scales::HalfNormal { scale: per_column(scale, &|c| c.variance.sqrt())? })
        }
        CovariancesPrior::InverseWishart { .. } => other("inverse-wishart", VARIANCES),
        CovariancesPrior::Lkj { .. } => other("lkj", VARIANCES),
        CovariancesPrior::InverseGamma { .. } => other("inverse-gamma", MATRICES),
        CovariancesPrior::HalfNormal { .. } => other("half-normal", MATRICES),
    }
}

/// The user's values, or the default from each column. Errors if a value is not positive and finite.
fn given_or(
    given: Option<&PerColumn>,
    what: &str,
    columns: &[Column],
    default: impl Fn(&Column) -> f64,
) -> Result<Vec<f64>, Error> {
    if let Some(given) = given {
        return positive(what, given.spread(what, columns.len())?);
    }
    let values: Vec<f64> = columns.iter().map(default).collect();
    match values.iter().zip(columns).find(|(v, _)| !(**v > 0.0 && v.is_finite())) {
        None => Ok(values),
        Some((_, Column { place, .. })) => Err(Error::Prior(format!(
            "{what}: {place} gives no default (constant, or its squares leave the range of f64): give one, drop the column, \
             or rescale"
        ))),
    }
}

fn positive(what: &str, values: Vec<f64>) -> Result<Vec<f64>, Error> {
    match values.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
        None => Ok(values),
        Some(value) => Err(Error::Prior(format!("{what} is {value}: it must be positive and finite"))),
    }
}

/// Describes the first column in which equal values have a total weight of at least 2; if `whole_rows`, the first such
/// equal rows.
pub(super) fn repeated(data: Data<'_>, whole_rows: bool) -> Result<Option<String>, Error> {
    Ok(match data {
        Data::Host(here) => repeated_among(here.rows(), data.weights(), whole_rows),
        Data::Device(there) => repeated_among(&there.fetch()?, data.weights(), whole_rows),
    })
}

fn repeated_among(rows: &Matrix, weights: Option<&[f64]>, whole_rows: bool) -> Option<String> {
    let (n, d) = rows.dim();
    let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
    let groups: Vec<Vec<usize>> = if whole_rows { vec![(0..d).collect()] } else { (0..d).map(|j| vec![j]).collect() };
    for columns in groups {
        let order = |a: &usize, b: &usize| {
            let differs = |&j: &usize| rows.at(*a, j).partial_cmp(&rows.at(*b, j)).filter(|o| o.is_ne());
            columns.iter().find_map(differs).unwrap_or(std::cmp::Ordering::Equal)
        };
        let mut sorted: Vec<usize> = (0..n).filter(|&i| weight(i) > 0.0).collect();
        sorted.sort_by(order);
        let equal = sorted.chunk_by(|a, b| order(a, b).is_eq());
        let found = equal.into_iter().find(|rows| rows.iter().map(|&i| weight(i)).sum::<f64>() >= 2.0);
        if let Some(found) = found {
            let (first, last) = (found[0], found[found.len() - 1]);
            let place = if whole_rows { String::new() } else { format!(" in column {}", columns[0]) };
            let which = if first == last {
                format!("row {first} counts twice")
            } else {
                format!("rows {first} and {last} are equal")
            };
            return Some(format!("{which}{place}"));
        }
    }
    None
}
