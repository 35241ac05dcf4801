//! Random mixtures and rows.

use gmm_kernels::Real;
use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3};

/// SplitMix64, with uniform and normal numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// A mixture of overlapping components around `offset`.
pub(crate) fn mixture(kind: CovarianceType, k: usize, d: usize, offset: f64, random: &mut Random) -> Mixture {
    let mut weights = Array1::from_shape_fn(k, |_| 0.2 + random.uniform());
    weights /= weights.sum();
    let means = Array2::from_shape_fn((k, d), |_| offset + 1.5 * random.normal());
    let mut matrix = || {
        let l = Array2::from_shape_fn((d, d), |(i, j)| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 0.7 + random.uniform(),
            std::cmp::Ordering::Greater => 0.5 * random.normal() / (d as f64).sqrt(),
        });
        l.dot(&l.t())
    };
    let covariances = match kind {
        CovarianceType::Full => {
            let all: Vec<_> = (0..k).map(|_| matrix()).collect();
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| all[c][[i, j]]))
        }
        CovarianceType::Tied => Covariances::Tied(matrix()),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |_| 0.5 + random.uniform())),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_shape_fn(k, |_| 0.5 + random.uniform())),
    };
    Mixture::new(weights, means, covariances).unwrap()
}

/// Rows near the mixture's components, rounded to `T`.
pub(crate) fn rows<T: Real>(mixture: &Mixture, n: usize, random: &mut Random) -> Array2<f64> {
    let (k, d) = mixture.means().dim();
    Array2::from_shape_fn((n, d), |(i, j)| {
        T::from_f64(mixture.means()[[i * 7 % k, j]] + 1.3 * random.normal()).to_f64()
    })
}

/// Column means, which the host uses as the shift.
pub(crate) fn column_means(rows: &Array2<f64>) -> Vec<f64> {
    rows.mean_axis(ndarray::Axis(0)).unwrap().to_vec()
}
