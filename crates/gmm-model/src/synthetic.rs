//! Synthetic mixtures for tests and benchmarks: known parameters, separated means, correlated covariances.

use ndarray::{Array1, Array2, Array3};

use crate::{Cholesky, CovarianceType, Covariances, Draws, Mixture, ModelError, packed_index, packed_len};

/// Options of a synthetic mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticOptions {
    /// Concentration of the Dirichlet distribution of the weights: large gives even weights, below 1 very uneven ones.
    /// Default 10.
    pub concentration: f64,
    /// Smallest distance between two means, in units of `sqrt(max trace Σ)`: the `c` of c-separation (Dasgupta 1999),
    /// with the trace in place of d times the largest eigenvalue. In few dimensions components overlap noticeably at 1,
    /// and hardly at 3. Default 2.
    pub separation: f64,
    /// Degrees of freedom of the Wishart or chi-square distribution; must be above `d − 1`. Smaller values give
    /// stronger correlations and larger condition numbers. Default `2 d + 2`: condition numbers about 30 for large d.
    pub degrees_of_freedom: Option<f64>,
    /// Standard deviation of a column in the average component. Default 1.
    pub scale: f64,
}

impl Default for SyntheticOptions {
    fn default() -> Self {
        Self { concentration: 10.0, separation: 2.0, degrees_of_freedom: None, scale: 1.0 }
    }
}

/// Draws a mixture of `k` components in `d` dimensions; the same arguments give the same bits on any machine.
///
/// Weights come from a Dirichlet distribution. Full and tied covariances come from a Wishart distribution divided by
/// its degrees of freedom, so that their mean is `scale² I` while each one is correlated; diag and spherical variances
/// come from chi-squares in the same way. Means are uniform in a centred cube and are redrawn until they keep the
/// separation; the cube grows if it is too full. Rows can be drawn by [`sample`](crate::sample()).
///
/// # Errors
/// [`ModelError::Range`] if `k` or `d` is 0 or an option is out of range.
///
/// Cost: about `k² d` for the means and `k d³/3` for the covariances.
///
/// ```
/// use gmm_model::{CovarianceType, SyntheticOptions, sample, synthetic};
///
/// let truth = synthetic(3, 2, CovarianceType::Full, 0, &SyntheticOptions::default())?;
/// let (rows, labels) = sample(&truth, 1000, 0)?;
/// assert_eq!((rows.dim(), labels.len()), ((1000, 2), 1000));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn synthetic(
    k: usize,
    d: usize,
    kind: CovarianceType,
    seed: u64,
    options: &SyntheticOptions,
) -> Result<Mixture, ModelError> {
    let nu = check(k, d, options)?;
    // A stream per part: weights do not change with the dimension, nor covariances with the separation.
    let stream = |part| Draws::for_purpose("synthetic", seed, part);
    let weights = Array1::from_vec(stream(0).dirichlet(k, options.concentration));
    let covariances = covariances(k, d, kind, nu, options.scale, &mut stream(1));
    let traces = (0..k).map(|c| trace(&covariances, c, d));
    let least = options.separation * traces.fold(0.0, f64::max).sqrt();
    let means = spread_means(k, d, least, options.scale, &mut stream(2));
    Mixture::new(weights, means, covariances)
}

fn check(k: usize, d: usize, options: &SyntheticOptions) -> Result<f64, ModelError> {
    let range = |ok: bool, what, value: String, must| {
        if ok { Ok(()) } else { Err(ModelError::Range { what, value, must }) }
    };
    let positive = |v: f64| v > 0.0 && v.is_finite();
    range(k > 0, "n_components", k.to_string(), "at least 1")?;
    range(d > 0, "n_features", d.to_string(), "at least 1")?;
    let SyntheticOptions { concentration, separation, degrees_of_freedom, scale } = *options;
    range(positive(concentration), "concentration", concentration.to_string(), "positive and finite")?;
    // 1e100 is far above any useful value, and far below where the side of the cube would overflow.
    let separated = (0.0..=1e100).contains(&separation);
    range(separated, "separation", separation.to_string(), "between 0 and 1e100")?;
    range(positive(scale), "scale", scale.to_string(), "positive and finite")?;
    let nu = degrees_of_freedom.unwrap_or((2 * d + 2) as f64);
    let above = nu.is_finite() && nu > d as f64 - 1.0;
    range(above, "degrees_of_freedom", nu.to_string(), "finite and above the number of columns less 1")?;
    Ok(nu)
}

fn covariances(k: usize, d: usize, kind: CovarianceType, nu: f64, scale: f64, draws: &mut Draws) -> Covariances {
    let variance = scale * scale / nu;
    let full = |draws: &mut Draws| {
        let factor = bartlett_factor(draws, nu, d);
        Array2::from_shape_fn((d, d), |(i, j)| {
            let (a, b) = (&factor[packed_index(i, 0)..], &factor[packed_index(j, 0)..]);
            variance * a.iter().zip(b).take(i.min(j) + 1).map(|(a, b)| a * b).sum::<f64>()
        })
    };
    match kind {
        CovarianceType::Full => {
            let mut all = Array3::zeros((k, d, d));
            all.outer_iter_mut().for_each(|mut a| a.assign(&full(draws)));
            Covariances::Full(all)
        }
        CovarianceType::Tied => Covariances::Tied(full(draws)),
        CovarianceType::Diag => {
            Covariances::Diag(Array2::from_shape_simple_fn((k, d), || variance * draws.chi_square(nu)))
        }
        CovarianceType::Spherical => {
            Covariances::Spherical(Array1::from_shape_simple_fn(k, || variance * draws.chi_square(nu)))
        }
    }
}

/// Packed lower factor `A`, `d*(d+1)/2`, of a Wishart draw `A Aᵀ` with identity scale and `nu > d − 1` degrees of
/// freedom (Bartlett 1933): `A[i,i]² ~ χ²(nu − i)`, `A[i,j] ~ N(0, 1)` below the diagonal.
pub fn bartlett_factor(draws: &mut Draws, nu: f64, d: usize) -> Vec<f64> {
    let mut factor = Vec::with_capacity(packed_len(d));
    for i in 0..d {
        factor.extend((0..i).map(|_| draws.normal()));
        factor.push(draws.chi_square(nu - i as f64).sqrt());
    }
    factor
}

/// A Wishart draw, `(d, d)`, with scale `L Lᵀ` and `nu > d − 1` degrees of freedom; its mean is `nu L Lᵀ`.
///
/// `W = (L A)(L A)ᵀ` with `A` from [`bartlett_factor`]. Cost: `O(d³)`.
pub fn wishart(draws: &mut Draws, scale: &Cholesky, nu: f64) -> Array2<f64> {
    let d = scale.dim();
    let factor = bartlett_factor(draws, nu, d);
    let mut product = Array2::zeros((d, d));
    let (mut column, mut image) = (vec![0.0; d], vec![0.0; d]);
    for j in 0..d {
        for (i, slot) in column.iter_mut().enumerate() {
            *slot = if i < j { 0.0 } else { factor[packed_index(i, j)] };
        }
        scale.multiply_lower(&column, &mut image);
        for i in 0..d {
            product[[i, j]] = image[i];
        }
    }
    // Summed in a plain loop: the matrix product of a library may add in another order on another machine.
    Array2::from_shape_fn((d, d), |(i, j)| (0..=i.min(j)).map(|m| product[[i, m]] * product[[j, m]]).sum())
}

fn trace(covariances: &Covariances, c: usize, d: usize) -> f64 {
    match covariances {
        Covariances::Full(a) => (0..d).map(|j| a[[c, j, j]]).sum(),
        Covariances::Tied(a) => (0..d).map(|j| a[[j, j]]).sum(),
        Covariances::Diag(a) => a.row(c).iter().sum(),
        Covariances::Spherical(a) => d as f64 * a[c],
    }
}

/// Number of failed draws before the cube grows by `GROWTH`: about 40 draws for every doubling of its side.
const TRIES: usize = 6;
const GROWTH: f64 = 1.1;

/// `(k, d)` means, all at least `least` apart.
fn spread_means(k: usize, d: usize, least: f64, scale: f64, draws: &mut Draws) -> Array2<f64> {
    // Two uniform points in a cube of side s are s sqrt(d/6) apart on average. In few dimensions the k points also need
    // room for a ball each.
    let room = libm::pow(k as f64, 1.0 / d as f64).max((6.0 / d as f64).sqrt());
    let mut side = if least > 0.0 { least * room } else { scale * (6.0 / d as f64).sqrt() };
    let mut means = Array2::zeros((k, d));
    let mut point = vec![0.0; d];
    for c in 0..k {
        let mut tries = 0;
        loop {
            point.iter_mut().for_each(|x| *x = side * (draws.uniform() - 0.5));
            let far = |mean: ndarray::ArrayView1<'_, f64>| {
                mean.iter().zip(&point).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() >= least * least
            };
            if means.outer_iter().take(c).all(far) {
                break;
            }
            tries += 1;
            if tries % TRIES == 0 {
                side *= GROWTH;
            }
        }
        means.row_mut(c).iter_mut().zip(&point).for_each(|(slot, x)| *slot = *x);
    }
    means
}
