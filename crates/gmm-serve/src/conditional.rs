//! The density of each column of a row given its others, as the parameters of a mixture in that column.

use gmm_model::{Covariances, Mixture, ModelError};

use crate::Refusal;

/// Most columns of a row with conditional densities: each needs a factorisation of all others, `k*d⁴/3` flops together.
const MOST_COLUMNS: usize = 32;

/// Appends a JSON array with the conditional density of each column, as its components' weights, means and variances.
/// Missing values, NaN, are not among those that are given. Uniform noise beside the mixture does not count.
///
/// # Errors
/// 400 for more than [`MOST_COLUMNS`] columns, and for values so far away that a mean overflows.
pub(crate) fn write(out: &mut Vec<u8>, mixture: &Mixture, row: &[f64]) -> Result<(), Refusal> {
    if row.len() > MOST_COLUMNS {
        let d = row.len();
        let why =
            format!("conditional densities are computed for at most {MOST_COLUMNS} columns, and the model has {d}");
        return Err(Refusal::bad(why));
    }
    let all = (0..row.len()).map(|column| of_column(mixture, row, column)).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| Refusal::bad(format!("a conditional density: {error}")))?;
    crate::tensor::array(out, &all, |out, one| {
        let variances: Vec<f64> = (0..one.n_components()).map(|c| variance(one, c)).collect();
        let weights = one.weights();
        let means = one.means();
        for (key, values) in [
            ("{\"weights\":", weights.to_slice().expect("contiguous")),
            (",\"means\":", means.to_slice().expect("row-major")),
            (",\"variances\":", &variances),
        ] {
            out.extend_from_slice(key.as_bytes());
            crate::tensor::array(out, values, |out, v| crate::tensor::number(out, *v));
        }
        out.push(b'}');
    });
    Ok(())
}

/// The mixture of one column given the values of the others.
fn of_column(mixture: &Mixture, row: &[f64], column: usize) -> Result<Mixture, ModelError> {
    let given: Vec<usize> = (0..row.len()).filter(|&j| j != column && !row[j].is_nan()).collect();
    if given.is_empty() {
        return mixture.marginal(&[column]);
    }
    let values: Vec<f64> = given.iter().map(|&j| row[j]).collect();
    gmm_model::Conditional::new(mixture, &given, &[column])?.at(&values)
}

/// The variance of component `c` of a mixture in one column.
fn variance(mixture: &Mixture, c: usize) -> f64 {
    match mixture.covariances() {
        Covariances::Full(a) => a[[c, 0, 0]],
        Covariances::Tied(a) => a[[0, 0]],
        Covariances::Diag(a) => a[[c, 0]],
        Covariances::Spherical(a) => a[c],
    }
}
