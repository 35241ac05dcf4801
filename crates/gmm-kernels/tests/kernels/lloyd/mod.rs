//! Lloyd's iterations on the device (labels, sums, moves and convergence) against plain loops in `f64`.

mod harness;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::state::{DONE, FINISHED, TROUBLE};
use gmm_kernels::seeding::lloyd::{NONE, SumSplits};
use gmm_model::CovarianceType;
use ndarray::{Array2, ArrayView1, array};

use crate::compare::{close, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use harness::{ENDS, End, Loop};

fn squared(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Rows relative to the shift, rounded to `T`, and centres among them.
fn problem<T: Real>(n: usize, d: usize, k: usize, offset: f64) -> (Array2<f64>, Array2<f64>) {
    let random = &mut Random((n + 31 * d + 977 * k) as u64);
    let mixture = mixture(CovarianceType::Spherical, k, d, offset, random);
    let all = rows::<T>(&mixture, n, random);
    let shift = column_means(&all);
    let relative = Array2::from_shape_fn((n, d), |(i, j)| T::from_f64(all[[i, j]] - shift[j]).to_f64());
    let centres = Array2::from_shape_fn((k, d), |(c, j)| mixture.means()[[c, j]] - shift[j]);
    (relative, centres)
}

/// Compares one pass with second moments with plain loops.
fn check<T: Real>(
    (n, d, k): (usize, usize, usize),
    weighted: bool,
    ranges: u32,
    splits: u32,
    resident: bool,
    end: End,
) {
    let what = format!("{} n={n} d={d} k={k} weighted={weighted} {ranges} {splits} {resident} {end:?}", T::NAME);
    let (rows, start) = problem::<T>(n, d, k, 1e3);
    let row_weights: Vec<f64> = (0..n).map(|i| if weighted { 0.5 * ((i + 1) % 4) as f64 } else { 1.0 }).collect();
    let columns = 2 * d as u32 + 1;
    let cut = SumSplits { columns, ranges, splits };
    let mut device = Loop::<T>::new(&rows, weighted.then_some(&row_weights[..]), &start, cut, resident);
    device.end = end;
    device.pass(1);
    let labels = device.labels.to_vec();
    assert!(labels[n..].iter().all(|l| *l == NONE), "{what}: rows past the last");
    let (mut weight, mut first) = (vec![0.0; k], Array2::<f64>::zeros((k, d)));
    let (mut second, mut inertia) = (Array2::<f64>::zeros((k, d)), 0.0);
    for (i, row) in rows.outer_iter().enumerate() {
        let w = row_weights[i];
        if w == 0.0 {
            assert_eq!(labels[i], NONE, "{what}: row {i} weighs nothing");
            continue;
        }
        let label = labels[i] as usize;
        let best = start.outer_iter().map(|p| squared(row, p)).fold(f64::INFINITY, f64::min);
        // The product is computed in f64 for both precisions.
        let scale = best + row.dot(&row);
        close(squared(row, start.row(label)), best, scale, 1e-13, &format!("{what}: row {i}"));
        weight[label] += w;
        inertia += w * squared(row, start.row(label));
        for j in 0..d {
            let z = row[j] - start[[label, j]];
            first[[label, j]] += w * z;
            second[[label, j]] += w * z * z;
        }
    }
    let spread = inertia.max(1e-300).sqrt() * (n as f64).sqrt();
    for c in 0..k {
        close(device.sums[d * k + c], weight[c], n as f64, 1e-14, &format!("{what}: weight of {c}"));
        for j in 0..d {
            close(device.sums[j * k + c], first[[c, j]], spread, 1e-13, &format!("{what}: first {c} {j}"));
            let got = device.sums[(d + 1 + j) * k + c];
            close(got, second[[c, j]], inertia, 1e-13, &format!("{what}: second {c} {j}"));
        }
    }
    let seen = device.seen.to_vec();
    close(seen[2], inertia, inertia, 1e-13, &format!("{what}: inertia"));
    let empty = weight.iter().filter(|w| **w == 0.0).count();
    assert_eq!((seen[0], seen[1]), (1.0, empty as f64), "{what}: iteration and empty centres");
    assert_eq!(device.state(TROUBLE), u32::from(empty > 0), "{what}: trouble");
    assert_eq!((device.state(FINISHED), device.state(DONE)), (1, 0), "{what}: it goes on");
    let (after, mut moved) = (device.centres(), 0.0);
    for c in 0..k {
        for j in 0..d {
            let by = if weight[c] > 0.0 { first[[c, j]] / weight[c] } else { 0.0 };
            moved += by * by;
            close(after[[c, j]], start[[c, j]] + by, 1.0 + start[[c, j]].abs(), 1e-12, &format!("{what}: centre {c}"));
        }
    }
    close(seen[3], moved, moved, 1e-9, &format!("{what}: moved"));
}

#[test]
fn a_pass_is_what_plain_loops_say() {
    let sizes = [(1, 1, 1), (127, 3, 2), (129, 16, 8), (300, 17, 9), (515, 33, 16), (700, 2, 33), (130, 140, 5)];
    for (i, size) in sizes.into_iter().enumerate() {
        for weighted in [false, true] {
            let splits = 1 + i as u32 % 3;
            check::<f32>(size, weighted, 1, splits, true, End::Launches);
            check::<f64>(size, weighted, 1, splits, false, End::Launches);
        }
    }
}

#[test]
fn many_centres_are_taken_in_ranges_and_coefficients_a_step_at_a_time() {
    for (size, ranges, resident) in [((1100, 5, 300), 2, true), ((640, 35, 100), 7, false), ((200, 20, 12), 5, false)] {
        check::<f32>(size, true, ranges, 2, resident, End::Launches);
        check::<f64>(size, false, ranges, 1, !resident, End::Launches);
    }
}

#[test]
fn one_block_ends_passes_of_few_centres() {
    let cases = [
        ((1, 1, 1), 1, 1),
        ((127, 3, 2), 1, 1),
        ((515, 33, 7), 1, 2),
        ((300, 17, 19), 1, 1),
        ((9000, 1, 40), 3, 18),
        ((900, 11, 40), 1, 2),
    ];
    for (size, ranges, splits) in cases {
        for end in [End::OneBlock, End::OneBlockOfAll] {
            check::<f32>(size, size.0 % 2 == 0, ranges, splits, true, end);
            check::<f64>(size, size.0 % 2 == 1, ranges, splits, true, end);
        }
    }
    // More partial results than the block reads together: 128 with few sums, 8 with many.
    check::<f32>((19_000, 2, 3), false, 1, 140, true, End::OneBlockOfAll);
    check::<f32>((2000, 11, 40), false, 1, 15, true, End::OneBlockOfAll);
}

/// Compares the products of clusters with plain loops over the rows and their labels.
fn check_products<T: Real>((n, d, k): (usize, usize, usize), weighted: bool, range: u32, splits: u32) {
    let what = format!("{} n={n} d={d} k={k} weighted={weighted} {range} {splits}", T::NAME);
    let (rows, start) = problem::<T>(n, d, k, 1e3);
    let row_weights: Vec<f64> = (0..n).map(|i| if weighted { 0.5 * ((i + 1) % 4) as f64 } else { 1.0 }).collect();
    let cut = SumSplits { columns: d as u32 + 1, ranges: 1, splits: 1 };
    let mut device = Loop::<T>::new(&rows, weighted.then_some(&row_weights[..]), &start, cut, true);
    device.assign(1);
    let labels = device.labels.to_vec();
    let packed = d * (d + 1) / 2;
    let (mut want, mut inertia) = (vec![vec![0.0; packed]; k], 0.0);
    for (i, row) in rows.outer_iter().enumerate().filter(|(i, _)| row_weights[*i] > 0.0) {
        let centre = start.row(labels[i] as usize);
        inertia += row_weights[i] * squared(row, centre);
        for p in 0..d {
            for q in 0..=p {
                want[labels[i] as usize][p * (p + 1) / 2 + q] +=
                    row_weights[i] * (row[p] - centre[p]) * (row[q] - centre[q]);
            }
        }
    }
    let compare = |got: &[f64], want: &[f64], what: &str| {
        assert_eq!(got.len(), want.len(), "{what}");
        got.iter().zip(want).for_each(|(got, want)| close(*got, *want, inertia, 1e-14, what));
    };
    compare(&device.products(false, range, splits), &want.concat(), &what);
    let total: Vec<f64> = (0..packed).map(|i| want.iter().map(|of| of[i]).sum()).collect();
    compare(&device.products(true, k as u32, splits), &total, &format!("{what} tied"));
}

#[test]
fn products_of_clusters_are_what_plain_loops_say() {
    let sizes = [
        ((1, 1, 1), 1),
        ((127, 3, 2), 2),
        ((129, 16, 8), 3),
        ((300, 17, 9), 9),
        ((515, 33, 5), 4),
        ((700, 2, 33), 10),
        ((1000, 5, 200), 64),
    ];
    for (i, (size, range)) in sizes.into_iter().enumerate() {
        let splits = [1, 2, 3, 7][i % 4];
        check_products::<f32>(size, false, range, splits);
        check_products::<f64>(size, true, range, splits);
    }
}

#[test]
fn the_first_of_equal_centres_wins() {
    let rows = Array2::from_shape_fn((200, 1), |(i, _)| f64::from(i as u32 % 40));
    // Equal centres in one lane's pair, in different lanes, in different groups, and in different pieces.
    let points: Vec<f64> = (0..70).map(|c| [10.0, 20.0, 10.0, 30.0, 20.0][c % 5]).collect();
    let points = Array2::from_shape_vec((70, 1), points).unwrap();
    let cut = SumSplits { columns: 2, ranges: 1, splits: 1 };
    let mut device = Loop::<f64>::new(&rows, None, &points, cut, true);
    device.assign(1);
    for (i, label) in device.labels.to_vec()[..200].iter().enumerate() {
        let want = match i % 40 {
            0..=15 => 0,
            16..=25 => 1,
            _ => 3,
        };
        assert_eq!(*label, want, "row {i}");
    }
}

#[test]
fn passes_go_on_until_the_centres_rest_and_later_launches_change_nothing() {
    fn run<T: Real>(end: End) {
        let rows = Array2::from_shape_fn((260, 2), |(i, j)| {
            T::from_f64((i % 2) as f64 * 8.0 + 0.01 * ((i * 7 + j * 3) % 50) as f64).to_f64()
        });
        let mut centres = array![[3.0, 1.0], [5.5, 4.0]];
        let cut = SumSplits { columns: 3, ranges: 1, splits: 2 };
        let mut device = Loop::<T>::new(&rows, None, &centres, cut, true);
        device.rest = 1e-12;
        device.end = end;
        let mut iteration = 0;
        loop {
            iteration += 1;
            let mut sums = Array2::<f64>::zeros((2, 3));
            for row in rows.outer_iter() {
                let c = usize::from(squared(row, centres.row(1)) < squared(row, centres.row(0)));
                (0..2).for_each(|j| sums[[c, j]] += row[j]);
                sums[[c, 2]] += 1.0;
            }
            let next = Array2::from_shape_fn((2, 2), |(c, j)| sums[[c, j]] / sums[[c, 2]]);
            let moved: f64 = (&next - &centres).iter().map(|v| v * v).sum();
            centres = next;
            device.pass(iteration);
            close(device.seen.to_vec()[3], moved, 1.0 + moved, tolerance::<f64>(), "moved");
            assert!(iteration < 20);
            if moved <= device.rest {
                break;
            }
            assert_eq!(device.state(DONE), 0, "iteration {iteration}");
        }
        assert!(iteration > 1, "a start that is no end");
        assert_eq!((device.state(DONE), device.state(TROUBLE)), (iteration, 0));
        for (a, b) in device.centres().iter().zip(&centres) {
            close(*a, *b, 10.0, tolerance::<f64>(), "centres");
        }
        let before = (device.centres(), device.seen.to_vec(), device.labels.to_vec(), device.state.to_vec());
        device.centres = Buffer::new(&[0.0; 4]);
        device.pass(iteration + 1);
        assert_eq!(device.centres.to_vec(), [0.0; 4], "later launches do nothing");
        assert_eq!(
            (before.1, before.2, before.3),
            (device.seen.to_vec(), device.labels.to_vec(), device.state.to_vec())
        );
    }
    for end in ENDS {
        run::<f32>(end);
        run::<f64>(end);
    }
}

#[test]
fn a_centre_without_rows_stays_and_stops_the_loop_as_does_a_number_that_is_none() {
    let rows = Array2::from_shape_fn((150, 2), |(i, j)| (i % 3 + j) as f64);
    let far = array![[0.0, 0.0], [1e3, 1e3], [2.0, 2.0]];
    let cut = SumSplits { columns: 3, ranges: 2, splits: 1 };
    for end in ENDS {
        let mut device = Loop::<f64>::new(&rows, None, &far, cut, true);
        device.end = end;
        device.pass(1);
        assert_eq!((device.state(TROUBLE), device.state(FINISHED)), (1, 1));
        assert_eq!(device.seen.to_vec()[1], 1.0, "one has no rows");
        assert_eq!(device.centres().row(1), far.row(1), "and stays");
        assert_eq!(device.weights.to_vec()[1], 0.0);
        let before = device.centres();
        device.pass(2);
        assert_eq!((device.centres(), device.state(FINISHED)), (before, 1), "nothing comes after");
        let huge = rows.mapv(|v| if v == 3.0 { 1e200 } else { v });
        let near = array![[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]];
        let mut device = Loop::<f64>::new(&huge, None, &near, cut, true);
        device.end = end;
        device.pass(1);
        assert_eq!(device.state(TROUBLE), 1, "an infinite sum");
    }
}
