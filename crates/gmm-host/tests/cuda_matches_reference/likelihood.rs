//! Likelihoods of many mixtures at once, their gradients, and steps of one component.

use gmm_host::{ComponentCache, ComponentChange, CudaEngine, Engine, Likelihood, ReferenceEngine};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};

use crate::compare::{Tally, allowed};
use crate::{Bench, common, data};

/// Different mixtures of one shape; every third is further away.
fn sets(kind: CovarianceType, k: usize, d: usize, count: usize) -> Vec<Mixture> {
    let one = |i: usize| common::mixture(kind, k, d, if i % 3 == 2 { 0.5 } else { 0.0 }, 1.0, (i + k + d) as u64);
    (0..count).map(one).collect()
}

/// Batches, single values and gradients on the device against another engine's in f64.
fn check(
    (gpu, slow): (&dyn Engine, &dyn Engine),
    tally: &mut Tally,
    kind: CovarianceType,
    (n, d, k): (usize, usize, usize),
    data: &Dataset,
    count: usize,
) {
    let sets = sets(kind, k, d, count);
    let mut other = Likelihood::new(slow, data, Precision::F64).expect("rows");
    // The other engine is slow: compare only part of a batch.
    let some = [0, count / 2, count - 1];
    let truth: Vec<f64> = some.iter().map(|&i| other.value(&sets[i]).expect("a value")).collect();
    let (_, want) = other.value_and_gradient(&sets[0]).expect("a gradient");
    for precision in [Precision::F32, Precision::F64] {
        tally.cases += 1;
        let what = format!("{kind} {precision} n={n} d={d} k={k}, {count} sets");
        let mut fast = Likelihood::new(gpu, data, precision).expect("rows");
        let all = fast.batch(&sets).expect("values");
        let got: Vec<f64> = some.iter().map(|&i| all[i]).collect();
        let total = data.total_weight();
        let scale = truth.iter().fold(total, |m, v| m.max(v.abs()));
        tally.close(&got, &truth, allowed(precision), scale, &what);
        for &i in &some {
            let alone = fast.value(&sets[i]).expect("a value");
            // A batch of this size may use another kernel.
            tally.close(&[alone], &all[i..=i], allowed(precision), scale, &format!("{what}: set {i} alone"));
        }
        let few = fast.batch(&sets[..count.min(11)]).expect("values");
        tally.expect(few == all[..few.len()], || format!("{what}: other values in a smaller batch"));
        tally.expect(fast.batch(&sets).expect("values") == all, || format!("{what}: not the same bits again"));
        let (value, got) = fast.value_and_gradient(&sets[0]).expect("a gradient");
        tally.close(&[value], &truth[..1], allowed(precision), scale, &format!("{what}: value with gradient"));
        // Gradients cancel: their terms have the size of the weights times a row's distance in standard deviations.
        let flat = |g: &ndarray::Array2<f64>| g.iter().copied().collect::<Vec<f64>>();
        let near = |got: &[f64], want: &[f64], part: &str, tally: &mut Tally| {
            let scale = want.iter().fold(total, |m, v| m.max(v.abs()));
            tally.close(got, want, allowed(precision), scale, &format!("{what}: {part}"));
        };
        near(&got.log_weights.to_vec(), &want.log_weights.to_vec(), "log-weights", tally);
        near(&flat(&got.means), &flat(&want.means), "means", tally);
        near(&got.scales, &want.scales, "scales", tally);
    }
}

fn weighted(n: usize, d: usize, with: bool) -> Dataset {
    let data = data::dataset(n, d, 47);
    if with { data.with_weights(data::weights(n)).expect("weights") } else { data }
}

/// Every kernel, against the reference.
pub(crate) fn small(bench: &Bench, tally: &mut Tally) {
    let sizes: &[(usize, usize, usize)] = if bench.quick {
        &[(203, 3, 4), (1000, 13, 8)]
    } else {
        &[
            (1, 1, 1),
            (203, 3, 4),
            (517, 4, 9),
            (517, 5, 8),
            (517, 8, 3),
            (517, 9, 17),
            (517, 12, 8),
            (2001, 13, 8),
            (2001, 14, 8),
            (2001, 15, 2),
            (2001, 16, 20),
            (517, 17, 5),
            (517, 31, 5),
            (517, 40, 3),
            (517, 2, 100),
            // Gradients by a pass in which the eight warps of a block share its sums.
            (1203, 16, 64),
            (1203, 13, 80),
            (1203, 22, 20),
            (1203, 27, 25),
            (1203, 30, 30),
            (517, 36, 9),
        ]
    };
    for &(n, d, k) in sizes {
        for kind in CovarianceType::ALL {
            check((&bench.gpu, &ReferenceEngine), tally, kind, (n, d, k), &weighted(n, d, d % 2 == 0), 13);
        }
    }
    unweighted(&bench.gpu, tally, if bench.quick { &UNWEIGHTED[..1] } else { &UNWEIGHTED });
}

/// Sizes for rows without weights: for f32 rows with diagonal and spherical covariances there are special kernels, for
/// 9 to 16 components, for 33 to 64, and for even numbers of columns.
const UNWEIGHTED: [(usize, usize, usize); 4] = [(517, 7, 12), (517, 11, 50), (517, 8, 5), (517, 12, 40)];

fn unweighted(gpu: &dyn Engine, tally: &mut Tally, sizes: &[(usize, usize, usize)]) {
    for &(n, d, k) in sizes {
        for kind in CovarianceType::ALL {
            check((gpu, &ReferenceEngine), tally, kind, (n, d, k), &weighted(n, d, false), 13);
        }
    }
}

/// The kernel modules of older GPUs.
pub(crate) fn every_module(bench: &Bench, tally: &mut Tally) {
    for module in ["sm_75", "sm_80"] {
        match CudaEngine::with_module(0, module) {
            Ok(gpu) => unweighted(&gpu, tally, &[&[(203, 3, 4), (1000, 13, 8)], &UNWEIGHTED[..]].concat()),
            Err(why) => println!("   {module} was not tried: {why}"),
        }
    }
    tally.expect(bench.quick || tally.cases > 0, || "no module but the best was tried".to_owned());
}

/// Large sizes, against the CPU engine.
pub(crate) fn large(bench: &Bench, tally: &mut Tally) {
    let sizes: &[(usize, usize, usize)] =
        if bench.quick { &[(20_000, 13, 8)] } else { &[(1_000_000, 13, 8), (300_001, 16, 16), (1_000_000, 2, 100)] };
    for &(n, d, k) in sizes {
        for kind in CovarianceType::ALL {
            check((&bench.gpu, &bench.cpu), tally, kind, (n, d, k), &weighted(n, d, k == 16), 64);
        }
    }
}

/// A step of one component, against a new cache and against a likelihood value.
pub(crate) fn components(bench: &Bench, tally: &mut Tally) {
    let (n, d, k) = if bench.quick { (2000, 3, 4) } else { (200_000, 5, 6) };
    let data = weighted(n, d, true);
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            tally.cases += 1;
            let what = format!("{kind} {precision}");
            let mut likelihood = Likelihood::new(&bench.gpu, &data, precision).expect("rows");
            let mut cache = ComponentCache::new(&mut likelihood, sets(kind, k, d, 1).remove(0)).expect("a cache");
            let mean: Vec<f64> = (0..d).map(|j| 0.1 * j as f64).collect();
            let step = ComponentChange { mean: Some(&mean), ..ComponentChange::default() };
            let value = cache.update_component(&mut likelihood, k - 1, step).expect("a step");
            let fresh = ComponentCache::new(&mut likelihood, cache.mixture().clone()).expect("a cache");
            tally.expect(fresh.value() == value, || format!("{what}: {value}, a new cache {}", fresh.value()));
            let whole = likelihood.value(cache.mixture()).expect("a value");
            tally.close(&[value], &[whole], allowed(precision), whole.abs(), &what);
            let (mut kept, mut anew) = (vec![f64::NAN; n], vec![f64::NAN; n]);
            cache.per_row(&mut likelihood, &mut kept).expect("rows");
            likelihood.per_row(cache.mixture(), &mut anew).expect("rows");
            let scale = anew.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
            tally.close(&kept, &anew, allowed(precision), scale, &format!("{what}, rows"));
            let equal = vec![1.0 / k as f64; k];
            let value = cache.update_weights(&mut likelihood, &equal).expect("weights");
            let fresh = ComponentCache::new(&mut likelihood, cache.mixture().clone()).expect("a cache");
            tally.expect(fresh.value() == value, || format!("{what}, weights: {value}, a new cache {}", fresh.value()));
            let all = cache.update(&mut likelihood, sets(kind, k, d, 2).remove(1)).expect("a step of all");
            let fresh = ComponentCache::new(&mut likelihood, cache.mixture().clone()).expect("a cache");
            tally.expect(fresh.value() == all, || format!("{what}, all: {all}, a new cache {}", fresh.value()));
            tally.expect(cache.undo() && cache.value() == value, || format!("{what}: not taken back"));
        }
    }
}
