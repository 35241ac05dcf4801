//! Starting points of chains: around a mixture, more widely spread than the posterior.

use gmm_host::{Data, Engine, FitOptions, Likelihood, fit};
use gmm_model::{Draws, Mixture, Precision};

use crate::{Error, Options, Target};

/// Standard deviation of the random shift of a start, in standard deviations of the component (means) and in logarithms
/// (standard deviations, ratios of weights). This is several posterior standard deviations if a component has at least
/// a few dozen rows.
const SPREAD: f64 = 0.3;
/// Number of attempts, each at half the distance of the last, before a start without finite density is an error.
const TRIES: usize = 12;

/// The mixtures around which chains start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    /// All chains start around the same mixture, the best of five fits.
    Fit,
    /// Each chain starts around a separate fit with its own seed.
    Each,
}

/// A starting point for each chain, around EM fits with the target's kind and number of components.
///
/// Cost: five fits, or one per chain, and two reads of the data ([`Data::walk`]).
///
/// # Errors
/// As for [`fit()`] and [`about`]; for rows on a GPU also as for [`Data::walk`].
pub fn about_fits<'a>(
    centre: Centre,
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    precision: Precision,
    options: &Options,
    target: &Target,
    likelihood: &mut Likelihood,
) -> Result<Vec<Vec<f64>>, Error> {
    let data = data.into();
    // Keeps a component of a start from collapsing onto a single row.
    let reg_covar = 1e-4 * least_variance(data)?;
    let fitted = |n_init: usize, seed: u64| -> Result<Mixture, Error> {
        let options = FitOptions {
            covariance_type: target.prior().kind(),
            n_init,
            seed,
            precision: Some(precision),
            reg_covar,
            ..FitOptions::new(target.prior().dim().0)
        };
        Ok(fit(engine, data, &options)?.mixture)
    };
    let common = match centre {
        Centre::Fit => Some(fitted(5, options.seed)?),
        Centre::Each => None,
    };
    let mut points = Vec::with_capacity(options.chains);
    for chain in 0..options.chains {
        // Distinct for every chain, and from those of runs with neighbouring seeds.
        let seed = options.seed.wrapping_mul(1 << 20).wrapping_add(chain as u64);
        let own = if common.is_none() { Some(fitted(1, seed)?) } else { None };
        let mixture = common.as_ref().or(own.as_ref()).expect("one of the two");
        points.push(about(mixture, target, likelihood, options.seed, chain)?);
    }
    Ok(points)
}

/// The smallest variance of a column that is not constant; 1 if all are constant.
fn least_variance(data: Data<'_>) -> Result<f64, Error> {
    let (n, d) = data.dim();
    let (mut mean, mut variance) = (vec![0.0; d], vec![0.0; d]);
    data.walk(&mut |_, rows| {
        for row in rows.outer_iter() {
            row.iter().zip(&mut mean).for_each(|(v, mean)| *mean += v / n as f64);
        }
    })?;
    data.walk(&mut |_, rows| {
        for row in rows.outer_iter() {
            for ((v, mean), variance) in row.iter().zip(&mean).zip(&mut variance) {
                *variance += (v - mean).powi(2) / n as f64;
            }
        }
    })?;
    let least = variance.into_iter().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    Ok(if least.is_finite() { least } else { 1.0 })
}

/// A starting point for chain number `chain`, `(m,)`: the point of `mixture`, moved at random. Weights below half a row
/// are raised to that.
///
/// Components keep their order in `mixture`. Chains that start around the same mixture find other modes only if they
/// mix well, and diagnostics cannot detect a mode that no chain has visited. Chains that start around different
/// mixtures, such as fits from several seeds, detect more, but take longer to agree.
///
/// # Errors
/// [`Error::Start`] if the density is not finite near the mixture, for instance because squared distances of rows
/// overflow.
pub fn about(
    mixture: &Mixture,
    target: &Target,
    likelihood: &mut Likelihood,
    seed: u64,
    chain: usize,
) -> Result<Vec<f64>, Error> {
    let least = 0.5 / likelihood.total_weight().max(1.0);
    let weights = mixture.weights().mapv(|w| w.max(least));
    let weights = &weights / weights.sum();
    let mixture = Mixture::new(weights, mixture.means().to_owned(), mixture.covariances().clone())?;
    let centre = target.map().from_mixture(&mixture)?;
    let (k, d) = mixture.means().dim();
    let deviations = scales(&mixture);
    let mut draws = Draws::for_purpose("mcmc start", seed, chain as u64);
    let mut reach = SPREAD;
    for _ in 0..TRIES {
        let mut point = centre.clone();
        for (at, slot) in point.iter_mut().enumerate() {
            let unit = match at.checked_sub(k - 1) {
                None => 1.0,
                Some(at) if at < k * d => deviations[at],
                Some(at) => factor_unit(&mixture, at - k * d, d),
            };
            *slot += reach * unit * draws.normal();
        }
        if let [Some(_)] = target.values_and_gradients(likelihood, std::slice::from_ref(&point))?[..] {
            return Ok(point);
        }
        reach *= 0.5;
    }
    Err(Error::Start { chain, why: "no finite density near its start".to_owned() })
}

/// Standard deviation of each component in each column, `(k*d,)`.
fn scales(mixture: &Mixture) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let of = |c: usize| mixture.covariances().matrix(c, d).diag().to_vec();
    (0..k).flat_map(of).map(f64::sqrt).collect()
}

/// The unit of a scale: 1 for logarithms, the diagonal entry of its row for an entry below the diagonal.
fn factor_unit(mixture: &Mixture, at: usize, d: usize) -> f64 {
    use gmm_model::{Factors, packed_len};
    let (l, at) = match mixture.factors() {
        Factors::Full(all) => (&all[at / packed_len(d)], at % packed_len(d)),
        Factors::Tied(one) => (one, at),
        Factors::Diag(_) | Factors::Spherical(_) => return 1.0,
    };
    // The row of a packed entry.
    let row = (0..d).rev().find(|&i| gmm_model::packed_index(i, 0) <= at).unwrap_or(0);
    if at == gmm_model::packed_index(row, row) { 1.0 } else { l.at(row, row) }
}
