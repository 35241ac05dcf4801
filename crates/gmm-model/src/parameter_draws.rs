//! Draws of mixture parameters, in the layout of ArviZ: the output of samplers and the content of draw files.

use crate::{CovarianceType, Covariances, Mixture};

/// Draws of the parameters of mixtures of `k` components in `d` dimensions: `N` draws from each of `C` chains. The
/// first two axes of every array are (chain, draw); all are in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterDraws {
    /// The covariance kind.
    pub kind: CovarianceType,
    /// Number of chains `C`.
    pub chains: usize,
    /// Number of draws per chain, `N`.
    pub draws: usize,
    /// Number of components.
    pub k: usize,
    /// Number of dimensions.
    pub d: usize,
    /// `(C, N, k)`.
    pub weights: Vec<f64>,
    /// `(C, N, k, d)`.
    pub means: Vec<f64>,
    /// `(C, N)` followed by the shape of the kind: full `(k, d, d)`, tied `(d, d)`, diag `(k, d)`, spherical `(k,)`.
    pub covariances: Vec<f64>,
}

/// A statistic that a sampler reports for each draw, `(C, N)`.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawStat {
    /// Floating-point numbers.
    Values(Vec<f64>),
    /// Integers.
    Counts(Vec<i64>),
    /// Booleans.
    Flags(Vec<bool>),
}

impl DrawStat {
    /// Number of values: one per draw.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(all) => all.len(),
            Self::Counts(all) => all.len(),
            Self::Flags(all) => all.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A parameter: its name, the shape of one draw, and its values, `(C, N)` followed by that shape.
pub type Parameter<'a> = (&'static str, Vec<usize>, &'a [f64]);

impl ParameterDraws {
    /// Draws without values, to be filled by [`push`](Self::push).
    pub const fn empty(kind: CovarianceType, (chains, draws): (usize, usize), (k, d): (usize, usize)) -> Self {
        Self { kind, chains, draws, k, d, weights: Vec::new(), means: Vec::new(), covariances: Vec::new() }
    }

    /// Appends a draw.
    ///
    /// # Panics
    /// If `mixture` differs in kind, `k` or `d`.
    pub fn push(&mut self, mixture: &Mixture) {
        assert_eq!((mixture.covariance_type(), mixture.means().dim()), (self.kind, (self.k, self.d)));
        self.weights.extend(mixture.weights());
        self.means.extend(mixture.means());
        match mixture.covariances() {
            Covariances::Full(a) => self.covariances.extend(a),
            Covariances::Tied(a) | Covariances::Diag(a) => self.covariances.extend(a),
            Covariances::Spherical(a) => self.covariances.extend(a),
        }
    }

    /// The shape of the covariances of one draw.
    pub fn covariance_shape(&self) -> Vec<usize> {
        let (k, d) = (self.k, self.d);
        match self.kind {
            CovarianceType::Full => vec![k, d, d],
            CovarianceType::Tied => vec![d, d],
            CovarianceType::Diag => vec![k, d],
            CovarianceType::Spherical => vec![k],
        }
    }

    /// Weights, means and covariances, with their names.
    pub fn parameters(&self) -> [Parameter<'_>; 3] {
        [
            ("weights", vec![self.k], &self.weights),
            ("means", vec![self.k, self.d], &self.means),
            ("covariances", self.covariance_shape(), &self.covariances),
        ]
    }

    /// Whether the length of every array agrees with its shape.
    pub fn is_whole(&self) -> bool {
        let total = self.chains * self.draws;
        self.parameters().into_iter().all(|(_, shape, values)| values.len() == total * shape.iter().product::<usize>())
    }

    /// Name and values, `(C, N)`, of each scalar of a draw: `weights[0]`, .., `means[0,0]`, .., `covariances[0,0,0]`,
    /// ..
    pub fn scalars(&self) -> impl Iterator<Item = (String, Vec<f64>)> {
        self.parameters().into_iter().flat_map(|(name, shape, values)| {
            let size: usize = shape.iter().product();
            (0..size).map(move |at| {
                let column = values.iter().skip(at).step_by(size).copied().collect();
                (format!("{name}[{}]", indices(at, &shape)), column)
            })
        })
    }
}

/// Formats a row-major position as comma-separated indices.
fn indices(mut at: usize, shape: &[usize]) -> String {
    let mut indices = Vec::with_capacity(shape.len());
    for len in shape.iter().rev() {
        indices.push((at % len).to_string());
        at /= len;
    }
    indices.reverse();
    indices.join(",")
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn draws_are_row_major_and_named_by_their_indices() {
        let mut draws = ParameterDraws::empty(CovarianceType::Diag, (1, 2), (2, 1));
        for shift in [0.0, 10.0] {
            let means = array![[shift], [shift + 1.0]];
            let covariances = Covariances::Diag(array![[1.0], [2.0]]);
            draws.push(&Mixture::new(array![0.25, 0.75], means, covariances).unwrap());
        }
        assert!(draws.is_whole());
        let scalars: Vec<_> = draws.scalars().collect();
        let names: Vec<_> = scalars.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["weights[0]", "weights[1]", "means[0,0]", "means[1,0]", "covariances[0,0]", "covariances[1,0]"];
        assert_eq!(names, expected);
        assert_eq!(scalars[3].1, [1.0, 11.0]);
        draws.means.pop();
        assert!(!draws.is_whole());
    }
}
