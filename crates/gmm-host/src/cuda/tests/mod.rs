//! Tests of the whole engine on a fake driver that runs kernels in the emulator: no GPU is needed.

mod agreement;
mod bayes;
mod components;
mod deconvolution;
mod evaluations;
mod faults;
mod foreign;
mod group;
pub(super) mod halves;
mod hand_over;
mod holes;
mod host_m_step;
mod likelihood;
mod lloyd;
mod many;
mod memory;
mod mid_fit;
mod missing;
mod nearby;
mod precisions;
mod products;
mod products_there;
mod seeding;
mod sentinels;
mod small_fits;
mod streamed;
mod trials;
mod truncated;
mod tuning;
mod warm;
mod warpgroups;

use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision};
use ndarray::{Array1, Array2, Array3};

use super::driver::fake::{Class, Fake, Fault, Machine};
use super::driver::fault;
use super::driver::table::code;
use super::launch::plan;
use super::rows::original::{self, KeepOriginal};
use super::*;
use crate::{Device, FitOptions, Init, evaluate, fit};

/// Whether a call may fail without an error: none; `cuCtxSetCurrent`, whose result cust ignores when it opens a
/// context, and destructors do, while the context is current anyway; and the calls that load machine code, after which
/// the kernel is compiled from its PTX.
pub(super) fn may_fail(call: Option<&str>) -> bool {
    matches!(call, None | Some("cuCtxSetCurrent" | "cuModuleLoadDataEx" | "cuModuleGetFunction"))
}

/// A pseudorandom number between −1 and 1, determined by the index.
fn noise(i: usize) -> f64 {
    let mut x = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x >> 11) as f64 / (1u64 << 52) as f64) - 1.0
}

/// Rows of three clumps.
fn rows(n: usize, d: usize, offset: f64) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| offset + (i % 3) as f64 * 2.5 + noise(i * d + j))
}

fn dataset(n: usize, d: usize) -> Dataset {
    Dataset::new(rows(n, d, 0.0)).unwrap()
}

fn mixture(kind: CovarianceType, k: usize, d: usize, offset: f64) -> Mixture {
    let means = Array2::from_shape_fn((k, d), |(c, j)| offset + c as f64 * 1.5 + 0.3 * noise(1000 + c * d + j));
    let matrix = |c: usize| {
        let a = Array2::from_shape_fn((d, d), |(i, j)| 0.4 * noise(5000 + (c * d + i) * d + j));
        a.dot(&a.t()) / d as f64 + Array2::<f64>::eye(d)
    };
    let covariances = match kind {
        CovarianceType::Full => {
            let mut all = Array3::zeros((k, d, d));
            all.outer_iter_mut().enumerate().for_each(|(c, mut slot)| slot.assign(&matrix(c)));
            Covariances::Full(all)
        }
        CovarianceType::Tied => Covariances::Tied(matrix(0)),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| 1.0 + 0.2 * (c + j) as f64)),
        CovarianceType::Spherical => Covariances::Spherical((0..k).map(|c| 1.0 + 0.2 * c as f64).collect()),
    };
    let weights: Array1<f64> = (0..k).map(|c| 1.0 + c as f64).collect();
    Mixture::new(&weights / weights.sum(), means, covariances).unwrap()
}

fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}[{i}]: {a:e}, want {b:e}, of {scale:e}");
    }
}

fn text<A>(result: Result<A, Error>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

/// Runs `work`, and counts its launches, allocations and waits.
fn calls<A>(fake: &Fake, work: impl FnOnce() -> A) -> ([usize; 3], A) {
    let count = || [Class::Launch, Class::Allocation, Class::Wait].map(|class| fake.calls_of(class));
    let before = count();
    let out = work();
    let after = count();
    (std::array::from_fn(|i| after[i] - before[i]), out)
}
