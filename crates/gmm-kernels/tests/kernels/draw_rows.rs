//! Rows drawn by distance, against running sums in f64.

use crate::data::Random;
use crate::harness::{poison, tiled};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::seeding::draw_next::{DrawNext, draw_next};
use gmm_kernels::seeding::draw_rows::{DRAWN_ROWS, DrawRows, draw_rows};
use gmm_kernels::seeding::squared_distances::{CANDIDATES, SUMMED_ROWS};
use gmm_model::Draws;
use ndarray::Array2;
use std::ptr::{null, null_mut};

const GROUP: usize = DRAWN_ROWS as usize;

/// Results of draws: rows, candidates of all launches, and points.
struct DrawResults<T: Copy> {
    rows: Vec<u64>,
    candidates: Vec<T>,
    points: Vec<T>,
}

fn draw<T: Real>(
    x: &Buffer<T>,
    (n, d): (usize, usize),
    near: &[f64],
    weights: Option<&[f64]>,
    draws: &[(usize, f64)],
) -> DrawResults<T> {
    let places = draws.len().next_multiple_of(4);
    let (near, weights) = (Buffer::new(near), weights.map(Buffer::new));
    let groups = Buffer::new(&draws.iter().map(|draw| draw.0 as u64).collect::<Vec<_>>());
    let uniforms = Buffer::new(&draws.iter().map(|draw| draw.1).collect::<Vec<_>>());
    let mut rows = Buffer::<u64>::unwritten(draws.len());
    let (mut candidates, mut points) = (poison((2 * places * d) as u64), poison((2 * places * d) as u64));
    let arguments = DrawRows::<T> {
        x: x.pointer(),
        row_weights: weights.as_ref().map_or(null(), Buffer::pointer),
        n: n as u64,
        d: d as u32,
        near: near.pointer(),
        groups: groups.pointer(),
        uniforms: uniforms.pointer(),
        count: draws.len() as u32,
        rows: rows.pointer_mut(),
        candidates: candidates.pointer_mut(),
        points: points.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { draw_rows::<T>().emulate((places as u32, 1), arguments) };
    DrawResults { rows: rows.to_vec(), candidates: candidates.to_vec(), points: points.to_vec() }
}

/// Checks that the row has weight, and that the mark of its draw lies between the running sums before and after it, up
/// to rounding.
fn check_row(values: &[f64], uniform: f64, row: usize, what: &str) {
    let total: f64 = values.iter().sum();
    if total == 0.0 {
        assert_eq!(row, 0, "{what}: nothing to draw");
        return;
    }
    assert!(values[row] > 0.0, "{what}: row {row} has no weight");
    let before: f64 = values[..row].iter().sum();
    let (mark, rounding) = (uniform * total, values.len() as f64 * f64::EPSILON * total);
    assert!(before <= mark + rounding, "{what}: row {row} begins at {before:e}, behind {mark:e}");
    assert!(before + values[row] >= mark - rounding, "{what}: row {row} ends before {mark:e}");
}

fn check<T: Real>(n: usize, d: usize, weighted: bool) {
    let what = format!("{} n={n} d={d} weighted={weighted}", T::NAME);
    let random = &mut Random((n + d) as u64);
    let rows = Array2::from_shape_fn((n, d), |_| T::from_f64(random.normal()).to_f64());
    let x = tiled::<T>(&rows, None, None);
    // Some rows lie on a centre, and some have weight 0.
    let near: Vec<f64> = (0..n).map(|i| if i % 5 == 3 { 0.0 } else { random.uniform() * 9.0 }).collect();
    let weights: Vec<f64> = (0..n).map(|i| if weighted { 0.7 * (i % 3) as f64 } else { 1.0 }).collect();
    let given = weighted.then_some(&weights[..]);
    let values: Vec<f64> = near.iter().zip(&weights).map(|(q, w)| q * w).collect();
    let groups = n.div_ceil(GROUP);
    let ends = [0.0, 1.0 - f64::EPSILON / 2.0, 0.5];
    let all: Vec<(usize, f64)> = (0..10)
        .map(|i| ((i * 7 + n) % groups, ends.get(i).copied().unwrap_or_else(|| random.uniform())))
        .chain(ends.map(|uniform| (groups - 1, uniform)))
        .collect();
    for count in [1, 4, 5, 13] {
        let draws = &all[all.len() - count..];
        let got = draw(&x, (n, d), &near, given, draws);
        for (&(group, uniform), &row) in draws.iter().zip(&got.rows) {
            let first = group * GROUP;
            let here = &values[first..n.min(first + GROUP)];
            check_row(here, uniform, row as usize - first, &format!("{what}: {uniform} in group {group}"));
        }
        let places = count.next_multiple_of(4);
        for place in 0..places {
            let row = got.rows[place.min(count - 1)] as usize;
            let launch = place / CANDIDATES * CANDIDATES;
            let wide = CANDIDATES.min(places - launch);
            for j in 0..d {
                let held = rows[[row, j]];
                let at = |part: usize| got.candidates[2 * launch * d + (2 * j + part) * wide + place - launch].to_f64();
                assert_eq!([at(0), at(1)], [held, 0.0], "{what}: candidate {place} of {count}, column {j}");
                let point = |part: usize| got.points[(2 * place + part) * d + j].to_f64();
                assert_eq!([point(0), point(1)], [held, 0.0], "{what}: point {place} of {count}, column {j}");
            }
        }
        assert_eq!(draw(&x, (n, d), &near, given, draws).rows, got.rows, "{what}: the same rows again");
    }
}

#[test]
fn rows_are_drawn_by_weight_times_distance_and_come_as_candidates() {
    for n in [1, 127, 128, 129, 1023, 1024, 1025, 5000] {
        for d in [1, 2, 7, 33] {
            check::<f32>(n, d, (n + d) % 2 == 0);
            check::<f64>(n, d, (n + d) % 2 == 1);
        }
        check::<f32>(n, 130, true);
    }
}

#[test]
fn rows_that_sums_hold_exactly_are_those_of_the_host() {
    let (n, d) = (1500, 1);
    let rows = Array2::from_shape_fn((n, d), |(i, _)| i as f64);
    let x = tiled::<f64>(&rows, None, None);
    // Whole numbers, so that additions are exact in any order.
    let near: Vec<f64> = (0..n).map(|i| (i * i % 7 / 2) as f64).collect();
    let random = &mut Random(3);
    for (group, values) in near.chunks(GROUP).enumerate() {
        let sums: Vec<f64> = values
            .iter()
            .scan(0.0, |sum, v| {
                Some({
                    *sum += v;
                    *sum
                })
            })
            .collect();
        let total = sums[sums.len() - 1];
        // Also exactly at running sums.
        let at: Vec<f64> = (0..24).map(|i| if i % 2 == 0 { random.uniform() } else { sums[i * 17] / total }).collect();
        let draws: Vec<(usize, f64)> = at.iter().map(|&uniform| (group, uniform)).collect();
        let want: Vec<u64> = at.iter().map(|&u| (group * GROUP + Draws::index_at(&sums, u)) as u64).collect();
        assert_eq!(draw(&x, (n, d), &near, None, &draws).rows, want, "group {group}");
    }
}

#[test]
fn one_row_with_weight_is_always_drawn_and_none_is_the_first() {
    let (n, d) = (1200, 3);
    let rows = Array2::from_shape_fn((n, d), |(i, j)| (i + j) as f64);
    let x = tiled::<f32>(&rows, None, None);
    let uniforms = [0.0, 0.3, 1.0 - f64::EPSILON / 2.0];
    let draws: Vec<(usize, f64)> = uniforms.iter().flat_map(|&uniform| [(0, uniform), (1, uniform)]).collect();
    // Includes the smallest positive number: the mark is rounded to 0 or to the whole sum.
    for value in [1.0, f64::from_bits(1), 1e300] {
        for (one, other) in [(0, 1024), (7, 1031), (8, 1032), (255, 1151), (256, 1152), (1023, 1199)] {
            let mut near = vec![0.0; n];
            (near[one], near[other]) = (value, value);
            let got = draw(&x, (n, d), &near, None, &draws).rows;
            assert_eq!(got, [one, other].repeat(3).iter().map(|&row| row as u64).collect::<Vec<_>>(), "{value:e}");
            // Rows of weight 0 are ignored, even at infinite distance.
            let weights: Vec<f64> = near.iter().map(|&v| if v > 0.0 { 1.0 } else { 0.0 }).collect();
            let far: Vec<f64> = near.iter().map(|&v| if v > 0.0 { v } else { f64::INFINITY }).collect();
            assert_eq!(draw(&x, (n, d), &far, Some(&weights), &draws).rows, got, "{value:e}, by weight");
        }
    }
    assert_eq!(draw(&x, (n, d), &vec![0.0; n], None, &draws).rows, [0, 1024].repeat(3));
}

#[test]
fn the_candidate_that_leaves_least_becomes_a_centre_and_draws_follow_what_it_leaves() {
    let (n, d, summed) = (2600, 2, SUMMED_ROWS as usize);
    let rows = Array2::from_shape_fn((n, d), |(i, j)| (i + j) as f64);
    let x = tiled::<f64>(&rows, None, None);
    let random = &mut Random(8);
    // Whole numbers, so that additions are exact in any order.
    let near: Vec<f64> = (0..n).map(|i| (i * i % 11) as f64).collect();
    let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64).collect();
    for (weighed, count) in [(1_usize, 3_usize), (5, 5), (9, 9), (4, 0)] {
        let distances: Vec<f64> = (0..weighed * n).map(|i| (i * 17 % (7 + i / n)) as f64).collect();
        let left = |c: usize, i: usize| weights[i] * near[i].min(distances[c * n + i]);
        let parts = n.div_ceil(summed);
        let part = |c: usize, g: usize| (g * summed..n.min((g + 1) * summed)).map(|i| left(c, i)).sum::<f64>();
        let sums: Vec<f64> = (0..weighed * parts).map(|at| part(at / parts, at % parts)).collect();
        let all = |c: usize| (0..n).map(|i| left(c, i)).sum::<f64>();
        let best = (0..weighed).fold(0, |best, c| if all(c) < all(best) { c } else { best });
        let uniforms: Vec<f64> = (0..2 * count).map(|_| random.uniform()).collect();
        let places = count.next_multiple_of(4);
        let weighed_rows: Vec<u64> = (0..weighed as u64).map(|c| 100 + c).collect();
        let [near_there, distances, sums, weights_there, uniforms_there] =
            [&near, &distances, &sums, &weights, &uniforms].map(|values| Buffer::new(values));
        let weighed_rows = Buffer::new(&weighed_rows);
        let [mut chosen, mut number] = [(); 2].map(|()| Buffer::<u64>::unwritten(1));
        let mut ran_out = Buffer::new(&[0_u64]);
        let mut drawn = Buffer::<u64>::unwritten(count.max(1));
        let [mut candidates, mut points] = [(); 2].map(|()| poison::<f64>((2 * places * d).max(1) as u64));
        let arguments = DrawNext::<f64> {
            x: x.pointer(),
            row_weights: weights_there.pointer(),
            n: n as u64,
            d: d as u32,
            near: near_there.pointer(),
            distances: distances.pointer(),
            sums: sums.pointer(),
            weighed: weighed as u32,
            weighed_rows: weighed_rows.pointer(),
            chosen: chosen.pointer_mut(),
            best: number.pointer_mut(),
            ran_out: ran_out.pointer_mut(),
            uniforms: if count == 0 { null() } else { uniforms_there.pointer() },
            count: count as u32,
            places: places as u32,
            rows: if count == 0 { null_mut() } else { drawn.pointer_mut() },
            candidates: candidates.pointer_mut(),
            points: points.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { draw_next::<f64>().emulate((places.max(1) as u32, 1), arguments) };
        let what = format!("{count} draws after {weighed}");
        assert_eq!((number.to_vec()[0], chosen.to_vec()[0]), (best as u64, 100 + best as u64), "{what}");
        assert_eq!(ran_out.to_vec(), [0], "{what}");
        let running = |values: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
            let mut sum = 0.0;
            values
                .map(|v| {
                    sum += v;
                    sum
                })
                .collect()
        };
        let group = |g: usize| g * GROUP..n.min((g + 1) * GROUP);
        let of_groups = running(&mut (0..n.div_ceil(GROUP)).map(|g| group(g).map(|i| left(best, i)).sum()));
        for draw in 0..count {
            let g = Draws::index_at(&of_groups, uniforms[draw]);
            let of_rows = running(&mut group(g).map(|i| left(best, i)));
            let row = g * GROUP + Draws::index_at(&of_rows, uniforms[count + draw]);
            assert_eq!(drawn.to_vec()[draw], row as u64, "{what}: {draw}");
            assert_eq!(points.to_vec()[2 * draw * d], row as f64, "{what}: {draw}");
        }
    }
}
