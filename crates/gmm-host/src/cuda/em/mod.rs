//! EM on the device: the host enqueues batches of iterations and polls between them.
//!
//! ```text
//! begin       copy the start's parameters to the device; the path's preparation; encode operands from the parameters
//! repeat      for each section of the rows:
//!                 pass of the path     partial sums of densities and moments, over the section's rows
//!                 reduce               partial sums, added to the sums of the sections before
//!             M-step               parameters, convergence and lost precision; encode the path's operands
//! poll        copy log-likelihoods, parameters and flags to the host, after each batch of iterations
//! ```
//! The [`EmPath`] defines the pass: see [`paths`]. [`mod@select`] chooses the path. If an iteration loses more
//! precision than a path allows ([`error_bounds`]), the next path continues from the last poll. Variational Bayes is another
//! M-step ([`mod@prior`]). Where the host makes the M-step, [`pass`] runs the same kernels once.

mod buffers;
mod device_loop;
pub(crate) mod error_bounds;
mod exchange;
mod grid;
mod lanes;
mod m_step;
mod near;
mod packing;
mod parts;
pub(crate) mod path;
pub(crate) mod paths;
mod prior;
mod reason;
mod run;
pub(crate) mod select;
mod sums;
mod trials;
mod workspace;

use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;
use crate::em::{EmOptions, EmRun};
pub(crate) use device_loop::{Loop, Member};
pub(crate) use near::{evaluate as evaluate_near, may_be_near};
pub(crate) use parts::{Part, pass_parts};
use path::{EmPath, Request};
#[cfg(test)]
pub(crate) use run::POLL_AFTER;
pub(crate) use run::{Outcome, iterate, iterate_on_path, plan};
use select::{Candidate, select};
pub(crate) use sums::pass;
pub(crate) use trials::ratios;

/// The options of a loop: with a rule, as where the host makes the M-steps, no path is less precise.
pub(crate) fn loop_options(run: &EmRun, options: &EmOptions) -> EmOptions {
    EmOptions { fast: options.fast && run.posterior.is_none(), ..*options }
}

/// Lists all paths for these rows, each with the reasons against it.
pub(crate) fn candidates<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<Candidate> {
    let weighted = rows.row_weights.is_some();
    let has = |name: &'static str| rows.gpu.has(name);
    let whole = rows.streamed.is_none() && rows.sections.count() == 1;
    select(&Request { shape: *shape, weighted, whole, fast, limits: rows.gpu.limits, has: &has }, &rows.forced)
}

/// Lists the paths that can run and are not slower than a later one, best first.
pub(crate) fn running<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<&'static dyn EmPath> {
    candidates(rows, shape, fast).into_iter().filter(Candidate::runs).map(|candidate| candidate.path).collect()
}
