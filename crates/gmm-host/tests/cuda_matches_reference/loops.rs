//! The EM loop on the device: one iteration against the reference, and repeats that must give the same bits.

use std::ops::ControlFlow;

use gmm_host::{CudaEngine, EmOptions, EmRun, Engine, ReferenceEngine, Resident, loop_candidates, run_em, shift};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision};

use crate::Bench;
use crate::compare::{Tally, allowed, size};
use crate::data::LoopCase;
use crate::hand_over::Losses;

/// What is added to the covariances' diagonals. From these starts some components of many columns get fewer rows than
/// columns (32 rows of 160 columns). Then it is their smallest pivot, and has to exceed the rounding of sums in f32.
fn reg_covar(case: &LoopCase) -> f64 {
    if case.precision == Precision::F32 && case.d > 64 { 1e-3 } else { 1e-6 }
}

fn em(rows: &mut dyn Resident, case: &LoopCase, max_iter: usize) -> EmRun {
    em_with(rows, case, max_iter, (false, reg_covar(case)))
}

fn em_with(rows: &mut dyn Resident, case: &LoopCase, max_iter: usize, (fast, reg_covar): (bool, f64)) -> EmRun {
    let options = EmOptions { tol: 0.0, max_iter, reg_covar, precision: case.precision, autotune: false, fast };
    run_em(rows, case.start(), &options, 0, &mut |_| ControlFlow::Continue(())).expect("a run")
}

/// Whether the device has a loop for the shape: kernels, and enough shared memory.
fn has_a_loop(gpu: &CudaEngine, &LoopCase { kind, precision, n, d, k, .. }: &LoopCase) -> bool {
    let ways = loop_candidates(Some(gpu), kind, precision, (n, d, k), false).expect("a shape");
    ways.iter().any(|way| way.runs && way.name != "host")
}

/// Means about `at` and covariances, each times the component's weight: the moments, which the rows determine.
fn moments(mixture: &Mixture, at: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (k, d) = mixture.means().dim();
    let weight = |c: usize| mixture.weights()[c];
    let first = (0..k * d).map(|i| weight(i / d) * (mixture.means()[[i / d, i % d]] - at[i % d])).collect();
    let second = match mixture.covariances() {
        Covariances::Full(all) => all.iter().enumerate().map(|(i, v)| weight(i / (d * d)) * v).collect(),
        Covariances::Tied(one) => one.iter().copied().collect(),
        Covariances::Diag(all) => all.iter().enumerate().map(|(i, v)| weight(i / d) * v).collect(),
        Covariances::Spherical(all) => all.iter().enumerate().map(|(i, v)| weight(i) * v).collect(),
    };
    (first, second)
}

/// Compares one iteration from the same start on both engines, and repeats three iterations on the device.
fn check(gpu: &CudaEngine, oracle: &dyn Engine, tally: &mut Tally, case: &LoopCase, data: &Dataset) {
    tally.cases += 1;
    let &LoopCase { kind, precision, n, d, k, offset } = case;
    let what = format!("{kind} {precision} n={n} d={d} k={k} offset={offset:e}");
    let at = shift::of_data(data);
    let mut fast = gpu.load(data, precision, &at).expect("room on the device");
    let mut slow = oracle.load(data, Precision::F64, &at).expect("room on the host");
    let (got, want) = (em(fast.as_mut(), case, 1), em(slow.as_mut(), case, 1));
    let looped = got.on_device.is_some_and(|on| on.iterations == 1);
    let losses = Losses::of(&case.start(), (&want.mixture, &want.empty), &at, reg_covar(case), precision);
    let excused = losses.may_hand_over() || !has_a_loop(gpu, case);
    tally.expect(looped || excused, || format!("{what}: the host had to do it, and nothing was lost: {losses:?}"));
    let tolerance = allowed(precision);
    let ll = size(&want.trace).max(1.0);
    tally.close(&got.trace, &want.trace, tolerance, ll, &format!("{what}: mean log-likelihood"));
    let (a, b) = (got.mixture.weights().to_vec(), want.mixture.weights().to_vec());
    tally.close(&a, &b, tolerance, 1.0, &format!("{what}: weights"));
    let (a, b) = (moments(&got.mixture, &at), moments(&want.mixture, &at));
    let second = size(&b.1);
    // Means are stored about 0, which rounds them to the precision at `offset`.
    let first = second.sqrt().max(size(&b.0)) + 2.0 * f64::EPSILON * offset / tolerance;
    tally.close(&a.0, &b.0, tolerance, first, &format!("{what}: means"));
    tally.close(&a.1, &b.1, tolerance, second, &format!("{what}: covariances"));
    tally.expect(got.empty == want.empty, || format!("{what}: empty {:?}, want {:?}", got.empty, want.empty));
    let mut thrice = || EmRun { on_device: None, ..em(fast.as_mut(), case, 3) };
    let first = thrice();
    tally.expect(thrice() == first, || format!("{what}: a repeat differs"));
}

fn every_kind(gpu: &CudaEngine, oracle: &dyn Engine, tally: &mut Tally, sizes: &[(usize, usize, usize)], offset: f64) {
    for &(n, d, k) in sizes {
        for precision in [Precision::F32, Precision::F64] {
            // In f32 rows at 1e4 have only about four significant digits of spread; both engines get the same rows.
            let offset = if precision == Precision::F32 { offset.min(1e4) } else { offset };
            let data = LoopCase { kind: CovarianceType::Full, precision, n, d, k, offset }.data();
            for kind in CovarianceType::ALL {
                check(gpu, oracle, tally, &LoopCase { kind, precision, n, d, k, offset }, &data);
            }
        }
    }
}

pub(crate) fn small(bench: &Bench, tally: &mut Tally) {
    let mut sizes: Vec<(usize, usize, usize)> =
        vec![(1, 1, 1), (17, 3, 2), (301, 9, 5), (600, 2, 20), (900, 33, 5), (700, 17, 12), (500, 16, 30)];
    // Blocks of eight warps that process one tile of rows each; `large` has more tiles per block.
    sizes.extend([(1200, 14, 70), (700, 30, 20), (500, 31, 10)]);
    // Matrices in device memory, of two and three panels.
    sizes.extend([(400, 57, 2), (500, 65, 3)]);
    if !bench.quick {
        sizes.extend((2..=300).step_by(7).map(|n| (n, 3, 2)));
        sizes.extend((1..=34).chain([47, 48, 49, 63, 64, 65, 97, 127, 128, 129]).map(|d| (100 + 13 * d, d, 3)));
        sizes.extend((1..=34).chain([63, 64, 65, 127, 128, 129, 300]).map(|k| (100 + 37 * k, 4, k)));
        // Sums shared by the warps of a block, for the numbers of columns and components of each kernel.
        sizes.extend([(13, 33), (15, 47), (16, 17), (16, 48), (20, 30), (24, 16), (28, 12)].map(|(d, k)| (1501, d, k)));
        sizes.extend(
            [(31, 9), (30, 60), (40, 16), (40, 30), (64, 32), (80, 16), (96, 9)].map(|(d, k)| (4 * d * k, d, k)),
        );
        sizes.extend([(23, 20), (27, 25), (30, 30), (36, 8), (38, 16)].map(|(d, k)| (5 * d * k, d, k)));
        sizes.extend([(16, 41), (16, 64), (16, 80), (10, 70)].map(|(d, k)| (1503, d, k)));
        // Few columns, up to the largest number of components of their kernels and beyond.
        sizes.extend([17, 40, 64, 65, 105, 128, 129].map(|k| (91 + 30 * k, 2, k)));
        sizes.extend([(17, 1), (192, 1), (193, 1), (17, 3), (96, 3), (97, 3)].map(|(k, d)| (91 + 30 * k, d, k)));
    }
    every_kind(&bench.gpu, &ReferenceEngine, tally, &sizes, 0.0);
}

pub(crate) fn offsets(bench: &Bench, tally: &mut Tally) {
    for offset in [1e2, 1e4, 1e8] {
        every_kind(&bench.gpu, &ReferenceEngine, tally, &[(401, 5, 3), (1002, 17, 4), (2003, 2, 30)], offset);
    }
}

pub(crate) fn large(bench: &Bench, tally: &mut Tally) {
    let sizes: &[(usize, usize, usize)] = if bench.quick {
        &[(20_001, 3, 4), (20_001, 30, 20)]
    } else {
        &[
            // More than one tile of 128 rows per block of eight warps, with one block per multiprocessor.
            (20_001, 14, 60),
            (40_003, 16, 80),
            (20_005, 23, 20),
            (40_007, 27, 25),
            (20_009, 31, 10),
            (40_011, 35, 16),
            (20_013, 40, 9),
            (1_000_000, 13, 8),
            (100_001, 30, 30),
            (6501, 33, 40),
            // Full covariances whose matrices are in device memory, in fp16 or, from about 400 columns on, in f64.
            (3001, 240, 3),
            (2003, 256, 2),
            (2503, 500, 2),
            (20_001, 65, 64),
            // Without weights: f32 rows with full covariances of up to 192 columns then use wgmma.
            (30_002, 48, 64),
            (30_006, 64, 70),
            (60_008, 97, 65),
            (80_010, 128, 64),
            (40_012, 129, 64),
            (60_014, 160, 40),
            (40_016, 192, 33),
            (40_004, 200, 34),
            (60_018, 256, 34),
            (300_000, 32, 64),
            (1_000_000, 2, 100),
            (3_000_000, 16, 16),
        ]
    };
    every_kind(&bench.gpu, &bench.cpu, tally, sizes, 0.0);
}

/// The allowed relative error: eight times the rounding error of fp16.
const ALLOWED_IN_HEADS: f64 = 8.0 / 2048.0;

/// Compares one iteration in fp16 with one in full precision, and repeats three iterations.
fn check_fast(bench: &Bench, tally: &mut Tally, case: &LoopCase, data: &Dataset) -> Option<&'static str> {
    tally.cases += 1;
    let &LoopCase { kind, precision, n, d, k, .. } = case;
    let what = format!("{kind} n={n} d={d} k={k}, fast");
    let at = shift::of_data(data);
    let mut rows = bench.gpu.load(data, precision, &at).expect("room on the device");
    let mut slow = bench.cpu.load(data, Precision::F64, &at).expect("room on the host");
    // A regularisation of 0.1, because components may have fewer rows than columns.
    let mut fast = |max_iter: usize| em_with(rows.as_mut(), case, max_iter, (true, 0.1));
    let (got, want) = (fast(1), em_with(slow.as_mut(), case, 1, (false, 0.1)));
    let ll = size(&want.trace).max(1.0);
    tally.close(&got.trace, &want.trace, ALLOWED_IN_HEADS, ll, &format!("{what}: mean log-likelihood"));
    let (a, b) = (got.mixture.weights().to_vec(), want.mixture.weights().to_vec());
    tally.close(&a, &b, ALLOWED_IN_HEADS, 1.0, &format!("{what}: weights"));
    let (a, b) = (moments(&got.mixture, &at), moments(&want.mixture, &at));
    let second = size(&b.1);
    tally.close(&a.0, &b.0, ALLOWED_IN_HEADS, second.sqrt().max(size(&b.0)), &format!("{what}: means"));
    tally.close(&a.1, &b.1, ALLOWED_IN_HEADS, second, &format!("{what}: covariances"));
    let mut thrice = || EmRun { on_device: None, ..fast(3) };
    let first = thrice();
    tally.expect(thrice() == first, || format!("{what}: a repeat differs"));
    got.on_device.map(|on| on.path)
}

pub(crate) fn fast(bench: &Bench, tally: &mut Tally) {
    // Paths with wgmma: every padded number of features, slightly more components than one block handles, rows that
    // leave warpgroups half empty, and, in the last case, several chunks.
    let mut sizes = vec![(2002, 33, 70), (1500, 100, 64)];
    if !bench.quick {
        sizes.extend([16, 40, 47, 64, 65, 80, 97, 120, 127, 128].map(|d| (3000 + 18 * d, d, 64 + d / 4)));
        sizes.extend([(20_002, 48, 129), (60_006, 64, 300), (30_012, 128, 260), (340_002, 33, 512)]);
    }
    let mut ways = Vec::new();
    for (n, d, k) in sizes {
        let precision = Precision::F32;
        let data = LoopCase { kind: CovarianceType::Full, precision, n, d, k, offset: 0.0 }.data();
        for kind in CovarianceType::ALL {
            ways.push(check_fast(bench, tally, &LoopCase { kind, precision, n, d, k, offset: 0.0 }, &data));
        }
    }
    // Some cases lose too much precision and fall back to other paths, some are a single pass. On Hopper at least a
    // third must use wgmma.
    let count = |name| ways.iter().filter(|way| **way == Some(name)).count();
    let (by_warpgroups, all) = (count("wgmma-fp16"), ways.len());
    println!("   {by_warpgroups} of {all} by wgmma-fp16, {} by chunked-fp16", count("chunked-fp16"));
    let best = bench.gpu.description().contains("sm_90a");
    tally.expect(!best || 3 * by_warpgroups >= all, || format!("{by_warpgroups} of {all} by wgmma-fp16: {ways:?}"));
}
