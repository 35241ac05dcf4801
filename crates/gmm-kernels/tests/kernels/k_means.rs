//! Nearest centres, their sums, and k-means++ distances.

use crate::compare::{close, same_statistics, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{KINDS, centres, nearest, statistics, sums, tiled};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::squared_distances::{SquaredDistances, squared_distances};
use gmm_model::{CovarianceType, Statistics, reference};
use ndarray::{Array1, Array2, ArrayView1, array};

fn squared(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn check_assignment<T: Real>(n: usize, d: usize, k: usize, offset: f64) {
    let random = &mut Random((n + d + k) as u64);
    let mixture = mixture(CovarianceType::Spherical, k, d, offset, random);
    let rows = rows::<T>(&mixture, n, random);
    let shift = column_means(&rows);
    let points = mixture.means().to_owned();
    let weights: Vec<f64> = (0..n).map(|i| 0.5 + (i % 3) as f64).collect();
    let x = tiled::<T>(&rows, Some(&shift), None);
    let prepared = centres::<T>(&points, &shift);
    let (labels, responsibilities) = nearest(&x, (n, k, d), &prepared, Some(&weights));
    for (i, row) in rows.outer_iter().enumerate() {
        let distances: Vec<f64> = points.outer_iter().map(|p| squared(row, p)).collect();
        let best = distances.iter().copied().fold(f64::INFINITY, f64::min);
        // Another centre may be as near within the precision.
        close(distances[labels[i] as usize], best, 1.0 + best, tolerance::<T>(), &format!("row {i} of {n}"));
    }
    for (kind, code) in KINDS {
        let mut want = Statistics::zero(kind, points.clone());
        for (i, row) in rows.outer_iter().enumerate() {
            let hot = Array1::from_shape_fn(k, |c| if c == labels[i] as usize { 1.0 } else { 0.0 });
            reference::accumulate(&mut want, row, weights[i], hot.view());
        }
        let flat = sums(code, &x, &responsibilities, (n, k, d), &prepared, 2);
        let mut got = statistics(kind, points.clone(), &flat);
        (got.total_weight, got.n_rows) = (want.total_weight, want.n_rows);
        same_statistics(&got, &want, tolerance::<T>(), &format!("{} {kind} n={n} d={d} k={k}", T::NAME));
    }
}

#[test]
fn rows_go_to_their_nearest_centre() {
    for (n, d, k) in [(1, 1, 1), (200, 2, 3), (129, 17, 20), (50, 70, 2)] {
        check_assignment::<f32>(n, d, k, 0.0);
        check_assignment::<f64>(n, d, k, 1e6);
    }
}

#[test]
fn the_first_of_equal_centres_wins() {
    let rows = Array2::from_shape_fn((40, 1), |(i, _)| i as f64);
    let x = tiled::<f64>(&rows, None, None);
    let prepared = centres::<f64>(&array![[10.0], [20.0], [10.0], [30.0]], &[0.0]);
    let (labels, _) = nearest(&x, (40, 4, 1), &prepared, None);
    let want: Vec<u32> = (0..40).map(|i| if i <= 15 { 0 } else { u32::from(i > 15) + 2 * u32::from(i > 25) }).collect();
    assert_eq!(labels, want);
}

fn check_distances<T: Real>(n: usize, d: usize) {
    let random = &mut Random(n as u64);
    let mixture = mixture(CovarianceType::Diag, 2, d, 100.0, random);
    let rows = rows::<T>(&mixture, n, random);
    let shift = column_means(&rows);
    let x = tiled::<T>(&rows, Some(&shift), None);
    let mut out = Buffer::new(&vec![f64::INFINITY; n]);
    for c in 0..2 {
        let centre = mixture.means().row(c).to_owned().insert_axis(ndarray::Axis(0));
        let prepared = centres::<T>(&centre, &shift);
        let arguments = SquaredDistances {
            x: x.pointer(),
            n: n as u64,
            d: d as u32,
            centre_high: prepared.high.pointer(),
            centre_low: prepared.low.pointer(),
            out: out.pointer_mut(),
        };
        // SAFETY: buffers of these lengths.
        unsafe { squared_distances::<T>().emulate((1, 1), arguments) };
    }
    for (i, (got, row)) in out.to_vec().iter().zip(rows.outer_iter()).enumerate() {
        let want = squared(row, mixture.means().row(0)).min(squared(row, mixture.means().row(1)));
        close(*got, want, want, tolerance::<T>(), &format!("distance of {i}"));
    }
}

#[test]
fn distances_are_lowered() {
    for (n, d) in [(1, 1), (300, 5), (128, 40)] {
        check_distances::<f32>(n, d);
        check_distances::<f64>(n, d);
    }
}
