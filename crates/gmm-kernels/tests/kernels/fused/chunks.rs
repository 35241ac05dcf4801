//! Passes over rows in chunks, by two kernels: in the rows' precision, and in halves.

use gmm_kernels::fused::state::TROUBLE;
use gmm_kernels::layout::Kind;

use super::check;
use super::harness::{How, Options, PLAIN, run};
use crate::data::{Random, mixture, rows};
use crate::harness::KINDS;

/// Shapes by chunks: about sixteen and thirty-two columns, and about the components of a piece and twice that.
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
            // Components have fewer rows than dimensions.
            let o = Options { reg_covar: 0.1, how: How::Large([128, 256, 384][i % 3]), ..PLAIN };
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
    let o = Options { row_weights: Some(&weights), iterations: 2, blocks: 3, how: How::Large(128), ..PLAIN };
    for kind in KINDS {
        check::<f64>(kind, (290, 6, 4), 1e6, &o);
        check::<f32>(kind, (290, 6, 4), 1e3, &o);
    }
}

/// Shapes for halves: factors of one, two, and three times sixteen columns, of more than 64, and of more than 128.
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
            let how = How::Halves { chunk: [128, 256, 384][i % 3], one };
            // Some take whole partial results from each warp of a block.
            let o = Options { reg_covar: 0.1, blocks: 4, how, ..PLAIN };
            match i % 2 {
                0 => check::<f32>(kind, shape, 0.0, &o),
                _ => check::<f32>(kind, shape, 1e3, &Options { iterations: 2, blocks: 8, ..o }),
            }
        }
    }
}

/// Shapes for warpgroups of full covariances: of factors of 64 rows and of more, and more components than a block has.
const FULL: [(usize, usize, usize, usize); 4] =
    [(190, 40, 3, 128), (257, 64, 5, 128), (130, 128, 2, 256), (300, 4, 130, 128)];

#[test]
fn rows_by_warpgroups_are_the_references_with_full_covariances() {
    for (i, (n, d, k, chunk)) in FULL.into_iter().enumerate() {
        let o = Options { reg_covar: 0.1, blocks: [2, 3, 1, 1][i], how: How::Full { chunk }, ..PLAIN };
        let kind = KINDS[0];
        let t = std::time::Instant::now();
        match i {
            0 => check::<f32>(kind, (n, d, k), 1e3, &Options { iterations: 2, ..o }),
            _ => check::<f32>(kind, (n, d, k), 0.0, &o),
        }
        eprintln!("{:?}", t.elapsed());
    }
}

/// An outlier sets a column's scale; what is a thousandth of it has few digits in halves.
#[test]
fn components_too_narrow_for_halves_are_told() {
    for (kind, number) in KINDS {
        let random = &mut Random(21);
        let start = mixture(kind, 3, 9, 0.0, random);
        let mut data = rows::<f32>(&start, 200, random);
        let o = Options { how: How::Halves { chunk: 128, one: false }, blocks: 4, reg_covar: 0.1, ..PLAIN };
        assert_eq!(run::<f32>(number, &start, &data, &o).state[TROUBLE as usize], 0, "{kind}");
        data[[7, 4]] = 1e5;
        let told = run::<f32>(number, &start, &data, &o).state[TROUBLE as usize];
        // The second moments of a tied covariance do not come from halves.
        assert_eq!(told, u32::from(number != Kind::Tied), "{kind}");
    }
}
