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

use super::arguments::{Chunk, at_least, check_chunk, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// Buffers of draws of rows and their results.
#[derive(Clone, Copy)]
pub(crate) struct DrawBuffers<T: Number> {
    /// `(count,)`, each below `ceil(n/1024)`.
    pub(crate) groups: DeviceSlice<u64>,
    /// `(count,)`: uniform random numbers, as the bits of `f64`.
    pub(crate) uniforms: DeviceSlice<u64>,
    /// `(count,)`: the drawn rows.
    pub(crate) rows: DeviceSlice<u64>,
    /// The drawn rows as candidates, `(d, 2, C)` for each launch of `C` candidates: `2*places*d` numbers in all.
    pub(crate) candidates: DeviceSlice<T>,
    /// The drawn rows as points: `(places, 2, d)`.
    pub(crate) points: DeviceSlice<T>,
}

/// Evaluated candidates, and the buffers of the choice among them.
#[derive(Clone, Copy)]
pub(crate) struct Weighed<T: Number> {
    /// Number of candidates.
    pub(crate) count: u32,
    /// `(count, n)` distances, and the candidates' rows, `(count,)`. `None` if there is a single centre whose row is
    /// known and which `near` already includes.
    pub(crate) distances: Option<(DeviceSlice<T>, DeviceSlice<u64>)>,
    /// `(count, ceil(n/256))`: potentials.
    pub(crate) sums: DeviceSlice<f64>,
    /// The row of the chosen centre, `(1,)`; written if `distances` is given.
    pub(crate) chosen: DeviceSlice<u64>,
    /// The index of the chosen candidate, `(1,)`, written.
    pub(crate) best: DeviceSlice<u64>,
    /// Set to 1 if the draws ran out of rows, `(1,)`.
    pub(crate) ran_out: DeviceSlice<u64>,
}

/// Where distances to candidates are written.
#[derive(Clone, Copy)]
pub(crate) struct Distances<'a, T: Number> {
    /// `(C, n)`.
    pub(crate) to: &'a DeviceSlice<T>,
    /// The index, `(1,)`, of the candidate that was chosen in the previous step, and how many there were. Their
    /// distances are still in `to`, and those of the chosen one first lower `near`.
    pub(crate) lower_by: Option<(&'a DeviceSlice<u64>, u64)>,
}

/// Buffers of draws from all rows, and their results.
#[derive(Clone, Copy)]
pub(crate) struct NextBuffers<T: Number> {
    /// `(2, count)`: uniform random numbers as the bits of `f64`, first for groups, then for rows within them.
    pub(crate) uniforms: DeviceSlice<u64>,
    /// `(count,)`: the drawn rows.
    pub(crate) rows: DeviceSlice<u64>,
    /// As in [`DrawBuffers`].
    pub(crate) candidates: DeviceSlice<T>,
    /// As in [`DrawBuffers`].
    pub(crate) points: DeviceSlice<T>,
}

impl Launcher<'_> {
    /// Chooses a centre among the evaluated candidates. With `next = (count, places, ..)` also draws `count` candidates
    /// for the next one, into `places` slots.
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
        // SAFETY: every length was checked against the field's formula; the caller stores the bits of `f64` numbers in
        // `uniforms`.
        unsafe { self.launch(draw_next_kernel::<T>(), (places.max(1), 1), a) }
    }

    /// Finds the rows that `count` draws select, and writes them as candidates, into `places` slots, and as points.
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
        // SAFETY: every length was checked against the field's formula. The caller passes groups that contain rows, and
        // stores the bits of `f64` numbers in `uniforms`.
        unsafe { self.launch(draw_rows_kernel::<T>(), (places, 1), a) }
    }

    /// Adds a centre, `(2, d)` in high and low parts: lowers the distances `near`, `(n,)`, and sums them,
    /// `(ceil(n/256),)`.
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

    /// Computes the potential that each of 4 or 8 candidates, `(d, 2, C)` in high and low parts, would leave: sums over
    /// each 256 rows, `(C, ceil(n/256))`. Also writes the distances if a buffer is given.
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
