//! The four covariance kinds: names, shapes and packed lengths.

use std::fmt;
use std::str::FromStr;

use ndarray::{Array1, Array2, Array3};
use serde::{Deserialize, Serialize};

use crate::ModelError;

/// How the components' covariances are constrained; names and shapes are scikit-learn's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CovarianceType {
    /// Every component has its own symmetric matrix: `(k, d, d)`.
    Full,
    /// All components share one symmetric matrix: `(d, d)`.
    Tied,
    /// Every component has its own variances: `(k, d)`.
    Diag,
    /// Every component has one variance: `(k,)`.
    Spherical,
}

impl CovarianceType {
    /// All kinds, in the order in which they are documented.
    pub const ALL: [Self; 4] = [Self::Full, Self::Tied, Self::Diag, Self::Spherical];

    /// The lower-case name used in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tied => "tied",
            Self::Diag => "diag",
            Self::Spherical => "spherical",
        }
    }

    /// Length of the packed second moments in [`Statistics`](crate::Statistics):
    /// `k*d*(d+1)/2`, `d*(d+1)/2`, `k*d` or `k`.
    pub const fn second_len(self, k: usize, d: usize) -> usize {
        match self {
            Self::Full => k * packed_len(d),
            Self::Tied => packed_len(d),
            Self::Diag => k * d,
            Self::Spherical => k,
        }
    }

    /// Number of free covariance parameters of a mixture of `k` components in `d` dimensions.
    pub const fn free_parameters(self, k: usize, d: usize) -> usize {
        self.second_len(k, d)
    }
}

impl fmt::Display for CovarianceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CovarianceType {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| ModelError::UnknownWord {
            what: "covariance type",
            word: text.to_owned(),
            choices: "full, tied, diag, spherical",
        })
    }
}

/// What the covariances of a fit are: one of the four kinds, or full ones of a few factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CovarianceModel {
    /// The kind.
    pub kind: CovarianceType,
    /// The number of factors of each full covariance, of a mixture of factor analysers.
    pub factors: Option<usize>,
}

impl CovarianceModel {
    /// Number of free covariance parameters of a mixture of `k` components in `d` dimensions. With factors these are
    /// uniquenesses, and loadings less the rotations of the factors; at most those of full covariances.
    pub fn free_parameters(self, k: usize, d: usize) -> usize {
        let most = self.kind.free_parameters(k, d);
        self.factors.map_or(most, |h| most.min(k * (d + d * h - h * h.saturating_sub(1) / 2)))
    }
}

impl From<CovarianceType> for CovarianceModel {
    fn from(kind: CovarianceType) -> Self {
        Self { kind, factors: None }
    }
}

/// `full`, `tied`, `diag`, `spherical`, or `factors:H`.
impl fmt::Display for CovarianceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.factors {
            Some(h) => f.pad(&format!("factors:{h}")),
            None => self.kind.fmt(f),
        }
    }
}

impl FromStr for CovarianceModel {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let unknown = || ModelError::UnknownWord {
            what: "covariance type",
            word: text.to_owned(),
            choices: "full, tied, diag, spherical, factors:H",
        };
        match text.strip_prefix("factors:") {
            Some(h) => match h.parse() {
                Ok(0) | Err(_) => Err(unknown()),
                Ok(h) => Ok(Self { kind: CovarianceType::Full, factors: Some(h) }),
            },
            None => text.parse().map(|kind: CovarianceType| kind.into()).map_err(|_| unknown()),
        }
    }
}

/// Number of entries of a packed lower triangle: `d*(d+1)/2`.
pub const fn packed_len(d: usize) -> usize {
    d * (d + 1) / 2
}

/// Position of entry `(i, j)`, `j <= i`, in a packed lower triangle stored row by row.
pub const fn packed_index(i: usize, j: usize) -> usize {
    i * (i + 1) / 2 + j
}

/// Visits the entries `(i, j)`, `j < i`, of a `(d, d)` matrix tile by tile, so that the transposed entries `(j, i)`,
/// which are a whole row apart, stay in the cache.
pub(crate) fn below_diagonal(d: usize, mut visit: impl FnMut(usize, usize)) {
    // A cache line holds eight numbers.
    const TILE: usize = 8;
    for top in (0..d).step_by(TILE) {
        for left in (0..=top).step_by(TILE) {
            for i in top..d.min(top + TILE) {
                (left..i.min(left + TILE)).for_each(|j| visit(i, j));
            }
        }
    }
}

/// The components' covariances in scikit-learn's shapes. Plain data: [`Mixture::new`](crate::Mixture::new) checks them.
#[derive(Clone, Debug, PartialEq)]
pub enum Covariances {
    /// `(k, d, d)`, each symmetric positive definite.
    Full(Array3<f64>),
    /// `(d, d)`, symmetric positive definite.
    Tied(Array2<f64>),
    /// `(k, d)` variances.
    Diag(Array2<f64>),
    /// `(k,)` variances.
    Spherical(Array1<f64>),
}

impl Covariances {
    /// The covariance kind.
    pub const fn kind(&self) -> CovarianceType {
        match self {
            Self::Full(_) => CovarianceType::Full,
            Self::Tied(_) => CovarianceType::Tied,
            Self::Diag(_) => CovarianceType::Diag,
            Self::Spherical(_) => CovarianceType::Spherical,
        }
    }

    /// All entries, in row-major order.
    pub fn values(&self) -> impl Iterator<Item = &f64> {
        let all = match self {
            Self::Full(a) => a.view().into_dyn(),
            Self::Tied(a) | Self::Diag(a) => a.view().into_dyn(),
            Self::Spherical(a) => a.view().into_dyn(),
        };
        all.into_iter()
    }

    /// The array's shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Full(a) => a.shape(),
            Self::Tied(a) | Self::Diag(a) => a.shape(),
            Self::Spherical(a) => a.shape(),
        }
    }

    /// The covariance of component `k` as a `(d, d)` matrix.
    pub fn matrix(&self, k: usize, d: usize) -> Array2<f64> {
        match self {
            Self::Full(a) => a.index_axis(ndarray::Axis(0), k).to_owned(),
            Self::Tied(a) => a.clone(),
            Self::Diag(a) => Array2::from_diag(&a.row(k)),
            Self::Spherical(a) => Array2::from_diag_elem(d, a[k]),
        }
    }
}
