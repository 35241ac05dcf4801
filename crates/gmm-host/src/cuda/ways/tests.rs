//! Which ways there are for a shape, and which runs.

use super::*;

fn names(kind: CovarianceType, shape: (usize, usize, usize)) -> Vec<(&'static str, bool)> {
    let all = loop_candidates(None, kind, Precision::F32, shape, false).unwrap();
    all.iter().map(|c| (c.name, c.runs)).collect()
}

#[test]
fn the_best_way_that_there_is_runs() {
    let fused = vec![("fused", true), ("halves", false), ("large", false), ("host", false)];
    assert_eq!(names(CovarianceType::Full, (1_000_000, 13, 8)), fused);
    let halves = vec![("fused", false), ("halves", true), ("large", false), ("host", false)];
    assert_eq!(names(CovarianceType::Full, (1_000_000, 32, 64)), halves);
    // Matrices in shared memory, in device memory, and too large for a panel of them.
    assert_eq!(names(CovarianceType::Full, (1000, 200, 2)), halves);
    assert_eq!(names(CovarianceType::Full, (1000, 300, 2)), halves);
    let wide = vec![("fused", false), ("wide-halves", false), ("halves", true), ("large", false), ("host", false)];
    assert_eq!(names(CovarianceType::Full, (1000, 180, 2)), wide);
    let large = vec![("fused", false), ("halves", false), ("large", true), ("host", false)];
    assert_eq!(names(CovarianceType::Full, (1000, 512, 2)), large);
    let host = vec![("fused", false), ("halves", false), ("large", false), ("host", true)];
    assert_eq!(names(CovarianceType::Full, (1000, 800, 2)), host);
    assert_eq!(names(CovarianceType::Tied, (1000, 800, 2)), host);
    // Halves before the pass where they are faster, the pass before two kernels over chunks.
    let both = [("halves", true), ("fused", false), ("large", false), ("host", false)];
    assert_eq!(names(CovarianceType::Full, (100_000, 30, 30)), both);
    let f64_ways = loop_candidates(None, CovarianceType::Full, Precision::F64, (100_000, 30, 30), false).unwrap();
    assert_eq!(f64_ways[0].name, "fused");
    assert!(f64_ways[0].runs);
}

#[test]
fn few_columns_run_by_their_own_kernel_however_few_components_there_are() {
    for k in [1, 3, 16, 17] {
        assert_eq!(names(CovarianceType::Full, (1_000_000, 2, k))[0], ("narrow", true), "{k}");
    }
    assert_eq!(names(CovarianceType::Full, (1_000_000, 4, 3))[0], ("fused", true));
}

#[test]
fn rows_in_f32_leave_f64_alone_where_it_is_slow() {
    let gaming = Limits { multiprocessors: 128, shared_bytes: 101_376, l2_bytes: 75_497_472, f32_to_f64: 64 };
    let first = |precision: Precision, kind, (n, d, k), asked: Asked, forced: &Forced| {
        let shape = Shape { kind, precision, n, k, d };
        let ways = match precision {
            Precision::F32 => consider::<f32>(&shape, asked, &gaming, forced, |_| true),
            Precision::F64 => consider::<f64>(&shape, asked, &gaming, forced, |_| true),
        };
        ways.into_iter().find(|(_, why_not)| why_not.is_none()).unwrap().0.name()
    };
    let (plain, free) = (Asked::default(), Forced::default());
    for shape in [(1_000_000, 13, 8), (1_000_000, 5, 8), (100_000, 28, 16)] {
        assert_eq!(first(Precision::F32, CovarianceType::Full, shape, plain, &free), "halves", "{shape:?}");
        let double = first(Precision::F64, CovarianceType::Full, shape, plain, &free);
        assert!(["fused", "large"].contains(&double), "{shape:?}: {double}");
    }
    // Halves take no weights: then the host's passes, which compute in f32.
    let weighted = Asked { weighted: true, ..plain };
    assert_eq!(first(Precision::F32, CovarianceType::Diag, (1000, 13, 8), weighted, &free), "host");
    let timed = Asked { slower_too: true, ..plain };
    assert_eq!(first(Precision::F32, CovarianceType::Full, (1000, 13, 8), timed, &free), "fused");
    let large = Forced::parse("variant=large").unwrap();
    assert_eq!(first(Precision::F32, CovarianceType::Full, (1000, 13, 8), plain, &large), "large");
}

#[test]
fn heads_run_where_speed_counts_more_than_digits_and_halves_would() {
    let names = |shape, fast| -> Vec<(&'static str, bool)> {
        let all = loop_candidates(None, CovarianceType::Diag, Precision::F32, shape, fast).unwrap();
        all.iter().map(|c| (c.name, c.runs)).collect()
    };
    let large = (1_000_000, 128, 1024);
    let without = [("heads", false), ("halves", false), ("large", false), ("host", false)];
    assert_eq!(names(large, true), [&[("fused", false), ("warpgroups", true)], &without[..]].concat());
    let more = [("heads", true), ("halves", false), ("large", false), ("host", false)];
    assert_eq!(names((1_000_000, 200, 1024), true), [&[("fused", false)], &more[..]].concat());
    assert!(names(large, false).contains(&("halves", true)));
    assert!(names((1_000_000, 13, 8), true).contains(&("fused", true)));
    let all = loop_candidates(None, CovarianceType::Diag, Precision::F64, large, true).unwrap();
    assert!(all.iter().all(|c| !c.fast), "{all:?}");
}

#[test]
fn halves_of_many_columns_are_multiplied_by_warpgroups_where_they_have_room() {
    let hopper = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };
    let with = |limits: &Limits, k, d, fast, forced: &str| {
        let shape = Shape { kind: CovarianceType::Full, precision: Precision::F32, n: 1_000_000, k, d };
        let asked = Asked { fast, ..Asked::default() };
        let ways = consider::<f32>(&shape, asked, limits, &Forced::parse(forced).unwrap(), |_| true);
        ways.into_iter().find(|(_, why_not)| why_not.is_none()).unwrap().0.name()
    };
    let first = |limits: &Limits, d, fast, forced: &str| with(limits, 1024, d, fast, forced);
    for (k, way) in [(32, "halves"), (33, "wide-halves")] {
        assert_eq!((with(&hopper, k, 48, false, ""), with(&hopper, k, 192, false, "")), (way, way), "{k}");
    }
    for (d, way) in [(32, "halves"), (33, "wide-halves"), (129, "wide-halves"), (192, "wide-halves"), (193, "halves")] {
        assert_eq!(first(&hopper, d, false, ""), way, "{d}");
    }
    assert_eq!((first(&hopper, 128, true, ""), first(&hopper, 129, true, "")), ("warpgroups", "heads"));
    assert_eq!(first(&hopper, 128, false, "variant=halves"), "halves");
    assert_eq!(first(&hopper, 128, false, "variant=warpgroups"), "wide-halves");
    assert_eq!(first(&Limits { shared_bytes: 101_376, ..hopper }, 128, false, ""), "halves");
    assert!(!crate::fast::is_fast("wide-halves"));
}

#[test]
fn what_speaks_against_a_way_is_said() {
    let all = loop_candidates(None, CovarianceType::Full, Precision::F64, (1000, 800, 2), false).unwrap();
    assert!(all[0].reason.contains("registers") && all[1].reason.contains("shared memory"), "{all:?}");
    let none = |_: &'static str| false;
    let shape = Shape { kind: CovarianceType::Diag, precision: Precision::F32, n: 100, k: 3, d: 4 };
    let limits = Limits { multiprocessors: 14, shared_bytes: 65_536, l2_bytes: 1_048_576, f32_to_f64: 2 };
    let ways = consider::<f32>(&shape, Asked::default(), &limits, &Forced::default(), none);
    assert!(ways[0].1.as_ref().unwrap().contains("8.0") && ways[3] == (Way::Host, None), "{ways:?}");
    let large = Forced::parse("variant=large").unwrap();
    let ways = consider::<f32>(&shape, Asked::default(), &limits, &large, |_| true);
    assert!(ways[0].1.as_ref().unwrap().contains("GMM_PLAN") && ways[2].1.is_none(), "{ways:?}");
}

#[test]
fn numbers_beyond_the_kernels_are_an_error() {
    let error = loop_candidates(None, CovarianceType::Diag, Precision::F64, (10, 0, 3), false).unwrap_err();
    assert!(error.to_string().contains("from 1"), "{error}");
}
