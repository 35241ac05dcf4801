//! Checks the passes of k-means against naive sums over the rows.

use anyhow::Result;
use gmm_host::init::RowDraw;
use gmm_host::{DISTANCE_ROWS, Engine, shift};
use gmm_model::CovarianceType;
use ndarray::ArrayView1;
use rayon::prelude::*;

use super::super::data::Source;
use super::super::workloads::{Workload, tolerance};
use crate::definition::Shape;
use gmm_bench::difference::frobenius;

/// Checks the passes of k-means: distances to a row, and the inertia about centres. Returns a description if an answer
/// is wrong. The inertia is compared rather than the clusters, because a row half-way between two centres may belong to
/// either.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn check_kmeans(engine: &dyn Engine, source: &Source, workload: &Workload) -> Result<Option<String>> {
    let Workload { precision, shape: Shape { n, .. }, checked, .. } = *workload;
    let start = source.start(CovarianceType::Spherical, false)?;
    let (distinct, data) = source.repeated(checked, n, precision, false)?;
    let mut rows = engine.load(&data, precision, &shift::of_data(&data))?;
    let squared =
        |x: ArrayView1<'_, f64>, y: ArrayView1<'_, f64>| -> f64 { x.iter().zip(y).map(|(a, b)| (a - b).powi(2)).sum() };
    let centre = distinct.row(0);
    rows.forget_centres();
    let sums = rows.add_centre(&centre.to_vec())?;
    #[expect(clippy::single_range_in_vec_init, reason = "one range of rows: all of them")]
    let found = rows.near(&[0..n])?;
    let truth: Vec<f64> = (0..n).map(|i| squared(distinct.row(i % checked), centre)).collect();
    let drawn = rows.weigh_draws(&[RowDraw { group: n / 2 / DISTANCE_ROWS, uniform: 0.5 }], None)?;
    let far = distinct.row(drawn.rows[0] % checked);
    let left: f64 = (0..n).map(|i| truth[i].min(squared(distinct.row(i % checked), far))).sum();
    rows.forget_centres();
    let of_sums = (sums.iter().sum::<f64>() / truth.iter().sum::<f64>() - 1.0).abs();
    let distances = frobenius(&found, &truth, 1.0).max((drawn.left[0] / left - 1.0).abs()).max(of_sums);
    let centres = start.means();
    let nearest = rows.nearest(CovarianceType::Spherical, centres)?;
    let least = |i: usize| centres.outer_iter().map(|c| squared(distinct.row(i), c)).fold(f64::INFINITY, f64::min);
    let inertia =
        (n / checked) as f64 * (0..checked).into_par_iter().map(least).collect::<Vec<_>>().iter().sum::<f64>();
    let inertia = (nearest.second.iter().sum::<f64>() / inertia - 1.0).abs();
    let rows_agree = nearest.n_rows == n as u64 && nearest.weight.iter().sum::<f64>() == n as f64;
    let allowed = tolerance(precision).sums;
    let right = distances <= allowed && inertia <= allowed && rows_agree;
    Ok((!right).then(|| format!("k-means: distances {distances:.1e}, inertia {inertia:.1e}, rows {rows_agree}")))
}
