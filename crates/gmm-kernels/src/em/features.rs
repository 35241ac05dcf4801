//! What a row is multiplied with: its features, in groups of sixteen, generated as operands of the tensor cores.
//!
//! The log joint density of a row is linear in its features (entries, products of entries), and the statistics are sums
//! of the same features times responsibilities. So both halves of a pass are matrix products, with the features as the
//! left operand in each: rows down and features across for the densities, features down and rows across for the sums.
//! Lane `4g + t` of a warp holds, of a 16×16 operand, rows `g`, `g+8` and columns `t`, `t+4`, `t+8`, `t+12`.

use crate::device::{Shared, warp};
pub(crate) use crate::each::each;
use crate::em::layout;
use crate::layout::Kind;

/// What features are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Entries and their products: full covariances.
    Full,
    /// The same, one entry more than a multiple of four.
    FullAndOne,
    /// Entries, and what is derived of them: spherical and tied covariances.
    Linear,
    /// Entries and their squares: diagonal covariances.
    Squares,
}

/// What is derived of a row for a kind.
pub const fn derived(kind: Kind) -> u32 {
    match kind {
        Kind::Full | Kind::Tied => derive::NOTHING,
        Kind::Diag => derive::SQUARES,
        Kind::Spherical => derive::NORM,
    }
}

/// What is derived from a row's entries while they are staged.
pub mod derive {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// Column `d` is the sum of the entries' squares.
    pub const NORM: u32 = 1;
    /// The later half of the columns are the squares of the entries in the first.
    pub const SQUARES: u32 = 2;
}

/// Rows that a warp takes at a time.
pub const GROUP: u32 = 16;

/// Distance of a column's start from that of the one before it, in shared memory: with 4 more than the rows, the lanes
/// of a half warp read different banks both along rows and along columns.
pub const STRIDE: u32 = GROUP + 4;

/// Features of one family.
pub trait Features {
    /// Groups of sixteen features.
    const STEPS: usize;
    /// Columns that are staged in shared memory, `STRIDE` numbers each.
    const COLUMNS: u32;
    /// Columns that hold entries of the row: what `d` may be at most.
    const ENTRIES: u32;
    /// A column that holds 1 in every row, if there is one.
    const ONES: Option<u32>;
    /// Whether the sum of a row's squares may be asked for as a column.
    const NORMS: bool = false;

    /// Calls `f(step, operand)` with rows down and features across; where registers are `scarce`, with few of its own.
    fn across(x: Shared<f64>, lane: u32, scarce: bool, f: impl FnMut(usize, [f64; 8]));

    /// Calls `f(step, operand)` with features down and rows across, for each step that is wanted.
    fn down(x: Shared<f64>, lane: u32, wanted: impl Fn(usize) -> bool, f: impl FnMut(usize, [f64; 8]));
}

/// Staged columns as they are: entries, and what was derived from them while they were staged. `S` groups of sixteen.
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

/// Entries and their squares: `H` groups of sixteen entries, then their squares, formed where they are used.
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
/// Column `4i + q` is entry `i` of *class* `q`. A lane must form its features with indices known to the compiler, while
/// lanes need different features: so each lane holds the same part of the row *rotated* by its class, and the same
/// products of rotated entries are, over the four classes, every product once. With `u` the entries of class `q`, `v`
/// those of class `q+1` and `w` those of `q+2`:
/// - half 0 has `u[i] v[m]` for `m < C`, and `u[i]` alone for `m = C`;
/// - half 1 has `u[i] w[m]` for `m ≤ i`, and `u[i] u[m−1]` for `m > i`.
///
/// `u[i] w[i]` comes from both `q` and `q+2`; the one with `q < 2` counts. That is `8 C (C+1)` features, `C (C+1)` for
/// each half of each class: a multiple of sixteen, and for 16 columns 160 where 152 are needed.
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
        // Written out, as below.
        let mut a = [0.0; 8];
        Self::half_across(0, scarce, &u, |m| both(next, m), &mut a, f);
        Self::half_across(1, scarce, &u, |m| both(opposite, m), &mut a, f);
    }

    /// Half 0 or 1 of the features, with features across: `u(i)` is entry `i` of the lane's class, `other(m)` entry `m` of that whose
    /// entries they are multiplied with, `a` what a step has so far.
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
                // Keeps what comes after from being read ahead.
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
        // Two entries at a time, so that what multiplies them is read once for both. Written out: a closure of that size
        // stays a call.
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

    /// Features of entry `first` of each class and the one after it, if there is one, with features down.
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
        // The halves differ in where they read and not in what they do.
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

    /// The step of entry `first`'s product with its `m`th partner; that of the entry after it is the same.
    #[inline(always)]
    const fn step(first: usize, m: usize) -> usize {
        layout::slot_down(C as u32, m as u32, first as u32) as usize / 2
    }

    /// The same for one partner.
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
            // Keeps what comes after from being read ahead, into registers of which there are none left.
            warp::sync_warp();
        }
        let both = first + 1 < C;
        let below = if m <= first || (both && m == first + 1) { at.four(at.low, m) } else { [0.0; 4] };
        // What multiplies `u[i]` for `m > i`. Half 0: entry `m` of the next class, or 1 past the last; half 1: entry
        // `m − 1` of its own.
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

/// Where a lane reads, with features down.
#[derive(Clone, Copy)]
struct Down {
    x: Shared<f64>,
    own: u32,
    low: u32,
    ones: u32,
    half: u32,
}

impl Down {
    /// Four rows of the `i`th entry of a class that starts at `from`.
    #[inline(always)]
    fn four(self, from: u32, i: usize) -> [f64; 4] {
        [0, 4, 8, 12].map(|row| self.x.load(from + 4 * i as u32 * STRIDE + row))
    }
}

/// As [`Full`], with one entry more, `z`, which takes sixteen features more: `z` times each other entry, times itself,
/// and alone. For `C` up to 3.
pub struct FullAndOne<const C: usize>;

impl<const C: usize> FullAndOne<C> {
    /// Columns after the entries: `z`, ones, zeros.
    const Z: u32 = 4 * C as u32;

    /// The column that `z` is multiplied with in feature `class` of the `i`th four.
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
