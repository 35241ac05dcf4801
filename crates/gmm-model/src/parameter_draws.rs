//! Draws of mixtures' parameters, in the layout that ArviZ reads: what samplers make and files hold.

use crate::{CovarianceType, Covariances, Mixture};

/// `N` draws of each of `C` chains, of the parameters of mixtures of `k` components in `d` dimensions. All arrays have
/// (chain, draw) in front of their own dimensions, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterDraws {
    /// The covariance kind.
    pub kind: CovarianceType,
    /// Chains `C`.
    pub chains: usize,
    /// Draws of each chain, `N`.
    pub draws: usize,
    /// Components.
    pub k: usize,
    /// Dimensions.
    pub d: usize,
    /// `(C, N, k)`.
    pub weights: Vec<f64>,
    /// `(C, N, k, d)`.
    pub means: Vec<f64>,
    /// `(C, N)` and the kind's shape: full `(k, d, d)`, tied `(d, d)`, diag `(k, d)`, spherical `(k,)`.
    pub covariances: Vec<f64>,
}

/// What a sampler says of each draw, `(C, N)`.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawStat {
    /// Numbers.
    Values(Vec<f64>),
    /// Whole numbers.
    Counts(Vec<i64>),
    /// Yes or no.
    Flags(Vec<bool>),
}

impl DrawStat {
    /// Draws of which something is said.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(all) => all.len(),
            Self::Counts(all) => all.len(),
            Self::Flags(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One of the parameters: its name, the shape of one draw, and values with (chain, draw) in front.
pub type Parameter<'a> = (&'static str, Vec<usize>, &'a [f64]);

impl ParameterDraws {
    /// No values yet, for [`push`](Self::push) to fill.
    pub const fn empty(kind: CovarianceType, (chains, draws): (usize, usize), (k, d): (usize, usize)) -> Self {
        Self { kind, chains, draws, k, d, weights: Vec::new(), means: Vec::new(), covariances: Vec::new() }
    }

    /// Appends a draw of the kind, `k` and `d` that these have.
    ///
    /// # Panics
    /// For another kind, `k` or `d`.
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

    /// The shape of one draw's covariances.
    pub fn covariance_shape(&self) -> Vec<usize> {
        let (k, d) = (self.k, self.d);
        match self.kind {
            CovarianceType::Full => vec![k, d, d],
            CovarianceType::Tied => vec![d, d],
            CovarianceType::Diag => vec![k, d],
            CovarianceType::Spherical => vec![k],
        }
    }

    /// Weights, means and covariances.
    pub fn parameters(&self) -> [Parameter<'_>; 3] {
        [
            ("weights", vec![self.k], &self.weights),
            ("means", vec![self.k, self.d], &self.means),
            ("covariances", self.covariance_shape(), &self.covariances),
        ]
    }

    /// Whether every array is as long as its shape says.
    pub fn is_whole(&self) -> bool {
        let total = self.chains * self.draws;
        self.parameters().into_iter().all(|(_, shape, values)| values.len() == total * shape.iter().product::<usize>())
    }

    /// The name of each number of a draw, `weights[0]`, .., `means[0,0]`, .., `covariances[0,0,0]`, .., and its values,
    /// `(C, N)`.
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

/// A row-major position as indices with commas.
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
