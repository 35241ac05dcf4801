//! Features with features down and rows across, as the moments take them.

use crate::Real;
use crate::device::Ahead;
use crate::em::features::Family;
use crate::em::features::derive;
use crate::em::features::each;
use crate::layout::TILE_ROWS;

/// No column: 1 in every row.
pub(crate) const ONES: u32 = u32::MAX;

/// Rows `4t..4t+4` of sixteen.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T, F> {
    /// Entry `j` of the first is at `128 j`.
    pub(crate) x: *const T,
    pub(crate) norm: *const f64,
    pub(crate) factors: *const F,
    /// Of this lane's component in the first group.
    pub(crate) exponentials: *const T,
    pub(crate) d: u32,
}

impl<T: Real, F: Real> Rows<T, F> {
    /// Sends for entry `j` of each, if there is one.
    #[inline(always)]
    unsafe fn send(self, to: Slots<T>, i: u32, j: u32) {
        if j < self.d {
            // SAFETY: `j < d`, and the tile is filled up past the last row.
            unsafe { to.ahead.send(to.at(i), self.x.wrapping_add((j * TILE_ROWS) as usize)) };
        }
    }
}

/// Where the columns of a unit arrive.
#[derive(Clone, Copy)]
pub(crate) struct Slots<T> {
    pub(crate) ahead: Ahead,
    pub(crate) first: u32,
    pub(crate) d: u32,
    pub(crate) of: core::marker::PhantomData<T>,
}

impl<T: Real> Slots<T> {
    #[inline(always)]
    fn at(self, i: u32) -> u32 {
        self.first + i * Ahead::slots_of_four::<T>()
    }

    /// Entry `j` of each; 0 where there is none.
    #[inline(always)]
    fn entry<V: Real>(self, i: u32, j: u32) -> [V; 4] {
        let mut out = [if j == ONES { V::ONE } else { V::ZERO }; 4];
        if j < self.d {
            let four = self.ahead.four::<T>(self.at(i));
            each(4, |r| out[r] = V::from_f64(four[r].to_f64()));
        }
        out
    }
}

/// Two operands, features down and rows across.
pub(crate) type Left<V> = [[V; 8]; 2];

/// What decides where features lie.
#[derive(Clone, Copy)]
pub(crate) struct Of {
    pub(crate) d: u32,
    /// One of [`mod@derive`].
    pub(crate) derive: u32,
    /// Of [`Place`](crate::em::chunked::double_precision::Place), as are the classes.
    pub(crate) steps: u32,
    pub(crate) classes: u32,
}

/// A lane's features of two steps, chosen once, in four numbers.
pub(crate) type Choice = [u32; 4];

/// Features with features down and rows across.
pub(crate) trait Down {
    /// What they are made of.
    const FAMILY: Family;
    /// Of two steps; `unit` counts them.
    fn choose(a: Of, unit: u32, lane: u32) -> Choice;
    /// The first and the second of the two steps, as sums have them; `steps` or more where there is none.
    fn steps(a: Of, unit: u32) -> [u32; 2];
    /// The columns whose product feature `i` of a lane's four is, `d` for the norm; past it where there is none.
    fn columns(of: Of, choice: Choice, i: usize) -> [u32; 2];
    /// Columns that the units of a bundle share, and at most each one's own.
    const SHARED: u32;
    const OWN: u32;
    /// The unit that is number `u` of a bundle of `each`; one past the last has no steps.
    fn of_bundle(a: Of, bundle: u32, u: u32, each: u32) -> u32;
    /// Sends for the columns that the bundle of a unit shares.
    unsafe fn send_shared<T: Real, F: Real>(choice: Choice, x: Rows<T, F>, to: Slots<T>);
    /// Sends for a unit's own columns.
    unsafe fn send<T: Real, F: Real>(choice: Choice, x: Rows<T, F>, to: Slots<T>);
    /// Shared column `i` of what arrived.
    fn shared<T: Real, V: Real>(choice: Choice, from: Slots<T>, i: u32) -> [V; 4];
    /// Operands of the shared columns, and of a unit's own that arrived.
    unsafe fn operands<T: Real, V: Real>(
        choice: Choice,
        shared: impl Fn(u32) -> [V; 4],
        from: Slots<T>,
        norm: *const f64,
    ) -> Left<V>;
}

/// Columns as they are, and what is derived from them. A choice has the columns of features `g` and `g+8` of the first
/// step, then of the second.
pub(crate) struct Columns;

/// In a choice of [`Columns`]: the column's square, and the norm.
const SQUARE: u32 = 1 << 31;
const NORM: u32 = 1 << 30;

impl Down for Columns {
    const FAMILY: Family = Family::Linear;

    #[inline(always)]
    fn choose(a: Of, unit: u32, lane: u32) -> Choice {
        let mut out = [0; 4];
        each(4, |i| {
            let feature = 32 * unit + 8 * i as u32 + lane / 4;
            out[i] = match a.derive {
                // Squares have the second half of the steps.
                derive::SQUARES if feature >= 8 * a.steps => SQUARE | (feature - 8 * a.steps),
                derive::NORM if feature == a.d => NORM,
                _ => feature,
            };
        });
        out
    }

    #[inline(always)]
    fn steps(_: Of, unit: u32) -> [u32; 2] {
        [2 * unit, 2 * unit + 1]
    }

    #[inline(always)]
    fn columns(of: Of, choice: Choice, i: usize) -> [u32; 2] {
        match choice[i] {
            NORM => [of.d, ONES],
            c if c & SQUARE != 0 => [c & !SQUARE; 2],
            c => [c, ONES],
        }
    }

    const SHARED: u32 = 0;
    const OWN: u32 = 4;

    #[inline(always)]
    fn of_bundle(_: Of, bundle: u32, u: u32, each: u32) -> u32 {
        bundle * each + u
    }

    #[inline(always)]
    unsafe fn send_shared<T: Real, F: Real>(_: Choice, _: Rows<T, F>, _: Slots<T>) {}

    #[inline(always)]
    unsafe fn send<T: Real, F: Real>(choice: Choice, x: Rows<T, F>, to: Slots<T>) {
        // SAFETY: the caller's promise.
        each(4, |i| unsafe { x.send(to, i as u32, choice[i] & !SQUARE) });
    }

    #[inline(always)]
    fn shared<T: Real, V: Real>(_: Choice, _: Slots<T>, _: u32) -> [V; 4] {
        [V::ZERO; 4]
    }

    #[inline(always)]
    unsafe fn operands<T: Real, V: Real>(
        choice: Choice,
        _: impl Fn(u32) -> [V; 4],
        from: Slots<T>,
        norm: *const f64,
    ) -> Left<V> {
        let mut left = [[V::ZERO; 8]; 2];
        each(4, |i| {
            let mut v = from.entry::<V>(i as u32, choice[i] & !SQUARE);
            if choice[i] == NORM {
                // SAFETY: norms are a feature, so they are there.
                v = unsafe { f64::global_load4(norm) }.map(V::from_f64);
            }
            each(4, |r| left[i / 2][2 * r + i % 2] = v[r] * if choice[i] & SQUARE != 0 { v[r] } else { V::ONE });
        });
        left
    }
}

impl Columns {
    /// Whether feature `i` of a lane's four is a square.
    #[inline(always)]
    pub(crate) fn is_square(choice: Choice, i: usize) -> bool {
        choice[i] & SQUARE != 0
    }
}

/// Products of entries: see [`Full`](crate::em::features::Full). Two steps have four entries of a class and one
/// partner of them. A choice has the column of the first of the four, the column of the partner of the first, that of
/// the last, and how many of the four have the first partner, if they differ.
pub(crate) struct Products;

/// Four entries, by the index of the first, and a partner.
#[inline(always)]
fn pair(a: Of, unit: u32) -> (u32, u32) {
    let fours = a.d.div_ceil(16);
    // There are dimensions; else the compiler would guard the division.
    let m = unit.checked_div(fours).unwrap_or(0);
    let used = a.d.div_ceil(4);
    (4 * (unit - m * fours), if m <= used { m } else { m + a.classes - used - 1 })
}

impl Down for Products {
    const FAMILY: Family = Family::Full;

    #[inline(always)]
    fn choose(a: Of, unit: u32, lane: u32) -> Choice {
        let (class, half) = (lane / 4 % 4, lane / 16);
        let (first, m) = pair(a, unit);
        let below = if m < a.classes { 4 * m + (class + 1 + half) % 4 } else { ONES };
        let above = if half == 0 { below } else { 4 * (m.max(1) - 1) + class };
        let partner = |i: u32| if m > i { above } else { below };
        let before = if m > first && m < first + 4 { m - first } else { 4 };
        [4 * first + class, partner(first), partner(first + 3), before]
    }

    #[inline(always)]
    fn steps(a: Of, unit: u32) -> [u32; 2] {
        let (first, m) = pair(a, unit);
        let step = first / 2 * (a.classes + 1) + m;
        // A unit past the last may look like the last.
        let units = a.d.div_ceil(16) * crate::em::chunked::double_precision::moments::partners(a.classes, a.d);
        if unit >= units { [a.steps; 2] } else { [step, step + a.classes + 1] }
    }

    #[inline(always)]
    fn columns(_: Of, [column, partner, last, before]: Choice, i: usize) -> [u32; 2] {
        [column + 4 * i as u32, if (i as u32) < before { partner } else { last }]
    }

    const SHARED: u32 = 4;
    const OWN: u32 = 2;

    /// Units of a bundle have the same four entries, and partners one after another.
    #[inline(always)]
    fn of_bundle(a: Of, bundle: u32, u: u32, each: u32) -> u32 {
        let (fours, bundles) =
            (a.d.div_ceil(16), crate::em::chunked::double_precision::moments::partners(a.classes, a.d).div_ceil(each));
        // There are partners; else the compiler would guard the division.
        let four = bundle.checked_div(bundles).unwrap_or(0);
        ((bundle - four * bundles) * each + u) * fours + four
    }

    #[inline(always)]
    unsafe fn send_shared<T: Real, F: Real>([column, ..]: Choice, x: Rows<T, F>, to: Slots<T>) {
        // SAFETY: the caller's promise.
        each(4, |i| unsafe { x.send(to, i as u32, column + 4 * i as u32) });
    }

    #[inline(always)]
    unsafe fn send<T: Real, F: Real>([_, partner, last, before]: Choice, x: Rows<T, F>, to: Slots<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            x.send(to, 0, partner);
            if before < 4 {
                x.send(to, 1, last);
            }
        }
    }

    #[inline(always)]
    fn shared<T: Real, V: Real>([column, ..]: Choice, from: Slots<T>, i: u32) -> [V; 4] {
        from.entry(i, column + 4 * i)
    }

    #[inline(always)]
    unsafe fn operands<T: Real, V: Real>(
        [_, partner, last, before]: Choice,
        shared: impl Fn(u32) -> [V; 4],
        from: Slots<T>,
        _: *const f64,
    ) -> Left<V> {
        let mut left = [[V::ZERO; 8]; 2];
        let by = from.entry::<V>(0, partner);
        let mut other = by;
        if before < 4 {
            other = from.entry::<V>(1, last);
        }
        each(4, |i| {
            let u = shared(i as u32);
            each(4, |r| left[i / 2][2 * r + i % 2] = u[r] * if (i as u32) < before { by[r] } else { other[r] });
        });
        left
    }
}
