//! Launches for k-means++.

use cust::memory::DeviceSlice;
use gmm_kernels::layout::tiles;
use gmm_kernels::reduce::reduce_scalars;
use gmm_kernels::squared_distances::{
    AddCentre, CANDIDATES, Potentials, SUMMED_ROWS, add_centre as add_centre_kernel, potentials as potentials_kernel,
};

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer, reduction};
use crate::Error;
use crate::cuda::plan::Shape;
use crate::cuda::upload::Number;

impl Launcher<'_> {
    /// One centre, `(2, d)` in high and low parts, more: distances `(n,)` and their sums `(ceil(n/1024),)`.
    pub(crate) fn add_centre<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        centre: &DeviceSlice<T>,
        first: bool,
        near: &DeviceSlice<f64>,
        sums: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let d = shape.d as usize;
        check_chunk(shape, rows);
        at_least(centre, 2 * d as u64, "a centre");
        at_least(near, rows.n, "distances");
        at_least(sums, rows.n.div_ceil(SUMMED_ROWS), "sums of distances");
        let a = AddCentre {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            centre_high: pointer(&centre.index(..d)),
            centre_low: pointer(&centre.index(d..)),
            first: first.into(),
            near: pointer(near),
            sums: pointer(sums),
        };
        let grid = rows.n.div_ceil(SUMMED_ROWS).min(1 << 16) as u32;
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(add_centre_kernel::<T>(), (grid, 1), a) }
    }

    /// What each of `shape.k` candidates, `(2, k, d)` in high and low parts, would leave: four numbers at the end of
    /// `sums`, `(blocks + 1, 4)`.
    pub(crate) fn potentials<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        candidates: &DeviceSlice<T>,
        near: &DeviceSlice<f64>,
        blocks: u32,
        sums: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let (count, each) = (shape.k as usize, shape.k as usize * shape.d as usize);
        let partials = blocks as usize * CANDIDATES;
        check_chunk(shape, rows);
        assert!((1..=CANDIDATES).contains(&count) && u64::from(blocks) <= tiles(rows.n), "candidates");
        at_least(candidates, 2 * each as u64, "candidates");
        at_least(near, rows.n, "distances");
        at_least(sums, (partials + CANDIDATES) as u64, "potentials");
        let a = Potentials {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            candidates: shape.k,
            centre_high: pointer(&candidates.index(..each)),
            centre_low: pointer(&candidates.index(each..)),
            near: pointer(near),
            partials: pointer(sums),
        };
        let reduce =
            reduction(&sums.index(..partials), blocks.into(), CANDIDATES as u64, &sums.index(partials..), false);
        // SAFETY: every length was checked against the field's formula; the second reads what the first leaves.
        unsafe {
            self.launch(potentials_kernel::<T>(), (blocks, 1), a)?;
            self.launch(reduce_scalars(), (CANDIDATES as u32, 1), reduce)
        }
    }
}
