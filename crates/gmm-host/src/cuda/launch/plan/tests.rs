//! Plans stay within the device's limits, and can be forced.

use gmm_model::Precision;

use super::*;

const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };
const TURING: Limits = Limits { multiprocessors: 14, shared_bytes: 65_536, l2_bytes: 1_048_576, f32_to_f64: 32 };

fn shape(kind: CovarianceType, precision: Precision, n: u64, k: u32, d: u32) -> Shape {
    Shape { kind, precision, n, k, d }
}

fn chosen(shape: &Shape, limits: &Limits) -> Plan {
    plan(shape, limits, &ForcedPlan::default(), u64::MAX - TILE, false)
}

#[test]
fn every_plan_is_within_the_limits() {
    for limits in [H200, TURING] {
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                for (n, k, d) in [(1, 1, 1), (272, 2, 2), (1_000_000, 8, 13), (10_000_000, 1024, 128), (5000, 300, 256)]
                {
                    let shape = shape(kind, precision, n, k, d);
                    let plan = chosen(&shape, &limits);
                    assert!(plan.chunk.is_multiple_of(TILE) && plan.chunk >= TILE, "{shape:?} {plan:?}");
                    assert!(plan.chunk <= tiles(n) * TILE && plan.blocks >= 1, "{shape:?} {plan:?}");
                    assert!((1..=MOST_SPLITS).contains(&plan.splits), "{shape:?} {plan:?}");
                    assert!(u64::from(plan.splits) <= plan.chunk / TILE, "{shape:?} {plan:?}");
                    let solved = u64::from(solved_columns(d)) * TILE * shape.number_bytes();
                    assert!(plan.solved == Solved::Scratch || solved + 32 <= u64::from(limits.shared_bytes));
                }
            }
        }
    }
}

#[test]
fn responsibilities_of_a_chunk_stay_in_the_cache() {
    let plan = chosen(&shape(CovarianceType::Full, Precision::F32, 10_000_000, 16, 16), &H200);
    assert!(plan.chunk * 16 * 4 <= 62_914_560 / 2 + 128 * 64, "{plan}");
}

#[test]
fn chunks_of_an_evaluation_are_longer_unless_they_take_too_much_memory() {
    let of = |k, is_evaluation| {
        let shape = shape(CovarianceType::Full, Precision::F32, 10_000_000, k, 16);
        plan(&shape, &H200, &ForcedPlan::default(), u64::MAX - TILE, is_evaluation).chunk
    };
    assert!(of(16, true) > 2 * of(16, false) && of(16, true) * 16 * 4 <= EVALUATION_BYTES + 128 * 64);
    assert_eq!(of(1000, true), of(1000, false));
}

#[test]
fn chunks_of_a_data_set_are_even() {
    let plan = chosen(&shape(CovarianceType::Full, Precision::F32, 1_000_001, 32, 4), &H200);
    let count = 1_000_001_u64.div_ceil(plan.chunk);
    assert!(count * plan.chunk - 1_000_001 < count * TILE, "{plan}");
}

#[test]
fn solved_columns_that_do_not_fit_go_to_scratch() {
    let at = |d, precision| chosen(&shape(CovarianceType::Full, precision, 1000, 3, d), &H200).solved;
    assert_eq!(at(32, Precision::F64), Solved::Shared);
    assert_eq!(at(256, Precision::F64), Solved::Scratch);
    assert_eq!(at(8, Precision::F32), Solved::Shared);
}

#[test]
fn less_memory_means_smaller_chunks() {
    let shape = shape(CovarianceType::Diag, Precision::F32, 1_000_000, 64, 8);
    let plan = plan(&shape, &H200, &ForcedPlan::default(), 1000, false);
    assert_eq!(plan.chunk, 1024);
    assert!(plan.splits <= 8 && plan.blocks == 8, "{plan}");
}

#[test]
fn the_same_shape_gets_the_same_plan() {
    let shape = shape(CovarianceType::Tied, Precision::F64, 123_456, 7, 20);
    assert_eq!(chosen(&shape, &H200), chosen(&shape, &H200));
}

#[test]
fn a_plan_can_be_forced_and_reads_back_what_it_prints() {
    let shape = shape(CovarianceType::Full, Precision::F32, 100_000, 3, 20);
    let forced = ForcedPlan::parse("chunk=1000, splits=2,blocks=5,solved=scratch").unwrap();
    let plan_ = plan(&shape, &H200, &forced, u64::MAX - TILE, false);
    assert_eq!(plan_, Plan { solved: Solved::Scratch, chunk: 1024, blocks: 5, splits: 2, rows_of_thread: 1 });
    assert_eq!(plan(&shape, &H200, &ForcedPlan::parse(&plan_.to_string()).unwrap(), u64::MAX - TILE, false), plan_);
}

#[test]
fn a_forced_plan_that_makes_no_sense_says_what_would() {
    for text in ["chunk=0", "chunk", "tile=3", "solved=there", "splits=-1", "instance=small"] {
        let error = ForcedPlan::parse(text).unwrap_err().to_string();
        assert!(error.contains("GMM_PLAN") && error.contains("chunk=4096"), "{text}: {error}");
    }
}
