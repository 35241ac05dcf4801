//! Which paths run a shape, in which order, and the reasons against the others.

use gmm_model::CovarianceType;

use super::*;
use crate::path_names::{
    CHUNKED_F64, CHUNKED_FP16, CHUNKED_SPLIT_FP16, FUSED, HOST, NEARBY, ON_DEVICE, SMALL_D, WGMMA_FP16,
    WGMMA_SPLIT_FP16,
};

const HOPPER: Limits = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };

struct Case {
    kind: CovarianceType,
    precision: Precision,
    weighted: bool,
    fast: bool,
    limits: Limits,
    forced: &'static str,
}

const F32_FULL: Case = Case {
    kind: CovarianceType::Full,
    precision: Precision::F32,
    weighted: false,
    fast: false,
    limits: HOPPER,
    forced: "",
};

impl Case {
    fn select(&self, (n, d, k): (u64, u32, u32), has: &dyn Fn(&'static str) -> bool) -> Vec<Candidate> {
        let &Case { kind, precision, weighted, fast, limits, forced } = self;
        let shape = Shape { kind, precision, n, k, d };
        select(&Request { shape, weighted, whole: true, fast, limits, has }, &ForcedPlan::parse(forced).unwrap())
    }

    /// Names of the paths that run, best first, then the host.
    fn running(&self, shape: (u64, u32, u32)) -> Vec<&'static str> {
        let all = self.select(shape, &|_| true);
        let names = all.iter().filter(|candidate| candidate.runs()).map(|candidate| candidate.path.name());
        names.chain([HOST]).collect()
    }

    fn first(&self, shape: (u64, u32, u32)) -> &'static str {
        self.running(shape)[0]
    }
}

#[test]
fn every_path_has_a_name_that_can_be_forced() {
    let mut names: Vec<_> = PATHS.iter().map(|path| path.name()).collect();
    names.dedup();
    assert_eq!(names, ON_DEVICE);
    for name in ON_DEVICE {
        assert_eq!(ForcedPlan::parse(&format!("path={name}")).unwrap().path(), Some(name));
    }
}

#[test]
fn the_best_path_that_can_runs_and_the_others_are_its_fallbacks() {
    assert_eq!(F32_FULL.running((1_000_000, 13, 8)), [FUSED, CHUNKED_SPLIT_FP16, CHUNKED_F64, HOST]);
    let chunked = [CHUNKED_SPLIT_FP16, CHUNKED_F64, HOST];
    assert_eq!(F32_FULL.running((1_000_000, 32, 64)), chunked);
    // Matrices in shared memory, in device memory, and too large for a panel in shared memory.
    assert_eq!(F32_FULL.running((1000, 200, 2)), chunked);
    assert_eq!(F32_FULL.running((1000, 300, 2)), chunked);
    assert_eq!(F32_FULL.running((1000, 180, 2)), chunked);
    assert_eq!(F32_FULL.running((1000, 512, 2)), [CHUNKED_F64, HOST]);
    assert_eq!(F32_FULL.running((1000, 800, 2)), [HOST]);
    assert_eq!(Case { kind: CovarianceType::Tied, ..F32_FULL }.running((1000, 800, 2)), [HOST]);
    // Split fp16 comes before the fused pass if it is faster, and the fused pass before chunked f64.
    assert_eq!(F32_FULL.running((100_000, 30, 30)), [CHUNKED_SPLIT_FP16, FUSED, CHUNKED_F64, HOST]);
    let f64_rows = Case { precision: Precision::F64, ..F32_FULL };
    assert_eq!(f64_rows.running((100_000, 30, 30)), [FUSED, CHUNKED_F64, HOST]);
}

#[test]
fn few_columns_run_by_their_own_kernel_however_few_components_there_are() {
    for k in [1, 3, 16, 17] {
        assert_eq!(F32_FULL.first((1_000_000, 2, k)), SMALL_D, "{k}");
    }
    assert_eq!(F32_FULL.first((1_000_000, 4, 3)), FUSED);
}

#[test]
fn rows_in_f32_leave_f64_alone_where_it_is_slow() {
    let limits = Limits { multiprocessors: 128, shared_bytes: 101_376, l2_bytes: 75_497_472, f32_to_f64: 64 };
    let gaming = Case { limits, ..F32_FULL };
    for shape in [(1_000_000, 13, 8), (1_000_000, 5, 8), (100_000, 28, 16)] {
        assert_eq!(gaming.first(shape), CHUNKED_SPLIT_FP16, "{shape:?}");
        let double = Case { precision: Precision::F64, ..gaming }.first(shape);
        assert!([FUSED, CHUNKED_F64].contains(&double), "{shape:?}: {double}");
    }
    // Half precision does not support weights, so the host's passes run, which compute in f32.
    let weighted = Case { weighted: true, kind: CovarianceType::Diag, ..gaming };
    assert_eq!(weighted.first((1000, 13, 8)), HOST);
    // Autotune also times paths that are only estimated to be slower.
    let slower = |candidate: &Candidate| candidate.excluded.is_none() && candidate.slower.is_some();
    assert!(gaming.select((1000, 13, 8), &|_| true).iter().any(|of| of.path.name() == FUSED && slower(of)));
    assert_eq!(Case { forced: "path=chunked-f64", ..gaming }.first((1000, 13, 8)), CHUNKED_F64);
}

#[test]
fn fp16_runs_where_speed_counts_more_than_precision_and_split_fp16_would() {
    let fast = Case { kind: CovarianceType::Diag, fast: true, ..F32_FULL };
    let large = (1_000_000, 128, 1024);
    let without = [CHUNKED_FP16, CHUNKED_SPLIT_FP16, CHUNKED_F64, HOST];
    assert_eq!(fast.running(large), [&[WGMMA_FP16], &without[..]].concat());
    assert_eq!(fast.running((1_000_000, 200, 1024)), without);
    assert_eq!(Case { fast: false, ..fast }.first(large), CHUNKED_SPLIT_FP16);
    assert_eq!(fast.first((1_000_000, 13, 8)), FUSED);
    let f64_rows = Case { precision: Precision::F64, ..fast }.running(large);
    assert!(f64_rows.iter().all(|name| !crate::fast::is_fast(name)), "{f64_rows:?}");
}

#[test]
fn split_fp16_of_many_columns_is_multiplied_by_warpgroups_where_they_have_room() {
    let (n, split, wide) = (1_000_000, CHUNKED_SPLIT_FP16, WGMMA_SPLIT_FP16);
    for (k, name) in [(32, split), (33, wide)] {
        assert_eq!((F32_FULL.first((n, 48, k)), F32_FULL.first((n, 192, k))), (name, name), "{k}");
    }
    for (d, name) in [(32, split), (33, wide), (129, wide), (192, wide), (193, split)] {
        assert_eq!(F32_FULL.first((n, d, 1024)), name, "{d}");
    }
    let fast = Case { fast: true, ..F32_FULL };
    assert_eq!((fast.first((n, 128, 1024)), fast.first((n, 129, 1024))), (WGMMA_FP16, CHUNKED_FP16));
    assert_eq!(Case { forced: "path=chunked-split-fp16", ..F32_FULL }.first((n, 128, 1024)), split);
    assert_eq!(Case { forced: "path=wgmma-split-fp16", ..F32_FULL }.first((n, 128, 1024)), wide);
    let limits = Limits { shared_bytes: 101_376, ..HOPPER };
    assert_eq!(Case { limits, ..F32_FULL }.first((n, 128, 1024)), split);
    assert!(!crate::fast::is_fast(wide));
}

#[test]
fn what_speaks_against_a_path_is_said() {
    let shape = Shape { kind: CovarianceType::Full, precision: Precision::F64, n: 1000, k: 2, d: 800 };
    let all = described(None, shape, false).unwrap();
    let of = |name: &str| all.iter().find(|candidate| candidate.name == name).unwrap().reason.as_str();
    assert!(of(CHUNKED_F64).contains("M-step") && of(CHUNKED_F64).contains("shared memory"), "{all:?}");
    let wide = described(None, Shape { d: 64, k: 100, ..shape }, false).unwrap();
    let of = |name: &str| wide.iter().find(|candidate| candidate.name == name).unwrap().reason.as_str();
    assert!(of(FUSED).contains("registers") && of(WGMMA_FP16).contains("float32"), "{wide:?}");
    let limits = Limits { multiprocessors: 14, shared_bytes: 65_536, l2_bytes: 1_048_576, f32_to_f64: 2 };
    let diag = Case { kind: CovarianceType::Diag, limits, ..F32_FULL };
    let none = diag.select((100, 4, 3), &|_| false);
    let fused = none.iter().find(|candidate| candidate.path.name() == FUSED).unwrap();
    assert!(fused.excluded.as_ref().unwrap().to_string().contains("8.0"));
    assert!(none.iter().all(|candidate| !candidate.runs()));
    let forced = Case { forced: "path=chunked-f64", ..diag }.select((100, 4, 3), &|_| true);
    assert!(forced.iter().all(|of| of.runs() == (of.path.name() == CHUNKED_F64)));
    let fused = forced.iter().find(|candidate| candidate.path.name() == FUSED).unwrap();
    let reason = fused.excluded.as_ref().unwrap().to_string();
    assert!(reason.contains("GMM_PLAN"), "{reason}");
}

#[test]
fn thousands_of_components_of_few_columns_are_looked_for_near_the_rows() {
    for kind in CovarianceType::ALL {
        let of = Case { kind, ..F32_FULL };
        assert_eq!(of.first((1_000_000, 3, 1000)), NEARBY, "{kind}");
        assert_ne!(of.first((1_000_000, 3, 511)), NEARBY, "{kind}: few components");
        assert_ne!(of.first((10_000, 3, 1000)), NEARBY, "{kind}: few rows");
        assert_ne!(of.first((1_000_000, 13, 1000)), NEARBY, "{kind}: many columns");
    }
}

#[test]
fn numbers_beyond_the_kernels_are_an_error() {
    let error = crate::loop_candidates(None, CovarianceType::Diag, Precision::F64, (10, 0, 3), false).unwrap_err();
    assert!(error.to_string().contains("from 1"), "{error}");
}
