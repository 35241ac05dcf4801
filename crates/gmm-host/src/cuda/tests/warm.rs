//! A fit on an engine that made one before: its calls of the driver, and what it reuses.

use std::collections::BTreeMap;

use super::staging::CHUNK_BYTES;
use super::*;
use crate::{ReferenceEngine, shift};

/// A small fit: rows, columns, components, and whether it starts from k-means.
type Small = (usize, usize, usize, bool);

fn data_of((n, d, ..): Small) -> Dataset {
    Dataset::new(rows(n, d, 0.0).mapv(|v| v as f32)).unwrap()
}

fn options_of((_, d, k, kmeans): Small, max_iter: usize) -> FitOptions {
    let init = if kmeans { Init::KMeans } else { Init::Given(Box::new(mixture(CovarianceType::Full, k, d, 0.0))) };
    FitOptions { tol: 0.0, max_iter, init, ..FitOptions::new(k) }
}

/// Driver calls of the second of two fits, by name.
fn calls_of_second(case: Small, max_iter: usize) -> BTreeMap<&'static str, usize> {
    let (data, options) = (data_of(case), options_of(case, max_iter));
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let first = fit(&engine, &data, &options).unwrap();
    let before = fake.0.tally();
    let second = fit(&engine, &data, &options).unwrap();
    assert_eq!((second.mixture, second.summary), (first.mixture, first.summary), "{case:?}");
    let new = |(name, count)| (name, count - before.get(name).copied().unwrap_or(0));
    let calls = fake.0.tally().into_iter().map(new).filter(|(_, count)| *count > 0).collect();
    drop(engine);
    fake.0.assert_clean("two fits");
    calls
}

#[test]
fn a_fit_from_given_parameters_waits_twice_and_takes_nothing_from_the_driver() {
    for kept in [KeepOriginal::Together, KeepOriginal::InPieces, KeepOriginal::No] {
        let _kept = original::force(kept);
        let calls = calls_of_second((272, 2, 2, false), 20);
        let expected = match kept {
            // Copies: rows with their shift, parameters, another shift, parameters. Launches: pass, reduction and
            // update of each iteration, an update before them, an E-step with its reduction after them, and the
            // subtraction of each shift.
            KeepOriginal::Together => vec![
                ("cuEventElapsedTime", 1),
                ("cuEventRecord", 2),
                ("cuLaunchKernel", 65),
                ("cuMemcpyDtoHAsync", 3),
                ("cuMemcpyHtoDAsync", 4),
                ("cuMemsetD8Async", 2),
                ("cuStreamSynchronize", 2),
            ],
            // Rows go through a pinned chunk, whose copy is recorded and waited for, and the shift is copied
            // separately. Free memory is queried.
            KeepOriginal::InPieces => vec![
                ("cuEventElapsedTime", 1),
                ("cuEventRecord", 3),
                ("cuLaunchKernel", 65),
                ("cuMemGetInfo", 1),
                ("cuMemcpyDtoHAsync", 3),
                ("cuMemcpyHtoDAsync", 5),
                ("cuMemsetD8Async", 2),
                ("cuStreamSynchronize", 3),
            ],
            // The rows are uploaded twice through pinned chunks, each time with their shift.
            KeepOriginal::No => vec![
                ("cuEventElapsedTime", 1),
                ("cuEventRecord", 4),
                ("cuLaunchKernel", 65),
                ("cuMemcpyDtoHAsync", 3),
                ("cuMemcpyHtoDAsync", 6),
                ("cuMemsetD8Async", 2),
                ("cuStreamSynchronize", 4),
            ],
        };
        let calls: Vec<_> = calls.into_iter().filter(|(name, _)| *name != "cuCtxSetCurrent").collect();
        assert_eq!(calls, expected, "rows kept: {kept:?}");
    }
}

#[test]
fn the_loops_kernels_are_launched_while_those_before_them_run_where_the_device_can() {
    let case = (300, 2, 2, false);
    for (capability, waiting) in [((9, 0), 1 + 3 * 4), ((8, 0), 0), ((10, 0), 0)] {
        let fake = Fake::install(Machine { capability, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        fit(&engine, &data_of(case), &options_of(case, 4)).unwrap();
        assert_eq!(fake.0.waiting_launches(), waiting, "{capability:?}");
    }
}

#[test]
fn a_second_fit_allocates_nothing_and_makes_no_stream_and_no_event() {
    let asking = ["Alloc", "Free", "Create", "Destroy", "GetInfo", "Module", "Occupancy", "Attribute"];
    for kind in CovarianceType::ALL {
        for kmeans in [true, false] {
            let case = (400, 3, 3, kmeans);
            let (data, init) = (data_of(case), Init::Given(Box::new(mixture(kind, 3, 3, 0.0))));
            let init = if kmeans { Init::KMeans } else { init };
            let options = FitOptions { tol: 0.0, max_iter: 3, covariance_type: kind, init, ..FitOptions::new(3) };
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            fit(&engine, &data, &options).unwrap();
            let before = fake.0.tally();
            fit(&engine, &data, &options).unwrap();
            for (name, count) in fake.0.tally() {
                let asked = asking.iter().any(|word| name.contains(word));
                assert!(!asked || before.get(name) == Some(&count), "{kind} {kmeans}: {name}");
            }
        }
    }
}

#[test]
#[ignore = "lists the calls of a second fit, for people"]
fn the_calls_of_a_second_fit() {
    for case in [(272, 2, 2, false), (272, 2, 2, true), (10_000, 4, 3, false), (10_000, 4, 3, true)] {
        println!("{case:?}: {:#?}", calls_of_second(case, 20));
    }
}

#[test]
fn the_score_of_a_fit_is_that_of_an_evaluation_later_to_the_bit() {
    for kind in CovarianceType::ALL {
        for (precision, weighted) in [(Precision::F32, false), (Precision::F64, true)] {
            for stored in [Precision::F32, Precision::F64] {
                let all = rows(700, 3, 1e3);
                let data = match stored {
                    Precision::F32 => Dataset::new(all.mapv(|v| v as f32)),
                    Precision::F64 => Dataset::new(all),
                };
                let mut data = data.unwrap();
                if weighted {
                    data = data.with_weights((0..700).map(|i| 0.5 + (i % 3) as f64).collect()).unwrap();
                }
                let options =
                    FitOptions { covariance_type: kind, max_iter: 4, precision: Some(precision), ..FitOptions::new(3) };
                let _fake = Fake::install(Machine::default());
                let mut found = Vec::new();
                for kept in [KeepOriginal::Together, KeepOriginal::InPieces, KeepOriginal::No] {
                    let _kept = original::force(kept);
                    let engine = CudaEngine::new(0).unwrap();
                    let fitted = fit(&engine, &data, &options).unwrap();
                    let later = CudaEngine::new(0).unwrap();
                    let score = evaluate::score(&later, &fitted.mixture, &data, precision).unwrap();
                    let what = format!("{kind} {precision} of {stored}, kept: {kept:?}");
                    assert_eq!(fitted.summary.log_likelihood.to_bits(), score.log_likelihood.to_bits(), "{what}");
                    found.push((fitted.mixture, fitted.summary));
                }
                let what = format!("{kind} {precision} of {stored}: kept or loaded again");
                assert!(found.iter().all(|one| *one == found[0]), "{what}");
            }
        }
    }
}

#[test]
fn rows_held_about_another_point_are_those_that_were_loaded_so() {
    for stored in [Precision::F32, Precision::F64] {
        for precision in [Precision::F32, Precision::F64] {
            // Numbers whose differences are always rounded, and subnormal numbers.
            let at = |i: usize| noise(i) * [1.0, 1e4, 1e-41][i % 3];
            let all = Array2::from_shape_fn((300, 3), |(i, j)| at(3 * i + j));
            let data = match stored {
                Precision::F32 => Dataset::new(all.mapv(|v| v as f32)),
                Precision::F64 => Dataset::new(all),
            };
            let data = data.unwrap();
            let _fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let (near, far) = (shift::of_data(&data), vec![0.1, -7e3, 3e-42]);
            let mixture = mixture(CovarianceType::Full, 2, 3, 0.0);
            for kept in [KeepOriginal::Together, KeepOriginal::InPieces] {
                let _kept = original::force(kept);
                let mut moved = engine.load(&data, precision, &near).unwrap();
                moved.add_centre(&near).unwrap();
                let before = moved.pass(&mixture).unwrap();
                assert!(moved.hold_about(&far).unwrap());
                let _not = original::force(KeepOriginal::No);
                let mut loaded = engine.load(&data, precision, &far).unwrap();
                assert_eq!(moved.pass(&mixture).unwrap(), loaded.pass(&mixture).unwrap(), "{kept:?}");
                assert!(!loaded.hold_about(&near).unwrap(), "these must be loaded again");
                assert!(moved.hold_about(&near).unwrap() && moved.hold_about(&near).unwrap());
                assert_eq!(moved.pass(&mixture).unwrap(), before, "{kept:?}, and back");
                assert!(matches!(moved.hold_about(&[0.0]), Err(Error::Features { .. })));
            }
            let mut slow = ReferenceEngine.load(&data, Precision::F64, &near).unwrap();
            assert!(!slow.hold_about(&far).unwrap());
        }
    }
}

#[test]
fn likelihoods_of_rows_held_about_another_point_are_those_of_rows_that_were_loaded_so() {
    let data = Dataset::new(Array2::from_shape_fn((300, 3), |(i, j)| noise(3 * i + j))).unwrap();
    let (near, far) = (shift::of_data(&data), vec![-12.0; 3]);
    for kind in CovarianceType::ALL {
        let sets: Vec<Mixture> = (0..5).map(|i| mixture(kind, 2, 3, 0.01 * f64::from(i))).collect();
        let _fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let _kept = original::force(KeepOriginal::Together);
        let mut moved = engine.load(&data, Precision::F32, &near).unwrap();
        let all = |rows: &mut dyn Resident| {
            [rows.log_likelihoods(&sets).unwrap(), rows.log_likelihoods(&sets[..2]).unwrap()].concat()
        };
        let before = all(&mut *moved);
        assert!(moved.hold_about(&far).unwrap());
        let mut loaded = engine.load(&data, Precision::F32, &far).unwrap();
        assert_eq!(all(&mut *moved), all(&mut *loaded), "{kind}");
        assert!(moved.hold_about(&near).unwrap());
        assert_eq!(all(&mut *moved), before, "{kind}, and back");
    }
}

#[test]
fn many_rows_are_kept_for_a_fit_alone_and_where_there_is_memory_to_spare() {
    let bytes = 70_000 * 2 * 8;
    let data = dataset(70_000, 2);
    for (memory, to_move, kept) in [(1 << 30, true, true), (1 << 30, false, false), (9 * bytes, true, false)] {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let load = if to_move { CudaEngine::load_to_move } else { CudaEngine::load };
        let mut rows = load(&engine, &data, Precision::F64, &[0.0; 2]).unwrap();
        assert_eq!(rows.hold_about(&[0.5; 2]).unwrap(), kept, "{memory} {to_move}");
        drop((rows, engine));
        fake.0.assert_clean("rows that are kept or not");
    }
    // A fit keeps them: the rows are shifted by the data's medians, then by the mixture's mean.
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let init = Init::Given(Box::new(mixture(CovarianceType::Spherical, 1, 2, 0.0)));
    let options = FitOptions { covariance_type: CovarianceType::Spherical, init, max_iter: 0, ..FitOptions::new(1) };
    fit(&engine, &data, &options).unwrap();
    assert_eq!(fake.0.launches("tile_from_f64"), 2);
}

#[test]
fn how_far_many_rows_reach_is_found_while_they_are_copied() {
    let shift = [0.25, -0.5, 1.0];
    let (n, at) = (100_001, 77_777);
    let narrow = rows(n, 3, 10.0).mapv(|v| v as f32);
    let wide = narrow.mapv(f64::from);
    let naive: Vec<f64> =
        (0..3).map(|j| wide.column(j).iter().map(|v| (v - shift[j]).abs()).fold(0.0, f64::max)).collect();
    // Kept in their original form as well, and not.
    for memory in [1 << 30, 9_000_000] {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        for data in [Dataset::new(narrow.clone()).unwrap(), Dataset::new(wide.clone()).unwrap()] {
            let (mut found, reach) = engine.load_with_reach(&data, Precision::F32, &shift).unwrap().expect("many rows");
            assert_eq!(reach, naive, "{memory}");
            let mut loaded = engine.load(&data, Precision::F32, &shift).unwrap();
            let centre = Array2::zeros((1, 3));
            let of = |rows: &mut dyn Resident| rows.nearest(CovarianceType::Diag, centre.view()).unwrap();
            assert_eq!(of(found.as_mut()), of(loaded.as_mut()), "{memory}");
        }
        drop(engine);
        fake.0.assert_clean("rows whose reach was found");
    }
    // Rows that nobody has read before: a fit says which value is none.
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    assert!(engine.load_with_reach(&dataset(1000, 3), Precision::F32, &shift).unwrap().is_none(), "few rows");
    for odd in [f32::NAN, f32::INFINITY] {
        let mut bad = narrow.clone();
        bad[[at, 1]] = odd;
        let error = fit(&engine, &Dataset::unread(bad).unwrap(), &FitOptions::new(2)).unwrap_err();
        assert!(error.to_string().contains(&format!("row {at}")), "{error}");
    }
}

#[test]
fn rows_that_are_kept_go_before_a_pass_lacks_anything() {
    let data = dataset(3000, 2);
    let mixture = mixture(CovarianceType::Full, 4, 2, 0.0);
    let mut given_up = 0;
    for memory in (50..600).step_by(20) {
        let found = [KeepOriginal::InPieces, KeepOriginal::No].map(|kept| {
            let _kept = original::force(kept);
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut rows = engine.load(&data, Precision::F64, &[0.0; 2]).unwrap();
            fake.0.set_memory(memory << 10);
            let passed = rows.pass(&mixture).map_err(|error| error.to_string());
            given_up +=
                usize::from(kept == KeepOriginal::InPieces && passed.is_ok() && !rows.hold_about(&[0.5; 2]).unwrap());
            passed
        });
        assert_eq!(found[0].as_ref().ok(), found[1].as_ref().ok(), "{memory} KiB");
    }
    assert!(given_up > 0);
}

#[test]
fn rows_that_come_in_several_pieces_are_those_that_were_loaded_otherwise() {
    // 18 MB in pieces of 16 MiB, with an odd number of rows.
    let (n, d) = (1_500_001, 3);
    let data = Dataset::new(Array2::from_shape_fn((n, d), |(i, j)| noise(3 * i + j) as f32)).unwrap();
    let which = [0, 1, 700_000, CHUNK_BYTES / 12, CHUNK_BYTES / 12 + 1, n - 2, n - 1];
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mixture = mixture(CovarianceType::Full, 2, 3, 0.0);
    let some = |mut rows: Box<dyn Resident>| rows.sample(&which, None).unwrap().pass(&mixture).unwrap();
    let kept = some(engine.load_to_move(&data, Precision::F32, &[0.1; 3]).unwrap());
    assert_eq!(kept, some(engine.load(&data, Precision::F32, &[0.1; 3]).unwrap()));
}

#[test]
fn what_lies_idle_goes_back_when_memory_lacks() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let load = |n: usize| engine.load(&dataset(n, 2), Precision::F64, &[0.0, 0.0]);
    let mixture = mixture(CovarianceType::Full, 3, 2, 0.0);
    load(500).unwrap().pass(&mixture).unwrap();
    let idle = fake.0.taken();
    assert!(idle > 0, "the pool keeps something");
    assert_eq!(engine.free_memory().unwrap(), 1 << 30, "and reports it as free");
    // Enough memory for the larger rows, but not in addition to the idle memory.
    let wanted = 2 * 8 * 5120;
    fake.0.set_memory(wanted + idle / 2);
    let larger = load(5000).unwrap();
    assert!(fake.0.taken() <= wanted + idle / 2);
    drop(larger);
    // More than the total memory, including the idle bytes.
    let error = text(load(20_000));
    assert!(
        error.contains("the data on the GPU needs") && error.contains(&format!("{} are free", wanted + idle / 2)),
        "{error}"
    );
    // A launch that lacks memory causes idle memory to be freed too.
    fake.0.set_memory(1 << 30);
    let mut rows = load(100).unwrap();
    let before = rows.pass(&mixture).unwrap();
    load(5000).unwrap().pass(&mixture).unwrap();
    let taken = fake.0.taken();
    fake.0.fail(Fault::once(Class::Launch, 1, code::OUT_OF_MEMORY));
    assert_eq!(rows.pass(&mixture).unwrap(), before, "though there is no smaller chunk than one tile");
    assert!(fake.0.taken() < taken, "{taken} bytes before");
    drop((rows, engine));
    fake.0.assert_clean("idle memory");
}

#[test]
fn rows_on_several_threads_share_an_engine_and_nothing_else() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let case = (300, 2, 2, false);
    let want = fit(&engine, &data_of(case), &options_of(case, 3)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _here = fake.0.enter();
                for _ in 0..3 {
                    let found = fit(&engine, &data_of(case), &options_of(case, 3)).unwrap();
                    assert_eq!((found.mixture, found.summary), (want.mixture.clone(), want.summary.clone()));
                }
            });
        }
    });
    drop(engine);
    fake.0.assert_clean("threads");
}
