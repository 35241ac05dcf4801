//! Evaluations over the components near each tile of rows, with the buffers and the order of the loop.

use gmm_model::Mixture;

use super::path::LoopPlan;
use crate::Error;
use crate::cuda::em::device_loop::{Loop, Member};
use crate::cuda::em::paths::nearby;
use crate::cuda::em::run;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::outputs::Outputs;
use crate::em::EmOptions;
use crate::{Evaluation, path_names};

/// Evaluates a mixture of thousands of components; `None` if other evaluations are faster or needed. Agrees with them to rounding.
///
/// Cost: that of an iteration, and, unless a loop over these rows left this mixture, that of a loop's begin.
///
/// # Errors
/// As for a pass.
pub(crate) fn evaluate<T: Number>(
    Member { em, rows }: Member<'_, T>,
    mixture: &Mixture,
    outputs: &mut Outputs<'_>,
) -> Result<Option<Evaluation>, Error> {
    let extras = outputs.extras();
    let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
    // A row of weight 0 has a density too, but its components are not looked for.
    let of_rows = extras.log_densities || extras.labels;
    if outputs.wants_responsibilities() || (of_rows && rows.row_weights.is_some()) || rows.borrowed.is_some() {
        return Ok(None);
    }
    let paths = super::running(rows, &shape, false);
    let Some(&path) = paths.iter().find(|path| path.name() == path_names::NEARBY) else { return Ok(None) };
    if em.is_refused(path, &shape) {
        return Ok(None);
    }
    let one =
        EmOptions { tol: 0.0, max_iter: 1, reg_covar: 0.0, precision: rows.precision, autotune: false, fast: false };
    let Some(plan) = run::plan(rows, shape, path, &one, 0)? else { return Ok(None) };
    match on_path(em, rows, &plan, mixture, outputs) {
        // Other evaluations need less.
        Err(Error::Memory { .. }) => Ok(None),
        other => other,
    }
}

/// As [`evaluate`], with a plan.
fn on_path<T: Number>(
    em: &mut Loop,
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    mixture: &Mixture,
    outputs: &mut Outputs<'_>,
) -> Result<Option<Evaluation>, Error> {
    let extras = outputs.extras();
    let densities = if extras.log_densities { Some(em.densities(rows)?) } else { None };
    let mut found = None;
    let suits = em.with_near(rows, plan, mixture, |launch, again| {
        found = Some(nearby::evaluate(launch, again, densities.as_ref())?);
        Ok(())
    })?;
    let Some(nearby::Evaluated { totals: [log_likelihood, entropy], labels }) = found.filter(|_| suits) else {
        return Ok(None);
    };
    if !log_likelihood.is_finite() || !entropy.is_finite() {
        return Ok(None);
    }
    outputs.touch();
    if let Some(densities) = &densities {
        outputs.put_log_densities(&rows.gpu, &rows.queue, 0..rows.n, densities)?;
    }
    if extras.labels {
        outputs.put_labels(&rows.gpu, &rows.queue, 0..rows.n, &labels)?;
    }
    rows.queue.wait(&rows.gpu)?;
    Ok(Some(Evaluation { log_likelihood, entropy, total_weight: rows.total_weight }))
}
