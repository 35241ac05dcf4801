//! Data of 64 rows that all warps of a moments block read, staged in shared memory.

use crate::THREADS;
use crate::device::{Shared, copies};
use crate::em::chunked::double_precision::down::{Choice, Columns, Down, ONES, Of, Products};
use crate::em::chunked::half_precision::moments::Moments;
use crate::em::chunked::half_precision::operand::{Right, right_of, rights};
use crate::em::features::derive;
use crate::em::features::each;
use crate::layout::TILE_ROWS;

/// Groups of sixteen rows per stage.
pub(crate) const SIXTEENS: u32 = 4;

/// Rows per stage.
pub(crate) const STAGE: u32 = 16 * SIXTEENS;

/// Columns after the entries: norms (0 if they are not a feature), ones, zeros.
const MORE: u32 = 3;

/// A stage: exponentials (with `ONE`, hi parts only), factors, then columns, each in groups of sixteen rows.
#[derive(Clone, Copy)]
pub(crate) struct Stage<const ONE: bool> {
    offset: u32,
    groups: u32,
    columns: u32,
}

impl<const ONE: bool> Stage<ONE> {
    /// Bytes of a stage.
    pub(crate) const fn bytes(groups: u32, d: u32) -> u32 {
        SIXTEENS * (Self::GROUP * groups + 64 + 64 * (d + MORE))
    }

    /// Bytes of one group's exponentials of sixteen rows.
    const GROUP: u32 = if ONE { 256 } else { 512 };

    #[inline(always)]
    pub(crate) fn at(offset: u32, groups: u32, d: u32) -> Self {
        Self { offset, groups, columns: d + MORE }
    }

    /// Offset of the columns of a group of sixteen rows.
    #[inline(always)]
    fn columns_at(self, sixteen: u32) -> u32 {
        self.offset + SIXTEENS * (Self::GROUP * self.groups + 64) + sixteen * 64 * self.columns
    }

    /// Initialises the columns that are not copied from memory; all threads of the block call it once.
    #[inline(always)]
    pub(crate) fn fill(self, with_norms: bool) {
        let mut i = thread();
        while i < SIXTEENS * MORE * 16 {
            let (sixteen, which) = (i / (MORE * 16), i / 16 % MORE);
            let at = self.columns_at(sixteen) + 64 * (self.columns - MORE + which) + 4 * (i % 16);
            if which > 0 || !with_norms {
                Shared::<f32>::at(at).store(0, if which == 1 { 1.0 } else { 0.0 });
            }
            i += THREADS;
        }
    }

    /// Starts the copies of the stage's 64 rows; all threads of the block call it.
    ///
    /// # Safety
    /// `half` is half of a tile of the chunk; all threads have read the old contents of the stage.
    #[inline(always)]
    pub(crate) unsafe fn send(self, a: &Moments, half: u32, piece: u32) {
        let (tile, first) = ((half / 2) as u64, half % 2 * STAGE);
        let copy = |to: u32, from: *const f32| {
            // SAFETY: `half` is in the chunk, and the buffers have the lengths that `Moments` documents.
            unsafe { copies::send(to, from.cast()) };
        };
        let x = a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + first as u64) as usize);
        // Copies of four rows each: sixteen per column, four for each group of sixteen rows. Addresses are recomputed,
        // so that no register holds them while products are computed.
        let t = crate::device::thread::thread_idx_x_anew();
        let (mut column, four) = (t / 16, t % 16);
        let mut to = self.columns_at(four / 4) + 64 * column + 16 * (four % 4);
        let mut from = x.wrapping_add((column * TILE_ROWS + 4 * four) as usize);
        while column < a.d {
            copy(to, from);
            column += THREADS / 16;
            to += 64 * (THREADS / 16);
            from = from.wrapping_add((TILE_ROWS * (THREADS / 16)) as usize);
        }
        let own = Self::GROUP / 16 * self.groups;
        let sixteen = half as u64 * SIXTEENS as u64;
        let words = Self::GROUP / 4;
        let start = (sixteen * a.groups as u64 + (piece * self.groups) as u64) * words as u64;
        let e = a.exponentials.wrapping_add(start as usize + 4 * t as usize);
        let to = self.offset + 16 * t;
        each(SIXTEENS as usize, |s| {
            let e = e.wrapping_add(s * (words * a.groups) as usize);
            // Full rounds of all threads, known at compile time; for the smallest size, half a round.
            each(own.div_ceil(THREADS) as usize, |i| {
                if own.is_multiple_of(THREADS) || i as u32 * THREADS + t < own {
                    let by = i as u32 * THREADS;
                    copy(to + 16 * (own * s as u32 + by), e.wrapping_add(4 * by as usize).cast());
                }
            });
        });
        if t < 16 {
            let pieces_before = tile * (a.groups / self.groups) as u64 + piece as u64;
            let from = a.factors.wrapping_add((pieces_before * TILE_ROWS as u64 + (first + 4 * t) as u64) as usize);
            copy(self.offset + SIXTEENS * Self::GROUP * self.groups + 16 * t, from);
        } else if t < 32 && a.derive == derive::NORM {
            let four = t - 16;
            let from = a.norms.wrapping_add((tile * TILE_ROWS as u64 + (first + 4 * four) as u64) as usize);
            copy(self.columns_at(four / 4) + 64 * a.d + 16 * (four % 4), from);
        }
    }

    /// Factors of a lane's four rows of sixteen.
    #[inline(always)]
    pub(crate) fn factors(self, sixteen: u32, lane: u32) -> [f32; 4] {
        let at = self.offset + SIXTEENS * Self::GROUP * self.groups + 64 * sixteen + 16 * (lane % 4);
        Shared::<f32>::at(at).load4(0)
    }

    /// `N` right operands: rows by the components of each group from `first` on.
    #[inline(always)]
    pub(crate) fn exponentials<const N: usize>(self, sixteen: u32, first: usize, lane: u32) -> [Right; N] {
        let here = self.offset + Self::GROUP * self.groups * sixteen + 16 * lane;
        rights::<ONE, N>(first as u32, |unit| Shared::<f32>::at(here + 512 * unit).load4(0))
    }

    /// The right operand of one group.
    #[inline(always)]
    pub(crate) fn exponential(self, sixteen: u32, group: u32, lane: u32) -> Right {
        let here = self.offset + Self::GROUP * self.groups * sixteen + 16 * lane;
        if ONE {
            let [one, two] = right_of(Shared::<f32>::at(here + 512 * (group / 2)).load4(0));
            return [if group.is_multiple_of(2) { one } else { two }, [0; 2]];
        }
        right_of(Shared::<f32>::at(here + 512 * group).load4(0))
    }

    /// A lane's four rows of the column at offset `at`, a [`place`].
    #[inline(always)]
    fn column(self, sixteen: u32, at: u32) -> [f32; 4] {
        Shared::<f32>::at(self.columns_at(sixteen)).load4(at)
    }
}

#[inline(always)]
fn thread() -> u32 {
    crate::device::thread::thread_idx_x()
}

/// A lane's data about its four features of a unit of two steps.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    /// Offsets of its columns in a stage, two per word; then the data that depends on the family.
    words: [u32; 4],
    /// Scales of the features.
    pub(crate) scales: [f32; 4],
}

impl Lane {
    #[inline(always)]
    pub(crate) fn unpack(words: [u32; 4], scales: [f32; 4]) -> Self {
        Self { words, scales }
    }

    #[inline(always)]
    fn pack(places: [u32; 6], more: u32) -> [u32; 4] {
        [places[0] | places[1] << 16, places[2] | places[3] << 16, places[4] | places[5] << 16, more]
    }

    #[inline(always)]
    fn place(self, i: usize) -> u32 {
        let word = self.words[i / 2];
        word >> (16 * (i % 2)) & 0xffff
    }

    #[inline(always)]
    fn more(self) -> u32 {
        self.words[3]
    }
}

/// Four features as products of columns.
pub(crate) trait Features: Down {
    /// Packs a lane's data.
    fn lane(of: Of, choice: Choice, lane: u32) -> [u32; 4];
    /// Features of four rows each, times the rows' factors and the features' scales.
    fn features<const ONE: bool>(lane: Lane, stage: Stage<ONE>, sixteen: u32, factors: [f32; 4]) -> [[f32; 4]; 4];
}

/// Offset of a lane's part of a column; columns past the entries are zeros. In units of 4 bytes, so that two offsets
/// fit into a word.
#[inline(always)]
fn place(d: u32, column: u32, lane: u32) -> u32 {
    let zeros = d + 2;
    let staged = if column == ONES {
        d + 1
    } else if column < zeros {
        column
    } else {
        zeros
    };
    16 * staged + 4 * (lane % 4)
}

impl Features for Columns {
    #[inline(always)]
    fn lane(of: Of, choice: Choice, lane: u32) -> [u32; 4] {
        let (mut places, mut squares) = ([0; 6], 0);
        each(4, |i| {
            let [column, _] = Self::columns(of, choice, i);
            // Past the entries come the norm, then zeros.
            let column = if column > of.d { of.d + 2 } else { column };
            places[i] = place(of.d, column, lane);
            squares |= (Self::is_square(choice, i) as u32) << i;
        });
        Lane::pack(places, squares)
    }

    #[inline(always)]
    fn features<const ONE: bool>(lane: Lane, stage: Stage<ONE>, sixteen: u32, factors: [f32; 4]) -> [[f32; 4]; 4] {
        let mut out = [[0.0; 4]; 4];
        each(4, |i| {
            let v = stage.column(sixteen, lane.place(i));
            let square = lane.more() >> i & 1 != 0;
            each(4, |r| out[i][r] = v[r] * (factors[r] * lane.scales[i]) * if square { v[r] } else { 1.0 });
        });
        out
    }
}

impl Features for Products {
    #[inline(always)]
    fn lane(of: Of, [column, partner, last, before]: Choice, lane: u32) -> [u32; 4] {
        let past = |column: u32| if column == ONES || column < of.d { column } else { of.d + 2 };
        let mut places = [0; 6];
        each(4, |i| places[i] = place(of.d, past(column + 4 * i as u32), lane));
        places[4] = place(of.d, past(partner), lane);
        places[5] = place(of.d, past(last), lane);
        Lane::pack(places, before)
    }

    #[inline(always)]
    fn features<const ONE: bool>(lane: Lane, stage: Stage<ONE>, sixteen: u32, factors: [f32; 4]) -> [[f32; 4]; 4] {
        let before = lane.more();
        let mut by = stage.column(sixteen, lane.place(4));
        each(4, |r| by[r] *= factors[r]);
        let mut other = by;
        if before < 4 {
            other = stage.column(sixteen, lane.place(5));
            each(4, |r| other[r] *= factors[r]);
        }
        let mut out = [[0.0; 4]; 4];
        each(4, |i| {
            let u = stage.column(sixteen, lane.place(i));
            each(4, |r| out[i][r] = u[r] * lane.scales[i] * if (i as u32) < before { by[r] } else { other[r] });
        });
        out
    }
}
