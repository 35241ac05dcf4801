//! Weighted moments of one tile of rows about each component's centre, added to `f64` sums.
//!
//! Products and the sums over a tile (at most 256 rows, spread over the lanes) are in the engine's precision; every
//! tile's sums are then added up in `f64`.

mod diag;
mod full;
mod scatter;
mod spherical;
mod tied;

use gmm_model::{CovarianceType, packed_len};

use super::layout::BLOCK;
use super::simd::{Real, Words};

pub(crate) use scatter::scatter;
pub(crate) use tied::{finish as finish_tied, pays as pairs_pay};

/// Columns of scratch per dimension.
pub(crate) const SCRATCH: usize = 3;

/// Running sums of one share of the rows; see [`gmm_model::Statistics`] for the meaning and packing.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) weight: Vec<f64>,
    pub(crate) first: Vec<f64>,
    pub(crate) second: Vec<f64>,
    /// Responsibilities by pairs of components, `(k, k)`, where [`tied`] makes use of them; else empty.
    pub(crate) pairs: Vec<f64>,
    pub(crate) log_likelihood: f64,
    pub(crate) entropy: f64,
}

impl Sums {
    /// Sums of nothing; `pairs` says whether pooled moments go by pairs of components.
    pub(crate) fn zero(kind: CovarianceType, k: usize, d: usize, pairs: bool) -> Self {
        Self {
            weight: vec![0.0; k],
            first: vec![0.0; k * d],
            second: vec![0.0; kind.second_len(k, d)],
            pairs: vec![0.0; if pairs { k * k } else { 0 }],
            log_likelihood: 0.0,
            entropy: 0.0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.weight.fill(0.0);
        self.first.fill(0.0);
        self.second.fill(0.0);
        self.pairs.fill(0.0);
        self.log_likelihood = 0.0;
        self.entropy = 0.0;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.weight, &other.weight),
            (&mut self.first, &other.first),
            (&mut self.second, &other.second),
            (&mut self.pairs, &other.pairs),
        ];
        for (to, from) in sums {
            for (a, b) in to.iter_mut().zip(from) {
                *a += b;
            }
        }
        self.log_likelihood += other.log_likelihood;
        self.entropy += other.entropy;
    }

    /// Bytes of one set of sums.
    pub(crate) fn bytes(kind: CovarianceType, k: usize, d: usize, pairs: bool) -> u128 {
        let pairs = if pairs { k as u128 * k as u128 } else { 0 };
        8 * (k as u128 * (d as u128 + 1) + kind.second_len(k, d) as u128 + pairs)
    }
}

/// Adds the moments of `rows` rows of `x`, `(d, BLOCK)`, about `centres`, `(k, d)`, under responsibilities
/// `(k, BLOCK)` that hold the row weights already. `scratch` holds `SCRATCH*d*BLOCK` values.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one call site per pass; a struct would only rename them")]
pub(crate) fn accumulate<T: Real, W: Words<T>>(
    w: W,
    kind: CovarianceType,
    centres: &[T],
    x: &[T],
    rows: usize,
    responsibilities: &[T],
    scratch: &mut [T],
    sums: &mut Sums,
) {
    let k = sums.weight.len();
    let d = centres.len() / k;
    assert!(x.len() >= d * BLOCK && scratch.len() >= SCRATCH * d * BLOCK && rows <= BLOCK);
    let pairs = !sums.pairs.is_empty();
    if pairs {
        tied::accumulate(
            w,
            centres,
            x,
            rows,
            &responsibilities[..k * BLOCK],
            scratch,
            &mut sums.second,
            &mut sums.pairs,
        );
    }
    for c in 0..k {
        let r = &responsibilities[c * BLOCK..][..rows];
        let weight = total(w, r);
        // Exactly zero: every responsibility underflowed, and zeros add nothing.
        if weight == 0.0 {
            continue;
        }
        sums.weight[c] += weight;
        let centre = &centres[c * d..][..d];
        let first = &mut sums.first[c * d..][..d];
        match kind {
            CovarianceType::Full => {
                let second = &mut sums.second[c * packed_len(d)..][..packed_len(d)];
                full::accumulate(w, centre, x, r, scratch, first, second);
            }
            CovarianceType::Tied if pairs => diag::columns(w, centre, x, r, |j, a, _| first[j] += a),
            CovarianceType::Tied => full::accumulate(w, centre, x, r, scratch, first, &mut sums.second),
            CovarianceType::Diag => diag::accumulate(w, centre, x, r, first, &mut sums.second[c * d..][..d]),
            CovarianceType::Spherical => spherical::accumulate(w, centre, x, r, first, &mut sums.second[c]),
        }
    }
}

/// Σ r over a multiple of `LANES` values.
#[inline(always)]
fn total<T: Real, W: Words<T>>(w: W, r: &[T]) -> f64 {
    let mut sum = w.splat(T::ZERO);
    for lanes in r.chunks_exact(W::LANES) {
        // SAFETY: the chunk holds LANES values.
        sum = w.add(sum, unsafe { w.load(lanes.as_ptr()) });
    }
    w.sum(sum).to_f64()
}
