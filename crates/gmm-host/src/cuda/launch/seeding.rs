//! Launches for k-means++.

use std::ptr::null_mut;

use cust::memory::DeviceSlice;
use gmm_kernels::layout::tiles;
use gmm_kernels::seeding::draw_next::{DrawNext, MOST_ROWS, draw_next as draw_next_kernel};
use gmm_kernels::seeding::draw_rows::{DrawRows, draw_rows as draw_rows_kernel};
use gmm_kernels::seeding::squared_distances::{
    AddCentre, Lower, Potentials, SUMMED_ROWS, add_centre as add_centre_kernel, lower as lower_kernel, potentials_4,
    potentials_8,
};

use super::launcher::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

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

/// Candidates that were weighed, and what comes of them.
#[derive(Clone, Copy)]
pub(crate) struct Weighed<T: Number> {
    /// How many.
    pub(crate) count: u32,
    /// `(count, n)`, and their rows, `(count,)`; none where one centre is in `near` already, and its row is known.
    pub(crate) distances: Option<(DeviceSlice<T>, DeviceSlice<u64>)>,
    /// `(count, ceil(n/256))`.
    pub(crate) sums: DeviceSlice<f64>,
    /// The row of the centre, `(1,)`, written where it is not known.
    pub(crate) chosen: DeviceSlice<u64>,
    /// Which it was, `(1,)`, written.
    pub(crate) best: DeviceSlice<u64>,
    /// Written 1 where rows ran out, `(1,)`.
    pub(crate) ran_out: DeviceSlice<u64>,
}

/// Where distances to candidates go.
#[derive(Clone, Copy)]
pub(crate) struct Distances<'a, T: Number> {
    /// `(C, n)`.
    pub(crate) to: &'a DeviceSlice<T>,
    /// The number, `(1,)`, of one of so many candidates that were weighed before: their distances are still there, and its own
    /// lower `near` first.
    pub(crate) lower_by: Option<(&'a DeviceSlice<u64>, u64)>,
}

/// Draws among all rows, and what comes of them.
#[derive(Clone, Copy)]
pub(crate) struct NextBuffers<T: Number> {
    /// The bits of `(2, count)` numbers: of groups, and of rows in them.
    pub(crate) uniforms: DeviceSlice<u64>,
    /// `(count,)`.
    pub(crate) rows: DeviceSlice<u64>,
    /// As of [`DrawBuffers`].
    pub(crate) candidates: DeviceSlice<T>,
    /// As of [`DrawBuffers`].
    pub(crate) points: DeviceSlice<T>,
}

impl Launcher<'_> {
    /// A centre of those that were weighed, and `count` candidates for `places` for the next, if there is one.
    pub(crate) fn draw_next<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        near: &DeviceSlice<f64>,
        weighed: &Weighed<T>,
        next: Option<(u32, u32, &NextBuffers<T>)>,
    ) -> Result<(), Error> {
        check_chunk(shape, rows);
        assert!(rows.n <= MOST_ROWS && weighed.count > 0, "{} rows, {} candidates", rows.n, weighed.count);
        at_least(near, rows.n, "distances");
        at_least(&weighed.sums, u64::from(weighed.count) * rows.n.div_ceil(SUMMED_ROWS), "potentials");
        weighed.distances.iter().for_each(|(distances, rows_of)| {
            at_least(distances, u64::from(weighed.count) * rows.n, "distances to candidates");
            at_least(rows_of, weighed.count.into(), "rows of candidates");
            at_least(&weighed.chosen, 1, "a centre's row");
        });
        at_least(&weighed.best, 1, "a candidate's number");
        at_least(&weighed.ran_out, 1, "whether rows ran out");
        let (count, places) = next.map_or((0, 0), |(count, places, _)| (count, places));
        if let Some((.., b)) = next {
            let points = 2 * u64::from(places) * u64::from(shape.d);
            assert!(0 < count && count <= places && places.is_multiple_of(4), "{places} places for {count} draws");
            at_least(&b.uniforms, 2 * u64::from(count), "uniform numbers");
            at_least(&b.rows, count.into(), "rows that were drawn");
            at_least(&b.candidates, points, "candidates");
            at_least(&b.points, points, "points");
        }
        let next = next.map(|(.., b)| b);
        let a = DrawNext {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            near: pointer(near),
            distances: or_null(weighed.distances.as_ref().map(|(distances, _)| distances)),
            sums: pointer(&weighed.sums),
            weighed: weighed.count,
            weighed_rows: or_null(weighed.distances.as_ref().map(|(_, rows_of)| rows_of)),
            chosen: if weighed.distances.is_some() { pointer(&weighed.chosen) } else { null_mut() },
            best: pointer(&weighed.best),
            ran_out: pointer(&weighed.ran_out),
            uniforms: or_null::<u64>(next.map(|b| &b.uniforms)).cast_const().cast(),
            count,
            places,
            rows: or_null(next.map(|b| &b.rows)),
            candidates: or_null(next.map(|b| &b.candidates)),
            points: or_null(next.map(|b| &b.points)),
        };
        // SAFETY: every length was checked against the field's formula; the caller's uniforms are the bits of numbers.
        unsafe { self.launch(draw_next_kernel::<T>(), (places.max(1), 1), a) }
    }

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
    /// `(C, ceil(n/256))`; and, where there is room for them, the distances.
    pub(crate) fn potentials<T: Number>(
        self,
        shape: &Shape,
        rows: &Chunk<T>,
        candidates: &DeviceSlice<T>,
        near: &DeviceSlice<f64>,
        distances: Option<Distances<'_, T>>,
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
        let lower_by = distances.and_then(|d| d.lower_by);
        let distances = distances.map(|d| d.to);
        let there = lower_by.map_or(count, |(_, weighed)| count.max(weighed));
        distances.iter().for_each(|to| at_least(to, there * rows.n, "distances to candidates"));
        let a = Potentials {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            candidates: pointer(candidates),
            near: pointer(near),
            distances: or_null(distances),
            lower_by: or_null(lower_by.map(|(number, _)| number)),
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
