//! Passes for initialisation over resident rows: hard assignments, k-means++ and Lloyd's iterations.

use std::ops::Range;

use gmm_model::{CovarianceType, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use super::Passes;
use crate::Error;
use crate::init::{LloydPasses, RowDraw, WeighedRows, lloyd_pass};

/// Number of rows in a group: [`Seeding::add_centre`] returns one sum of weighted distances per group.
pub const DISTANCE_ROWS: usize = 1024;

/// The passes over resident rows that initialisation needs.
pub trait Seeding: Passes {
    /// Statistics of the assignment of each row to its nearest centre, the first among equals; `centres` is `(k, d)`.
    /// `log_likelihood` is 0. With [`CovarianceType::Spherical`], `second` is the inertia of each cluster.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error>;

    /// Runs Lloyd's passes from `centres`, `(k, d)`, and leaves the moved centres there. Each pass moves every centre
    /// to the mean of its nearest rows; a centre without rows stays. The engine chooses the number of passes, from 1 to
    /// `most` (at least 1). It stops after a pass in which a centre has no rows, or in which the squared moves of the
    /// centres sum to at most `rest`.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass), and [`Error::NotFinite`].
    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        let _ = (most, rest);
        lloyd_pass(self, centres)
    }

    /// Removes the centres of [`add_centre`](Self::add_centre), and frees the memory used for them and for
    /// [`lloyd`](Self::lloyd).
    fn forget_centres(&mut self);

    /// Adds a centre, `(d,)`, and updates the squared distance of each row to its nearest centre: `near_i = min(near_i,
    /// |x_i − centre|²)`, infinite before the first centre. Returns `Σ w near` of each group of [`DISTANCE_ROWS`] rows,
    /// `(ceil(n/1024),)`. Memory: 8 bytes per row.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error>;

    /// For each of `draws` (at least one), samples a row of its group with probability proportional to `w near`, and
    /// computes the sum `Σ w near` that would remain if that row became a centre. `weights`, `(n,)`, must be the
    /// weights that the rows were loaded with. Cost: the distances of all rows to `draws.len()` points.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// If no centre was added, a group does not exist, or only one of `weights` and the rows' own weights is present.
    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error>;

    /// Makes a centre of the row at index `which` in the last [`weigh_draws`](Self::weigh_draws). Has the effect and
    /// result of [`add_centre`](Self::add_centre) with that row, at a lower cost.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// If there was no such draw since the last centre was added.
    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error>;

    /// Draws `c` further centres by k-means++ without host synchronisation, and returns the rows that became centres,
    /// `(c,)`. The result is that of [`add_centre`](Self::add_centre) of `first`, `(d,)`, and then, `c` times,
    /// [`weigh_draws`](Self::weigh_draws) of `t` candidates and [`add_drawn`](Self::add_drawn) of the one that leaves
    /// the smallest sum. `uniforms`, `(c, 2, t)` in `[0, 1)`, select the candidates: for each centre first the `t`
    /// groups of rows, then the `t` rows within their groups, both with probability proportional to `w near`.
    ///
    /// Returns `None` if the centres must be drawn one by one: the engine has no batched implementation, or none for
    /// this number of rows, or too little memory; or no row is left to draw, because all lie on centres or their
    /// distances overflow. In any case all earlier centres are removed, and no centres remain.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// In engines that implement it: if `c` or `t` is 0, if the middle axis is not 2 long, or as for
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

    /// The squared distances to the nearest centre, `near`, of the rows in `ranges`, concatenated.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// If no centre was added, or a range ends beyond `n`.
    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error>;
}
