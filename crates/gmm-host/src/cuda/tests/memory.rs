//! Device memory and pinned memory: checked before allocation, allocated once, and used piece by piece.

use std::sync::Arc;

use super::*;

#[test]
fn row_66_too_little_memory_for_the_rows_is_said_before_any_is_taken() {
    let fake = Fake::install(Machine { memory: 1000, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let error = text(engine.load(&dataset(300, 2), Precision::F64, &[0.0, 0.0]));
    assert!(error.contains("needs 6144 bytes") && error.contains("1000 are free"), "{error}");
    assert_eq!((fake.0.calls("cuMemAlloc"), fake.0.calls("cuMemAllocHost")), (0, 0));
}

#[test]
fn row_66_too_little_memory_for_a_pass_gives_smaller_chunks_and_then_an_error() {
    let (n, d, k) = (4000, 2, 40);
    let mixture = mixture(CovarianceType::Spherical, k, d, 0.0);
    let data = dataset(n, d);
    let pass = |memory: usize| {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let mut rows = engine.load(&data, Precision::F64, &[0.0, 0.0]).unwrap();
        let statistics = rows.pass(&mixture);
        let (taken, launches) = (fake.0.taken(), fake.0.calls("cuLaunchKernel"));
        assert!(taken <= memory);
        (statistics, taken, launches)
    };
    let (whole, taken, launches) = pass(1 << 30);
    let whole = whole.unwrap();
    let (fewer, less, more) = pass(taken / 3);
    assert!(less < taken / 3 && more > launches, "{less} of {taken}, {more} launches after {launches}");
    close(&fewer.unwrap().second, &whole.second, 1e-13, "smaller chunks");
    let error = text(pass(n * d * 8 + 10_000).0);
    assert!(error.contains("a pass on the GPU needs"), "{error}");
}

#[test]
fn the_em_loop_takes_no_memory() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(500, 3), Precision::F64, &[0.0; 3]).unwrap();
    let mixture = mixture(CovarianceType::Full, 4, 3, 0.0);
    rows.pass(&mixture).unwrap();
    let before = fake.0.calls_of(Class::Allocation);
    for _ in 0..3 {
        rows.pass(&mixture).unwrap();
    }
    assert_eq!(fake.0.calls_of(Class::Allocation), before);
}

#[test]
fn pinned_chunks_are_taken_once() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kept in [KeepOriginal::No, KeepOriginal::InPieces, KeepOriginal::Together] {
        let _kept = original::force(kept);
        engine.load(&dataset(500, 3), Precision::F64, &[0.0; 3]).unwrap();
        let before = fake.0.calls("cuMemAllocHost");
        for _ in 0..3 {
            engine.load(&dataset(500, 3), Precision::F64, &[0.0; 3]).unwrap();
        }
        assert_eq!(fake.0.calls("cuMemAllocHost"), before);
    }
}

#[test]
fn rows_can_move_to_another_thread_and_be_dropped_there() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(50, 2), Precision::F64, &[0.0, 0.0]).unwrap();
    drop(engine);
    let driver = Arc::clone(&fake.0);
    std::thread::spawn(move || {
        let _here = driver.enter();
        rows.pass(&mixture(CovarianceType::Tied, 2, 2, 0.0)).unwrap();
        drop(rows);
    })
    .join()
    .unwrap();
    fake.0.assert_clean("another thread");
}

#[test]
fn a_data_set_beyond_one_pinned_chunk_arrives_whole() {
    // 5 million f32 are 20 MB, more than a chunk of 16 MiB.
    let (n, d) = (1_250_000, 4);
    let data = Dataset::new(Array2::from_shape_fn((n, d), |(i, j)| (i * d + j) as f32 % 1000.0)).unwrap();
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    drop(engine.load(&data, Precision::F32, &[0.0; 4]).unwrap());
    // The shift and two pieces.
    assert_eq!(fake.0.calls("cuMemcpyHtoDAsync"), 3);
    drop(engine);
    fake.0.assert_clean("upload");
}
