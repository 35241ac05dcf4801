//! M-steps whose matrices are stored in device memory.

use gmm_kernels::em::m_step::{Matrices, WIDE_FROM};
use gmm_kernels::em::state::TROUBLE;
use gmm_kernels::layout::Kind;
use gmm_model::{CovarianceType, Mixture};
use ndarray::array;

use super::check;
use super::harness::{How, Options, PLAIN, packed, run};
use super::{expected, same};
use crate::data::{Random, mixture, rows};

const FULL: (CovarianceType, Kind) = (CovarianceType::Full, Kind::Full);
const TIED: (CovarianceType, Kind) = (CovarianceType::Tied, Kind::Tied);
const WIDE: Options<'static> = Options { wide: true, ..PLAIN };

#[test]
fn matrices_in_device_memory_are_the_references() {
    // A partly filled panel, a full one, and several.
    for (n, d, k) in [(60, 1, 2), (90, 3, 2), (300, 31, 2), (300, 32, 1)] {
        check::<f64>(FULL, (n, d, k), 3.0, &Options { iterations: 2, ..WIDE });
    }
    for (n, d, k) in [(300, 33, 2), (300, 48, 1), (500, 64, 2), (400, 65, 1), (500, 100, 1)] {
        let o = Options { how: How::DoublePrecision(256), reg_covar: 1e-3, iterations: 2, ..WIDE };
        check::<f64>(FULL, (n, d, k), 0.0, &o);
        check::<f32>(FULL, (n, d, k), 0.0, &o);
    }
    let weights: Vec<f64> = (0..700).map(|i| [1.0, 0.0, 2.5][i % 3]).collect();
    let o = Options { how: How::DoublePrecision(256), reg_covar: 0.1, row_weights: Some(&weights), ..WIDE };
    check::<f64>(FULL, (700, 35, 11), 0.0, &o);
    for (n, d, k) in [(200, 3, 2), (300, 32, 1), (400, 33, 5), (500, 65, 19)] {
        let o = Options { how: How::DoublePrecision(256), reg_covar: 1e-3, iterations: 2, ..WIDE };
        check::<f64>(TIED, (n, d, k), 0.0, &o);
        check::<f32>(TIED, (n, d, k), 0.0, &o);
    }
    // So many columns that the matrix does not fit into shared memory.
    check::<f64>(FULL, (140, 250, 1), 0.0, &Options { how: How::DoublePrecision(256), reg_covar: 0.1, ..WIDE });
}

#[test]
fn roots_of_matrices_in_device_memory_are_the_references() {
    for (n, d, k) in [(200, 9, 2), (300, 33, 2), (400, 70, 1), (140, 131, 2)] {
        let how = How::HalfPrecision { chunk: 128, one: false };
        check::<f32>(FULL, (n, d, k), 0.0, &Options { how, reg_covar: 0.1, blocks: 4, iterations: 2, ..WIDE });
    }
}

/// Compares the results of both kernels number by number, also for nearly singular matrices.
#[test]
fn matrices_in_device_memory_are_those_in_shared_memory() {
    for (kind, how) in [
        (FULL, How::DoublePrecision(256)),
        (TIED, How::DoublePrecision(256)),
        (FULL, How::HalfPrecision { chunk: 256, one: false }),
    ] {
        for d in [5, 32, 33, 70, 97] {
            let random = &mut Random(d as u64);
            let start = mixture(kind.0, 2, d, 0.0, random);
            let mut data = rows::<f32>(&start, 260, random);
            // A column that differs from another by only a thousandth.
            for mut row in data.rows_mut() {
                row[d - 1] = f64::from((row[0] + 1e-3 * random.normal()) as f32);
            }
            let o = Options { how, reg_covar: 1e-6, ..PLAIN };
            let (there, here) = (
                run::<f32>(kind.1, &start, &data, &Options { wide: true, ..o }),
                run::<f32>(kind.1, &start, &data, &o),
            );
            let what = |part: &str| format!("{} d={d} {}: {part}", kind.0, here.roots.len());
            assert_eq!((&there.state, &there.empty), (&here.state, &here.empty), "{}", what("state"));
            same(&there.means, &here.means, 1e-14, &what("means"));
            same(&there.covariances, &here.covariances, 1e-13, &what("covariances"));
            // The condition number is about 1e6.
            same(&there.coefficients, &here.coefficients, 1e-9, &what("coefficients"));
            same(&there.roots, &here.roots, 1e-9, &what("roots"));
            let finite = |all: &[f64]| all.iter().copied().filter(|v| v.is_finite()).collect::<Vec<_>>();
            same(&finite(&there.constants), &finite(&here.constants), 1e-9, &what("constants"));
        }
    }
}

#[test]
fn matrices_go_to_device_memory_from_some_size_on() {
    let hopper = 232_448;
    let of = |kind: Kind, d: u32| Matrices::of(kind, d, hopper);
    assert_eq!([1, 30, WIDE_FROM - 1].map(|d| of(Kind::Full, d)), [Ok(Matrices::Shared); 3]);
    assert_eq!([WIDE_FROM, 240, 704].map(|d| of(Kind::Full, d)), [Ok(Matrices::Device); 3]);
    // Tied covariances use device memory only if shared memory is too small.
    assert_eq!([1, WIDE_FROM, 210].map(|d| of(Kind::Tied, d)), [Ok(Matrices::Shared); 3]);
    assert_eq!([240, 704].map(|d| of(Kind::Tied, d)), [Ok(Matrices::Device); 2]);
    // Shared memory available to a block on an A100, and on consumer GPUs.
    for (room, most) in [(163 << 10, 480), (99 << 10, 288)] {
        assert_eq!(Matrices::of(Kind::Full, most, room), Ok(Matrices::Device));
        assert!(Matrices::of(Kind::Full, most + 1, room).unwrap_err() > room);
    }
    // Sizes in bytes, and column counts, that overflow 32 bits.
    for d in [104_755_300, u32::MAX - 31] {
        assert!(of(Kind::Full, d).unwrap_err() > 1 << 32 && of(Kind::Tied, d).unwrap_err() > 1 << 32);
    }
    assert!(of(Kind::Full, 705).unwrap_err() > hopper && of(Kind::Tied, 705).unwrap_err() > hopper);
    assert_eq!([of(Kind::Diag, 705), of(Kind::Spherical, 705)], [Ok(Matrices::Shared); 2]);
}

#[test]
fn an_empty_component_in_device_memory_keeps_what_it_has() {
    for (name, kind) in [FULL, TIED] {
        let random = &mut Random(11);
        let near = mixture(name, 3, 2, 0.0, random);
        let data = rows::<f64>(&near, 150, random);
        let mut means = near.means().to_owned();
        means.row_mut(1).assign(&array![1e3, -1e3]);
        let start = Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        let got = run::<f64>(kind, &start, &data, &WIDE);
        let (mixture, _) = expected(&start, &data, &WIDE);
        assert_eq!(got.empty, [0, 1, 0], "{name}");
        same(&got.means, mixture.means().as_slice().unwrap(), 1e-11, &format!("{name}: means"));
        same(&got.covariances, &packed(&mixture), 1e-11, &format!("{name}: covariances"));
        if kind == Kind::Full {
            assert_eq!(got.covariances[3..6], packed(&start)[3..6], "bit for bit");
        }
    }
}

#[test]
fn trouble_in_device_memory_is_told() {
    let random = &mut Random(13);
    let start = mixture(CovarianceType::Full, 2, 40, 0.0, random);
    let mut data = rows::<f64>(&start, 200, random);
    let o = Options { how: How::DoublePrecision(128), reg_covar: 0.0, ..WIDE };
    assert_eq!(run::<f64>(Kind::Full, &start, &data, &o).state[TROUBLE as usize], 0);
    // A column that is twice another one in a different panel, without regularisation.
    for mut row in data.rows_mut() {
        row[37] = 2.0 * row[1];
    }
    assert_eq!(run::<f64>(Kind::Full, &start, &data, &o).state[TROUBLE as usize], 1);
}
