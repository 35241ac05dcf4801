//! Many mixtures in one npz file, as samplers and other programs write them.

use std::path::Path;

use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{ArrayD, Axis, Ix1, Ix2, Ix3};

use crate::error::Fault;
use crate::npy::npz::read_npz_array;
use crate::{FileError, Problem};

/// Reads `B` mixtures of `k` components in `d` dimensions from an npz file with the arrays `weights`, `(B, k)`, `means`,
/// `(B, k, d)`, and `covariances`: full `(B, k, d, d)`, tied `(B, d, d)`, diag `(B, k, d)`, spherical `(B, k)`.
///
/// The covariances' shape says their kind. Where `k = d`, those of tied and diag are the same: there `kind` decides, and
/// without it that is an error. A `kind` that the shape contradicts is one too.
///
/// # Errors
/// [`FileError`] with the array, and for parameters that are no mixture with the set's index as the row.
pub fn read_mixtures(path: impl AsRef<Path>, kind: Option<CovarianceType>) -> Result<Vec<Mixture>, FileError> {
    let path = path.as_ref();
    let read = |name: &str| read_npz_array(path, name).map(|a| a.to_f64());
    let (weights, means, covariances) = (read("weights")?, read("means")?, read("covariances")?);
    assemble(&weights, &means, &covariances, kind).map_err(|fault| fault.in_file(path))
}

fn assemble(
    weights: &ArrayD<f64>,
    means: &ArrayD<f64>,
    covariances: &ArrayD<f64>,
    kind: Option<CovarianceType>,
) -> Result<Vec<Mixture>, Fault> {
    let &[sets, k, d] = means.shape() else {
        return Err(wrong("means", format!("shape {:?}, not (sets, components, columns)", means.shape())));
    };
    if sets == 0 {
        return Err(wrong("means", "no set of parameters".to_owned()));
    }
    if weights.shape() != [sets, k] {
        return Err(wrong("weights", format!("shape {:?}, where the means ask for {:?}", weights.shape(), [sets, k])));
    }
    let kind = kind_of(covariances.shape(), (sets, k, d), kind)?;
    let set = |i: usize| -> Result<Mixture, Fault> {
        let weights = weights.index_axis(Axis(0), i).into_dimensionality::<Ix1>().expect("two dimensions");
        let means = means.index_axis(Axis(0), i).into_dimensionality::<Ix2>().expect("three dimensions");
        let covariances = covariances.index_axis(Axis(0), i).to_owned();
        let covariances = match kind {
            CovarianceType::Full => covariances.into_dimensionality::<Ix3>().map(Covariances::Full),
            CovarianceType::Tied => covariances.into_dimensionality::<Ix2>().map(Covariances::Tied),
            CovarianceType::Diag => covariances.into_dimensionality::<Ix2>().map(Covariances::Diag),
            CovarianceType::Spherical => covariances.into_dimensionality::<Ix1>().map(Covariances::Spherical),
        };
        let covariances = covariances.expect("the shape was checked");
        Mixture::new(weights.to_owned(), means.to_owned(), covariances).map_err(|e| {
            let mut fault = Fault::from(Problem::Model(e));
            fault.place.row = Some(i as u64);
            fault
        })
    };
    (0..sets).map(set).collect()
}

/// The kind that a shape has, of those that were asked for.
fn kind_of(
    shape: &[usize],
    (sets, k, d): (usize, usize, usize),
    asked: Option<CovarianceType>,
) -> Result<CovarianceType, Fault> {
    let expected = |kind| match kind {
        CovarianceType::Full => vec![sets, k, d, d],
        CovarianceType::Tied => vec![sets, d, d],
        CovarianceType::Diag => vec![sets, k, d],
        CovarianceType::Spherical => vec![sets, k],
    };
    let fitting = || CovarianceType::ALL.into_iter().filter(|&kind| expected(kind) == shape);
    match (asked, fitting().collect::<Vec<_>>().as_slice()) {
        (Some(kind), fitting) if fitting.contains(&kind) => Ok(kind),
        (None, &[kind]) => Ok(kind),
        (None, &[first, second, ..]) => {
            Err(wrong("covariances", format!("shape {shape:?} can be {first} or {second}: say which kind it is")))
        }
        (asked, _) => {
            let kinds = asked.map_or_else(|| CovarianceType::ALL.to_vec(), |kind| vec![kind]);
            let choices: Vec<String> = kinds.into_iter().map(|kind| format!("{kind} {:?}", expected(kind))).collect();
            Err(wrong("covariances", format!("shape {shape:?}, where the means ask for {}", choices.join(" or "))))
        }
    }
}

fn wrong(field: &str, why: String) -> Fault {
    Fault::field(field, Problem::Field(why))
}
