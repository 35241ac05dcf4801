//! Evaluations over the components near each tile of rows, with the buffers and the order of the loop.

use cust::memory::DeviceSlice;
use gmm_model::{CovarianceType, Mixture};

use super::path::{EmPath, Launch, LoopPlan};
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::em::device_loop::{Loop, Member, Start, for_section, key};
use crate::cuda::em::paths::nearby;
use crate::cuda::em::run;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::outputs::Outputs;
use crate::cuda::shape::Shape;
use crate::em::EmOptions;
use crate::{Evaluation, path_names};

/// Evaluates a mixture of thousands of components; `None` if other evaluations are faster or needed. Agrees with them to rounding.
///
/// Cost: that of an iteration, and, unless a loop over these rows left these means, that of a loop's begin.
///
/// # Errors
/// As for a pass.
pub(crate) fn evaluate<T: Number>(
    Member { em, rows }: Member<'_, T>,
    mixture: &Mixture,
    outputs: &mut Outputs<'_>,
) -> Result<Option<Evaluation>, Error> {
    let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
    let Some(path) = path_for(rows, &shape, outputs) else { return Ok(None) };
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

/// Whether [`evaluate`] may be faster for a mixture of this kind and number of components.
pub(crate) fn may_be_near<T: Number>(
    rows: &Rows<T>,
    (kind, k): (CovarianceType, usize),
    outputs: &Outputs<'_>,
) -> bool {
    path_for(rows, &rows.shape(kind, k), outputs).is_some()
}

fn path_for<T: Number>(rows: &Rows<T>, shape: &Shape, outputs: &Outputs<'_>) -> Option<&'static dyn EmPath> {
    let extras = outputs.extras();
    // A row of weight 0 has a density too, but its components are not looked for.
    let of_rows = extras.log_densities || extras.labels;
    if outputs.wants_responsibilities() || (of_rows && rows.row_weights.is_some()) || rows.borrowed.is_some() {
        return None;
    }
    super::running(rows, shape, false).into_iter().find(|path| path.name() == path_names::NEARBY)
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

impl Loop {
    /// Memory for the log densities of the rows.
    fn densities<T: Number>(&mut self, rows: &mut Rows<T>) -> Result<DeviceSlice<f64>, Error> {
        rows.room("log densities on the GPU", 8 * rows.n as u128, self.densities.bytes())?;
        self.densities.reserve(&rows.gpu, rows.n)?;
        Ok(self.densities.first(rows.n))
    }

    /// Calls `work` for a mixture on a path that orders the rows, and with whether their order is that which was left with these
    /// means. Returns false if the path does not suit the rows.
    fn with_near<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        mixture: &Mixture,
        work: impl FnOnce(&Launch<'_>, bool) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let workspace = Workspace::of(plan);
        self.reserve(rows, plan, &workspace)?;
        let left = (key(plan.path, &plan.shape), mixture.means().to_owned());
        // Not there after a failure.
        let again = self.near.take().as_ref() == Some(&left);
        let scatter = rows.scatter.clone();
        let start = Start::of(mixture, scatter.as_deref());
        if again {
            self.send(rows, plan, &workspace, &start)?;
        } else if !self.begin(rows, plan, &workspace, &start)? {
            return Ok(false);
        }
        let buffers = workspace.buffers(&self.numbers, &self.flags);
        for_section(rows, plan, &buffers, 0..plan.n as usize, |launch| work(launch, again))?;
        self.near = Some(left);
        Ok(true)
    }
}
