//! Test rows that are fast to generate: each number is a function of its position.

use gmm_model::{CovarianceType, Dataset, Mixture, Precision};
use ndarray::Array2;
use rayon::prelude::*;

use super::common;

/// Roughly normal with standard deviation 1: the sum of eight bytes of a hash, centred and scaled.
pub(crate) fn noise(i: u64) -> f64 {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let sum: u32 = x.to_le_bytes().iter().map(|b| u32::from(*b)).sum();
    // A byte has mean 127.5 and variance (256² − 1)/12. A few low bits are added so that values differ.
    (f64::from(sum) - 1020.0) / 209.02 + ((x & 0xffff) as f64 - 32767.5) / 65536.0 / 209.02
}

/// `(n, d)` in f32, twice as wide as the mixtures of `common::mixture` at offset 0.
pub(crate) fn rows_f32(n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut all = vec![0.0_f32; n * d];
    all.par_chunks_mut(1 << 16).enumerate().for_each(|(chunk, out)| {
        for (i, v) in out.iter_mut().enumerate() {
            *v = (2.0 * noise((seed << 40) ^ ((chunk as u64) << 16 | i as u64))) as f32;
        }
    });
    Array2::from_shape_vec((n, d), all).expect("n*d numbers")
}

/// The same numbers as a data set; both precisions represent them exactly.
pub(crate) fn dataset(n: usize, d: usize, seed: u64) -> Dataset {
    Dataset::new(rows_f32(n, d, seed)).expect("finite rows")
}

/// Weights 0, ½, 1, 0, ...; at least one above 0.
pub(crate) fn weights(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i % 3) as f64 * 0.5 + if n < 3 { 1.0 } else { 0.0 }).collect()
}

/// A data set and a shape for the EM loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopCase {
    pub(crate) kind: CovarianceType,
    pub(crate) precision: Precision,
    pub(crate) n: usize,
    pub(crate) d: usize,
    pub(crate) k: usize,
    pub(crate) offset: f64,
}

impl LoopCase {
    /// Rows that the precision represents exactly, with weights if their number is odd; the same for every kind.
    pub(crate) fn data(&self) -> Dataset {
        let &Self { precision, n, d, offset, .. } = self;
        let mut rows = common::rows(n, d, offset, 1.0, (n * 31 + d) as u64);
        if precision == Precision::F32 {
            rows.mapv_inplace(|v| f64::from(v as f32));
        }
        let data = Dataset::new(rows).expect("finite rows");
        if n % 2 == 1 { data.with_weights(weights(n)).expect("weights") } else { data }
    }

    /// The mixture from which the loop starts.
    pub(crate) fn start(&self) -> Mixture {
        let &Self { kind, n, d, k, offset, .. } = self;
        common::mixture(kind, k, d, offset, 1.0, (n * 1_000_003 + k * 1009 + d) as u64)
    }
}
