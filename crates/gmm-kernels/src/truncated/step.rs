//! The E-step: what each row tries, and the best of it.

use crate::Real;
use crate::device::{self, Integers, Shared, WARP, anew, block_sums, thread, warp, warp_sums};
use crate::each::each;
use crate::em::lanes::row_weight;
use crate::em::nearby::coordinate;
use crate::layout::tiled_index;
use crate::math::ln_f64;
use crate::truncated::densities::{Row, log_joint};
use crate::truncated::table::Table;
use crate::truncated::{CANDIDATES, ROWS, SEEN, StepMemory, Truncated, WARPS, divided};

/// No node, and the plane of a leaf.
const NONE: u32 = u32::MAX;

/// A warp and its memory.
struct Warp<'a> {
    a: &'a Truncated,
    row: Row,
    joint: Shared<f64>,
    candidates: Integers,
    tops: Shared<f64>,
    best: Integers,
    lane: u32,
}

/// What a row adds to the totals.
const NOTHING: [f64; 4] = [0.0; 4];

/// # Safety
/// The buffers in `a` are as the fields of [`Truncated`] document.
#[inline(always)]
pub(super) unsafe fn body(a: Truncated) {
    device::await_previous_grid();
    let at = StepMemory::of(a.padded, a.factors);
    let of_warp = thread::thread_idx_x() / WARP;
    let first = of_warp * at.end;
    let shared = |word: u32| Shared::<f64>::at(8 * (first + word));
    let warp = Warp {
        a: &a,
        row: Row { x: shared(at.row), factors: shared(at.factors) },
        joint: shared(at.joint),
        candidates: Integers::at(2 * (first + at.candidates)),
        tops: shared(at.tops),
        best: Integers::at(2 * (first + at.best)),
        lane: warp::lane_id(),
    };
    let from = (thread::block_idx_x() * WARPS + of_warp) as u64 * ROWS as u64;
    let end = if from + (ROWS as u64) < a.n { from + ROWS as u64 } else { a.n };
    // SAFETY: the caller upholds `# Safety`; places are below `n`.
    let totals = unsafe { warp.rows(from, end, |of| Table::new(first, at, of)) };
    let totals = block_sums(totals, Shared::at(8 * WARPS * at.end));
    if thread::thread_idx_x() == 0 {
        // SAFETY: the block has four totals.
        each(4, |i| unsafe { device::store(a.totals, 4 * thread::block_idx_x() as u64 + i as u64, totals[i]) });
    }
}

impl Warp<'_> {
    /// The rows at the places from `from` to `end`. Returns the totals in the first lane, and 0 in the others.
    #[inline(always)]
    unsafe fn rows(&self, from: u64, end: u64, new_table: impl Fn(u32) -> Table) -> [f64; 4] {
        let a = self.a;
        let mut totals = NOTHING;
        let mut table: Option<Table> = None;
        let mut place = from;
        // Past the end: further rows of the component that began last.
        while place < a.n {
            let is_own = place < end;
            // SAFETY: `place < n`.
            unsafe {
                let of = if a.before.is_null() { NONE } else { self.best_before(place) };
                if table.as_ref().is_some_and(|table| table.of != of) {
                    if let Some(table) = &table {
                        table.write(a);
                    }
                    table = None;
                }
                let begins = a.each > 0 && of != NONE && (place == 0 || self.best_before(place - 1) != of);
                if is_own && begins {
                    table = Some(new_table(of));
                }
                let is_seen = table.as_ref().is_some_and(|table| table.seen < SEEN);
                if !is_own && !is_seen {
                    break;
                }
                let (row, count) = self.evaluate(place);
                if is_seen && let Some(table) = &mut table {
                    table.note(self.candidates, self.joint, count);
                }
                if is_own {
                    let of_row = self.choose(place, row, count);
                    each(4, |i| totals[i] += of_row[i]);
                }
            }
            place += 1;
        }
        if let Some(table) = &table {
            // SAFETY: the rows of the component begin in this warp's part.
            unsafe { table.write(a) };
        }
        if self.lane == 0 { totals } else { NOTHING }
    }

    #[inline(always)]
    unsafe fn best_before(&self, place: u64) -> u32 {
        // SAFETY: `place < n`.
        unsafe { device::load(self.a.before, place * self.a.listed as u64) }
    }

    /// Brings the row at a place, and the densities of all that it tries. Returns the row's index and how many these are.
    #[inline(always)]
    unsafe fn evaluate(&self, place: u64) -> (u64, u32) {
        let a = self.a;
        // SAFETY: `place < n`, columns are below `d`, and candidates below `k`.
        unsafe {
            let row = device::load(a.order, place) as u64;
            warp::sync_warp();
            let mut j = self.lane;
            while j < a.d {
                self.row.x.store(j, coordinate(a.x, a.number_bytes, tiled_index(row, j, a.d)));
                j += WARP;
            }
            warp::sync_warp();
            let count = self.gather(place);
            let mut i = self.lane;
            while i < count {
                let value = log_joint(a, self.row, self.candidates.load(i));
                // NaN, of a row at infinite distance of a component of infinite precision, counts as −∞.
                self.joint.store(i, if value.is_nan() { f64::NEG_INFINITY } else { value });
                i += WARP;
            }
            warp::sync_warp();
            (row, count)
        }
    }

    /// Lists what a row tries, each component once. Returns how many.
    #[inline(always)]
    unsafe fn gather(&self, place: u64) -> u32 {
        let a = self.a;
        let mut count = 0;
        // SAFETY: `place < n`; the lists hold components; the nodes are those of trees.
        unsafe {
            if !a.before.is_null() {
                let own = place * a.listed as u64;
                self.add(a.listed, &mut count, |i| device::load(a.before, own + i as u64));
                let neighbours = |i: u32| {
                    let (which, neighbour) = divided(i, a.each);
                    let c = device::load(a.before, own + which as u64);
                    device::load(a.neighbours, c as u64 * a.each as u64 + neighbour as u64)
                };
                if a.each > 0 {
                    self.add(a.listed * a.each, &mut count, neighbours);
                }
            }
            let mut tree = 0;
            while tree < a.trees {
                let (first, end) = self.leaf(device::load(a.roots, tree as u64));
                self.add(end - first, &mut count, |i| device::load(a.members, (first + i) as u64));
                tree += 1;
            }
        }
        // As many as a row has components: the next by index.
        if count < a.listed {
            let mut next = if count == 0 { 0 } else { self.candidates.load(count - 1) };
            while count < a.listed {
                next = if next + 1 < a.k { next + 1 } else { 0 };
                self.add(1, &mut count, |_| next);
            }
        }
        count
    }

    /// Adds components that are not there yet, in their order; `which(i)` of `len`.
    #[inline(always)]
    fn add(&self, len: u32, count: &mut u32, which: impl Fn(u32) -> u32) {
        let mut from = 0;
        while from < len {
            let i = from + self.lane;
            let there = i < len;
            let c = if there { which(i) } else { NONE };
            let mut is_new = anew(there);
            let mut j = 0;
            while j < *count {
                if self.candidates.load(j) == c {
                    is_new = false;
                }
                j += 1;
            }
            // Those of lanes below.
            let mut other = 0;
            while other < WARP {
                let of_other = warp::shuffle_idx_u32(c, other);
                if other < self.lane && of_other == c {
                    is_new = false;
                }
                other += 1;
            }
            let new = warp::ballot(is_new);
            let to = *count + (new & warp::lanes_below()).count_ones();
            if is_new && to < CANDIDATES {
                self.candidates.store(to, c);
            }
            let all = *count + new.count_ones();
            *count = if all < CANDIDATES { all } else { CANDIDATES };
            warp::sync_warp();
            from += WARP;
        }
    }

    /// The range of the members of the row's leaf.
    #[inline(always)]
    unsafe fn leaf(&self, root: u32) -> (u32, u32) {
        let (a, mut node) = (self.a, root);
        loop {
            // SAFETY: nodes lead to nodes, and planes are below their number.
            unsafe {
                let of = |i: u64| device::load(a.nodes, 3 * node as u64 + i);
                let plane = of(0);
                if plane == NONE {
                    return (of(1), of(2));
                }
                let (mut sum, mut j) = (0.0, self.lane);
                while j < a.d {
                    let at = plane as u64 * a.padded as u64 + j as u64;
                    sum += device::load(a.normals, at) * self.row.x.load(j);
                    j += WARP;
                }
                let [sum] = warp_sums([sum]);
                node = if sum >= device::load(a.thresholds, plane as u64) { of(2) } else { of(1) };
            }
        }
    }

    /// Writes the best of what a row tried, and their responsibilities. Returns what the row adds to the totals, to all lanes.
    #[inline(always)]
    unsafe fn choose(&self, place: u64, row: u64, count: u32) -> [f64; 4] {
        let (a, lane) = (self.a, self.lane);
        let mut i = lane;
        while i < count {
            let (c, value) = (self.candidates.load(i), self.joint.load(i));
            let (mut rank, mut j) = (0, 0);
            while j < count {
                let of_other = self.joint.load(j);
                if of_other > value || (of_other == value && self.candidates.load(j) < c) {
                    rank += 1;
                }
                j += 1;
            }
            if rank < a.listed {
                self.tops.store(rank, value);
                self.best.store(rank, c);
            }
            i += WARP;
        }
        warp::sync_warp();
        let (top, there) = (self.tops.load(0), lane < a.listed);
        let c = if there { self.best.load(lane) } else { 0 };
        // If all underflow, the responsibilities are the weights, as in EM.
        let is_lost = top < f64::MIN;
        // SAFETY: `c < k`, `place < n` and `row < n`.
        unsafe {
            let own = match (there, is_lost) {
                (false, _) => 0.0,
                (true, true) => device::load(a.weights, c as u64),
                (true, false) => Real::exp(self.tops.load(lane) - top),
            };
            let [sum] = warp_sums([own]);
            let even = if there { 1.0 / a.listed as f64 } else { 0.0 };
            let r = if sum > 0.0 { own / sum } else { even };
            if anew(there) {
                let to = place * a.listed as u64 + lane as u64;
                device::store(a.components, to, c);
                device::store(a.responsibilities, to, r);
            }
            let [entropy] = warp_sums([if r > 0.0 { -r * ln_f64(r) } else { 0.0 }]);
            let log = if is_lost { f64::NEG_INFINITY } else { top + ln_f64(sum) };
            let weight = row_weight(a.row_weights, a.n, row);
            warp::sync_warp();
            if weight > 0.0 {
                [weight * log, weight * entropy, weight, count as f64]
            } else {
                [0.0, 0.0, 0.0, count as f64]
            }
        }
    }
}

const _: () = assert!(ROWS == WARP);
