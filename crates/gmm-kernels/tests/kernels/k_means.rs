//! Nearest centres, their sums, and k-means++ distances.

use crate::compare::{close, same_statistics, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{KINDS, centres, nearest, poison, statistics, sums, tiled};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::seeding::squared_distances::{
    AddCentre, Lower, Potentials, SUMMED_ROWS, add_centre, lower, potentials_4, potentials_8,
};
use gmm_model::{CovarianceType, Statistics, reference};
use ndarray::{Array1, Array2, ArrayView1, array};
use std::ptr::{null, null_mut};

/// Rows per partial sum.
const SUMMED: usize = SUMMED_ROWS as usize;

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
        // Another centre may be equally near within the precision.
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

fn check_distances<T: Real>(n: usize, d: usize, weighted: bool) {
    let random = &mut Random(n as u64);
    let mixture = mixture(CovarianceType::Diag, 2, d, 100.0, random);
    let rows = rows::<T>(&mixture, n, random);
    let shift = column_means(&rows);
    let x = tiled::<T>(&rows, Some(&shift), None);
    let weights: Vec<f64> = (0..n).map(|i| if weighted { (i % 3) as f64 } else { 1.0 }).collect();
    let row_weights = Buffer::new(&weights);
    let row_weights = if weighted { row_weights.pointer() } else { null() };
    let groups = n.div_ceil(SUMMED);
    let (mut near, mut sums) = (poison(n as u64), poison(groups as u64));
    let mut want = vec![f64::INFINITY; n];
    for c in 0..2 {
        let centre = mixture.means().row(c).to_owned().insert_axis(ndarray::Axis(0));
        let prepared = centres::<T>(&centre, &shift);
        let arguments = AddCentre {
            x: x.pointer(),
            row_weights,
            n: n as u64,
            d: d as u32,
            centre_high: prepared.high.pointer(),
            centre_low: prepared.low.pointer(),
            first: u32::from(c == 0),
            near: near.pointer_mut(),
            sums: sums.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { add_centre::<T>().emulate((2, 1), arguments) };
        want.iter_mut().zip(rows.outer_iter()).for_each(|(w, row)| *w = w.min(squared(row, mixture.means().row(c))));
    }
    for (i, (got, want)) in near.to_vec().iter().zip(&want).enumerate() {
        close(*got, *want, *want, tolerance::<T>(), &format!("distance of {i}"));
    }
    for (got, rows) in sums.to_vec().iter().zip(want.chunks(SUMMED).zip(weights.chunks(SUMMED))) {
        let want: f64 = rows.0.iter().zip(rows.1).map(|(q, w)| q * w).sum();
        close(*got, want, want, tolerance::<T>(), "sum of distances");
    }
    for (count, kernel) in [(4, potentials_4::<T>()), (8, potentials_8::<T>())] {
        let points = Array2::from_shape_fn((count, d), |(c, j)| mixture.means()[[c % 2, j]] + c as f64);
        let prepared = centres::<T>(&points, &shift);
        let (high, low) = (prepared.high.to_vec(), prepared.low.to_vec());
        let part = |i: usize| if (i / count).is_multiple_of(2) { &high } else { &low };
        let candidates: Vec<T> = (0..2 * count * d).map(|i| part(i)[i % count * d + i / (2 * count)]).collect();
        let candidates = Buffer::new(&candidates);
        let mut distances = poison::<T>((count * n) as u64);
        let mut sums = poison((count * groups) as u64);
        let mut arguments = Potentials {
            x: x.pointer(),
            row_weights,
            n: n as u64,
            d: d as u32,
            candidates: candidates.pointer(),
            near: near.pointer_mut(),
            distances: distances.pointer_mut(),
            lower_by: null(),
            sums: sums.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { kernel.emulate((2, 1), arguments) };
        let kept = sums.to_vec();
        // The same without storing the distances.
        sums = poison((count * groups) as u64);
        (arguments.sums, arguments.distances) = (sums.pointer_mut(), null_mut());
        // SAFETY: as above.
        unsafe { kernel.emulate((3, 1), arguments) };
        assert_eq!(kept, sums.to_vec());
        for (c, point) in points.outer_iter().enumerate() {
            let left = rows.outer_iter().zip(&want).zip(&weights).map(|((row, q), w)| w * q.min(squared(row, point)));
            let left: Vec<f64> = left.collect();
            for (group, left) in left.chunks(SUMMED).enumerate() {
                let left: f64 = left.iter().sum();
                let what = format!("potential of candidate {c} of {count}, group {group}");
                close(kept[c * groups + group], left, left, tolerance::<T>(), &what);
            }
            let mut lowered = Buffer::new(&near.to_vec());
            let of_one = &distances.to_vec()[c * n..(c + 1) * n];
            let of_one = Buffer::new(of_one);
            let lowers = Lower { n: n as u64, distances: of_one.pointer(), near: lowered.pointer_mut() };
            // SAFETY: every buffer has the length that the kernel's arguments document.
            unsafe { lower::<T>().emulate((2, 1), lowers) };
            for (i, (got, row)) in lowered.to_vec().iter().zip(rows.outer_iter()).enumerate() {
                let least = want[i].min(squared(row, point));
                close(*got, least, least, tolerance::<T>(), &format!("row {i} with candidate {c} of {count}"));
            }
            // The same within `potentials`: it must find `near` lowered.
            let [mut on_the_way, mut before] = [&near, &lowered].map(|near| Buffer::new(&near.to_vec()));
            let mut distances = Buffer::new(&distances.to_vec());
            let number = Buffer::new(&[c as u64]);
            let [one, other] = [(&mut on_the_way, number.pointer()), (&mut before, null())].map(|(near, lower_by)| {
                let mut sums = poison((count * groups) as u64);
                let to = if lower_by.is_null() { null_mut() } else { distances.pointer_mut() };
                (arguments.near, arguments.distances) = (near.pointer_mut(), to);
                (arguments.sums, arguments.lower_by) = (sums.pointer_mut(), lower_by);
                // SAFETY: every buffer has the length that the kernel's arguments document.
                unsafe { kernel.emulate((2, 1), arguments) };
                sums.to_vec()
            });
            assert_eq!(one, other, "candidate {c} of {count}: sums with it and after it");
            assert_eq!(on_the_way.to_vec(), lowered.to_vec(), "candidate {c} of {count}: what is near");
        }
    }
}

#[test]
fn distances_are_lowered_and_candidates_weighed() {
    for (n, d) in [(1, 1), (300, 5), (128, 40), (2100, 3)] {
        for weighted in [false, true] {
            check_distances::<f32>(n, d, weighted);
            check_distances::<f64>(n, d, weighted);
        }
    }
}
