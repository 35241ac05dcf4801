//! What k-means++ asks: distances to candidates are kept where there is room, and measured again where there is none.

use super::*;
use crate::{ReferenceEngine, Resident};

/// One centre, some candidates, of which one becomes a centre, and another centre that was none of them.
fn ask(rows: &mut dyn Resident, candidates: &Array2<f64>, chosen: usize) -> Vec<Vec<f64>> {
    let n = rows.dim().0;
    #[expect(clippy::single_range_in_vec_init, reason = "one range of rows: all of them")]
    let all = [0..n];
    let first = rows.add_centre(&[0.5, -0.5]).unwrap();
    let potentials = rows.potentials(candidates.view()).unwrap();
    let second = rows.add_centre(&candidates.row(chosen).to_vec()).unwrap();
    let near = rows.near(&all).unwrap();
    let third = rows.add_centre(&[2.0, 2.5]).unwrap();
    let weighed_before = rows.add_centre(&candidates.row(0).to_vec()).unwrap();
    let again = rows.potentials(candidates.view()).unwrap();
    let last = rows.add_centre(&candidates.row(0).to_vec()).unwrap();
    rows.forget_centres();
    vec![first, potentials, second, near, third, weighed_before, again, last]
}

#[test]
fn a_candidate_becomes_a_centre_with_the_distances_that_it_was_weighed_by_or_without() {
    let n = 2100;
    let weights = (0..n).map(|i| 0.5 * (i % 4) as f64).collect();
    let data = dataset(n, 2).with_weights(weights).unwrap();
    for count in [1, 4, 5, 9] {
        let candidates = Array2::from_shape_fn((count, 2), |(c, j)| c as f64 * 0.7 + noise(9 * c + j));
        for precision in [Precision::F32, Precision::F64] {
            let mut slow = ReferenceEngine.load(&data, Precision::F64, &[0.0; 2]).unwrap();
            let want = ask(slow.as_mut(), &candidates, count - 1);
            // Rows, as they came too, weights and distances take most of 120 KB, distances to four candidates 34 KB or more.
            let waits: Vec<usize> = [1 << 30, 120 << 10]
                .map(|memory| {
                    let fake = Fake::install(Machine { memory, ..Machine::default() });
                    let engine = CudaEngine::new(0).unwrap();
                    let mut fast = engine.load(&data, precision, &[0.0; 2]).unwrap();
                    let before = fake.0.calls_of(Class::Wait);
                    let got = ask(fast.as_mut(), &candidates, count - 1);
                    let waits = fake.0.calls_of(Class::Wait) - before;
                    let tolerance = if precision == Precision::F32 { 2e-6 } else { 1e-12 };
                    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                        close(a, b, tolerance, &format!("{precision}, {count} candidates, {memory} bytes: answer {i}"));
                    }
                    drop((fast, engine));
                    fake.0.assert_clean("seeding");
                    waits
                })
                .to_vec();
            // Two of them do not wait where distances were kept, but the last has to be waited for before it is freed.
            assert_eq!(waits, [7, 8], "{precision}, {count}: waits");
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
            // What it was taken from may go before it.
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
