//! Passes over few columns.

use gmm_kernels::em::small_d::Partition;
use gmm_kernels::em::state::TROUBLE;
use gmm_kernels::layout::Kind;
use gmm_model::CovarianceType;

use super::harness::{How, Options, PLAIN, packed, run};
use super::{check, expected, same};
use crate::compare::close;
use crate::data::{Random, mixture, rows};

const FULL: (CovarianceType, Kind) = (CovarianceType::Full, Kind::Full);

#[test]
fn rows_of_few_columns_are_the_references() {
    // Every kernel, one warp and several, unused component slots, and rows that do not fill their last group of 64.
    let shapes = [(150, 1, 3), (700, 1, 40), (400, 2, 5), (600, 2, 26), (900, 2, 100), (130, 3, 8), (500, 3, 33)];
    for shape in shapes {
        let o = Options { how: How::SmallDPass, blocks: 3, reg_covar: 1e-3, ..PLAIN };
        check::<f32>(FULL, shape, 0.0, &o);
        check::<f32>(FULL, shape, 1e3, &Options { iterations: 2, ..o });
        let weights: Vec<f64> = (0..shape.0).map(|i| [1.0, 0.0, 2.5][i % 3]).collect();
        check::<f32>(FULL, shape, 0.0, &Options { row_weights: Some(&weights), ..o });
    }
}

/// More rows than a lane adds up in `f32`.
#[test]
fn many_rows_of_few_columns_are_the_references() {
    let o = Options { how: How::SmallDPass, blocks: 1, ..PLAIN };
    check::<f32>(FULL, (64 * 128 * 2 + 70, 2, 3), 0.0, &o);
}

/// Rows whose every density would underflow relative to the largest possible density.
#[test]
fn rows_far_from_every_component_of_few_columns_count() {
    let random = &mut Random(5);
    let start = mixture(CovarianceType::Full, 20, 2, 0.0, random);
    let mut data = rows::<f32>(&start, 300, random);
    for (i, far) in [(3, 40.0), (70, -60.0), (299, 200.0)] {
        data[[i, 0]] = far;
    }
    let o = Options { how: How::SmallDPass, reg_covar: 1e-3, ..PLAIN };
    let (got, (want, trace)) = (run::<f32>(Kind::Full, &start, &data, &o), expected(&start, &data, &o));
    assert_eq!(got.state[TROUBLE as usize], 0);
    close(got.trace[0], trace[0], trace[0].abs(), 2e-6, "likelihood");
    same(&got.weights, want.weights().as_slice().unwrap(), 2e-6, "weights");
    same(&got.means, want.means().as_slice().unwrap(), 2e-6, "means");
    same(&got.covariances, &packed(&want), 2e-6, "covariances");
}

#[test]
fn a_mixture_of_few_columns_is_cut_into_warps() {
    let cut = |k, d| Partition::of(k, d).map(|cut| (cut.each, cut.warps));
    assert_eq!((cut(100, 2), cut(128, 2)), (Some((7, 15)), Some((8, 16))));
    assert_eq!((cut(64, 2), cut(8, 2)), (Some((8, 8)), Some((7, 2))));
    assert_eq!((cut(129, 2), cut(3, 4), cut(193, 1), cut(97, 3)), (None, None, None, None));
}
