//! Lloyd's iterations on the device agree with the reference's, with a host poll now and then.

use super::*;
use crate::Seeding;
use crate::{CpuEngine, ReferenceEngine, init, shift};

/// Rows around `k` corners, and centres among them.
fn problem(precision: Precision, (n, d, k): (usize, usize, usize), offset: f64) -> (Dataset, Array2<f64>) {
    let corner = |c: usize, j: usize| 6.0 * noise(77 + c * d + j);
    let mut rows = Array2::from_shape_fn((n, d), |(i, j)| offset + corner(i * 7 % k, j) + noise(i * d + j));
    if precision == Precision::F32 {
        rows.mapv_inplace(|v| f64::from(v as f32));
    }
    let centres = Array2::from_shape_fn((k, d), |(c, j)| offset + corner(c, j) + 0.7 * noise(991 + c * d + j));
    let weights = (0..n).map(|i| 0.5 * (1 + i % 3) as f64).collect();
    (Dataset::new(rows).unwrap().with_weights(weights).unwrap(), centres)
}

fn agrees(precision: Precision, (n, d, k): (usize, usize, usize)) {
    let what = format!("{precision} n={n} d={d} k={k}");
    let (data, start) = problem(precision, (n, d, k), 1e3);
    let at = shift::of_data(&data);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut fast = engine.load(&data, precision, &at).unwrap();
    let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).unwrap();
    let (mut a, mut b) = (start.clone(), start.clone());
    for most in [1, 3, 40] {
        let got = fast.lloyd(&mut a, most, 1e-9).unwrap();
        assert!((1..=most).contains(&got.passes), "{what}: {} passes", got.passes);
        let want = (0..got.passes).map(|_| slow.lloyd(&mut b, 1, 1e-9).unwrap()).last().unwrap();
        let tolerance = if precision == Precision::F32 { 1e-6 } else { 1e-11 };
        close(a.as_slice().unwrap(), b.as_slice().unwrap(), tolerance, &format!("{what}: centres"));
        close(&[got.inertia], &[want.inertia], tolerance, &format!("{what}: inertia"));
        // Squares of small differences of rows, rounded in single precision.
        let moved = (got.move_squared.sqrt() - want.move_squared.sqrt()).abs();
        assert!(moved <= tolerance * 1e3, "{what}: moved {} want {}", got.move_squared, want.move_squared);
        assert_eq!(got.empty, want.empty, "{what}");
    }
    let again = |engine: &CudaEngine| {
        let mut centres = start.clone();
        let mut rows = engine.load(&data, precision, &at).unwrap();
        (rows.lloyd(&mut centres, 5, 0.0).unwrap(), centres)
    };
    assert_eq!(again(&engine), again(&engine), "{what}: the same bits again");
    drop((fast, engine));
    fake.0.assert_clean(&what);
}

#[test]
fn passes_are_the_references() {
    for precision in [Precision::F32, Precision::F64] {
        for size in [(1, 1, 1), (130, 3, 2), (517, 5, 11), (300, 18, 20), (260, 40, 3)] {
            agrees(precision, size);
        }
    }
}

/// Few centres and sums, many sums, and many centres.
#[test]
fn a_pass_ends_by_as_many_launches_as_are_fastest() {
    for (size, ends, reductions) in
        [((517, 5, 11), true, false), ((300, 40, 30), false, true), ((700, 1, 65), false, true)]
    {
        let (data, start) = problem(Precision::F32, size, 0.0);
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let mut rows = engine.load(&data, Precision::F32, &shift::of_data(&data)).unwrap();
        rows.lloyd(&mut start.clone(), 2, 0.0).unwrap();
        let launched = |name: &str| fake.0.launches(name) > 0;
        assert_eq!((launched("lloyd_end"), launched("reduce")), (ends, reductions), "{size:?}");
        assert_eq!(launched("lloyd_settle"), !ends, "{size:?}");
        drop((rows, engine));
        agrees(Precision::F64, size);
    }
}

#[test]
fn partial_sums_that_one_block_would_wait_for_too_often_are_reduced_before() {
    // As many parts of the rows as a large GPU processes concurrently.
    let size @ (_, d, k) = (40_000, 4, 60);
    let (data, start) = problem(Precision::F32, size, 0.0);
    let at = shift::of_data(&data);
    let fake = Fake::install(Machine { multiprocessors: 264, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&data, Precision::F32, &at).unwrap();
    let (mut a, mut b) = (start.clone(), start);
    let got = rows.lloyd(&mut a, 1, 0.0).unwrap();
    let launched = |name: &str| fake.0.launches(name);
    assert!(launched("reduce") > 0 && launched("lloyd_end") > 0 && launched("lloyd_settle") == 0, "d={d} k={k}");
    let want = ReferenceEngine.load(&data, Precision::F64, &at).unwrap().lloyd(&mut b, 1, 0.0).unwrap();
    close(a.as_slice().unwrap(), b.as_slice().unwrap(), 1e-6, "centres");
    close(&[got.inertia, got.move_squared], &[want.inertia, want.move_squared], 1e-6, "inertia and moves");
}

#[test]
fn it_does_not_matter_where_a_call_ends() {
    let (data, _) = problem(Precision::F64, (400, 3, 5), 1e3);
    // All centres start in one clump, so that several passes are needed.
    let start = Array2::from_shape_fn((5, 3), |(c, j)| data.rows().at(5 * c, j));
    let at = shift::of_data(&data);
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let run = |calls: usize, most: usize| {
        let mut rows = engine.load(&data, Precision::F64, &at).unwrap();
        let mut centres = start.clone();
        let last = (0..calls).map(|_| rows.lloyd(&mut centres, most, -1.0).unwrap()).last().unwrap();
        assert_eq!((last.passes, last.empty.len()), (most, 0));
        // A call with other centres must not continue from those on the device.
        let mut elsewhere = start.clone();
        rows.lloyd(&mut elsewhere, 1, -1.0).unwrap();
        (last.inertia.to_bits(), last.move_squared.to_bits(), centres, elsewhere)
    };
    let (whole, steps) = (run(1, 4), run(4, 1));
    assert_eq!(whole, steps);
    assert_ne!(whole.2, whole.3);
    assert_ne!(run(1, 3).2, whole.2, "the fourth still moves");
}

#[test]
fn several_passes_take_one_wait() {
    let (data, mut centres) = problem(Precision::F64, (300, 4, 3), 0.0);
    centres *= 0.3;
    let fake = Fake::install(Machine::default());
    let mut rows = CudaEngine::new(0).unwrap().load(&data, Precision::F64, &[0.0; 4]).unwrap();
    let waits = fake.0.calls_of(Class::Wait);
    let passes = rows.lloyd(&mut centres, 4, -1.0).unwrap();
    assert_eq!((passes.passes, fake.0.calls_of(Class::Wait) - waits), (4, 1));
}

#[test]
fn a_centre_without_rows_ends_the_call_and_k_means_revives_it() {
    let (data, mut centres) = problem(Precision::F64, (300, 2, 4), 0.0);
    centres.row_mut(2).fill(1e4);
    let at = shift::of_data(&data);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut fast = engine.load(&data, Precision::F64, &at).unwrap();
    let mut moved = centres.clone();
    let passes = fast.lloyd(&mut moved, 10, 0.0).unwrap();
    assert_eq!((passes.passes, passes.empty), (1, vec![2]));
    close(&moved.row(2).to_vec(), &[1e4, 1e4], 1e-15, "it stays");
    let mut slow = CpuEngine::new(1).unwrap().load(&data, Precision::F64, &at).unwrap();
    let got = init::lloyd(fast.as_mut(), &data, &at, centres.clone()).unwrap();
    let want = init::lloyd(slow.as_mut(), &data, &at, centres).unwrap();
    assert_eq!((got.iterations, got.converged), (want.iterations, want.converged));
    close(got.centres.as_slice().unwrap(), want.centres.as_slice().unwrap(), 1e-11, "centres");
    close(&[got.inertia], &[want.inertia], 1e-11, "inertia");
    drop((fast, engine));
    fake.0.assert_clean("revived");
}

#[test]
fn rows_that_products_cannot_tell_apart_are_left_to_differences() {
    let (near, start) = problem(Precision::F64, (400, 2, 4), 0.0);
    // Clusters as narrow as the error of a square at that distance.
    let far = |m: ndarray::ArrayView2<'_, f64>| m.mapv(|v| 1e-4 * v + 1e5);
    let rows = Array2::from_shape_fn((400, 2), |(i, j)| near.rows().at(i, j));
    let (data, start) = (Dataset::new(far(rows.view())).unwrap(), far(start.view()));
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for (shift, by_host) in [([1e5; 2], false), ([0.0; 2], true)] {
        let forced = plan::ForcedPlan::default();
        let mut fast = CudaResident::<f64>::load(
            engine.gpu.clone(),
            &data,
            Precision::F64,
            &shift,
            forced,
            LoadOptions::default(),
        )
        .unwrap();
        let mut slow = ReferenceEngine.load(&data, Precision::F64, &shift).unwrap();
        let (mut a, mut b) = (start.clone(), start.clone());
        let got = fast.lloyd(&mut a, 3, 0.0).unwrap();
        (0..got.passes).for_each(|_| drop(slow.lloyd(&mut b, 1, 0.0).unwrap()));
        assert_eq!(fast.lloyd.by_host, by_host, "{shift:?}");
        close(a.as_slice().unwrap(), b.as_slice().unwrap(), 1e-14, "centres");
    }
    drop(engine);
    fake.0.assert_clean("differences");
}

#[test]
fn a_number_that_is_none_on_its_way_home_is_not_used() {
    let (data, start) = problem(Precision::F64, (200, 2, 3), 0.0);
    let at = shift::of_data(&data);
    let run = |spoilt: Option<usize>| {
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let mut rows = engine.load(&data, Precision::F64, &at).unwrap();
        let mut centres = start.clone();
        spoilt.iter().for_each(|word| fake.0.spoil(1, *word));
        rows.lloyd(&mut centres, 1, 0.0).unwrap();
        drop((rows, engine));
        fake.0.assert_clean("spoilt");
        centres
    };
    let want = run(None);
    // The words of a pass's statistics, weights and centres.
    for word in 0..4 + 4 + 6 {
        let got = run(Some(word));
        close(got.as_slice().unwrap(), want.as_slice().unwrap(), 1e-12, &format!("word {word}"));
    }
}
