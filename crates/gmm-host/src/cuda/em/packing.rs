//! What the buffers of the loop on the device hold: covariances in the packed form of the statistics, lower triangles row by
//! row or variances, and integers in words of 8 bytes.

use cust::memory::DeviceSlice;
use gmm_kernels::layout::{packed_index, packed_len};
use gmm_model::{CovarianceType, Covariances};
use ndarray::{Array1, Array2, Array3};

/// Integers as words, two in each.
pub(crate) fn words(integers: &[u32]) -> Vec<f64> {
    let word = |pair: &[u32]| u64::from(pair[0]) | pair.get(1).map_or(0, |second| u64::from(*second) << 32);
    integers.chunks(2).map(|pair| f64::from_bits(word(pair))).collect()
}

/// Words on the device as the integers that they hold.
pub(crate) fn as_integers(words: &DeviceSlice<f64>) -> DeviceSlice<u32> {
    // SAFETY: the same bytes, of which any are integers.
    unsafe { DeviceSlice::from_raw_parts(words.as_device_ptr().cast(), 2 * words.len()) }
}

/// The integers of [`words`].
pub(crate) fn integers(words: &[f64]) -> impl Iterator<Item = u32> {
    words.iter().flat_map(|word| [word.to_bits() as u32, (word.to_bits() >> 32) as u32])
}

/// Packs `covariances` into `out`, which has exactly the packed length.
pub(crate) fn pack(covariances: &Covariances, out: &mut [f64]) {
    let lower = |a: ndarray::ArrayView2<'_, f64>, out: &mut [f64]| {
        let entries = (0..a.nrows()).flat_map(|i| (0..=i).map(move |j| (i, j)));
        out.iter_mut().zip(entries).for_each(|(slot, at)| *slot = a[at]);
    };
    match covariances {
        Covariances::Full(all) => {
            let each = packed_len(all.dim().1 as u32) as usize;
            all.outer_iter().zip(out.chunks_exact_mut(each)).for_each(|(a, out)| lower(a, out));
        }
        Covariances::Tied(one) => lower(one.view(), out),
        Covariances::Diag(all) => out.iter_mut().zip(all).for_each(|(slot, v)| *slot = *v),
        Covariances::Spherical(all) => out.iter_mut().zip(all).for_each(|(slot, v)| *slot = *v),
    }
}

/// Unpacks the covariances of `k` components of `d` columns.
pub(crate) fn unpack(kind: CovarianceType, k: usize, d: usize, packed: &[f64]) -> Covariances {
    let each = packed_len(d as u32) as usize;
    let entry =
        |c: usize, i: usize, j: usize| packed[c * each + packed_index(i.max(j) as u32, i.min(j) as u32) as usize];
    match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| entry(c, i, j))),
        CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| entry(0, i, j))),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| packed[c * d + j])),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_shape_fn(k, |c| packed[c])),
    }
}
