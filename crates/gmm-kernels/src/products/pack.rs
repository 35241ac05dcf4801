//! Conversion of rows to operands; see [`products`](crate::products).
//!
//! Operands of the right factor hold 8 rows each. Those of the left factor come in pairs for 16 rows, like its
//! tensor-core tiles: a lane's 16 bytes are what an instruction takes in consecutive registers. For split fp16, the
//! first of a pair holds the hi parts and the second the lo parts.

use super::{BLOCK, OPERAND, OPERAND_ROWS, OPERANDS};
use crate::device::words::global_store_u32x4;
use crate::device::{self, WARP, thread, warp};
use crate::device::{
    Shared,
    mma::{from_halves, to_halves},
};
use crate::each::each;
use crate::{Real, THREADS};

/// Rows, and columns, that a thread block processes at a time.
pub const SIDE: u32 = 64;

/// Position of number `c` of row `r` of an `f32` tile in shared memory. Columns are permuted depending on the row, so
/// that banks differ along a row, along a column, and within the eight-row block that becomes an operand.
#[inline(always)]
fn staged_at(r: u32, c: u32) -> u32 {
    let turned = ((r & 3) << 3) | (((r >> 3) & 3) << 1) | ((r >> 2) & 1);
    r * SIDE + (c ^ turned)
}

kernels! {
    /// The grid is `2*ceil(rows/128)` blocks in `x` and any number in `y`.
    Pack<T> {
        /// `(rows, k)`.
        from: *const T,
        /// Rows.
        rows: u64,
        /// Columns.
        k: u64,
        /// If not 0, `from` is column-major; otherwise row-major.
        by_columns: u32,
        /// `(k,)`, or null: subtracted from each row, in `f64`.
        shift: *const f64,
        /// If not 0, packs for the left factor of products.
        left: u32,
        /// [`Form::steps`](super::Form::steps).
        steps: u64,
        /// [`Form::words`](super::Form::words), 16-byte aligned, written.
        to: *mut u32,
    }
    /// The kernel to `f64`.
    pack_doubles => pack_doubles_f32, pack_doubles_f64, doubles::<T>, no_shared::<T>;
}

kernels! {
    /// As for [`Pack`].
    Split {
        /// As for [`Pack`].
        from: *const f32,
        /// Rows.
        rows: u64,
        /// Columns.
        k: u64,
        /// As for [`Pack`].
        by_columns: u32,
        /// `(rows,)`: powers of two by which the rows are multiplied.
        scales: *const f32,
        /// As for [`Pack`].
        left: u32,
        /// As for [`Pack`].
        steps: u64,
        /// As for [`Pack`].
        to: *mut u32,
        /// One word, set to 1 if fp16 loses too much precision; see [`LOST`].
        trouble: *mut u32,
    }
    /// The kernel to hi and lo parts.
    split_halves => halves::<2>, shared_halves;
    /// The kernel to hi parts only.
    split_heads => halves::<1>, shared_halves;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &Pack<T>) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_halves(_: &Split) -> u64 {
    u64::from(4 * SIDE * SIDE)
}

/// Of 64 consecutive numbers of a row, at most this many may be so small, compared with the row's largest, that their
/// lo part loses precision.
pub const LOST: u32 = 4;

/// Scaled nonzero numbers below this lose precision: the last bit of a lo part is 2⁻²⁴, and the hi part has 11 bits.
pub const SMALL: f32 = 0.125;

/// Address, shape and layout of the source matrix.
#[derive(Clone, Copy)]
struct Source {
    from: *const f32,
    rows: u64,
    k: u64,
    by_columns: bool,
}

/// Loads a tile of 64 × 64 numbers into shared memory, each as `f(number, row)`; past the end, zeros. Starts and ends
/// with a barrier.
#[inline(always)]
unsafe fn stage(source: Source, row: u64, column: u64, f: impl Fn(f32, u64) -> f32) {
    const AT_ONCE: usize = 16;
    const APART: u32 = THREADS / SIDE;
    let (t, to) = (thread::thread_idx_x(), Shared::<f32>::at(0));
    // A thread has one position along the contiguous direction, and every second one across it.
    let (along, first) = (t % SIDE, t / SIDE);
    let place = |i: u32| {
        let across = first ^ (APART * i);
        if source.by_columns { (along, across) } else { (across, along) }
    };
    let wide = if source.by_columns { source.rows } else { source.k };
    let (here, across) = if source.by_columns { (row, column) } else { (column, row) };
    let from = source.from.wrapping_add(((across + first as u64) * wide + here + along as u64) as usize);
    let is_whole = row + SIDE as u64 <= source.rows && column + SIDE as u64 <= source.k;
    // Past the end, read the last number instead of branching, so that no load waits.
    let last = |at: u64, end: u64| if at < end { at } else { end - 1 };
    thread::sync_threads();
    let mut turn = 0;
    while turn < SIDE / APART {
        let mut values = [0.0; AT_ONCE];
        if is_whole {
            let mut at = from.wrapping_add(((APART * turn) as u64 * wide) as usize);
            each(AT_ONCE, |i| {
                // SAFETY: the whole tile is within the matrix, `(rows, k)`.
                values[i] = unsafe { device::load(at, 0) };
                at = at.wrapping_add((APART as u64 * wide) as usize);
            });
            each(AT_ONCE, |i| {
                let (r, c) = place(turn + i as u32);
                to.store(staged_at(r, c), f(values[i], row + r as u64));
            });
        } else {
            each(AT_ONCE, |i| {
                let (r, c) = place(turn + i as u32);
                let (r, c) = (last(row + r as u64, source.rows), last(column + c as u64, source.k));
                let at = if source.by_columns { c * source.rows + r } else { r * source.k + c };
                // SAFETY: `r` and `c` are clamped to the matrix.
                values[i] = unsafe { device::load(source.from, at) };
            });
            each(AT_ONCE, |i| {
                let (r, c) = place(turn + i as u32);
                let (here, there) = ((row + r as u64, column + c as u64), source);
                let value = f(values[i], last(here.0, there.rows));
                let is_there = here.0 < there.rows && here.1 < there.k;
                to.store(staged_at(r, c), if is_there { value } else { 0.0 });
            });
        }
        turn += AT_ONCE as u32;
    }
    thread::sync_threads();
}

/// Position of this lane's words in the operand of eight rows from `row` on and of step `step`.
#[inline(always)]
fn place(to: *mut u32, steps: u64, row: u64, step: u64, lane: u32) -> *mut u32 {
    let (block, eight) = (row / BLOCK as u64, row % BLOCK as u64 / OPERAND_ROWS as u64);
    to.wrapping_add((((block * steps + step) * OPERANDS as u64 + eight) * OPERAND as u64 + 4 * lane as u64) as usize)
}

/// Steps of `f64` operands that a warp loads at a time.
const AHEAD: usize = 4;

/// Rows per warp.
const OWN_ROWS: u32 = SIDE / (THREADS / WARP);

/// A lane's numbers for some steps: for each step, rows `lane/4` and 8 more, columns `lane%4` and 4 more,
/// `[row][column]`.
type Steps<T> = [[[T; 2]; 2]; AHEAD];

/// Position of a warp's numbers in the matrix.
#[derive(Clone, Copy)]
struct Part<T> {
    from: *const T,
    /// Its first row and column.
    row: u64,
    column: u64,
    rows: u64,
    k: u64,
    by_columns: bool,
    lane: u32,
}

impl<T: Real> Part<T> {
    const COLUMNS: u32 = super::Form::Double.columns();

    /// Loads each number in the lane that needs it: eight rows are adjacent in a column, and four columns in a row.
    /// Past the end, reads the last number instead of branching, so that no load waits.
    #[inline(always)]
    unsafe fn as_they_lie(self) -> Steps<T> {
        let last = |at: u64, end: u64| if at < end { at } else { end - 1 };
        let (down, along) = if self.by_columns { (1, self.rows) } else { (self.k, 1) };
        let rows = [0, 8].map(|by| last(self.row + (self.lane / 4 + by) as u64, self.rows) * down);
        let mut values = [[[T::ZERO; 2]; 2]; AHEAD];
        each(AHEAD, |s| {
            each(2, |c| {
                let column = self.column + (Self::COLUMNS * s as u32 + 4 * c as u32 + self.lane % 4) as u64;
                let at = last(column, self.k) * along;
                // SAFETY: row and column are clamped to the matrix.
                each(2, |r| values[s][r][c] = unsafe { device::load(self.from, rows[r] + at) });
            });
        });
        values
    }

    /// As `as_they_lie`, for a column-major matrix that contains the whole part: loads 16 rows of two columns at a
    /// time, which are whole cache lines; requests for half lines take as long. The lanes then exchange their numbers.
    #[inline(always)]
    unsafe fn by_lines(self) -> Steps<T> {
        const EACH: usize = AHEAD * Part::<f64>::COLUMNS as usize / 2;
        let lane = self.lane;
        let (row, odd) = (lane % OWN_ROWS, lane / OWN_ROWS);
        let from = self.from.wrapping_add(((self.column + odd as u64) * self.rows + self.row + row as u64) as usize);
        let mut lines = [T::ZERO; EACH];
        // SAFETY: the caller checked that all 16 rows and `AHEAD` steps of columns are within the matrix.
        each(EACH, |i| lines[i] = unsafe { device::load(from, 2 * i as u64 * self.rows) });
        // This lane holds columns `2i + odd`. A lane needs columns `4c + lane%4` of a step, in two rows. Two lanes need
        // different columns of the same lane, so each lane sends one column to each of the two, in two rounds. In the
        // first round, the lanes of the upper eight rows send their first column.
        let (low, second) = (row < 8, lane % 4 >= 2);
        let source = |upper: bool| lane / 4 + if upper { 8 } else { 0 } + OWN_ROWS * (lane % 2);
        let mut values = [[[T::ZERO; 2]; 2]; AHEAD];
        each(AHEAD, |s| {
            each(2, |c| {
                let [v, w] = [lines[4 * s + 2 * c], lines[4 * s + 2 * c + 1]];
                let [v, w] = if low { [v, w] } else { [w, v] };
                let [v, w] = [v.shuffle_idx(source(second)), w.shuffle_idx(source(!second))];
                [values[s][0][c], values[s][1][c]] = if second { [w, v] } else { [v, w] };
            });
        });
        values
    }
}

/// Body of [`pack_doubles`].
///
/// A warp has 16 rows and assembles operands in registers.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Pack`].
#[inline(always)]
pub unsafe fn doubles<T: Real>(a: Pack<T>) {
    const COLUMNS: u64 = super::Form::Double.columns() as u64;
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    // No device holds so many rows that this exceeds 32 bits.
    let row = (thread::block_idx_x() * SIDE + me * OWN_ROWS) as u64;
    let there = [0, 8].map(|by| row + ((lane / 4) as u64 + by) < a.rows);
    let mut first = thread::block_idx_y() as u64 * (SIDE as u64 / COLUMNS);
    while first < a.steps {
        each((SIDE as u64 / COLUMNS) as usize / AHEAD, |turn| {
            let first = first + (turn * AHEAD) as u64;
            let (column, by_columns) = (first * COLUMNS, a.by_columns != 0);
            let part = Part { from: a.from, row, column, rows: a.rows, k: a.k, by_columns, lane };
            let whole = row + OWN_ROWS as u64 <= a.rows && column + AHEAD as u64 * COLUMNS <= a.k;
            // SAFETY: the fields are as documented; `by_lines` is used only if the whole part is within the matrix.
            let values = unsafe { if by_columns && whole { part.by_lines() } else { part.as_they_lie() } };
            each(AHEAD, |s| {
                let mut bits = [[0; 2]; 2];
                each(2, |c| {
                    let column = column + COLUMNS * s as u64 + (4 * c as u32 + lane % 4) as u64;
                    let mut shift = 0.0;
                    if !a.shift.is_null() && column < a.k {
                        // SAFETY: `column < k`.
                        shift = unsafe { device::load(a.shift, column) };
                    }
                    each(2, |r| {
                        let v = values[s][r][c].to_f64() - shift;
                        bits[r][c] = if there[r] && column < a.k { v.to_bits() } else { 0 };
                    });
                });
                let step = first + s as u64;
                if step < a.steps {
                    each(2, |eight| {
                        let [v, w] = if a.left != 0 { [bits[0][eight], bits[1][eight]] } else { bits[eight] };
                        let words = [v as u32, (v >> 32) as u32, w as u32, (w >> 32) as u32];
                        // SAFETY: `step < steps`, and rows are padded to blocks, so the operand is within `to`; each
                        // lane has its own words.
                        unsafe { global_store_u32x4(place(a.to, a.steps, row + 8 * eight as u64, step, lane), words) };
                    });
                }
            });
        });
        first += thread::grid_dim_y() as u64 * (SIDE as u64 / COLUMNS);
    }
}

/// Body of [`split_halves`] and [`split_heads`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Split`].
#[inline(always)]
unsafe fn halves<const TERMS: u32>(a: Split) {
    let columns = 32 / TERMS;
    let (lane, me, t) = (warp::lane_id(), thread::thread_idx_x() / WARP, thread::thread_idx_x());
    let source = Source { from: a.from, rows: a.rows, k: a.k, by_columns: a.by_columns != 0 };
    let (row, staged) = (thread::block_idx_x() as u64 * SIDE as u64, Shared::<f32>::at(0));
    let mut column = thread::block_idx_y() as u64 * SIDE as u64;
    while column < a.steps * columns as u64 {
        // SAFETY: the fields are as documented, and `stage` passes only rows below `rows` to the closure.
        unsafe { stage(source, row, column, |v, r| v * device::load(a.scales, r)) };
        if t < SIDE {
            let (mut lost, mut c) = (0, 0);
            while c < SIDE {
                let v = staged.load(staged_at(t, c));
                let size = if v < 0.0 { -v } else { v };
                lost += (size > 0.0 && size < SMALL) as u32;
                c += 1;
            }
            if lost > LOST {
                // SAFETY: `trouble` is one word, and all threads that write it write the same value.
                unsafe { device::store(a.trouble, 0, 1) };
            }
        }
        let mut i = me;
        while i < (SIDE / OPERAND_ROWS) * (SIDE / columns) {
            let (eight, some) = (i % (SIDE / OPERAND_ROWS), i / (SIDE / OPERAND_ROWS));
            let step = column / columns as u64 + some as u64;
            if step < a.steps {
                let down = if a.left != 0 { eight / 2 * 16 } else { 8 * eight };
                let (r, c) = (down + lane / 4, columns * some + 2 * (lane % 4));
                let pair =
                    |to_row: u32, to_column: u32| [0, 1].map(|i| staged.load(staged_at(r + to_row, c + to_column + i)));
                let head = |[v, w]: [f32; 2]| to_halves(v, w);
                let tail = |[v, w]: [f32; 2]| {
                    let [x, y] = from_halves(to_halves(v, w));
                    to_halves(v - x, w - y)
                };
                // The four corners: rows and 8 rows further, columns and 8 columns further.
                let corners = |by: u32| [pair(0, by), pair(8, by), pair(0, by + 8), pair(8, by + 8)];
                let words = match (TERMS == 2, a.left != 0) {
                    (true, true) if eight % 2 == 0 => corners(0).map(head),
                    (true, true) => corners(0).map(tail),
                    (true, false) => {
                        let two = [pair(0, 0), pair(0, 8)];
                        [head(two[0]), head(two[1]), tail(two[0]), tail(two[1])]
                    }
                    (false, true) => corners(16 * (eight % 2)).map(head),
                    (false, false) => [0, 8, 16, 24].map(|by| head(pair(0, by))),
                };
                // SAFETY: `step < steps`, and rows are padded to blocks, so the operand is within `to`; each lane has
                // its own words.
                unsafe { global_store_u32x4(place(a.to, a.steps, row + 8 * eight as u64, step, lane), words) };
            }
            i += THREADS / WARP;
        }
        column += thread::grid_dim_y() as u64 * SIDE as u64;
    }
}
