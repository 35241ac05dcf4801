//! The M-step on the device against `gmm_model::m_step`.

use crate::compare::close;
use crate::data::{Random, mixture, rows};
use crate::harness::{KINDS, poison};
use gmm_kernels::Kernel;
use gmm_kernels::device::Buffer;
use gmm_kernels::layout::{Kind, packed_index, second_len};
use gmm_kernels::m_step::{self, MStep};
use gmm_model::{CovarianceType, Factors, Mixture, ModelError, Statistics, reference};

struct Output {
    weights: Vec<f64>,
    means: Vec<f64>,
    covariances: Vec<f64>,
    factors: Vec<f64>,
    log_normalizers: Vec<f64>,
    failed: Vec<u32>,
    pivots: Vec<f64>,
    empty: Vec<u32>,
}

fn flat(statistics: &Statistics) -> Vec<f64> {
    statistics.weight.iter().chain(&statistics.first).chain(&statistics.second).copied().collect()
}

/// Covariances in the packing of the statistics.
fn packed(mixture: &Mixture, kind: Kind) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let matrices = if kind == Kind::Tied { 1 } else { k };
    let mut out = Vec::new();
    for c in 0..matrices {
        let a = mixture.covariances().matrix(c, d);
        match kind {
            Kind::Full | Kind::Tied => out.extend((0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| a[at])),
            Kind::Diag => out.extend(a.diag()),
            Kind::Spherical => out.push(a[[0, 0]]),
        }
    }
    out
}

fn run(kind: Kind, statistics: &Statistics, previous: &Mixture, reg_covar: f64) -> Output {
    let (k, d) = statistics.dim();
    let len = second_len(kind, k as u32, d as u32);
    let reports = if kind == Kind::Tied { 1 } else { k };
    let sums = Buffer::new(&flat(statistics));
    let old_means = Buffer::new(statistics.centres.as_slice().unwrap());
    let old_covariances = Buffer::new(&packed(previous, kind));
    let (mut weights, mut means) = (poison::<f64>(k as u64), poison::<f64>((k * d) as u64));
    let (mut covariances, mut factors) = (poison::<f64>(len), poison::<f64>(len));
    let (mut log_normalizers, mut pivots) = (poison::<f64>(k as u64), poison::<f64>(reports as u64));
    let (mut failed, mut empty) = (Buffer::new(&vec![u32::MAX; reports]), Buffer::new(&vec![u32::MAX; k]));
    let arguments = MStep {
        statistics: sums.pointer(),
        k: k as u32,
        d: d as u32,
        reg_covar,
        old_means: old_means.pointer(),
        old_covariances: old_covariances.pointer(),
        weights: weights.pointer_mut(),
        means: means.pointer_mut(),
        covariances: covariances.pointer_mut(),
        factors: factors.pointer_mut(),
        log_normalizers: log_normalizers.pointer_mut(),
        failed: failed.pointer_mut(),
        pivots: pivots.pointer_mut(),
        empty: empty.pointer_mut(),
    };
    let kernel: Kernel<MStep> = match kind {
        Kind::Full => m_step::m_step_full(),
        Kind::Tied => m_step::m_step_tied(),
        Kind::Diag => m_step::m_step_diag(),
        Kind::Spherical => m_step::m_step_spherical(),
    };
    // SAFETY: buffers of these lengths.
    unsafe { kernel.emulate((reports as u32, 1), arguments) };
    Output {
        weights: weights.to_vec(),
        means: means.to_vec(),
        covariances: covariances.to_vec(),
        factors: factors.to_vec(),
        log_normalizers: log_normalizers.to_vec(),
        failed: failed.to_vec(),
        pivots: pivots.to_vec(),
        empty: empty.to_vec(),
    }
}

fn same(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        close(*a, *b, 1.0 + b.abs(), 1e-12, &format!("{what} {i}"));
    }
}

fn factors(mixture: &Mixture) -> Vec<f64> {
    match mixture.factors() {
        Factors::Full(all) => all.iter().flat_map(|l| l.packed().to_vec()).collect(),
        Factors::Tied(one) => one.packed().to_vec(),
        Factors::Diag(sd) => sd.iter().copied().collect(),
        Factors::Spherical(sd) => sd.to_vec(),
    }
}

fn check(kind: (CovarianceType, Kind), statistics: &Statistics, previous: &Mixture) -> Output {
    let (k, d) = statistics.dim();
    let want = gmm_model::m_step(statistics, 1e-6, Some(previous)).unwrap();
    let got = run(kind.1, statistics, previous, 1e-6);
    let what = |part: &str| format!("{} d={d} k={k}: {part}", kind.0);
    same(&got.weights, want.mixture.weights().as_slice().unwrap(), &what("weight"));
    same(&got.means, want.mixture.means().as_slice().unwrap(), &what("mean"));
    same(&got.covariances, &packed(&want.mixture, kind.1), &what("covariance"));
    same(&got.factors, &factors(&want.mixture), &what("factor"));
    let normalizers: Vec<f64> = (0..k).map(|c| want.mixture.log_normalizer(c)).collect();
    same(&got.log_normalizers, &normalizers, &what("normaliser"));
    assert!(got.failed.iter().all(|f| *f == 0) && got.pivots.iter().all(|p| *p == 0.0), "{}", what("failed"));
    let empty: Vec<usize> = (0..k).filter(|c| got.empty[*c] == 1).collect();
    assert_eq!(empty, want.empty, "{}", what("empty"));
    got
}

#[test]
fn it_is_the_model_s() {
    for kind in KINDS {
        for (n, d, k) in [(20, 1, 1), (200, 3, 5), (300, 17, 2), (400, 70, 1), (300, 2, 40), (700, 130, 2)] {
            let random = &mut Random(d as u64);
            let previous = mixture(kind.0, k, d, 3.0, random);
            let rows = rows::<f64>(&previous, n, random);
            check(kind, &reference::statistics(&previous, rows.view(), None), &previous);
        }
    }
}

#[test]
fn an_empty_component_keeps_what_it_had() {
    for kind in KINDS {
        let random = &mut Random(1);
        let previous = mixture(kind.0, 3, 4, 0.0, random);
        let rows = rows::<f64>(&previous, 60, random);
        let mut statistics = Statistics::zero(kind.0, previous.means().to_owned());
        for row in rows.outer_iter() {
            reference::accumulate(&mut statistics, row, 1.0, ndarray::array![0.5, 0.0, 0.5].view());
        }
        assert_eq!(check(kind, &statistics, &previous).empty, [0, 1, 0]);
    }
}

#[test]
fn a_flat_column_is_reported_by_component_and_column() {
    for kind in KINDS {
        let random = &mut Random(2);
        let previous = mixture(kind.0, 2, 5, 0.0, random);
        let mut rows = rows::<f64>(&previous, 50, random);
        // Spherical variances are averages, so there all columns must be flat.
        let flat = if kind.1 == Kind::Spherical { 0..5 } else { 3..4 };
        rows.columns_mut().into_iter().enumerate().filter(|(j, _)| flat.contains(j)).for_each(|(_, mut c)| c.fill(0.5));
        let mut centres = previous.means().to_owned();
        centres.fill(0.5);
        let mut statistics = Statistics::zero(kind.0, centres);
        for row in rows.outer_iter() {
            reference::accumulate(&mut statistics, row, 1.0, ndarray::array![0.5, 0.5].view());
        }
        let error = gmm_model::m_step(&statistics, 0.0, None).unwrap_err();
        let ModelError::NotPositiveDefinite { component: 0, column, pivot, .. } = error else { panic!("{error}") };
        let got = run(kind.1, &statistics, &previous, 0.0);
        assert_eq!(got.failed[0] as usize, column + 1, "{}", kind.0);
        close(got.pivots[0], pivot, 1.0, 1e-12, "pivot");
    }
}

#[test]
fn packed_triangles_agree_with_the_model() {
    for i in 0..20 {
        for j in 0..=i {
            assert_eq!(packed_index(i, j), gmm_model::packed_index(i as usize, j as usize) as u64);
        }
    }
    for (name, kind) in KINDS {
        assert_eq!(second_len(kind, 3, 7), name.second_len(3, 7) as u64);
    }
}
