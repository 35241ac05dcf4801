//! Sums of clusters: each row is added to its own centre.
//!
//! A warp has one column, a range of centres, and a part of the rows. Each lane has a sum of its own for each of the
//! centres, in shared memory and in banks of its own, so that no two lanes ever meet; at the end a warp adds its lanes' sums
//! up in a fixed order. What is added is `w (x − centre)`, formed in `f64`.

use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::seeding::lloyd::SumSplits;
use crate::{Real, THREADS};

kernels! {
    /// `n` rows; `columns*ranges*splits` warps, four to a block, in `x`.
    HardSums<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Centres.
        k: u32,
        /// `labels_len(n)`: below `k`, or [`NONE`](crate::seeding::lloyd::NONE).
        labels: *const u32,
        /// `(k, d)`: less the shift.
        centres: *const f64,
        /// [`SumSplits::columns`]: `d + 1`, or `2d + 1`.
        columns: u32,
        /// [`SumSplits::ranges`].
        ranges: u32,
        /// [`SumSplits::splits`].
        splits: u32,
        /// `(splits, SumSplits::len(k))`, written: Σ w z of column `j` and centre `c` at `j*k + c`, Σ w at `d*k + c`, Σ w z² of
        /// column `j` at `(d + 1 + j)*k + c` where there are as many columns, and at the end `columns*ranges` parts of
        /// Σ w |z|², with `z = x − centre`.
        partials: *mut f64,
    }
    /// The kernel.
    hard_sums => lloyd_sums_f32, lloyd_sums_f64, body, shared_bytes;
}

/// Bytes of shared memory of a block: for each warp and each centre of a range, and one more for rows of other
/// ranges, a sum for each lane and the centre.
pub const fn shared_len(k: u32, ranges: u32) -> u64 {
    (THREADS / WARP) as u64 * warp_bytes(k.div_ceil(ranges)) as u64
}

const fn warp_bytes(centres: u32) -> u32 {
    8 * (WARP + 1) * (centres + 1)
}

/// The fewest ranges of `k` centres whose sums fit into so many bytes of a block's shared memory.
pub const fn ranges(k: u32, bytes: u32) -> u32 {
    let most = bytes / (THREADS / WARP) / warp_bytes(0) - 1;
    k.div_ceil(most)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(a: &HardSums<T>) -> u64 {
    shared_len(a.k, a.ranges)
}

/// Tiles that a warp reads at once, a row of each quarter of a tile for each lane.
const TILES: u64 = 4;

/// Parts of the rows that there can be: groups of `TILES` tiles.
pub const fn most_splits(n: u64) -> u64 {
    tiles(n).div_ceil(TILES)
}

/// A lane's entries of four tiles, and their labels.
#[derive(Clone, Copy)]
struct Some16<T> {
    x: [T; 16],
    labels: [u32; 16],
}

/// What a warp adds up.
#[derive(Clone, Copy)]
struct Column<'a, T: Real> {
    a: &'a HardSums<T>,
    /// The column of the rows.
    j: u32,
    /// Centres of the range.
    first: u32,
    count: u32,
    /// `(count + 1, 32)`, the last for what belongs to no centre of the range.
    sums: Shared<f64>,
    /// `(count + 1,)`: the centres in this column.
    centres: Shared<f64>,
    lane: u32,
}

/// The kernel.
///
/// # Safety
/// As the fields of [`HardSums`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: HardSums<T>) {
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    // None is 0, which the compiler does not know: a division by 0 would be a call to a panic.
    let cut = SumSplits { columns: a.columns.max(1), ranges: a.ranges.max(1), splits: a.splits.max(1) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let unit = thread::block_idx_x() as u64 * (THREADS / WARP) as u64 + me as u64;
    if unit >= cut.warps() {
        return;
    }
    // Neighbours have neighbouring columns of the same rows: they share their labels in the cache.
    let column = (unit % cut.columns as u64) as u32;
    let range = (unit / cut.columns as u64 % cut.ranges as u64) as u32;
    let split = unit / cut.columns as u64 / cut.ranges as u64;
    let each_range = a.k.div_ceil(cut.ranges);
    let first = range * each_range;
    // The last ranges may have fewer, or none.
    let count = if first >= a.k {
        0
    } else if a.k - first < each_range {
        a.k - first
    } else {
        each_range
    };
    let at = me * warp_bytes(each_range);
    // 0: Σ w; 1: Σ w z; 2: Σ w z².
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
    // SAFETY: the caller's promise.
    unsafe {
        of.begin();
        warp::sync_warp();
        let groups = most_splits(a.n);
        let (from, to) = (groups * split / cut.splits as u64, groups * (split + 1) / cut.splits as u64);
        // What most warps of most fits do has a loop of its own, which asks nothing for each row.
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
    /// Sums become 0, and the centres' column is staged.
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
                // SAFETY: `first + c < k`, `j < d`.
                unsafe { device::load(self.a.centres, (self.first + c) as u64 * self.a.d as u64 + self.j as u64) }
            } else {
                0.0
            };
            self.centres.store(c, value);
            c += WARP;
        }
    }

    /// Entry `i` of this lane's in a group of tiles: tile and row within it.
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
            // SAFETY: a tile that is there, `j < d`; both are filled up to whole tiles.
            unsafe {
                out.x[i] = device::load(self.a.x, at);
                let label = device::load(self.a.labels, there * TILE_ROWS as u64 + row as u64);
                out.labels[i] = if tile <= last { label } else { crate::seeding::lloyd::NONE };
            }
        });
        out
    }

    /// Adds the rows of some groups of tiles; their part of the inertia.
    #[inline(always)]
    unsafe fn run<const PLAIN: bool>(self, power: u32, from: u64, to: u64) -> f64 {
        let mut inertia = 0.0;
        if from == to {
            return inertia;
        }
        // SAFETY: groups of the rows'.
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

    /// Adds two of the sixteen to their centres: read together and written together, so that their latencies pass
    /// together. Where both have the same centre, the second's sum has the first too, and is written last.
    #[inline(always)]
    unsafe fn add<const PLAIN: bool>(self, power: u32, group: u64, pair: usize, some: &Some16<T>, inertia: &mut f64) {
        // SAFETY: the caller's promise.
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

    /// Where one of the sixteen belongs, and what it adds there.
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
            // SAFETY: a row with a label is one of the `n`.
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

    /// The lanes' sums of each centre added up; each lane begins with another lane's, so that they meet no bank twice.
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
            // SAFETY: a centre of the range.
            unsafe { device::store(out, c as u64, sum) };
            c += WARP;
        }
    }
}
