//! Launches for k-means++.

use cust::memory::DeviceSlice;
use gmm_kernels::draw_rows::{DrawRows, draw_rows as draw_rows_kernel};
use gmm_kernels::layout::tiles;
use gmm_kernels::squared_distances::{
    AddCentre, Lower, Potentials, SUMMED_ROWS, add_centre as add_centre_kernel, lower as lower_kernel, potentials_4,
    potentials_8,
};

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// Draws of rows, and what comes of them.
#[derive(Clone, Copy)]
pub(crate) struct DrawBuffers<T: Number> {
    /// `(count,)`, each below `ceil(n/1024)`.
    pub(crate) groups: DeviceSlice<u64>,
    /// The bits of `(count,)` numbers.
    pub(crate) uniforms: DeviceSlice<u64>,
    /// `(count,)`.
    pub(crate) rows: DeviceSlice<u64>,
    /// `(d, 2, C)` for each launch of `C` candidates: `2*places*d`.
    pub(crate) candidates: DeviceSlice<T>,
    /// `(places, 2, d)`.
    pub(crate) points: DeviceSlice<T>,
}

impl Launcher<'_> {
    /// The rows that `count` draws mean, as candidates for `places`, and one by one.
    pub(crate) fn draw_rows<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        near: &DeviceSlice<f64>,
        (count, places): (u32, u32),
        b: &DrawBuffers<T>,
    ) -> Result<(), Error> {
        let points = 2 * u64::from(places) * u64::from(shape.d);
        check_chunk(shape, rows);
        assert!(0 < count && count <= places && places.is_multiple_of(4), "{places} places for {count} draws");
        at_least(near, rows.n, "distances");
        at_least(&b.groups, count.into(), "groups of rows");
        at_least(&b.uniforms, count.into(), "uniform numbers");
        at_least(&b.rows, count.into(), "rows that were drawn");
        at_least(&b.candidates, points, "candidates");
        at_least(&b.points, points, "points");
        let a = DrawRows {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            near: pointer(near),
            groups: pointer(&b.groups),
            uniforms: pointer(&b.uniforms).cast_const().cast(),
            count,
            rows: pointer(&b.rows),
            candidates: pointer(&b.candidates),
            points: pointer(&b.points),
        };
        // SAFETY: every length was checked against the field's formula; the caller's groups have rows, and its uniforms are the
        // bits of numbers.
        unsafe { self.launch(draw_rows_kernel::<T>(), (places, 1), a) }
    }

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
