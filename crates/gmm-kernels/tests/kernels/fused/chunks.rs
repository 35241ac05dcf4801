//! Passes over rows in chunks, with two kernels: in the rows' precision, and in fp16.

use gmm_kernels::em::state::TROUBLE;
use gmm_kernels::em::wgmma::full::columns_at_most;
use gmm_kernels::layout::Kind;

use super::check;
use super::harness::{How, Options, PLAIN, run};
use crate::data::{Random, mixture, rows};
use crate::harness::KINDS;

/// Shapes for chunked passes: around 16 and 32 columns, and around one and two pieces of components.
const LARGE: [(usize, usize, usize); 9] = [
    (190, 30, 30),
    (257, 17, 33),
    (100, 33, 4),
    (300, 4, 130),
    (400, 18, 65),
    (129, 32, 5),
    (64, 16, 3),
    (400, 16, 20),
    (300, 16, 70),
];

#[test]
fn rows_in_chunks_are_the_references() {
    for kind in KINDS {
        for (i, shape) in LARGE.into_iter().enumerate() {
            // Regularised, since components have fewer rows than dimensions.
            let o = Options { reg_covar: 0.1, how: How::DoublePrecision([128, 256, 384][i % 3]), ..PLAIN };
            check::<f64>(kind, shape, 0.0, &o);
            if i % 2 == 1 {
                check::<f32>(kind, shape, 0.0, &o);
            }
        }
    }
}

#[test]
fn rows_in_chunks_with_weights_and_an_offset() {
    let random = &mut Random(5);
    let weights: Vec<f64> = (0..290).map(|i| if i % 5 == 3 { 0.0 } else { 0.25 + random.uniform() }).collect();
    let o = Options { row_weights: Some(&weights), iterations: 2, blocks: 3, how: How::DoublePrecision(128), ..PLAIN };
    for kind in KINDS {
        check::<f64>(kind, (290, 6, 4), 1e6, &o);
        check::<f32>(kind, (290, 6, 4), 1e3, &o);
    }
}

/// Shapes for fp16: factors of one, two and three times 16 columns, of more than 64, and of more than 128.
const HALVES: [(usize, usize, usize); 8] =
    [(190, 30, 30), (257, 17, 33), (100, 33, 4), (300, 4, 130), (150, 70, 9), (129, 32, 5), (64, 16, 3), (140, 131, 2)];

#[test]
fn rows_in_halves_are_the_references() {
    halves_are_the_references(false);
}

#[test]
fn rows_in_heads_are_the_references_as_far_as_halves_go() {
    halves_are_the_references(true);
}

fn halves_are_the_references(one: bool) {
    for kind in KINDS {
        for (i, shape) in HALVES.into_iter().enumerate() {
            let how = How::HalfPrecision { chunk: [128, 256, 384][i % 3], one };
            // In some cases, each warp of a block has its own partial result.
            let o = Options { reg_covar: 0.1, blocks: 4, how, ..PLAIN };
            match i % 2 {
                0 => check::<f32>(kind, shape, 0.0, &o),
                _ => check::<f32>(kind, shape, 1e3, &Options { iterations: 2, blocks: 8, ..o }),
            }
        }
    }
}

/// Shapes for warpgroups: every number of features that has a kernel for some kind.
const LINEAR: [(usize, usize, usize); 6] =
    [(190, 33, 3), (257, 17, 33), (100, 70, 4), (300, 5, 130), (129, 128, 5), (300, 90, 20)];

#[test]
fn rows_by_warpgroups_are_the_references_as_far_as_halves_go() {
    for kind in KINDS.into_iter().filter(|(_, kind)| *kind != Kind::Full) {
        for (i, shape) in LINEAR.into_iter().enumerate() {
            let o = Options { reg_covar: 0.1, how: How::Linear { chunk: [128, 256, 384][i % 3] }, ..PLAIN };
            match i % 2 {
                0 => check::<f32>(kind, shape, 0.0, &o),
                _ => check::<f32>(kind, shape, 1e3, &Options { iterations: 2, blocks: 5, ..o }),
            }
        }
    }
}

/// Shapes for warpgroups with full covariances, rows per chunk, and splits: factors of two, three and four blocks; more
/// rows than a block takes at a time; more components than a block of the moments kernel.
const FULL: [((usize, usize, usize), usize, u32); 8] = [
    ((190, 40, 3), 128, 2),
    ((270, 64, 5), 384, 1),
    ((194, 90, 2), 256, 1),
    ((66, 128, 2), 128, 1),
    ((198, 130, 9), 128, 2),
    ((66, 190, 2), 128, 1),
    ((260, 192, 2), 256, 1),
    ((300, 4, 130), 128, 3),
];

#[test]
fn rows_by_warpgroups_are_the_references_with_full_covariances() {
    full_are_the_references(true);
}

#[test]
fn rows_in_halves_by_warpgroups_are_the_references_with_full_covariances() {
    full_are_the_references(false);
}

fn full_are_the_references(one: bool) {
    for (i, (shape, chunk, blocks)) in FULL.into_iter().enumerate() {
        if shape.1 as u32 > columns_at_most(one) {
            continue;
        }
        let o = Options { reg_covar: 0.1, blocks, how: How::Full { chunk, one }, ..PLAIN };
        match i {
            0 => check::<f32>(KINDS[0], shape, 1e3, &Options { iterations: 2, ..o }),
            _ => check::<f32>(KINDS[0], shape, 0.0, &o),
        }
    }
}

/// An outlier determines a column's scale; values a thousand times smaller have few significant bits in fp16.
#[test]
fn components_too_narrow_for_halves_are_told() {
    for (kind, number) in KINDS {
        let random = &mut Random(21);
        let start = mixture(kind, 3, 9, 0.0, random);
        let mut data = rows::<f32>(&start, 200, random);
        let halves = Options { how: How::HalfPrecision { chunk: 128, one: false }, blocks: 4, reg_covar: 0.1, ..PLAIN };
        let full = [true, false].map(|one| Options { how: How::Full { chunk: 256, one }, blocks: 1, ..halves });
        let ways = if number == Kind::Full { vec![&halves, &full[0], &full[1]] } else { vec![&halves] };
        let told = |data: &_| ways.iter().map(|o| run::<f32>(number, &start, data, o).state[TROUBLE as usize]).sum();
        assert_eq!(0_u32, told(&data), "{kind}");
        data[[7, 4]] = 1e5;
        // The second moments of a tied covariance are not computed from fp16 values.
        let all = if number == Kind::Tied { 0 } else { ways.len() as u32 };
        assert_eq!(all, told(&data), "{kind}");
    }
}
