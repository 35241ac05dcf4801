//! The E-step and the sums of the M-step, tile by tile.

use crate::Real;
use crate::device::{self, Shared, WARP, block_sums, thread, warp};
use crate::each::each;
use crate::em::lanes::row_weight;
use crate::em::layout::{FeatureLayout, TILE};
use crate::em::m_step::kind;
use crate::em::nearby::component::Component;
use crate::em::nearby::prepare::coordinate;
use crate::em::nearby::{
    FLOOR, LISTED, Nearby, PassMemory, STAGED, TILES, anew, block_least, block_positions, record, roots,
};
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiled_index, tiles};
use crate::math::ln_f64;

/// Log responsibilities below this count as 0: 50,000 of them change a sum by less than one rounding.
const LEAST: f64 = -50.0;

/// The sum of a row's densities, relative to the one at its best component of the pass before, is this or more, and at most its
/// reciprocal; otherwise it is made again relative to the largest.
const SMALL: f64 = 1e-6;

/// What one look at the components of a list finds for a row.
struct Found {
    /// Logarithm that `total` is relative to.
    about: f64,
    /// Sum of the joint densities.
    total: f64,
    /// The largest log joint density and its component, the first among equals.
    top: f64,
    best: u32,
}

/// A block's part of the pass.
struct Pass<'a, const D: usize, const S: usize, const FULL: bool> {
    a: &'a Nearby,
    at: PassMemory,
    t: u32,
}

/// Where the sums of a block are, and which it has begun.
#[derive(Clone, Copy)]
struct Own {
    sums: *mut f64,
    met: *mut u32,
    place: FeatureLayout,
}

/// The components of a tile: their numbers are in shared memory, or in the list of the group.
#[derive(Clone, Copy)]
struct List {
    long: *const u32,
    is_long: bool,
    len: u32,
}

/// Body of the kernel: `D` columns, `S` entries of a factor.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn body<const D: usize, const S: usize, const FULL: bool>(a: Nearby) {
    const { assert!(S as u32 == roots(D as u32, FULL)) };
    device::await_previous_grid();
    // SAFETY: the caller upholds `# Safety`.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
    let at = PassMemory::of(D as u32, record(D as u32, FULL));
    let pass = Pass::<D, S, FULL> { a: &a, at, t: thread::thread_idx_x() };
    let (block, blocks) = (thread::block_idx_x() as u64, thread::grid_dim_x() as u64);
    let own = Own {
        sums: a.partials.wrapping_add((block * place.sums()) as usize),
        met: a.met.wrapping_add((block * a.groups as u64) as usize),
        place,
    };
    let mut i = pass.t;
    while i < a.groups {
        // SAFETY: `i < groups`, in the block's part.
        unsafe { device::store(own.met, i as u64, 0) };
        i += TILE_ROWS;
    }
    let each_block = tiles(a.n).div_ceil(blocks);
    let mut tile = block * each_block;
    let end = if tile + each_block < tiles(a.n) { tile + each_block } else { tiles(a.n) };
    let mut totals = [0.0; 2];
    while tile < end {
        // SAFETY: the tile exists.
        let of_row = unsafe { pass.tile(tile, own) };
        totals = [totals[0] + of_row[0], totals[1] + of_row[1]];
        tile += a.every as u64;
    }
    let totals = block_sums(totals, Shared::at(8 * at.scratch));
    if pass.t == 0 {
        // SAFETY: the positions are below `sums`, and within the totals of the blocks.
        unsafe {
            if a.totals.is_null() {
                device::store(own.sums, place.log_likelihood(), totals[0]);
            } else {
                each(2, |i| device::store(a.totals, 2 * block + i as u64, totals[i]));
            }
        }
    }
}

impl<const D: usize, const S: usize, const FULL: bool> Pass<'_, D, S, FULL> {
    #[inline(always)]
    fn shared(&self, at: u32) -> Shared<f64> {
        Shared::at(8 * at)
    }

    /// Adds a tile's sums to those of the block, or evaluates its rows. Returns the log-likelihood of this thread's row, and of an
    /// evaluation its entropy.
    #[inline(always)]
    unsafe fn tile(&self, tile: u64, own: Own) -> [f64; 2] {
        let (a, at, t) = (self.a, self.at, self.t);
        let row = tile * TILE_ROWS as u64 + t as u64;
        let (rows, edges) = (self.shared(at.rows), self.shared(at.edges));
        thread::sync_threads();
        let mut x = [0.0; D];
        // SAFETY: the tile exists and is padded; columns are below `d`; `row < n` where it must be.
        let (weight, low) = unsafe {
            each(D, |j| {
                if (j as u32) < a.d {
                    x[j] = coordinate(a.x.cast_const(), a.number_bytes, tiled_index(row, j as u32, a.d));
                }
                rows.store(j as u32 * TILE_ROWS + t, x[j]);
            });
            if t < 2 * D as u32 {
                let (j, high) = (t % D as u32, t / D as u32);
                let edge = (2 * tile + high as u64) * a.d as u64 + j as u64;
                edges.store(t, if j < a.d { device::load(a.boxes.cast_const(), edge) } else { 0.0 });
            }
            (row_weight(a.row_weights.cast_const(), a.n, row), device::load(a.lows.cast_const(), tile))
        };
        thread::sync_threads();
        // SAFETY: the group of an existing tile exists.
        let list = unsafe { self.listed(tile / TILES as u64, low - FLOOR) };
        if t == 0 {
            // SAFETY: the tile exists.
            unsafe { device::store(a.listed, tile, list.len) };
        }
        let counts = weight > 0.0;
        let (mut about, mut best) = (0.0, 0);
        if anew(counts) {
            // SAFETY: `row < n`, since it has a weight, and `best` holds components.
            unsafe {
                best = device::load(a.best.cast_const(), row);
                about = self.component(best).joint(|j| x[j]);
            }
        }
        // SAFETY: the list holds components.
        let mut found = unsafe { self.total(list, &x, about, best) };
        // Nearly always the best component is still the same, or one that is hardly better.
        let is_near = found.total >= SMALL && found.total <= 1.0 / SMALL;
        let failed = if anew(counts) && !is_near { 1.0 } else { 0.0 };
        if block_least(-failed, self.shared(at.scratch)) < 0.0 {
            // SAFETY: the list holds components.
            found = unsafe { self.total(list, &x, found.top, found.best) };
        }
        let (log, best) = (found.about + ln_f64(found.total), found.best);
        if anew(counts) {
            // SAFETY: `row < n`, since it has a weight.
            unsafe { device::store(a.best, row, best) };
        }
        let likelihood = if anew(counts) { weight * log } else { 0.0 };
        if !a.totals.is_null() {
            // SAFETY: the list holds components.
            let entropy = unsafe { self.entropy(list, &x, log) };
            if anew(counts) {
                // SAFETY: `row < n`, since it has a weight.
                unsafe { self.put(row, log, best) };
            }
            return [likelihood, if anew(counts) { weight * entropy } else { 0.0 }];
        }
        self.shared(at.logs).store(t, if anew(counts) { log } else { f64::INFINITY });
        self.shared(at.weights).store(t, weight);
        // SAFETY: the list holds components, and the sums are this block's.
        unsafe {
            self.meet(list, own);
            thread::sync_threads();
            self.moments(list, own);
        }
        [likelihood, 0.0]
    }

    /// Writes what an evaluation finds for a row.
    #[inline(always)]
    unsafe fn put(&self, row: u64, log: f64, best: u32) {
        let a = self.a;
        // SAFETY: `row < n`, and `order` holds rows.
        unsafe {
            let to = device::load(a.order, row) as u64;
            if !a.log_densities.is_null() {
                device::store(a.log_densities, to, log);
            }
            if !a.labels.is_null() {
                device::store(a.labels, to, best);
            }
        }
    }

    /// −Σ r ln r of a row whose log density is `log`.
    #[inline(always)]
    unsafe fn entropy(&self, list: List, x: &[f64; D], log: f64) -> f64 {
        let mut entropy = 0.0;
        // SAFETY: the list holds components.
        unsafe {
            self.over(list, |c, _| {
                let of = c.joint(|j| x[j]) - log;
                let share = self.exp(of);
                // 0 times an infinite logarithm is 0 here.
                if share > 0.0 {
                    entropy -= share * of;
                }
            });
        }
        entropy
    }

    /// Sums the joint densities of a row, relative to `exp(about)`.
    #[inline(always)]
    unsafe fn total(&self, list: List, x: &[f64; D], about: f64, best: u32) -> Found {
        let mut found = Found { about, total: 0.0, top: f64::NEG_INFINITY, best };
        // SAFETY: the list holds components.
        unsafe {
            self.over(list, |c, i| {
                let joint = c.joint(|j| x[j]);
                found.total += self.exp(joint - about);
                if joint > found.top {
                    (found.top, found.best) = (joint, i);
                }
            });
        }
        found
    }

    /// `eˣ` of a log responsibility in the rows' precision; 0 if it is small.
    #[inline(always)]
    fn exp(&self, x: f64) -> f64 {
        // NaN is not small: it must reach the sums.
        if x < LEAST {
            return 0.0;
        }
        if self.a.number_bytes == 4 { (x as f32).exp().to_f64() } else { x.exp() }
    }

    /// Component `i` of a list.
    #[inline(always)]
    unsafe fn at(&self, list: List, i: u32) -> u32 {
        if list.is_long {
            // SAFETY: `i` is below the length of the list.
            unsafe { device::load(list.long, i as u64) }
        } else {
            Shared::<f32>::at(8 * self.at.list).load(i).to_bits()
        }
    }

    #[inline(always)]
    unsafe fn component(&self, c: u32) -> Component<D, S, FULL> {
        // SAFETY: `c < k`.
        unsafe { Component::load(self.a.records.cast_const(), c as u64 * record(D as u32, FULL) as u64) }
    }

    /// Whether a component may matter in the tile's box.
    #[inline(always)]
    unsafe fn is_near(&self, c: u32, least: f64) -> bool {
        let edges = self.shared(self.at.edges);
        // SAFETY: `c < k`.
        let of = unsafe { self.component(c) };
        of.bound(|j| edges.load(j as u32), |j| edges.load((D + j) as u32)) >= least
    }

    /// Writes the components of the group's list whose bound in the tile is at least `least` to shared memory.
    #[inline(always)]
    unsafe fn listed(&self, group: u64, least: f64) -> List {
        let list = Shared::<f32>::at(8 * self.at.list);
        let long = self.a.lists.cast_const().wrapping_add((group * self.a.k as u64) as usize);
        // SAFETY: positions are below the group's count, and components below `k`.
        unsafe {
            let count = device::load(self.a.counts.cast_const(), group);
            let (mut found, mut from) = (0, 0);
            while from < count {
                let i = from + self.t;
                let c = if i < count { device::load(long, i as u64) } else { 0 };
                let keep = i < count && self.is_near(c, least);
                let (position, all) = block_positions(keep, self.shared(self.at.scratch));
                if let Some(position) = position
                    && found + position < LISTED
                {
                    list.store(found + position, f32::from_bits(c));
                }
                found += all;
                from += TILE_ROWS;
            }
            thread::sync_threads();
            if found <= LISTED {
                List { long, is_long: false, len: found }
            } else {
                List { long, is_long: true, len: count }
            }
        }
    }

    /// Calls `f` with each component of a list and its number. All threads call it together.
    #[inline(always)]
    unsafe fn over(&self, list: List, mut f: impl FnMut(&Component<D, S, FULL>, u32)) {
        let stride = record(D as u32, FULL);
        let staged = self.shared(self.at.records);
        let mut from = 0;
        while from < list.len {
            let some = if list.len - from < STAGED { list.len - from } else { STAGED };
            thread::sync_threads();
            let mut i = self.t;
            while i < some * stride {
                // SAFETY: the component's record exists.
                unsafe {
                    let c = self.at(list, from + i / stride) as u64;
                    staged.store(i, device::load(self.a.records.cast_const(), c * stride as u64 + (i % stride) as u64));
                }
                i += TILE_ROWS;
            }
            thread::sync_threads();
            let mut c = 0;
            while c < some {
                // SAFETY: `from + c` is below the length of the list.
                f(&Component::staged(staged.skip(c * stride)), unsafe { self.at(list, from + c) });
                c += 1;
            }
            from += some;
        }
    }

    /// Zeroes the sums of groups of components that the block has not met before. Lists ascend: the thread with the first of a
    /// group does so.
    #[inline(always)]
    unsafe fn meet(&self, list: List, own: Own) {
        let mut i = self.t;
        while i < list.len {
            // SAFETY: a group of components below `k`; its sums are below `sums`.
            unsafe {
                let c = self.at(list, i);
                let group = (c / 8) as u64;
                let is_first = i == 0 || self.at(list, i - 1) / 8 != c / 8;
                if is_first && device::load(own.met.cast_const(), group) == 0 {
                    device::store(own.met, group, 1);
                    let mut step = 0;
                    while step < own.place.steps {
                        let from = own.place.sum_tile(step, c);
                        let mut j = 0;
                        while j < TILE as u64 {
                            device::store(own.sums, from + j, 0.0);
                            j += 1;
                        }
                        step += 1;
                    }
                    each(8, |j| device::store(own.sums, own.place.weights_of(c / 8) + j as u64, 0.0));
                }
            }
            i += TILE_ROWS;
        }
    }

    /// Adds the moments of the tile's rows. Each component has as many threads as there are for it, a power of two,
    /// which take its rows in turns.
    #[inline(always)]
    unsafe fn moments(&self, list: List, own: Own) {
        let mut slices = 1;
        while slices < WARP && 2 * slices * list.len <= TILE_ROWS {
            slices *= 2;
        }
        let at_once = TILE_ROWS / slices;
        let (mine, slice) = (self.t / slices, self.t % slices);
        let (rows, logs, weights) =
            (self.shared(self.at.rows), self.shared(self.at.logs), self.shared(self.at.weights));
        let mut from = 0;
        while from < list.len {
            let there = from + mine < list.len;
            let (mut weight, mut first, mut second) = (0.0, [0.0; D], [0.0; S]);
            let mut c = 0;
            if there {
                // SAFETY: the position is below the length of the list.
                let of = unsafe {
                    c = self.at(list, from + mine);
                    self.component(c)
                };
                let mut r = slice;
                while r < TILE_ROWS {
                    let mut z = [0.0; D];
                    each(D, |j| z[j] = rows.load(j as u32 * TILE_ROWS + r) - of.mean[j]);
                    let log = of.constant + of.log_weight - of.half_square(&z) - logs.load(r);
                    // Negated, so that NaN is added.
                    let small = log < LEAST;
                    if !small {
                        let share = self.exp(log) * weights.load(r);
                        weight += share;
                        each(D, |i| {
                            let part = share * z[i];
                            first[i] += part;
                            if FULL {
                                each(i + 1, |j| {
                                    let at = i * (i + 1) / 2 + j;
                                    second[at] = Real::fma(part, z[j], second[at]);
                                });
                            } else {
                                second[i] = Real::fma(part, z[i], second[i]);
                            }
                        });
                    }
                    r += slices;
                }
            }
            let mut step = 1;
            while step < slices {
                weight += warp::shuffle_xor(weight, step);
                each(D, |i| first[i] += warp::shuffle_xor(first[i], step));
                each(S, |i| second[i] += warp::shuffle_xor(second[i], step));
                step *= 2;
            }
            if anew(there) && slice == 0 {
                // SAFETY: `c < k`; no other thread of the block has this component.
                unsafe { self.add(c, (weight, &first, &second), own) };
            }
            from += at_once;
        }
    }

    /// Adds sums about a component's mean to those of the block.
    #[inline(always)]
    unsafe fn add(
        &self,
        c: u32,
        (weight, first, second): (f64, &[f64; D], &[f64; S]),
        Own { sums, place: p, .. }: Own,
    ) {
        let (d, of) = (self.a.d, self.a.kind);
        // SAFETY: positions of `FeatureLayout` for a component below `k` and columns below `d` are below `sums`.
        unsafe {
            let add = |at: u64, v: f64| device::store(sums, at, device::load(sums.cast_const(), at) + v);
            add(p.weight(c), weight);
            let mut norm = 0.0;
            each(D, |i| {
                let column = i as u32;
                if column < d {
                    add(if p.classes > 0 { p.entry_sum(column, c) } else { p.column_sum(column, c) }, first[i]);
                    if FULL {
                        each(i + 1, |j| add(p.product_sum(column, j as u32, c), second[i * (i + 1) / 2 + j]));
                    } else if of == kind::DIAG {
                        add(p.column_sum(p.square(column), c), second[i]);
                    } else {
                        norm += second[i];
                    }
                }
            });
            if of == kind::SPHERICAL {
                add(p.column_sum(d, c), norm);
            }
        }
    }
}
