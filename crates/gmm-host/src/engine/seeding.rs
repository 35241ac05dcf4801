//! Where EM begins: hard assignments, k-means++ and Lloyd's iterations over resident rows.

use std::ops::Range;

use gmm_model::{CovarianceType, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use super::Passes;
use crate::Error;
use crate::init::{LloydPasses, RowDraw, WeighedRows, lloyd_pass};

/// Rows of which [`Seeding::add_centre`] adds up the weighted distances.
pub const DISTANCE_ROWS: usize = 1024;

/// What initialisation asks of resident rows.
pub trait Seeding: Passes {
    /// Statistics of the hard assignment of each row to its nearest centre, `(k, d)`, the first among equals.
    /// `log_likelihood` is 0; with [`CovarianceType::Spherical`], `second` is each cluster's inertia.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error>;

    /// Lloyd's passes from `centres`, `(k, d)`, each of which moves every centre to the mean of the rows that are nearest
    /// to it; one without rows stays. At least one pass and at most `most`, from 1: as many as an engine likes to do
    /// without its caller, and none after one that leaves a centre without rows, or whose moves have squares that sum to
    /// `rest` at most. `centres` are left as the last pass moved them.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass), and [`Error::NotFinite`].
    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        let _ = (most, rest);
        lloyd_pass(self, centres)
    }

    /// Forgets the centres of [`add_centre`](Self::add_centre), and the memory that goes with them and with
    /// [`lloyd`](Self::lloyd).
    fn forget_centres(&mut self);

    /// One centre more, `(d,)`, from which rows may be near: `near_i = min(near_i, |x_i − centre|²)`, infinite before the
    /// first. Returns `Σ w near` of each [`DISTANCE_ROWS`] rows in turn, `(ceil(n/1024),)`. Keeps 8 bytes a row.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error>;

    /// The row of each of `draws`, from 1, which of the rows of its group has a probability in proportion to `w near`, and what
    /// adding it would leave. Row weights, `(n,)`, are those that came along with the rows. Cost: distances of all rows to as
    /// many points.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// Where no centre was added, there is no such group, or weights are given that the rows do not have, or none that they have.
    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error>;

    /// Makes a centre of the row that is at `which` of those that were weighed last: what [`add_centre`](Self::add_centre) does
    /// with it, and returns, for less.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// Where it was not weighed since the last centre.
    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error>;

    /// What [`add_centre`](Self::add_centre) of `first`, `(d,)`, and for each of `uniforms` a
    /// [`weigh_draws`](Self::weigh_draws) and an [`add_drawn`](Self::add_drawn) of the one that leaves least would come to,
    /// without a look between: the rows that became centres. `uniforms`, `(c, 2, t)` in `[0, 1)`, say of `t` candidates for each
    /// further centre first which group of rows, then which row of it, each with a probability in proportion to `w near`.
    ///
    /// None where it is to be done one after another: the engine has no such way, or none for so many rows, too little memory
    /// for it, or rows ran out, since all lie on centres or their distances overflow. Centres before are forgotten, and there are none
    /// afterwards, in any case.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// An engine that has such a way: where `c` or `t` is 0 or the length between is not 2, or as for
    /// [`weigh_draws`](Self::weigh_draws).
    fn draw_centres(
        &mut self,
        _first: &[f64],
        _uniforms: ArrayView3<'_, f64>,
        _weights: Option<&[f64]>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.forget_centres();
        Ok(None)
    }

    /// `near` of some ranges of rows, one after another.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// Where no centre was added, or a range ends beyond the rows.
    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error>;
}
