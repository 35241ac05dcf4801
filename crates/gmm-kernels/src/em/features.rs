//! Features of a row, in groups of sixteen, generated in registers as tensor-core operands.
//!
//! An *entry* is one coordinate of a row. The log joint density of a row is linear in its features (entries, products
//! of two entries), and the statistics are sums of the same features times responsibilities. So both halves of a pass
//! are matrix products with the features as the left operand: data rows down and features across for the densities,
//! features down and data rows across for the sums. Of a 16×16 operand, lane `4g + t` of a warp holds rows `g`, `g+8`
//! and columns `t`, `t+4`, `t+8`, `t+12`.

use crate::device::{Shared, warp};
pub(crate) use crate::each::each;
use crate::em::layout;
use crate::layout::Kind;

/// Which quantities the features are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Entries and their products: full covariances.
    Full,
    /// As `Full`, for one entry more than a multiple of four.
    FullAndOne,
    /// Entries, and columns derived from them: spherical and tied covariances.
    Linear,
    /// Entries and their squares: diagonal covariances.
    Squares,
}

/// Which columns a covariance kind derives from a row: one of [`derive`](mod@derive).
pub const fn derived(kind: Kind) -> u32 {
    match kind {
        Kind::Full | Kind::Tied => derive::NOTHING,
        Kind::Diag => derive::SQUARES,
        Kind::Spherical => derive::NORM,
    }
}

/// Columns derived from a row's entries while they are staged in shared memory.
pub mod derive {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// Column `d` is the sum of squares of the entries.
    pub const NORM: u32 = 1;
    /// The second half of the columns are the squares of the entries in the first half.
    pub const SQUARES: u32 = 2;
}

/// Rows that a warp processes at a time.
pub const GROUP: u32 = 16;

/// Distance between the starts of consecutive columns in shared memory. The 4 beyond the rows let the lanes of a half
/// warp read different banks both along rows and along columns.
pub const STRIDE: u32 = GROUP + 4;

/// Features of one family.
pub trait Features {
    /// Groups of sixteen features.
    const STEPS: usize;
    /// Columns staged in shared memory, `STRIDE` values each.
    const COLUMNS: u32;
    /// Columns that hold entries of the row: the maximum `d`.
    const ENTRIES: u32;
    /// A column that holds 1 in every row, if there is one.
    const ONES: Option<u32>;
    /// Whether the sum of squares of a row is supported as a column.
    const NORMS: bool = false;

    /// Calls `f(step, operand)` with data rows down and features across; uses fewer registers if they are `scarce`.
    fn across(x: Shared<f64>, lane: u32, scarce: bool, f: impl FnMut(usize, [f64; 8]));

    /// Calls `f(step, operand)` with features down and data rows across, for each `wanted` step.
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, f: impl FnMut(usize, [f64; 8]));
}

/// The staged columns themselves: entries, and columns derived from them. `S` groups of sixteen.
pub struct Linear<const S: usize>;

impl<const S: usize> Features for Linear<S> {
    const STEPS: usize = S;
    const COLUMNS: u32 = 16 * S as u32;
    const ENTRIES: u32 = 16 * S as u32;
    const ONES: Option<u32> = None;
    const NORMS: bool = true;

    #[inline(always)]
    fn across(x: Shared<f64>, lane: u32, _: bool, mut f: impl FnMut(usize, [f64; 8])) {
        let first = lane % 4 * STRIDE + lane / 4;
        each(S, |step| {
            let mut a = [0.0; 8];
            each(8, |v| a[v] = x.load(first + (16 * step as u32 + 4 * (v as u32 / 2)) * STRIDE + 8 * (v as u32 % 2)));
            f(step, a);
        });
    }

    #[inline(always)]
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, mut f: impl FnMut(usize, [f64; 8])) {
        let first = lane / 4 * STRIDE + lane % 4;
        each(S, |step| {
            if wanted(step) {
                let mut a = [0.0; 8];
                each(8, |v| {
                    a[v] = x.load(first + (16 * step as u32 + 8 * (v as u32 % 2)) * STRIDE + 4 * (v as u32 / 2));
                });
                f(step, a);
            }
        });
    }
}

/// Entries and their squares: `H` groups of sixteen entries, then their squares, which are computed on use.
pub struct Squares<const H: usize>;

impl<const H: usize> Features for Squares<H> {
    const STEPS: usize = 2 * H;
    const COLUMNS: u32 = 16 * H as u32;
    const ENTRIES: u32 = 16 * H as u32;
    const ONES: Option<u32> = None;

    #[inline(always)]
    fn across(x: Shared<f64>, lane: u32, scarce: bool, mut f: impl FnMut(usize, [f64; 8])) {
        Linear::<H>::across(x, lane, scarce, |step, a| {
            f(step, a);
            f(H + step, a.map(|v| v * v));
        });
    }

    #[inline(always)]
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, mut f: impl FnMut(usize, [f64; 8])) {
        let either = |step: usize| wanted(step) || wanted(H + step);
        Linear::<H>::down(x, lane, either, |step, a| {
            if wanted(step) {
                f(step, a);
            }
            if wanted(H + step) {
                f(H + step, a.map(|v| v * v));
            }
        });
    }
}

/// Entries and products of two entries, up to `4 C` columns.
///
/// Column `4i + q` is entry `i` of *class* `q`. A lane must form its features with compile-time indices, but different
/// lanes need different features. So each lane holds the row *rotated* by its class; the same products of rotated
/// entries then give, over the four classes, every product once. With `u` the entries of class `q`, `v` those of class
/// `q+1` and `w` those of `q+2`:
/// - half 0 has `u[i] v[m]` for `m < C`, and `u[i]` itself for `m = C`;
/// - half 1 has `u[i] w[m]` for `m ≤ i`, and `u[i] u[m−1]` for `m > i`.
///
/// Both `q` and `q+2` form `u[i] w[i]`; the one with `q < 2` counts. That makes `8 C (C+1)` features, `C (C+1)` for
/// each half of each class: a multiple of sixteen. For 16 columns it is 160 features where 152 are needed.
pub struct Full<const C: usize>;

impl<const C: usize> Features for Full<C> {
    const STEPS: usize = C * (C + 1) / 2;
    const COLUMNS: u32 = 4 * C as u32 + 1;
    const ENTRIES: u32 = 4 * C as u32;
    const ONES: Option<u32> = Some(4 * C as u32);

    #[inline(always)]
    fn across(x: Shared<f64>, lane: u32, scarce: bool, mut f: impl FnMut(usize, [f64; 8])) {
        Self::across_with(x, lane, scarce, &mut f);
    }

    #[inline(always)]
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, mut f: impl FnMut(usize, [f64; 8])) {
        Self::down_with(x, lane, 4 * C as u32, &wanted, &mut f);
    }
}

impl<const C: usize> Full<C> {
    #[inline(always)]
    fn across_with(x: Shared<f64>, lane: u32, scarce: bool, f: &mut impl FnMut(usize, [f64; 8])) {
        let (row, class) = (lane / 4, lane % 4);
        let start = |turn: u32| (class + turn) % 4 * STRIDE + row;
        let (own, next, opposite) = (start(0), start(1), start(2));
        let at = |from: u32, i: usize, half: usize| x.load(from + 4 * i as u32 * STRIDE + 8 * half as u32);
        let both = |from: u32, i: usize| [at(from, i, 0), at(from, i, 1)];
        let mut u = [[0.0; 2]; C];
        if !scarce {
            each(C, |i| u[i] = both(own, i));
        }
        let u = |i: usize| if scarce { both(own, i) } else { u[i] };
        // Unrolled by hand, see `down_with`.
        let mut a = [0.0; 8];
        Self::half_across(0, scarce, &u, |m| both(next, m), &mut a, f);
        Self::half_across(1, scarce, &u, |m| both(opposite, m), &mut a, f);
    }

    /// Half 0 or 1 of the features, with features across. `u(i)` is entry `i` of the lane's class, `other(m)` is entry
    /// `m` of the class it is multiplied by, and `a` is the operand being filled.
    #[inline(always)]
    fn half_across(
        h: usize,
        scarce: bool,
        u: &impl Fn(usize) -> [f64; 2],
        other: impl Fn(usize) -> [f64; 2],
        a: &mut [f64; 8],
        f: &mut impl FnMut(usize, [f64; 8]),
    ) {
        each(C + 1, |m| {
            if scarce {
                // Stops the compiler from hoisting later loads above this point.
                warp::sync_warp();
            }
            let v = if m < C { other(m) } else { [1.0; 2] };
            each(C, |i| {
                let slot = (h * (C + 1) + m) * C + i;
                let (one, by) = (u(i), if h == 1 && m > i { u(m - 1) } else { v });
                each(2, |half| a[slot % 4 * 2 + half] = one[half] * by[half]);
                if slot % 4 == 3 {
                    f(slot / 4, *a);
                }
            });
        });
    }

    /// `ones` is the column that holds 1 in every row.
    #[inline(always)]
    fn down_with(
        x: Shared<f64>,
        lane: u32,
        ones: u32,
        wanted: &impl Fn(usize) -> bool,
        f: &mut impl FnMut(usize, [f64; 8]),
    ) {
        const { assert!(C <= 10) };
        // Two entries at a time, so that their common partners are loaded once. Unrolled by hand: the compiler does not
        // inline a closure of this size.
        Self::two_down(x, lane, ones, 0, wanted, f);
        if C > 2 {
            Self::two_down(x, lane, ones, 2, wanted, f);
        }
        if C > 4 {
            Self::two_down(x, lane, ones, 4, wanted, f);
        }
        if C > 6 {
            Self::two_down(x, lane, ones, 6, wanted, f);
        }
        if C > 8 {
            Self::two_down(x, lane, ones, 8, wanted, f);
        }
    }

    /// Forms the features of entries `first` and, if there is one, `first + 1` of each class, with features down.
    #[inline(always)]
    fn two_down(
        x: Shared<f64>,
        lane: u32,
        ones: u32,
        first: usize,
        wanted: &impl Fn(usize) -> bool,
        f: &mut impl FnMut(usize, [f64; 8]),
    ) {
        let mut any = false;
        each(C + 1, |m| any = any || wanted(Self::step(first, m)));
        if !any {
            return;
        }
        let (row, class, half) = (lane % 4, lane / 4 % 4, lane / 16);
        // The two halves differ only in which columns they read.
        let at = Down {
            x,
            own: class * STRIDE + row,
            low: (class + 1 + half) % 4 * STRIDE + row,
            ones: ones * STRIDE + row,
            half,
        };
        let mut u = [at.four(at.own, first), [0.0; 4]];
        if first + 1 < C {
            u[1] = at.four(at.own, first + 1);
        }
        let mut a = [0.0; 8];
        macro_rules! partners {
            ($($m:literal)*) => {
                $(if $m < C + 1 && wanted(Self::step(first, $m)) {
                    Self::partner_down(at, first, $m, &u, &mut a, f);
                })*
            };
        }
        partners!(0 1 2 3 4 5 6 7 8 9 10);
    }

    /// Step of the product of entry `first` with its `m`th partner; the step of entry `first + 1` is the same.
    #[inline(always)]
    const fn step(first: usize, m: usize) -> usize {
        layout::slot_down(C as u32, m as u32, first as u32) as usize / 2
    }

    /// Forms the features of both entries with their `m`th partner.
    #[inline(always)]
    fn partner_down(
        at: Down,
        first: usize,
        m: usize,
        u: &[[f64; 4]; 2],
        a: &mut [f64; 8],
        f: &mut impl FnMut(usize, [f64; 8]),
    ) {
        if C >= 4 {
            // Stops the compiler from hoisting later loads above this point; no registers are left for them.
            warp::sync_warp();
        }
        let both = first + 1 < C;
        let below = if m <= first || (both && m == first + 1) { at.four(at.low, m) } else { [0.0; 4] };
        // Factor of `u[i]` for `m > i`. Half 0: entry `m` of the next class, or 1 for `m = C`; half 1: entry `m − 1` of
        // the own class.
        let mut above = [0.0; 4];
        if m > first {
            let zero = if m < C { at.low + 4 * m as u32 * STRIDE } else { at.ones };
            above = at.four(if at.half == 0 { zero } else { at.own + 4 * (m as u32 - 1) * STRIDE }, 0);
        }
        let mut one = |odd: usize| {
            let slot = layout::slot_down(C as u32, m as u32, (first + odd) as u32) as usize;
            each(4, |r| {
                let by = if m <= first + odd { below[r] } else { above[r] };
                a[r * 2 + slot % 2] = u[odd][r] * by;
            });
            slot
        };
        let mut slot = one(0);
        if both {
            slot = one(1);
        }
        if slot % 2 == 1 {
            f(slot / 2, *a);
        }
    }
}

/// Addresses that a lane reads, with features down.
#[derive(Clone, Copy)]
struct Down {
    x: Shared<f64>,
    own: u32,
    low: u32,
    ones: u32,
    half: u32,
}

impl Down {
    /// Four rows of entry `i` of the class that starts at `from`.
    #[inline(always)]
    fn four(self, from: u32, i: usize) -> [f64; 4] {
        [0, 4, 8, 12].map(|row| self.x.load(from + 4 * i as u32 * STRIDE + row))
    }
}

/// As [`Full`], with one more entry `z`. It adds sixteen features: `z` times each other entry, `z²` and `z`. For `C` up
/// to 3.
pub struct FullAndOne<const C: usize>;

impl<const C: usize> FullAndOne<C> {
    /// First column after the classes: `z`, then a column of ones, then one of zeros.
    const Z: u32 = 4 * C as u32;

    /// Column that `z` is multiplied by in feature `class` of the `i`th group of four.
    #[inline(always)]
    pub(crate) fn partner(i: u32, class: u32) -> u32 {
        if i < C as u32 {
            4 * i + class
        } else if i == C as u32 && class < 2 {
            Self::Z + class
        } else {
            Self::Z + 2
        }
    }
}

impl<const C: usize> Features for FullAndOne<C> {
    const STEPS: usize = Full::<C>::STEPS + 1;
    const COLUMNS: u32 = 4 * C as u32 + 3;
    const ENTRIES: u32 = 4 * C as u32 + 1;
    const ONES: Option<u32> = Some(4 * C as u32 + 1);

    #[inline(always)]
    fn across(x: Shared<f64>, lane: u32, scarce: bool, mut f: impl FnMut(usize, [f64; 8])) {
        Full::<C>::across_with(x, lane, scarce, &mut f);
        let (row, class) = (lane / 4, lane % 4);
        let z = [0, 8].map(|r| x.load(Self::Z * STRIDE + row + r));
        let mut a = [0.0; 8];
        each(C + 1, |i| {
            let at = Self::partner(i as u32, class) * STRIDE + row;
            each(2, |half| a[2 * i + half] = z[half] * x.load(at + 8 * half as u32));
        });
        f(Full::<C>::STEPS, a);
    }

    #[inline(always)]
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, mut f: impl FnMut(usize, [f64; 8])) {
        Full::<C>::down_with(x, lane, Self::Z + 1, &wanted, &mut f);
        if !wanted(Full::<C>::STEPS) {
            return;
        }
        let (row, class, half) = (lane % 4, lane / 4 % 4, lane / 16);
        let z = [0, 4, 8, 12].map(|r| x.load(Self::Z * STRIDE + row + r));
        let mut a = [0.0; 8];
        each(2, |slot| {
            let at = Self::partner(2 * slot as u32 + half, class) * STRIDE + row;
            each(4, |r| a[2 * r + slot] = z[r] * x.load(at + 4 * r as u32));
        });
        f(Full::<C>::STEPS, a);
    }
}
