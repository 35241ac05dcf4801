//! Passes by a single kernel, for every instance of it.

use gmm_kernels::em::fused::Instance;
use gmm_kernels::layout::Kind;
use gmm_model::CovarianceType;

use super::check;
use super::harness::{Options, PLAIN};
use crate::data::Random;
use crate::harness::KINDS;

/// A shape for every instance, at its limits or within them.
fn shapes(kind: Kind) -> Vec<(usize, usize, usize)> {
    let columns: &[usize] = match kind {
        Kind::Full => &[1, 2, 4, 8, 12, 11, 5, 9, 15, 13, 16, 24, 17, 28, 29, 33, 36, 40],
        Kind::Tied => &[1, 7, 16, 17, 30, 32, 40, 33, 50, 64, 80, 81],
        Kind::Diag => &[1, 8, 15, 30, 16, 17, 40, 33, 50, 64, 80, 81],
        Kind::Spherical => &[1, 2, 15, 16, 30, 31],
    };
    let mut out = Vec::new();
    for (i, d) in columns.iter().enumerate() {
        for k in [1, 3, 8, 9, 16, 17, 30, 33, 64, 65, 80, 100] {
            // Enough rows for the covariances of each component, but an odd number of groups.
            let rows = match kind {
                Kind::Full | Kind::Spherical => 4 * d + 9,
                Kind::Tied => 4 * (d / 2) + 9,
                Kind::Diag => 4 * (d / 4) + 9,
            };
            let n = rows * k.min(7) + 2 * i + 1;
            let least = if kind == Kind::Full { (d + 1) * k } else { 2 * k } + 5;
            if Instance::of(kind, k as u32, *d as u32).is_some() && (k < 17 || i % 3 == 0) {
                out.push((n.max(least), *d, k));
            }
        }
    }
    if kind == Kind::Full {
        out.extend([(805, 23, 17), (901, 26, 17), (1051, 30, 17)]);
    }
    out
}

fn of(kind: Kind, (_, d, k): (usize, usize, usize)) -> Instance {
    Instance::of(kind, k as u32, d as u32).expect("a instance")
}

#[test]
fn one_iteration_is_the_references() {
    for kind in KINDS {
        for shape in shapes(kind.1) {
            check::<f64>(kind, shape, 0.0, &PLAIN);
        }
    }
}

/// In `f32` once per instance: only the loading of rows and the exponential differ.
#[test]
fn one_iteration_in_f32_is_the_references() {
    let mut reached = Vec::new();
    for kind in KINDS {
        for shape in shapes(kind.1) {
            let instance = of(kind.1, shape);
            if !reached.contains(&instance) {
                reached.push(instance);
                check::<f32>(kind, shape, 0.0, &PLAIN);
            }
        }
    }
}

/// Less shared memory than on Hopper, and shapes whose blocks then have fewer warps.
const ROOM: u64 = 150 << 10;
const LESS_ROOM: [(usize, usize, usize); 1] = [(333, 30, 9)];

#[test]
fn where_shared_memory_is_less_blocks_have_fewer_warps() {
    for shape in LESS_ROOM {
        let kind = (CovarianceType::Full, Kind::Full);
        check::<f32>(kind, shape, 0.0, &Options { room: ROOM, ..PLAIN });
        check::<f64>(kind, shape, 0.0, &Options { room: ROOM, ..PLAIN });
    }
}

#[test]
fn every_instance_is_reached() {
    let mut reached: Vec<Instance> = Vec::new();
    for (_, kind) in KINDS {
        let of_either_type = |shape| [4, 8].map(|number_bytes| of(kind, shape).fitting(number_bytes, u64::MAX));
        reached.extend(shapes(kind).into_iter().flat_map(of_either_type));
    }
    reached.extend(LESS_ROOM.map(|shape| of(Kind::Full, shape).fitting(8, ROOM)));
    for instance in Instance::ALL {
        assert!(reached.contains(instance), "{instance:?}");
    }
}

/// Blocks that share sums: with weights, several iterations and an offset, and with rows for only one warp or none.
#[test]
fn sums_that_blocks_share_with_row_weights_and_few_rows() {
    let random = &mut Random(6);
    let weights: Vec<f64> = (0..170).map(|i| if i % 7 == 2 { 0.0 } else { 0.25 + random.uniform() }).collect();
    let shapes = [
        (0, 17, 16),
        (0, 20, 2),
        (0, 16, 17),
        (0, 34, 9),
        (0, 13, 75),
        (0, 30, 17),
        (1, 33, 20),
        (2, 33, 9),
        (2, 9, 70),
        (3, 47, 9),
    ];
    // Components have fewer rows than columns here, and would be singular without regularisation.
    let ridge = Options { reg_covar: 1.0, ..PLAIN };
    for (kind, d, k) in shapes {
        let weighted = Options { row_weights: Some(&weights), iterations: 2, blocks: 3, ..ridge };
        check::<f64>(KINDS[kind], (170, d, k), 3.0, &weighted);
        check::<f32>(KINDS[kind], (170, d, k), 3.0, &weighted);
    }
    // One block has rows for only one or two of its warps, and another has none: with four warps, and with eight.
    for (kind, d, k) in [(0, 17, 2), (0, 31, 9), (0, 37, 9), (0, 30, 17), (1, 40, 2), (2, 64, 2), (3, 33, 2)] {
        let wide = of(KINDS[kind].1, (0, d, k)).warps == 8;
        assert_eq!(wide, k > 2, "{d} {k}");
        for n in if wide { [150, 290] } else { [20, 90] } {
            check::<f64>(KINDS[kind], (n, d, k), 0.0, &Options { blocks: 4, ..ridge });
        }
    }
}
