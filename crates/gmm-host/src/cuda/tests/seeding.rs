//! k-means++: rows are drawn on the device, and their distances are stored if memory allows, and recomputed otherwise.

use gmm_model::Draws;
use ndarray::Array3;

use super::*;
use crate::cuda::seeding::batched::ONE_BY_ONE;
use crate::init::{self, RowDraw};
use crate::{CpuEngine, ReferenceEngine, Resident};

/// Adds a centre, draws some rows and adds the last as a centre, adds a centre that was not drawn, and draws some rows
/// again and adds the first. Returns the rows, and the sums and distances.
fn ask(rows: &mut dyn Resident, weights: &[f64], draws: &[RowDraw]) -> (Vec<usize>, Vec<Vec<f64>>) {
    let n = rows.dim().0;
    #[expect(clippy::single_range_in_vec_init, reason = "one range of rows: all of them")]
    let all = [0..n];
    let first = rows.add_centre(&[0.5, -0.5]).unwrap();
    let weighed = rows.weigh_draws(draws, Some(weights)).unwrap();
    let second = rows.add_drawn(draws.len() - 1).unwrap();
    let near = rows.near(&all).unwrap();
    let third = rows.add_centre(&[2.0, 2.5]).unwrap();
    let again = rows.weigh_draws(draws, Some(weights)).unwrap();
    let fourth = rows.add_drawn(0).unwrap();
    rows.forget_centres();
    let drawn = [weighed.rows, again.rows].concat();
    (drawn, vec![first, weighed.left, second, near, third, again.left, fourth])
}

#[test]
fn a_row_that_is_drawn_becomes_a_centre_with_the_distances_that_it_was_weighed_by_or_without() {
    let n = 2100;
    let weights: Vec<f64> = (0..n).map(|i| 0.5 * (i % 4) as f64).collect();
    let data = dataset(n, 2).with_weights(weights.clone()).unwrap();
    // Rows, their original form, weights and distances take most of 120 KB, distances to four candidates at least 34
    // KB. The sums of very many candidates are copied to the host; those of few are written there by the kernel.
    for (count, little) in [(1, 120 << 10), (4, 120 << 10), (5, 120 << 10), (9, 120 << 10), (950, 1 << 20)] {
        let draw = |i: usize| RowDraw { group: i % 3, uniform: 0.5 + 0.5 * noise(7 * i + count) };
        let draws: Vec<RowDraw> = (0..count).map(draw).collect();
        for precision in [Precision::F32, Precision::F64] {
            let mut slow = ReferenceEngine.load(&data, Precision::F64, &[0.0; 2]).unwrap();
            let want = ask(slow.as_mut(), &weights, &draws);
            let mut cpu = CpuEngine::new(1).unwrap().load(&data, precision, &[0.0; 2]).unwrap();
            assert_eq!(ask(cpu.as_mut(), &weights, &draws).0, want.0, "{precision}, {count} rows on the CPU");
            let all = [(1 << 30, 2), (little, 0)].map(|(memory, kept)| {
                let fake = Fake::install(Machine { memory, ..Machine::default() });
                let engine = CudaEngine::new(0).unwrap();
                let mut fast = engine.load(&data, precision, &[0.0; 2]).unwrap();
                let before = fake.0.calls_of(Class::Wait);
                let got = ask(fast.as_mut(), &weights, &draws);
                let waits = fake.0.calls_of(Class::Wait) - before;
                let what = format!("{precision}, {count} rows, {memory} bytes");
                // Adding an evaluated row does not wait, but the last one is waited for before its buffers are freed.
                assert_eq!((waits, fake.0.launches("lower")), (6, kept), "{what}: waits, and distances that were kept");
                assert_eq!(got.0, want.0, "{what}: rows");
                let tolerance = if precision == Precision::F32 { 2e-6 } else { 1e-12 };
                for (i, (a, b)) in got.1.iter().zip(&want.1).enumerate() {
                    close(a, b, tolerance, &format!("{what}: answer {i}"));
                }
                drop((fast, engine));
                fake.0.assert_clean("seeding");
                got
            });
            assert_eq!(all[0], all[1], "{precision}, {count}: with little memory, the same bits");
        }
    }
}

#[test]
fn seeds_are_the_rows_that_the_cpu_draws_at_one_wait_in_all_or_one_each() {
    for (n, d, k) in [(600, 3, 2), (2500, 2, 9), (40_000, 1, 60)] {
        let rows = rows(n, d, 50.0);
        let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64).collect();
        for (precision, data) in [
            (Precision::F64, Dataset::new(rows.clone()).unwrap()),
            (Precision::F32, Dataset::new(rows.mapv(|v| v as f32)).unwrap().with_weights(weights).unwrap()),
        ] {
            let at = vec![50.0; d];
            let draws = || Draws::new(n as u64, 0);
            let mut slow = CpuEngine::new(1).unwrap().load(&data, precision, &at).unwrap();
            let mut drawn = draws();
            let want = init::seed(slow.as_mut(), &data, k, &mut drawn).unwrap();
            let after = drawn.uniform();
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut fast = engine.load(&data, precision, &at).unwrap();
            for (one_by_one, waits) in [(false, 1), (true, k)] {
                ONE_BY_ONE.set(one_by_one);
                let (before, mut drawn) = (fake.0.calls_of(Class::Wait), draws());
                let got = init::seed(fast.as_mut(), &data, k, &mut drawn).unwrap();
                ONE_BY_ONE.set(false);
                assert_eq!(fake.0.calls_of(Class::Wait) - before, waits, "{precision} n={n} k={k}: waits");
                assert_eq!(got, want, "{precision} n={n} k={k}, one by one: {one_by_one}");
                assert_eq!(drawn.uniform(), after, "{precision} n={n} k={k}: numbers that were drawn");
            }
            drop((fast, engine));
            fake.0.assert_clean("seeding");
        }
    }
}

#[test]
fn centres_that_are_drawn_ahead_are_those_of_one_after_another() {
    let (n, d) = (2100, 3);
    let all = rows(n, d, 20.0);
    let weights: Vec<f64> = (0..n).map(|i| (i % 4) as f64).collect();
    let data = Dataset::new(all.clone()).unwrap().with_weights(weights.clone()).unwrap();
    let first = all.row(7).to_vec();
    // More candidates than one launch of eight evaluates, and more than four.
    for count in [2, 5, 9] {
        let mut draws = Draws::new(count as u64, 0);
        let uniforms = Array3::from_shape_simple_fn((4, 2, count), || draws.uniform());
        let mut one_by_one = ReferenceEngine.load(&data, Precision::F64, &[20.0; 3]).unwrap();
        let mut left = one_by_one.add_centre(&first).unwrap();
        let mut want = Vec::new();
        for of_place in uniforms.outer_iter() {
            let mut sum = 0.0;
            left.iter_mut().for_each(|slot| {
                sum += *slot;
                *slot = sum;
            });
            let numbers = of_place.row(0).into_iter().zip(of_place.row(1));
            let drawn = numbers.map(|(g, &uniform)| RowDraw { group: Draws::index_at(&left, *g), uniform });
            let weighed = one_by_one.weigh_draws(&drawn.collect::<Vec<_>>(), Some(&weights)).unwrap();
            let best = (0..count).min_by(|a, b| weighed.left[*a].total_cmp(&weighed.left[*b])).unwrap();
            want.push(weighed.rows[best]);
            left = one_by_one.add_drawn(best).unwrap();
        }
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let mut rows = engine.load(&data, Precision::F64, &[20.0; 3]).unwrap();
        for what in ["first", "again"] {
            let got = rows.draw_centres(&first, uniforms.view(), Some(&weights)).unwrap();
            assert_eq!(got, Some(want.clone()), "{count} candidates, {what}");
        }
        drop((rows, engine));
        fake.0.assert_clean("centres drawn ahead");
    }
}

#[test]
fn candidates_that_leave_the_same_are_told_apart_alike_one_by_one_and_all_at_once() {
    // Few points and their mirror images about the first centre, which has nearly all the weight: the potentials of
    // candidates often differ only by the order of additions.
    let n = 3001;
    let size = |i: usize| (1.0 + (i * i % 7) as f64).sqrt();
    let point = |i: usize| if i < n / 2 { size(i) } else { -size(n - 2 - i) };
    let all = Array2::from_shape_fn((n, 1), |(i, _)| if i == n - 1 { 0.0 } else { point(i) });
    let weights = (0..n).map(|i| if i == n - 1 { 1e12 } else { 1.0 }).collect();
    let data = Dataset::new(all).unwrap().with_weights(weights).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut there = engine.load(&data, Precision::F64, &[0.0]).unwrap();
    for seed in 0..40 {
        let [all_at_once, one_by_one] = [false, true].map(|one_by_one| {
            ONE_BY_ONE.set(one_by_one);
            let seeds = init::seed(there.as_mut(), &data, 6, &mut Draws::new(seed, 0)).unwrap();
            ONE_BY_ONE.set(false);
            seeds
        });
        assert_eq!(all_at_once, one_by_one, "seed {seed}");
    }
}

#[test]
fn rows_that_run_out_are_told_where_centres_are_drawn_ahead() {
    let all = Array2::from_shape_fn((300, 2), |(i, j)| ((i % 3) * (j + 1)) as f64);
    let data = Dataset::new(all.clone()).unwrap();
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&data, Precision::F32, &[0.0; 2]).unwrap();
    let ask = |rows: &mut dyn Resident, more: usize| {
        let uniforms = Array3::from_shape_fn((more, 2, 3), |(c, i, t)| (c + 2 * i + 3 * t) as f64 / 20.0);
        rows.draw_centres(&[0.0; 2], uniforms.view(), None).unwrap()
    };
    let mut found = ask(rows.as_mut(), 2).expect("as many centres as places where rows are");
    found.iter_mut().for_each(|row| *row %= 3);
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
    assert_eq!(ask(rows.as_mut(), 3), None);
    let seeds = init::seed(rows.as_mut(), &data, 5, &mut Draws::new(2, 0)).unwrap();
    let mut slow = CpuEngine::new(1).unwrap().load(&data, Precision::F32, &[0.0; 2]).unwrap();
    assert_eq!(seeds, init::seed(slow.as_mut(), &data, 5, &mut Draws::new(2, 0)).unwrap());
    drop((rows, engine));
    fake.0.assert_clean("rows that run out");
}

#[test]
fn a_fault_anywhere_in_a_seeding_is_an_error_and_the_next_one_is_right() {
    let data = dataset(300, 2);
    for one_by_one in [false, true] {
        ONE_BY_ONE.set(one_by_one);
        faults_in_seeding(&data);
        ONE_BY_ONE.set(false);
    }
}

fn faults_in_seeding(data: &Dataset) {
    let seeds = |rows: &mut dyn Resident| init::seed(rows, data, 5, &mut Draws::new(3, 0));
    let load = |engine: &CudaEngine| engine.load(data, Precision::F32, &[0.0; 2]).unwrap();
    let want = {
        let _fake = Fake::install(Machine::default());
        seeds(load(&CudaEngine::new(0).unwrap()).as_mut()).unwrap()
    };
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::UNKNOWN),
    ] {
        for at in 1.. {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut rows = load(&engine);
            fake.0.fail(Fault::once(class, at, code));
            let end = seeds(rows.as_mut());
            let failed = fake.0.failed();
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(found) => {
                    assert_eq!(found, want, "{what}");
                    // Distances are optional if memory lacks, and cust ignores this result.
                    let passed = code == code::OUT_OF_MEMORY || may_fail(failed);
                    assert!(passed, "{what}: went on after {failed:?}");
                }
            }
            fake.0.recover();
            if !fault::is_fatal(code) {
                assert_eq!(seeds(rows.as_mut()).unwrap(), want, "{what}: the next");
            }
            drop((rows, engine));
            fake.0.assert_clean(&what);
            if failed.is_none() {
                assert!(at > 1, "{what}");
                break;
            }
        }
    }
}

#[test]
fn a_sample_is_as_if_its_rows_had_been_loaded() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for precision in [Precision::F32, Precision::F64] {
        for (n, d, weighted) in [(700, 3, false), (1000, 20, true)] {
            let rows = Array2::from_shape_fn((n, d), |(i, j)| 100.0 + noise(i * d + j));
            let weights: Vec<f64> = (0..n).map(|i| 0.5 * (1 + i % 3) as f64).collect();
            let chosen: Vec<usize> = (0..300).map(|i| i * n / 300).collect();
            let some = Dataset::new(rows.select(ndarray::Axis(0), &chosen)).unwrap();
            let of_some: Vec<f64> = chosen.iter().map(|&i| weights[i]).collect();
            let (data, some) = match weighted {
                false => (Dataset::new(rows).unwrap(), some),
                true => {
                    let all = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
                    (all, some.with_weights(of_some.clone()).unwrap())
                }
            };
            let at = vec![99.5; d];
            let mut loaded = engine.load(&some, precision, &at).unwrap();
            let mut all = engine.load(&data, precision, &at).unwrap();
            let mut sample = all.sample(&chosen, weighted.then_some(&of_some[..])).unwrap();
            // The original rows may be dropped before their sample.
            drop(all);
            let centres = Array2::from_shape_fn((4, d), |(c, j)| 100.0 + noise(9 + c * d + j));
            for kind in CovarianceType::ALL {
                let want = loaded.nearest(kind, centres.view()).unwrap();
                assert_eq!(sample.nearest(kind, centres.view()).unwrap(), want, "{precision} n={n} d={d} {kind}");
            }
        }
    }
    drop(engine);
    fake.0.assert_clean("samples");
}
