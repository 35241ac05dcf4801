//! The [`Fit`] of a run that an engine made by itself.

use gmm_model::MStepRule;

use super::{Warning, summary, warn_of_run};
use crate::many::GroupRun;
use crate::restarts::{FitState, Restart};
use crate::{Error, Fit, FitOptions};

/// The fit of `n` rows, all of positive weight, that ended with this run on the engine of this name.
///
/// # Errors
/// [`Error::Likelihood`] if the totals are NaN.
pub(crate) fn finished(engine: &str, n: usize, options: &FitOptions, found: GroupRun) -> Result<Fit, Error> {
    let GroupRun { run, restart: index, empty_at_start, starts, evaluation, variances, storage, elapsed } = found;
    if evaluation.log_likelihood.is_nan() || evaluation.entropy.is_nan() {
        return Err(Error::Likelihood { iteration: run.iterations, value: f64::NAN });
    }
    let reg_covar = options.reg_covar;
    let columns: Vec<usize> = (0..variances.len()).filter(|&j| variances[j] < reg_covar).collect();
    let mut warnings = Vec::new();
    if !columns.is_empty() {
        warnings.push(Warning::RegularisationDominates { reg_covar, columns });
    }
    if empty_at_start > 0 {
        warnings.push(Warning::FewerClusters { empty: empty_at_start, k: options.n_components });
    }
    warn_of_run(&mut warnings, &run, options);
    let place = (engine.to_owned(), storage.precision.name().to_owned());
    let summary = summary(&run, &evaluation, n as u64, (options, &MStepRule::default()), place);
    let n_init =
        if options.init.is_deterministic(n, options.n_components, options.init_rows) { 1 } else { options.n_init };
    let best = Restart { index, empty_at_start, run: run.clone() };
    Ok(Fit {
        mixture: run.mixture,
        posterior: None,
        noise: None,
        summary,
        storage,
        warnings,
        elapsed,
        on_device: run.on_device,
        near_components: run.near_components,
        tuning: None,
        fast: None,
        starts,
        state: FitState { begun: n_init, running: None, best: Some(best) },
    })
}
