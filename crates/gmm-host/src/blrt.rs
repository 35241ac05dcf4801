//! The bootstrap likelihood-ratio test of K components against more (McLachlan 1987).

use std::ops::ControlFlow;

use gmm_model::{Dataset, Draws, Mixture, sample};

use crate::{Engine, Error, FitOptions, Init, fit};

/// Options of [`blrt`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlrtOptions {
    /// Number of data sets drawn from the smaller mixture. The smallest possible p-value is `1/(replicates + 1)`.
    pub replicates: usize,
    /// Number of rows of each data set.
    pub rows: usize,
    /// Seed of the draws.
    pub seed: u64,
}

/// The result of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct BlrtTest {
    /// Number of components under the null hypothesis.
    pub k: usize,
    /// `2 (LL₁ − LL₀)`, with the log-likelihoods of the two fits on the data.
    pub statistic: f64,
    /// The statistic of each data set drawn from the null hypothesis, `(replicates,)`.
    pub replicates: Vec<f64>,
    /// Share of the statistics, that of the data included, that are at least as large as that of the data.
    pub p_value: f64,
    /// Number of drawn data sets that could not be fitted, and were replaced.
    pub failed: usize,
}

/// One of the two fits compared: its mixture, and its log-likelihood on the data.
#[derive(Clone, Copy, Debug)]
pub struct BlrtFit<'a> {
    /// The mixture.
    pub mixture: &'a Mixture,
    /// `Σ w ln p(x)`.
    pub log_likelihood: f64,
}

/// Tests `null` against `alternative`, which has more components of the same covariance kind: draws data sets from
/// `null`, fits both mixtures to each, and compares the statistic of the data with theirs.
///
/// The smaller mixture is fitted from the parameters from which the data set was drawn. The larger one is fitted from
/// those of `alternative`, as in mclust, and by the start of `options`, and the better one counts: from the former alone EM
/// may end at a poor optimum, which makes the test reject too often. `options` are those of the two fits.
///
/// `observer` is called after each data set with the number done. Cost: three fits for each data set.
///
/// # Errors
/// [`Error::Interrupted`] if the observer breaks; any error of the device. A numerical failure replaces a data set by
/// another; its error is returned if there are more failures than ten times `replicates`.
pub fn blrt(
    engine: &dyn Engine,
    null: BlrtFit<'_>,
    alternative: BlrtFit<'_>,
    options: &FitOptions,
    blrt: &BlrtOptions,
    observer: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<BlrtTest, Error> {
    options.rule.refuse_noise("the bootstrapped likelihood ratio test")?;
    let k = null.mixture.n_components();
    let statistic = 2.0 * (alternative.log_likelihood - null.log_likelihood);
    let mut replicates = Vec::with_capacity(blrt.replicates);
    let mut failed = 0;
    for attempt in 0.. {
        if replicates.len() == blrt.replicates {
            break;
        }
        let seed = Draws::for_purpose("blrt", blrt.seed, (attempt << 16) + k as u64).bits();
        match replicate(engine, null.mixture, alternative.mixture, options, (blrt.rows, seed)) {
            Ok(value) => replicates.push(value),
            Err(error) if error.is_numerical() => {
                failed += 1;
                if failed > 10 * blrt.replicates {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        if observer(replicates.len()).is_break() {
            return Err(Error::Interrupted { iterations: 0 });
        }
    }
    let above = replicates.iter().filter(|&&value| value >= statistic).count();
    let p_value = (1 + above) as f64 / (blrt.replicates + 1) as f64;
    Ok(BlrtTest { k, statistic, replicates, p_value, failed })
}

/// The statistic of `rows` rows drawn from `null`.
fn replicate(
    engine: &dyn Engine,
    null: &Mixture,
    alternative: &Mixture,
    options: &FitOptions,
    (rows, seed): (usize, u64),
) -> Result<f64, Error> {
    let data = Dataset::new(sample(null, rows, seed)?.0)?;
    let log_likelihood = |k: usize, init: Init| {
        let options = FitOptions { n_components: k, init, ..options.clone() };
        Ok::<_, Error>(fit(engine, &data, &options)?.summary.log_likelihood)
    };
    let given = |mixture: &Mixture| Init::Given(Box::new(mixture.clone()));
    let smaller = log_likelihood(null.n_components(), given(null))?;
    let larger = log_likelihood(alternative.n_components(), given(alternative));
    // A tree of the data is none of a drawn data set.
    let start = match &options.init {
        Init::Tree(_) => Init::Tree(None),
        Init::Best(_) => Init::Best(None),
        other => other.clone(),
    };
    let anew = log_likelihood(alternative.n_components(), start);
    let larger = match (larger, anew) {
        (Ok(a), Ok(b)) => a.max(b),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
        (Err(error), Err(_)) => return Err(error),
    };
    Ok(2.0 * (larger - smaller))
}
