//! Large sizes, against the CPU engine in f64.

use gmm_host::{Engine, EvaluateOptions, Resident, memory, shift};
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::compare::{Tally, allowed};
use crate::{Bench, common, data};

fn check(bench: &Bench, tally: &mut Tally, kind: CovarianceType, (n, d, k): (usize, usize, usize), data: &Dataset) {
    let mixture = common::mixture(kind, k, d, 0.0, 1.0, (n + d + k) as u64);
    let at = shift::of_data(data);
    let mut slow = bench.cpu.load(data, Precision::F64, &at).expect("room on the host");
    for precision in [Precision::F32, Precision::F64] {
        let mut fast = bench.gpu.load(data, precision, &at).expect("room on the device");
        let what = format!("{kind} {precision} n={n} d={d} k={k}");
        // The n×k arrays of both engines are f64 on the host: at most 2 GB each.
        if n * k <= 100_000_000 {
            tally.passes((fast.as_mut(), slow.as_mut()), data.weights(), &mixture, allowed(precision), &what);
        } else {
            tally.cases += 1;
            let pass = |rows: &mut dyn Resident| rows.pass(&mixture).expect("a pass");
            tally.statistics(&pass(fast.as_mut()), &pass(slow.as_mut()), allowed(precision), &what);
        }
    }
}

fn every_kind(bench: &Bench, tally: &mut Tally, sizes: &[(usize, usize, usize)]) {
    for &(n, d, k) in sizes {
        let mut data = data::dataset(n, d, 31);
        if k % 2 == 1 {
            data = data.with_weights(data::weights(n)).expect("weights");
        }
        for kind in CovarianceType::ALL {
            check(bench, tally, kind, (n, d, k), &data);
        }
    }
}

pub(crate) fn many_rows(bench: &Bench, tally: &mut Tally) {
    if bench.quick {
        return every_kind(bench, tally, &[(20_000, 3, 4)]);
    }
    let sizes = [
        (100_000, 30, 30),
        (1_000_000, 13, 8),
        (1_000_001, 1, 3),
        (1_000_000, 2, 100),
        (500_000, 32, 64),
        (3_000_000, 16, 16),
    ];
    every_kind(bench, tally, &sizes);
}

pub(crate) fn wide(bench: &Bench, tally: &mut Tally) {
    if bench.quick {
        return every_kind(bench, tally, &[(300, 130, 3)]);
    }
    every_kind(bench, tally, &[(20_000, 256, 10), (50_000, 16, 300), (30_000, 128, 33), (4_000, 256, 300)]);
}

/// More than 2³¹ elements, so that indices do not fit in 31 bits. Checks the totals, and the last rows one by one.
pub(crate) fn beyond_31_bits(bench: &Bench, tally: &mut Tally) {
    let (d, k) = (16, 2);
    let n = if bench.quick { 100_001 } else { (1_usize << 31) / d + 12_345 };
    // Memory for the data, the CPU engine's copy, and the log densities.
    let wanted = (n * d * 4 * 2 + n * 16) as u128;
    let device = bench.gpu.free_memory().expect("free memory") as u128;
    if memory::check("the test", wanted).is_err() || device < (n * d * 4 + n * k * 4) as u128 {
        println!("   not tried: {n} rows of {d} need {wanted} bytes here, and {device} are free on the device");
        tally.expect(bench.quick, || "too little memory for 2^31 elements".to_owned());
        return;
    }
    let data = data::dataset(n, d, 41);
    let at = vec![0.0; d];
    let last = n - 1000;
    let tail = match data.rows() {
        gmm_model::Matrix::F32(a) => a.slice(ndarray::s![last.., ..]).to_owned(),
        gmm_model::Matrix::F64(_) => unreachable!("made in f32"),
    };
    let tail = Dataset::new(tail).expect("finite rows");
    for kind in [CovarianceType::Diag, CovarianceType::Full] {
        tally.cases += 1;
        let what = format!("{kind} n={n} d={d} k={k}");
        let mixture = common::mixture(kind, k, d, 0.0, 1.0, 9);
        let mut rows = bench.gpu.load(&data, Precision::F32, &at).expect("room on the device");
        let got = rows.pass(&mixture).expect("a pass");
        let (mut densities, mut labels) = (vec![f64::NAN; n], vec![u32::MAX; n]);
        let want =
            EvaluateOptions { log_densities: Some(&mut densities), responsibilities: None, labels: Some(&mut labels) };
        let totals = rows.evaluate(&mixture, want).expect("an evaluation");
        drop(rows);
        let mut of_tail = bench.cpu.load(&tail, Precision::F64, &at).expect("room on the host");
        let (mut expected, mut expected_labels) = (vec![0.0; 1000], vec![0; 1000]);
        let want = EvaluateOptions {
            log_densities: Some(&mut expected),
            responsibilities: None,
            labels: Some(&mut expected_labels),
        };
        of_tail.evaluate(&mixture, want).expect("an evaluation");
        tally.close(&densities[last..], &expected, 2e-5, 100.0, &format!("{what}: the last rows"));
        let differ = labels[last..].iter().zip(&expected_labels).filter(|(a, b)| a != b).count();
        tally.expect(differ <= 1, || format!("{what}: {differ} of the last 1000 labels differ"));
        // Summed in pieces: a plain sum over that many rows would have a larger error than allowed.
        let sum: f64 = densities.chunks(4096).map(|piece| piece.iter().sum::<f64>()).sum();
        tally.close(&[totals.log_likelihood], &[sum], 1e-10, sum.abs(), &format!("{what}: total of the rows"));
        let mut slow = bench.cpu.load(&data, Precision::F32, &at).expect("room on the host");
        tally.statistics(&got, &slow.pass(&mixture).expect("a pass"), 2e-5, &what);
    }
}
