//! Sums of clusters: each row is added to its own centre.
//!
//! A warp has one column, a range of centres and a part of the rows. Each lane keeps its own sum for each of the
//! centres, in shared memory and in its own bank, so that lanes never conflict. At the end a warp adds up its lanes'
//! sums in a fixed order. The summands are `w (x − centre)`, computed in `f64`.

use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::seeding::lloyd::SumSplits;
use crate::{Real, THREADS};

kernels! {
    /// `n` rows; `columns*ranges*splits` warps, four per block, along `x`.
    HardSums<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Centres.
        k: u32,
        /// `labels_len(n)`: labels below `k`, or [`NONE`](crate::seeding::lloyd::NONE).
        labels: *const u32,
        /// `(k, d)`: less the shift.
        centres: *const f64,
        /// [`SumSplits::columns`]: `d + 1`, or `2d + 1`.
        columns: u32,
        /// [`SumSplits::ranges`].
        ranges: u32,
        /// [`SumSplits::splits`].
        splits: u32,
        /// `(splits, SumSplits::len(k))`, written, with `z = x − centre`: Σ w z of column `j` and centre `c` at `j*k +
        /// c`, Σ w at `d*k + c`, and, if `columns` is `2d + 1`, Σ w z² of column `j` at `(d + 1 + j)*k + c`. At the end
        /// are `columns*ranges` parts of Σ w |z|².
        partials: *mut f64,
    }
    /// The kernel.
    hard_sums => lloyd_sums_f32, lloyd_sums_f64, body, shared_bytes;
}

/// Bytes of shared memory of a block: for each warp, a sum per lane and the centre's coordinate, for each centre of a
/// range and once more for rows of other ranges.
pub const fn shared_len(k: u32, ranges: u32) -> u64 {
    (THREADS / WARP) as u64 * warp_bytes(k.div_ceil(ranges)) as u64
}

const fn warp_bytes(centres: u32) -> u32 {
    8 * (WARP + 1) * (centres + 1)
}

/// The smallest number of ranges of `k` centres whose sums fit into `bytes` of a block's shared memory.
pub const fn ranges(k: u32, bytes: u32) -> u32 {
    let most = bytes / (THREADS / WARP) / warp_bytes(0) - 1;
    k.div_ceil(most)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(a: &HardSums<T>) -> u64 {
    shared_len(a.k, a.ranges)
}

/// Tiles that a warp reads at a time; each lane reads one row of each quarter of a tile.
const TILES: u64 = 4;

/// Most parts of the rows: the number of groups of `TILES` tiles.
pub const fn most_splits(n: u64) -> u64 {
    tiles(n).div_ceil(TILES)
}

/// A lane's entries of four tiles, and their labels.
#[derive(Clone, Copy)]
struct Some16<T> {
    x: [T; 16],
    labels: [u32; 16],
}

/// One warp's share of the sums.
#[derive(Clone, Copy)]
struct Column<'a, T: Real> {
    a: &'a HardSums<T>,
    /// Column of the rows.
    j: u32,
    /// First centre of the range, and number of centres.
    first: u32,
    count: u32,
    /// `(count + 1, 32)`, the last for rows of no centre of the range.
    sums: Shared<f64>,
    /// `(count + 1,)`: the centres' coordinates in this column.
    centres: Shared<f64>,
    lane: u32,
}

/// Body of [`hard_sums`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`HardSums`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: HardSums<T>) {
    device::await_previous_grid();
    // SAFETY: `state` is null or has `STATE_LEN` numbers.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    // `max(1)` tells the compiler that none is 0; a check for division by 0 would be a call to a panic.
    let cut = SumSplits { columns: a.columns.max(1), ranges: a.ranges.max(1), splits: a.splits.max(1) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let unit = thread::block_idx_x() as u64 * (THREADS / WARP) as u64 + me as u64;
    if unit >= cut.warps() {
        return;
    }
    // Adjacent warps take adjacent columns of the same rows, so that they share the labels in the cache.
    let column = (unit % cut.columns as u64) as u32;
    let range = (unit / cut.columns as u64 % cut.ranges as u64) as u32;
    let split = unit / cut.columns as u64 / cut.ranges as u64;
    let each_range = a.k.div_ceil(cut.ranges);
    let first = range * each_range;
    // The last ranges may have fewer centres, or none.
    let count = if first >= a.k {
        0
    } else if a.k - first < each_range {
        a.k - first
    } else {
        each_range
    };
    let at = me * warp_bytes(each_range);
    // Power of z: 0 for Σ w, 1 for Σ w z, 2 for Σ w z².
    let power = if column < a.d {
        1
    } else if column == a.d {
        0
    } else {
        2
    };
    let of = Column {
        a: &a,
        j: match power {
            0 => 0,
            1 => column,
            _ => column - a.d - 1,
        },
        first,
        count,
        sums: Shared::at(at),
        centres: Shared::at(at + 8 * WARP * (each_range + 1)),
        lane,
    };
    // SAFETY: `unit < warps`, so column, range and split are valid; the fields are as documented.
    unsafe {
        of.begin();
        warp::sync_warp();
        let groups = most_splits(a.n);
        let (from, to) = (groups * split / cut.splits as u64, groups * (split + 1) / cut.splits as u64);
        // The most common case, first moments without weights, has its own loop without tests per row.
        let mut inertia = if power == 1 && a.row_weights.is_null() {
            of.run::<true>(1, from, to)
        } else {
            of.run::<false>(power, from, to)
        };
        warp::sync_warp();
        let out = a.partials.wrapping_add((split * cut.len(a.k)) as usize);
        of.end(out.wrapping_add((column as u64 * a.k as u64 + first as u64) as usize));
        each(5, |by| inertia += warp::shuffle_xor(inertia, 1 << by));
        if lane == 0 {
            let place = cut.columns as u64 * a.k as u64 + column as u64 * cut.ranges as u64 + range as u64;
            device::store(out, place, if power == 1 { inertia } else { 0.0 });
        }
    }
}

impl<T: Real> Column<'_, T> {
    /// Zeroes the sums and loads the centres' coordinates.
    #[inline(always)]
    unsafe fn begin(self) {
        let mut c = 0;
        while c <= self.count {
            self.sums.store(c * WARP + self.lane, 0.0);
            c += 1;
        }
        let mut c = self.lane;
        while c <= self.count {
            let value = if c < self.count {
                // SAFETY: `first + c < k` and `j < d`.
                unsafe { device::load(self.a.centres, (self.first + c) as u64 * self.a.d as u64 + self.j as u64) }
            } else {
                0.0
            };
            self.centres.store(c, value);
            c += WARP;
        }
    }

    /// Tile, and row within it, of this lane's entry `i` in a group of tiles.
    #[inline(always)]
    fn place(self, group: u64, i: usize) -> (u64, u32) {
        (group * TILES + i as u64 / 4, i as u32 % 4 * WARP + self.lane)
    }

    #[inline(always)]
    unsafe fn load(self, group: u64) -> Some16<T> {
        let last = tiles(self.a.n) - 1;
        let mut out = Some16 { x: [T::ZERO; 16], labels: [0; 16] };
        each(16, |i| {
            let (tile, row) = self.place(group, i);
            let there = if tile < last { tile } else { last };
            let at = (there * self.a.d as u64 + self.j as u64) * TILE_ROWS as u64 + row as u64;
            // SAFETY: `there` is a valid tile and `j < d`; rows and labels are padded to whole tiles.
            unsafe {
                out.x[i] = device::load(self.a.x, at);
                let label = device::load(self.a.labels, there * TILE_ROWS as u64 + row as u64);
                out.labels[i] = if tile <= last { label } else { crate::seeding::lloyd::NONE };
            }
        });
        out
    }

    /// Adds the rows of the groups of tiles `from..to`; returns their part of the inertia.
    #[inline(always)]
    unsafe fn run<const PLAIN: bool>(self, power: u32, from: u64, to: u64) -> f64 {
        let mut inertia = 0.0;
        if from == to {
            return inertia;
        }
        // SAFETY: `group < to`, which is at most the number of groups.
        unsafe {
            let mut next = self.load(from);
            let mut group = from;
            while group < to {
                let now = next;
                next = self.load(if group + 1 < to { group + 1 } else { group });
                each(8, |pair| self.add::<PLAIN>(power, group, pair, &now, &mut inertia));
                group += 1;
            }
        }
        inertia
    }

    /// Adds two of the 16 entries to their centres. Both sums are read, then both written, so that their latencies
    /// overlap. If both entries have the same centre, the second sum includes the first entry, and is written last.
    #[inline(always)]
    unsafe fn add<const PLAIN: bool>(self, power: u32, group: u64, pair: usize, some: &Some16<T>, inertia: &mut f64) {
        // SAFETY: `2*pair + 1 < 16`, and the caller passes entries of `group`.
        let ((p, a), (q, b)) = unsafe {
            (
                self.term::<PLAIN>(power, group, 2 * pair, some, inertia),
                self.term::<PLAIN>(power, group, 2 * pair + 1, some, inertia),
            )
        };
        let (at, then) = (p * WARP + self.lane, q * WARP + self.lane);
        let (before, other) = (self.sums.load(at), self.sums.load(then));
        let both = if p == q { a + b } else { b };
        self.sums.store(at, before + a);
        self.sums.store(then, other + both);
    }

    /// Returns the slot of one of the 16 entries, and the value to add there.
    #[inline(always)]
    unsafe fn term<const PLAIN: bool>(
        self,
        power: u32,
        group: u64,
        i: usize,
        some: &Some16<T>,
        inertia: &mut f64,
    ) -> (u32, f64) {
        let c = some.labels[i].wrapping_sub(self.first);
        let counts = c < self.count;
        let slot = if counts { c } else { self.count };
        let away = some.x[i].to_f64() - self.centres.load(slot);
        let z = if counts { away } else { 0.0 };
        if PLAIN {
            *inertia = z.fma(z, *inertia);
            return (slot, z);
        }
        let mut weight = 1.0;
        if !self.a.row_weights.is_null() && counts {
            let (tile, row) = self.place(group, i);
            // SAFETY: a row with a label below `k` is one of the `n` rows.
            weight = unsafe { device::load(self.a.row_weights, tile * TILE_ROWS as u64 + row as u64) };
        }
        let (once, square) = (weight * z, weight * z * z);
        *inertia += square;
        (
            slot,
            match power {
                0 => weight,
                1 => once,
                _ => square,
            },
        )
    }

    /// Adds up the lanes' sums of each centre; each lane starts with a different lane's sum, so that banks do not
    /// conflict.
    #[inline(always)]
    unsafe fn end(self, out: *mut f64) {
        let mut c = self.lane;
        while c < self.count {
            let mut sum = 0.0;
            let mut i = 0;
            while i < WARP {
                sum += self.sums.load(c * WARP + (self.lane + i) % WARP);
                i += 1;
            }
            // SAFETY: `c < count`, a centre of the range, and only this lane writes it.
            unsafe { device::store(out, c as u64, sum) };
            c += WARP;
        }
    }
}
