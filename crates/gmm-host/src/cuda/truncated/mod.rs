//! Truncated EM on a device: the steps of [`truncated::pass`], with lists that go to the host after each, and
//! parameters that come from there. See [`gmm_kernels::truncated`].

mod memory;
mod steps;

pub(crate) use memory::Memory;

use gmm_kernels::truncated::{COLUMNS, FACTORS};
use gmm_model::{CovarianceType, Mixture};

use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::{Error, Search, TruncatedPass, truncated};

/// Components of a row, at most, if it does not have all of them: with their neighbours and those of six trees a row then tries fewer
/// than a warp has room for.
const MOST_LISTED: usize = 13;

/// As [`MOST_LISTED`], if it has all components: a lane for each.
const MOST_OF_ALL: usize = 32;

/// [`Passes::pass_truncated`](crate::Passes::pass_truncated).
///
/// # Errors
/// [`Error::Device`] for what the device has no kernels for; [`Error::Memory`].
pub(crate) fn pass<T: Number>(
    rows: &mut Rows<T>,
    memory: &mut Memory,
    mixture: &Mixture,
    search: &Search,
) -> Result<TruncatedPass, Error> {
    check(rows, mixture, search)?;
    let mut steps = steps::OnDevice::new(rows, memory, mixture, search)?;
    truncated::pass(&mut steps, mixture.n_components(), search)
}

/// Errors if there are no kernels for these rows, this mixture or lists of this length.
fn check<T: Number>(rows: &Rows<T>, mixture: &Mixture, search: &Search) -> Result<(), Error> {
    let (k, d) = mixture.means().dim();
    let (g, h) = search.sizes(rows.n, k)?;
    let factors = mixture.loadings().map_or(0, |loadings| loadings.n_factors());
    let refuse = |what: String| {
        let instead = "use the CPU (--device cpu, device=\"cpu\")";
        Err(Error::Device(format!("truncated EM on a GPU takes {what}: {instead}")))
    };
    if mixture.covariance_type() == CovarianceType::Tied {
        return refuse("no tied covariances".to_owned());
    }
    let most = if h == 0 { MOST_OF_ALL } else { MOST_LISTED };
    if g > most {
        return refuse(format!("at most {most} components of a row, and not {g}"));
    }
    if d > COLUMNS as usize || factors > FACTORS as usize {
        return refuse(format!("at most {COLUMNS} columns and {FACTORS} factors"));
    }
    if rows.passes_through() || rows.sections.count() > 1 || u32::try_from(rows.n * g).is_err() {
        return refuse("rows that fit into its memory, and fewer than 2^32 components of all rows".to_owned());
    }
    Ok(())
}
