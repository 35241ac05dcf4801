//! The region that rows lie in.

use gmm_model::{NoiseRegion, NoiseRotation, principal_axes};
use ndarray::{Array1, Array2, ArrayView2, Axis};

use crate::{Data, Error};

/// How much smaller, relatively, the box along the principal axes must be: else that along the columns is taken.
const SMALLER: f64 = 1e-6;

/// A range this small beside the largest deviation is rounding: the rows lie in a plane.
const FLAT: f64 = 1e-12;

/// Rows that are multiplied by the axes at a time.
const BLOCK: usize = 4096;

/// The smaller of two boxes around the rows: along the columns, and along the principal axes of their covariance (as
/// mclust's `hypvol`).
///
/// Rows of weight 0 do not count. Cost: three reads of the rows, of which two take `n d²` multiplications.
///
/// # Errors
/// [`Error::Option`] if a column is constant, or columns are linearly dependent: the volume is then 0; errors of the
/// device.
pub fn region(data: Data<'_>) -> Result<NoiseRegion, Error> {
    let present = data.without_absent_rows();
    let data = present.as_ref().map_or(data, Data::from);
    let d = data.dim().1;
    let along_columns = ends(data, None)?;
    let flat = |what: String| {
        let must = "positive for uniform noise: leave the column out, or give the volume".to_owned();
        Err(Error::Option { option: "hypervolume of the rows", value: format!("0, since {what}"), must })
    };
    if let Some(j) = along_columns.lower.iter().zip(&along_columns.upper).position(|(a, b)| a >= b) {
        return flat(format!("column {j} is constant"));
    }
    if d == 1 {
        return Ok(along_columns);
    }
    let centre: Array1<f64> =
        along_columns.lower.iter().zip(&along_columns.upper).map(|(a, b)| a + (b - a) / 2.0).collect();
    let covariance = covariance(data, &centre)?;
    let Some(axes) = principal_axes(covariance.view()) else { return Ok(along_columns) };
    let rotation =
        NoiseRotation { centre: centre.to_vec(), axes: axes.outer_iter().map(|axis| axis.to_vec()).collect() };
    let along_axes = ends(data, Some((&centre, axes.view(), rotation)))?;
    let ranges = || along_axes.lower.iter().zip(&along_axes.upper).map(|(a, b)| b - a);
    let widest = ranges().fold(0.0, f64::max);
    if ranges().any(|range| range <= FLAT * widest) {
        // Columns of very different scales look alike.
        let scale = |j: usize| along_columns.upper[j] - along_columns.lower[j];
        let scaled = Array2::from_shape_fn((d, d), |(i, j)| covariance[[i, j]] / scale(i) / scale(j));
        if gmm_model::Cholesky::new(scaled.view()).is_err() {
            return flat("columns are linearly dependent".to_owned());
        }
        return Ok(along_columns);
    }
    let smaller = along_axes.log_volume() < along_columns.log_volume() - SMALLER;
    Ok(if smaller { along_axes } else { along_columns })
}

/// The box along the columns or the given axes.
fn ends(
    data: Data<'_>,
    axes: Option<(&Array1<f64>, ArrayView2<'_, f64>, NoiseRotation)>,
) -> Result<NoiseRegion, Error> {
    let d = data.dim().1;
    let (mut lower, mut upper) = (vec![f64::INFINITY; d], vec![f64::NEG_INFINITY; d]);
    let mut extend = |rows: ArrayView2<'_, f64>| {
        for row in rows.outer_iter() {
            for ((a, b), &v) in lower.iter_mut().zip(&mut upper).zip(row) {
                (*a, *b) = (a.min(v), b.max(v));
            }
        }
    };
    data.walk(&mut |_, rows| match &axes {
        None => extend(rows),
        Some((centre, axes, _)) => {
            for some in rows.axis_chunks_iter(Axis(0), BLOCK) {
                extend((&some - *centre).dot(&axes.t()).view());
            }
        }
    })?;
    Ok(NoiseRegion { lower, upper, rotation: axes.map(|(_, _, rotation)| rotation) })
}

/// The covariance of the rows, `(d, d)`; a row of weight 2 counts as two rows. `centre` is some point among them.
fn covariance(data: Data<'_>, centre: &Array1<f64>) -> Result<Array2<f64>, Error> {
    let d = centre.len();
    let (mut first, mut second) = (Array1::zeros(d), Array2::zeros((d, d)));
    data.walk(&mut |start, rows| {
        for (block, some) in rows.axis_chunks_iter(Axis(0), BLOCK).enumerate() {
            let mut z = &some - centre;
            if let Some(weights) = data.weights() {
                let weights = &weights[start + block * BLOCK..][..some.nrows()];
                let root = Array1::from_iter(weights.iter().map(|w| w.sqrt())).insert_axis(Axis(1));
                first += &Array1::from_iter(weights.iter().copied()).dot(&z);
                z *= &root;
            } else {
                first += &z.sum_axis(Axis(0));
            }
            second += &z.t().dot(&z);
        }
    })?;
    let total = data.total_weight();
    let mean = first / total;
    Ok(Array2::from_shape_fn((d, d), |(i, j)| second[[i, j]] / total - mean[i] * mean[j]))
}
