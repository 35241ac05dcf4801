//! Feature operands with features down and data rows across, for the moments.

use crate::Real;
use crate::device::Prefetch;
use crate::em::features::Family;
use crate::em::features::derive;
use crate::em::features::each;
use crate::layout::TILE_ROWS;

/// Instead of a column: 1 in every row.
pub(crate) const ONES: u32 = u32::MAX;

/// A lane's four rows of sixteen, `4t..4t+4`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T, F> {
    /// Entry `j` of the first row is at `128 j`.
    pub(crate) x: *const T,
    pub(crate) norm: *const f64,
    pub(crate) factors: *const F,
    /// Exponentials of this lane's component in the first group.
    pub(crate) exponentials: *const T,
    pub(crate) d: u32,
}

impl<T: Real, F: Real> Rows<T, F> {
    /// Starts the copy of entry `j` of each row, if there is one, to slot `i`.
    #[inline(always)]
    unsafe fn send(self, to: Slots<T>, i: u32, j: u32) {
        if j < self.d {
            // SAFETY: `j < d`, and the tile is padded past the last row.
            unsafe { to.ahead.send(to.at(i), self.x.wrapping_add((j * TILE_ROWS) as usize)) };
        }
    }
}

/// Prefetch slots of a unit's columns.
#[derive(Clone, Copy)]
pub(crate) struct Slots<T> {
    pub(crate) ahead: Prefetch,
    pub(crate) first: u32,
    pub(crate) d: u32,
    pub(crate) of: core::marker::PhantomData<T>,
}

impl<T: Real> Slots<T> {
    #[inline(always)]
    fn at(self, i: u32) -> u32 {
        self.first + i * Prefetch::slots_of_four::<T>()
    }

    /// Entry `j` of each row, from slot `i`; 1 for [`ONES`], 0 for other columns past the last.
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

/// Two operands with features down and data rows across.
pub(crate) type LeftOperand<V> = [[V; 8]; 2];

/// Parameters that determine which features a unit has.
#[derive(Clone, Copy)]
pub(crate) struct Of {
    pub(crate) d: u32,
    /// One of [`mod@derive`].
    pub(crate) derive: u32,
    /// As in [`FeatureLayout`](crate::em::chunked::double_precision::FeatureLayout), like the classes.
    pub(crate) steps: u32,
    pub(crate) classes: u32,
}

/// A lane's features of two steps, chosen once and encoded in four integers.
pub(crate) type Choice = [u32; 4];

/// Features with features down and data rows across.
pub(crate) trait Down {
    /// The feature family.
    const FAMILY: Family;
    /// Chooses the features of the two steps of a `unit`.
    fn choose(a: Of, unit: u32, lane: u32) -> Choice;
    /// Indices of the two steps in the sums; `steps` or more if there is none.
    fn steps(a: Of, unit: u32) -> [u32; 2];
    /// The two columns whose product is feature `i` of a lane's four: [`ONES`] for 1, `d` for the norm, others past it
    /// for 0.
    fn columns(of: Of, choice: Choice, i: usize) -> [u32; 2];
    /// Number of columns that the units of a bundle share, and the maximum of each unit's own.
    const SHARED: u32;
    const OWN: u32;
    /// Unit `u` of a bundle of `each` units; a unit past the last has no steps.
    fn of_bundle(a: Of, bundle: u32, u: u32, each: u32) -> u32;
    /// Starts the copies of the columns that the units of a bundle share.
    unsafe fn send_shared<T: Real, F: Real>(choice: Choice, x: Rows<T, F>, to: Slots<T>);
    /// Starts the copies of a unit's own columns.
    unsafe fn send<T: Real, F: Real>(choice: Choice, x: Rows<T, F>, to: Slots<T>);
    /// Shared column `i`, after it arrived.
    fn shared<T: Real, V: Real>(choice: Choice, from: Slots<T>, i: u32) -> [V; 4];
    /// Operands from the shared columns and a unit's own columns, after they arrived.
    unsafe fn operands<T: Real, V: Real>(
        choice: Choice,
        shared: impl Fn(u32) -> [V; 4],
        from: Slots<T>,
        norm: *const f64,
    ) -> LeftOperand<V>;
}

/// The columns themselves, and columns derived from them. A choice has the columns of features `g` and `g+8` of the
/// first step, then of the second.
pub(crate) struct Columns;

/// Flags in a choice of [`Columns`]: the column's square, and the norm.
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
                // The second half of the steps are squares.
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
        // SAFETY: the caller passes rows of the chunk.
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
    ) -> LeftOperand<V> {
        let mut left = [[V::ZERO; 8]; 2];
        each(4, |i| {
            let mut v = from.entry::<V>(i as u32, choice[i] & !SQUARE);
            if choice[i] == NORM {
                // SAFETY: `norm` is not null, since norms are a feature.
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

/// Products of entries: see [`Full`](crate::em::features::Full). Two steps have four entries of a class and one partner
/// for them. A choice has the column of the first of the four entries, the column of the first entry's partner, the
/// column of the last entry's partner, and, if those differ, how many of the four have the first one's.
pub(crate) struct Products;

/// Index of the first of the four entries of a unit, and their partner.
#[inline(always)]
fn pair(a: Of, unit: u32) -> (u32, u32) {
    let fours = a.d.div_ceil(16);
    // `d` is not 0; `checked_div` avoids the panic branch of a division.
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
        // The step of a unit past the last may equal that of the last.
        let units = a.d.div_ceil(16) * crate::em::chunked::double_precision::moments::partners(a.classes, a.d);
        if unit >= units { [a.steps; 2] } else { [step, step + a.classes + 1] }
    }

    #[inline(always)]
    fn columns(_: Of, [column, partner, last, before]: Choice, i: usize) -> [u32; 2] {
        [column + 4 * i as u32, if (i as u32) < before { partner } else { last }]
    }

    const SHARED: u32 = 4;
    const OWN: u32 = 2;

    /// Units of a bundle have the same four entries, and consecutive partners.
    #[inline(always)]
    fn of_bundle(a: Of, bundle: u32, u: u32, each: u32) -> u32 {
        let (fours, bundles) =
            (a.d.div_ceil(16), crate::em::chunked::double_precision::moments::partners(a.classes, a.d).div_ceil(each));
        // There are partners; `checked_div` avoids the panic branch of a division.
        let four = bundle.checked_div(bundles).unwrap_or(0);
        ((bundle - four * bundles) * each + u) * fours + four
    }

    #[inline(always)]
    unsafe fn send_shared<T: Real, F: Real>([column, ..]: Choice, x: Rows<T, F>, to: Slots<T>) {
        // SAFETY: the caller passes rows of the chunk.
        each(4, |i| unsafe { x.send(to, i as u32, column + 4 * i as u32) });
    }

    #[inline(always)]
    unsafe fn send<T: Real, F: Real>([_, partner, last, before]: Choice, x: Rows<T, F>, to: Slots<T>) {
        // SAFETY: the caller passes rows of the chunk.
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
    ) -> LeftOperand<V> {
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
