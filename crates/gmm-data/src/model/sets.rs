//! Reads many mixtures from one file, as samplers and other programs write them.

use std::path::Path;

use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{ArrayD, Axis, Ix1, Ix2, Ix3};

use crate::error::Fault;
use crate::npy::npz::read_npz_array;
use crate::{FileError, Format, Problem, ReadOptions, Table, read_table};

/// Reads `B` mixtures of `k` components in `d` dimensions from one file:
///
/// - an npz file with the arrays `weights`, `(B, k)`, `means`, `(B, k, d)`, and `covariances`, which are full `(B, k,
///   d, d)`, tied `(B, d, d)`, diag `(B, k, d)` or spherical `(B, k)`. `B` may be two dimensions, `(chain, draw)`;
/// - an npz, parquet or Arrow file of [`write_draws`](crate::write_draws). Its chains are concatenated.
///
/// The kind of covariance is inferred from the shape. If `k = d`, tied and diag have the same shape: then `kind`
/// decides, or else the `covariance_type` that an npz of draws contains.
///
/// # Errors
/// [`FileError`] with the array or column, if the kind is ambiguous, or `kind` contradicts the shape, or shapes are
/// inconsistent; with the set's index, if its parameters do not form a valid mixture.
pub fn read_mixtures(path: impl AsRef<Path>, kind: Option<CovarianceType>) -> Result<Vec<Mixture>, FileError> {
    let path = path.as_ref();
    if let Ok(Format::Parquet | Format::Arrow) = Format::of_path(path) {
        let table = read_table(path, &ReadOptions::default())?;
        return from_columns(&table, kind).map_err(|fault| fault.in_file(path));
    }
    let read = |name: &str| read_npz_array(path, name).map(|a| a.to_f64());
    let needed = |name: &str| {
        read(name).map_err(|mut error| {
            if let Problem::Array { wanted, found } = error.problem {
                error.problem = Problem::Sets { wanted, found };
            }
            error
        })
    };
    let (weights, means, covariances) = (needed("weights")?, needed("means")?, needed("covariances")?);
    let said = read("covariance_type").ok().and_then(|codes| {
        let word: String = codes.iter().map(|&code| char::from(code as u8)).collect();
        word.parse().ok()
    });
    let (weights, means, covariances) = if let &[chains, draws, ..] = means.shape()
        && means.ndim() == 4
    {
        let flat = |name: &str, array: ArrayD<f64>| flattened(name, array, [chains, draws]);
        (flat("weights", weights), flat("means", means), flat("covariances", covariances))
    } else {
        (Ok(weights), Ok(means), Ok(covariances))
    };
    let all = || assemble(&weights?, &means?, &covariances?, kind.or(said));
    all().map_err(|fault| fault.in_file(path))
}

/// Merges the first two dimensions, which must be `front`, the chains and draws of the means: otherwise a set's weights
/// could be paired with another set's means.
fn flattened(name: &str, array: ArrayD<f64>, front: [usize; 2]) -> Result<ArrayD<f64>, Fault> {
    let Some((_, rest)) = array.shape().split_first_chunk().filter(|(chunk, _)| **chunk == front) else {
        let [chains, draws] = front;
        let why = format!("shape {:?}, but the means have [{chains}, {draws}, ..], chains and draws", array.shape());
        return Err(wrong(name, why));
    };
    let shape: Vec<usize> = [&[front[0] * front[1]], rest].concat();
    array.into_shape_with_order(shape).map_err(|e| wrong(name, e.to_string()))
}

/// Reads mixtures from columns called `weights[0]`, `means[0,0]`, `covariances[0,0,0]`, .., one mixture per row.
fn from_columns(table: &Table, kind: Option<CovarianceType>) -> Result<Vec<Mixture>, Fault> {
    let rows = table.matrix.to_f64();
    let array = |name: &str| -> Result<ArrayD<f64>, Fault> {
        let found: Vec<(Vec<usize>, usize)> = table
            .names
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(column, full)| {
                let inner = full.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
                Some((inner.split(',').map(|i| i.parse().ok()).collect::<Option<_>>()?, column))
            })
            .collect();
        let Some((first, _)) = found.first() else {
            return Err(wrong(name, format!("no column '{name}[..]': these are not draws of mixtures")));
        };
        let length =
            |axis: usize| found.iter().filter_map(|(i, _)| i.get(axis)).max().map_or(0, |m| m.saturating_add(1));
        let shape: Vec<usize> = (0..first.len()).map(length).collect();
        let size = shape.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        let mut different: Vec<_> = found.iter().map(|(indices, _)| indices).collect();
        different.sort_unstable();
        if let Some(pair) = different.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(name, format!("two columns have the indices {:?}", pair[0])));
        }
        if size != Some(found.len()) || found.iter().any(|(i, _)| i.len() != shape.len()) {
            return Err(wrong(name, format!("{} columns, but their indices require {shape:?}", found.len())));
        }
        let mut out = ArrayD::zeros([&[rows.nrows()][..], &shape].concat());
        for (indices, column) in found {
            for (i, value) in rows.column(column).iter().enumerate() {
                out[&[&[i][..], &indices].concat()[..]] = *value;
            }
        }
        Ok(out)
    };
    assemble(&array("weights")?, &array("means")?, &array("covariances")?, kind)
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
        return Err(wrong("weights", format!("shape {:?}, but the means require {:?}", weights.shape(), [sets, k])));
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
            fault.place.set = Some(i as u64);
            fault
        })
    };
    (0..sets).map(set).collect()
}

/// Infers the covariance kind from a shape; `asked` restricts it to one kind.
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
            Err(wrong("covariances", format!("shape {shape:?} can be {first} or {second}: specify which kind it is")))
        }
        (asked, _) => {
            let kinds = asked.map_or_else(|| CovarianceType::ALL.to_vec(), |kind| vec![kind]);
            let choices: Vec<String> = kinds.into_iter().map(|kind| format!("{kind} {:?}", expected(kind))).collect();
            Err(wrong("covariances", format!("shape {shape:?}, but the means require {}", choices.join(" or "))))
        }
    }
}

fn wrong(field: &str, why: String) -> Fault {
    Fault::field(field, Problem::Field(why))
}
