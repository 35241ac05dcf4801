//! Launches for k-means++.

use cust::memory::DeviceSlice;
use gmm_kernels::layout::tiles;
use gmm_kernels::squared_distances::{
    AddCentre, Lower, Potentials, SUMMED_ROWS, add_centre as add_centre_kernel, lower as lower_kernel, potentials_4,
    potentials_8,
};

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

impl Launcher<'_> {
    /// One centre, `(2, d)` in high and low parts, more: distances `(n,)` and their sums `(ceil(n/256),)`.
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

    /// What each of 4 or 8 candidates, `(d, 2, C)` in high and low parts, would leave: sums of each 256 rows,
    /// `(C, ceil(n/256))`; and, where there is room for them, the distances, `(C, n)`.
    pub(crate) fn potentials<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        candidates: &DeviceSlice<T>,
        near: &DeviceSlice<f64>,
        distances: Option<&DeviceSlice<T>>,
        sums: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let groups = rows.n.div_ceil(SUMMED_ROWS);
        let (kernel, count) = match candidates.len() / (2 * shape.d as usize) {
            4 => (potentials_4::<T>(), 4),
            8 => (potentials_8::<T>(), 8),
            other => panic!("no kernel takes {other} candidates"),
        };
        check_chunk(shape, rows);
        at_least(near, rows.n, "distances");
        at_least(sums, count * groups, "potentials");
        distances.iter().for_each(|to| at_least(to, count * rows.n, "distances to candidates"));
        let a = Potentials {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            candidates: pointer(candidates),
            near: pointer(near),
            distances: or_null(distances),
            sums: pointer(sums),
        };
        // SAFETY: every length was checked against the field's formula; candidates start 16-byte aligned.
        unsafe { self.launch(kernel, (groups.min(1 << 16) as u32, 1), a) }
    }

    /// `near = min(near, distances)`, `(n,)` each.
    pub(crate) fn lower<T: Number>(
        self,
        n: u64,
        distances: &DeviceSlice<T>,
        near: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        at_least(distances, n, "distances to a centre");
        at_least(near, n, "distances");
        let a = Lower::<T> { n, distances: pointer(distances), near: pointer(near) };
        // SAFETY: lengths were checked against the fields' formulas.
        unsafe { self.launch(lower_kernel::<T>(), (tiles(n).min(1 << 16) as u32, 1), a) }
    }
}
