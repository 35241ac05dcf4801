//! Mixtures from the densities of their components, against the reference's log-sum-exp.

use std::ptr::{null, null_mut};

use gmm_kernels::device::Buffer;
use gmm_kernels::log_likelihood::mixing::{MixColumns, mix_columns};
use gmm_model::reference::log_sum_exp;

use crate::compare::close;
use crate::data::Random;
use crate::harness::poison;

/// Columns in which some rows have density 0 under some or all components, or an extremely small density.
fn columns(n: usize, k: usize, random: &mut Random) -> Vec<Vec<f64>> {
    let value = |c: usize, i: usize, random: &mut Random| match (i + 3 * c) % 11 {
        _ if i % 13 == 5 => f64::NEG_INFINITY,
        0 => f64::NEG_INFINITY,
        1 if k > 1 => -1e300,
        _ => 40.0 * random.normal() - 3.0,
    };
    (0..k).map(|c| (0..n).map(|i| value(c, i, random)).collect()).collect()
}

fn check(n: usize, k: usize, grid: u32, weighted: bool) {
    let random = &mut Random((100 * n + k) as u64);
    let all = columns(n, k, random);
    let log_weights: Vec<f64> =
        (0..k).map(|c| if c == 3 { f64::NEG_INFINITY } else { ((c + 1) as f64 / 50.0).ln() }).collect();
    let weights: Vec<f64> =
        (0..n).map(|i| if i % 13 == 5 || i % 7 == 2 { 0.0 } else { 0.5 + (i % 3) as f64 }).collect();
    let there: Vec<Buffer<f64>> = all.iter().map(|column| Buffer::new(column)).collect();
    let addresses: Vec<u64> = there.iter().map(|column| column.pointer() as u64).collect();
    let (addresses, given, row_weights) = (Buffer::new(&addresses), Buffer::new(&log_weights), Buffer::new(&weights));
    let run = |want_rows: bool| {
        let (mut rows, mut partials) = (poison::<f64>(n as u64), poison::<f64>(grid.into()));
        let arguments = MixColumns {
            columns: addresses.pointer(),
            log_weights: given.pointer(),
            k: k as u32,
            n: n as u64,
            row_weights: if weighted { row_weights.pointer() } else { null() },
            log_densities: if want_rows { rows.pointer_mut() } else { null_mut() },
            partials: partials.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { mix_columns().emulate((grid, 1), arguments) };
        (rows.to_vec(), partials.to_vec())
    };
    let (rows, partials) = run(true);
    let mut total = 0.0;
    for (i, got) in rows.iter().enumerate() {
        let joint: Vec<f64> = all.iter().zip(&log_weights).map(|(column, w)| column[i] + w).collect();
        let want = log_sum_exp(&joint);
        let what = format!("row {i} of {n}, {k} columns");
        if want == f64::NEG_INFINITY {
            assert_eq!(*got, want, "{what}");
        } else {
            // One rescaling per eight columns.
            close(*got, want, want.abs().max(1.0), (8 + k) as f64 * f64::EPSILON, &what);
        }
        let weight = if weighted { weights[i] } else { 1.0 };
        total += if weight > 0.0 { weight * want } else { 0.0 };
    }
    let sum: f64 = partials.iter().sum();
    if total == f64::NEG_INFINITY {
        assert_eq!(sum, total);
    } else {
        close(sum, total, total.abs(), n as f64 * f64::EPSILON, "sum");
    }
    assert_eq!(run(false).1, partials, "with and without rows");
}

#[test]
fn columns_are_mixed_row_by_row() {
    for (i, k) in [1, 2, 7, 8, 9, 16, 21].into_iter().enumerate() {
        for n in [1, 128, 300] {
            check(n, k, 1 + i as u32 % 3, i % 2 == 0);
            check(n, k, 2, i % 2 == 1);
        }
    }
}
