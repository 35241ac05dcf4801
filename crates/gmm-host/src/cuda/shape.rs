//! The shape of a problem: the numbers from which every plan is made.

use gmm_kernels::layout::{Kind, statistics_len};
use gmm_model::{CovarianceType, Precision};

use crate::Error;

/// The shape of a problem: covariance type, precision, and the numbers of rows, components and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: CovarianceType,
    pub(crate) precision: Precision,
    pub(crate) n: u64,
    pub(crate) k: u32,
    pub(crate) d: u32,
}

impl Shape {
    /// The shape of `n` rows of `d` columns with `k` components.
    ///
    /// # Errors
    /// [`Error::Option`] if `d` or `k` is 0 or does not fit into a `u32`.
    pub(crate) fn new(
        kind: CovarianceType,
        precision: Precision,
        (n, d, k): (usize, usize, usize),
    ) -> Result<Self, Error> {
        let count = |option: &'static str, value: usize| {
            u32::try_from(value).ok().filter(|v| *v > 0).ok_or_else(|| Error::Option {
                option,
                value: value.to_string(),
                must: "from 1 to 4294967295".to_owned(),
            })
        };
        Ok(Self { kind, precision, n: n as u64, k: count("k", k)?, d: count("d", d)? })
    }

    /// The covariance type as the kernels' enum.
    pub(crate) const fn kernel_kind(&self) -> Kind {
        match self.kind {
            CovarianceType::Full => Kind::Full,
            CovarianceType::Tied => Kind::Tied,
            CovarianceType::Diag => Kind::Diag,
            CovarianceType::Spherical => Kind::Spherical,
        }
    }

    pub(crate) const fn number_bytes(&self) -> u64 {
        match self.precision {
            Precision::F32 => 4,
            Precision::F64 => 8,
        }
    }

    /// Number of `f64` values in the statistics.
    pub(crate) const fn statistics(&self) -> u64 {
        statistics_len(self.kernel_kind(), self.k, self.d)
    }
}
