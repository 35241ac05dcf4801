//! Small sizes, against the naive reference.

use gmm_host::{CudaEngine, Engine, ReferenceEngine, shift};
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::compare::{Tally, allowed};
use crate::{Bench, common, data};

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::F64];

/// Location and scale of the rows.
#[derive(Clone, Copy)]
struct LocationScale {
    offset: f64,
    scale: f64,
}

const HERE: LocationScale = LocationScale { offset: 0.0, scale: 1.0 };

fn check(
    gpu: &dyn Engine,
    tally: &mut Tally,
    kind: CovarianceType,
    precision: Precision,
    (n, d, k): (usize, usize, usize),
    LocationScale { offset, scale }: LocationScale,
) {
    let seed = (n * 1_000_003 + d * 1009 + k) as u64;
    let mixture = common::mixture(kind, k, d, offset, scale, seed);
    let mut rows = common::rows(n, d, offset, scale, seed);
    if precision == Precision::F32 {
        rows.mapv_inplace(|v| f64::from(v as f32));
    }
    let mut data = Dataset::new(rows).expect("finite rows");
    if n % 2 == 1 {
        data = data.with_weights(data::weights(n)).expect("weights");
    }
    let at = shift::of_data(&data);
    let mut fast = gpu.load(&data, precision, &at).expect("room on the device");
    let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).expect("room on the host");
    let what = format!("{kind} {precision} n={n} d={d} k={k} offset={offset:e} scale={scale:e}");
    tally.passes((fast.as_mut(), slow.as_mut()), data.weights(), &mixture, allowed(precision), &what);
}

fn every_kind(gpu: &dyn Engine, tally: &mut Tally, sizes: &[(usize, usize, usize)]) {
    for &size in sizes {
        for kind in CovarianceType::ALL {
            for precision in PRECISIONS {
                check(gpu, tally, kind, precision, size, HERE);
            }
        }
    }
}

pub(crate) fn every_row_count(bench: &Bench, tally: &mut Tally) {
    let ns = if bench.quick { vec![1, 2, 31, 33, 127, 128, 129, 300] } else { (1..=300).collect() };
    every_kind(&bench.gpu, tally, &ns.into_iter().map(|n| (n, 3, 2)).collect::<Vec<_>>());
}

pub(crate) fn every_dimension(bench: &Bench, tally: &mut Tally) {
    let mut ds: Vec<usize> = if bench.quick { vec![1, 8, 9, 16, 17, 33] } else { (1..=70).collect() };
    ds.extend(if bench.quick { vec![65] } else { vec![95, 96, 97, 127, 128, 129, 255, 256] });
    every_kind(&bench.gpu, tally, &ds.into_iter().map(|d| (137, d, 3)).collect::<Vec<_>>());
}

pub(crate) fn every_component_count(bench: &Bench, tally: &mut Tally) {
    let mut ks: Vec<usize> = if bench.quick { vec![1, 2, 15, 17] } else { (1..=40).collect() };
    ks.extend(if bench.quick { vec![40] } else { vec![63, 64, 65, 127, 128, 129, 255, 256, 257, 300] });
    every_kind(&bench.gpu, tally, &ks.into_iter().map(|k| (391, 4, k)).collect::<Vec<_>>());
}

pub(crate) fn around_tiles(bench: &Bench, tally: &mut Tally) {
    let mut sizes = vec![(255, 13, 8), (257, 7, 17), (1024, 2, 5), (5000, 13, 8)];
    if !bench.quick {
        sizes.extend([(16_383, 5, 3), (16_385, 16, 16), (40_001, 31, 7), (3000, 33, 40)]);
    }
    every_kind(&bench.gpu, tally, &sizes);
}

pub(crate) fn offsets_and_scales(bench: &Bench, tally: &mut Tally) {
    for kind in CovarianceType::ALL {
        for precision in PRECISIONS {
            let offsets = if precision == Precision::F32 { [1e2, 1e4] } else { [1e4, 1e8] };
            for (n, d, k) in [(401, 5, 3), (1001, 17, 4)] {
                for offset in offsets {
                    check(&bench.gpu, tally, kind, precision, (n, d, k), LocationScale { offset, scale: 1.0 });
                }
                for scale in [1e-8, 1e8] {
                    check(&bench.gpu, tally, kind, precision, (n, d, k), LocationScale { offset: 0.0, scale });
                }
            }
        }
    }
}

pub(crate) fn every_module(bench: &Bench, tally: &mut Tally) {
    for module in ["sm_75", "sm_80"] {
        match CudaEngine::with_module(0, module) {
            Ok(gpu) => every_kind(&gpu, tally, &[(1, 1, 1), (129, 3, 2), (300, 17, 5), (1000, 33, 20), (200, 100, 3)]),
            Err(why) => println!("   {module} was not tried: {why}"),
        }
    }
    tally.expect(bench.quick || tally.cases > 0, || "no module but the best was tried".to_owned());
}

/// If every density underflows, the log density is −∞ and the responsibilities are the weights.
pub(crate) fn underflow(bench: &Bench, tally: &mut Tally) {
    for kind in CovarianceType::ALL {
        for precision in PRECISIONS {
            let far = if precision == Precision::F32 { 1e17 } else { 1e150 };
            let mut rows = common::rows(200, 3, 0.0, 1e-3, 5);
            rows[[7, 1]] = far;
            let data = Dataset::new(rows).expect("finite rows");
            // So narrow that the square of the distance to the far row overflows.
            let mixture = common::mixture(kind, 4, 3, 0.0, 1e-3, 6);
            let mut fast = bench.gpu.load(&data, precision, &[0.0; 3]).expect("room on the device");
            let mut slow = ReferenceEngine.load(&data, Precision::F64, &[0.0; 3]).expect("room on the host");
            let what = format!("{kind} {precision} far row");
            tally.cases += 1;
            let run = |rows: &mut dyn gmm_host::Resident| {
                let (mut densities, mut r) = (vec![f64::NAN; 200], vec![f64::NAN; 800]);
                let want = gmm_host::EvaluateOptions {
                    log_densities: Some(&mut densities),
                    responsibilities: Some((&mut r).into()),
                    labels: None,
                };
                rows.evaluate(&mixture, want).expect("an evaluation");
                (densities, r)
            };
            let (got, want) = (run(fast.as_mut()), run(slow.as_mut()));
            let near = |v: &[f64], width: usize| -> Vec<f64> {
                v.chunks_exact(width).enumerate().filter(|(i, _)| *i != 7).flat_map(|(_, c)| c.to_vec()).collect()
            };
            tally.close(&near(&got.0, 1), &near(&want.0, 1), allowed(precision), 100.0, &what);
            tally.close(&near(&got.1, 4), &near(&want.1, 4), allowed(precision), 100.0, &what);
            if precision == Precision::F32 {
                // The square overflows in f32, but not in the reference's f64.
                tally.expect(got.0[7] == f64::NEG_INFINITY, || format!("{what}: log density {}", got.0[7]));
                let weights = mixture.weights().to_vec();
                tally.close(&got.1[28..32], &weights, 1e-6, 1.0, &format!("{what}: responsibilities are weights"));
            }
            let sum: f64 = got.1[28..32].iter().sum();
            tally.close(&[sum], &[1.0], allowed(precision), 1.0, &format!("{what}: sum"));
        }
    }
}

/// Rows are loaded on one thread, and used and dropped on others, several at a time.
pub(crate) fn threads(bench: &Bench, tally: &mut Tally) {
    let mixture = common::mixture(CovarianceType::Full, 5, 7, 0.0, 1.0, 1);
    let data = data::dataset(20_000, 7, 3);
    let alone = bench.gpu.load(&data, Precision::F32, &[0.0; 7]).and_then(|mut r| r.pass(&mixture)).expect("a pass");
    let rows: Vec<_> = (0..4).map(|_| bench.gpu.load(&data, Precision::F32, &[0.0; 7]).expect("room")).collect();
    let found: Vec<_> = std::thread::scope(|scope| {
        let mixture = &mixture;
        let all: Vec<_> = rows
            .into_iter()
            .map(|mut rows| {
                scope.spawn(move || {
                    (0..10).for_each(|_| drop(rows.pass(mixture)));
                    rows.pass(mixture).expect("a pass")
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().expect("a thread")).collect()
    });
    for one in found {
        tally.cases += 1;
        tally.expect(one == alone, || "another thread's pass has other bits".to_owned());
    }
}
