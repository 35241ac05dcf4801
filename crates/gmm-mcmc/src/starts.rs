//! Points from which chains start: about a mixture, further apart than the posterior is wide.

use gmm_host::{Data, Engine, FitOptions, Likelihood, fit};
use gmm_model::{Draws, Mixture, Precision};

use crate::{Error, Options, Target};

/// How far a start is moved, in standard deviations of a component (means), and as logarithms (deviations, ratios of
/// weights): several posterior deviations wherever a component has a few dozen rows.
const SPREAD: f64 = 0.3;
/// Tries at half the distance each before a start without density is an error.
const TRIES: usize = 12;

/// Which mixtures chains start about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    /// All about one: the best of five fits.
    Fit,
    /// Each about a fit of its own, from a seed of its own.
    Each,
}

/// A point for each chain, about fits by EM of as many components as the target has.
///
/// Cost: five fits, or one for each chain, and two walks through the rows ([`Data::walk`]).
///
/// # Errors
/// As for [`fit()`] and [`about`], and of rows on a GPU what [`Data::walk`] says.
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
    // A start may be narrow, but not on a single row.
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
        // Seeds of chains differ, and from those of the run's neighbours.
        let seed = options.seed.wrapping_mul(1 << 20).wrapping_add(chain as u64);
        let own = if common.is_none() { Some(fitted(1, seed)?) } else { None };
        let mixture = common.as_ref().or(own.as_ref()).expect("one of the two");
        points.push(about(mixture, target, likelihood, options.seed, chain)?);
    }
    Ok(points)
}

/// The least variance of a column that is not constant; 1 where all are.
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

/// A point about `mixture` for chain number `chain`, moved at random, `(m,)`. Weights below half a row become that.
///
/// Components keep the order in which the mixture has them, and chains about one mixture look for other modes only as
/// far as they mix: the diagnostics cannot see what no chain has visited. Chains about mixtures of their own, such as
/// fits from several seeds, say more, and are slower to agree.
///
/// # Errors
/// [`Error::Start`] where there is no finite density near the mixture, as with rows beyond the range of squares.
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

/// Standard deviation of each component and column, `(k*d,)`.
fn scales(mixture: &Mixture) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let of = |c: usize| mixture.covariances().matrix(c, d).diag().to_vec();
    (0..k).flat_map(of).map(f64::sqrt).collect()
}

/// What one unit of a scale is: 1 for logarithms, the diagonal entry of its row for what stands below the diagonal.
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
