//! Work before the first iteration, and between iterations: records, best components, ordered rows.

use crate::Real;
use crate::device::{self, Shared, thread};
use crate::each::each;
use crate::em::m_step::{has_matrix, kind};
use crate::em::nearby::{Nearby, STAGED, anew, block_least, record, roots};
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, packed_index, packed_len, tiled_index, tiles};
use crate::math::ln_f64;

const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;

/// Coordinate `at` of rows in `f32` or `f64`.
///
/// # Safety
/// As for [`device::load`], of the type that `number_bytes` says.
#[inline(always)]
pub(crate) unsafe fn coordinate(rows: *const u8, number_bytes: u32, at: u64) -> f64 {
    // SAFETY: the caller upholds `# Safety`.
    unsafe {
        if number_bytes == 4 { device::load(rows.cast::<f32>(), at).to_f64() } else { device::load(rows.cast(), at) }
    }
}

/// Writes the records and columns of all components, one thread each.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn encode(a: Nearby) {
    device::await_previous_grid();
    // SAFETY: the caller upholds `# Safety`.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let c = thread::index_1d();
    if c >= a.k as u64 {
        return;
    }
    let (d, is_full, k) = (a.d, has_matrix(a.kind), a.k as u64);
    let own = c * record(a.padded, is_full) as u64;
    let root = own + 2 + a.padded as u64;
    // SAFETY: `c < k`, `j ≤ i < d ≤ padded`: positions are within the arrays that `Nearby` documents.
    unsafe {
        let put = |at: u64, v: f64| device::store(a.records, at, v);
        let get = |at: u64| device::load(a.records.cast_const(), at);
        let mut i = 0;
        while i < record(a.padded, is_full) as u64 {
            put(own + i, 0.0);
            i += 1;
        }
        let mut constant = -(d as f64) * HALF_LN_2PI;
        let mut i = 0;
        while i < d {
            let mean = device::load(a.means, c * d as u64 + i as u64);
            put(own + 2 + i as u64, mean);
            device::store(a.columns, i as u64 * k + c, mean);
            let of_column = |v: f64| device::store(a.columns, (d + i) as u64 * k + c, 1.0 / v.sqrt());
            if is_full {
                let from = if a.kind == kind::FULL { c * packed_len(d) } else { 0 };
                let mut j = 0;
                while j <= i {
                    let mut v = device::load(a.covariances, from + packed_index(i, j));
                    if i == j {
                        of_column(v);
                    }
                    let mut m = 0;
                    while m < j {
                        v -= get(root + packed_index(i, m)) * get(root + packed_index(j, m));
                        m += 1;
                    }
                    put(root + packed_index(i, j), if i == j { v.sqrt() } else { v / get(root + packed_index(j, j)) });
                    j += 1;
                }
            } else {
                let at = if a.kind == kind::DIAG { c * d as u64 + i as u64 } else { c };
                let v = device::load(a.covariances, at);
                of_column(v);
                let scale = 1.0 / v.sqrt();
                put(root + i as u64, scale);
                constant += ln_f64(scale);
            }
            i += 1;
        }
        // The inverse of the factor in its place, row by row: of a row, the entries that are still needed lie behind.
        let mut i = 0;
        while is_full && i < d {
            let pivot = 1.0 / get(root + packed_index(i, i));
            constant += ln_f64(pivot);
            let mut j = 0;
            while j < i {
                let (mut v, mut m) = (0.0, j);
                while m < i {
                    v -= get(root + packed_index(i, m)) * get(root + packed_index(m, j));
                    m += 1;
                }
                put(root + packed_index(i, j), v * pivot);
                j += 1;
            }
            put(root + packed_index(i, i), pivot);
            i += 1;
        }
        let weight = device::load(a.weights, c);
        let constant = if weight > 0.0 { constant } else { f64::NEG_INFINITY };
        put(own, constant);
        put(own + 1, ln_f64(weight));
        device::store(a.columns, 2 * d as u64 * k + c, constant);
    }
}

/// Finds the component with the largest joint density of each row, in `f32`: a start for the first lists.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn seed<const D: usize, const S: usize, const FULL: bool>(a: Nearby) {
    const { assert!(S as u32 == roots(D as u32, FULL)) };
    device::await_previous_grid();
    let staged = Shared::<f32>::at(0);
    let (t, stride) = (thread::thread_idx_x(), record(D as u32, FULL));
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        let row = tile * TILE_ROWS as u64 + t as u64;
        let mut x = [0.0f32; D];
        each(D, |j| {
            if (j as u32) < a.d {
                // SAFETY: tiles are padded, so the last one has 128 rows too.
                x[j] = unsafe { coordinate(a.from, a.number_bytes, tiled_index(row, j as u32, a.d)) } as f32;
            }
        });
        let (mut top, mut best) = (f32::NEG_INFINITY, 0);
        let mut first = 0;
        while first < a.k {
            let some = if a.k - first < STAGED { a.k - first } else { STAGED };
            thread::sync_threads();
            let mut i = t;
            while i < some * stride {
                // SAFETY: the record of a component below `k`.
                let v = unsafe { device::load(a.records.cast_const(), first as u64 * stride as u64 + i as u64) };
                staged.store(i, v as f32);
                i += TILE_ROWS;
            }
            thread::sync_threads();
            let mut c = 0;
            while c < some {
                let of = staged.skip(c * stride);
                let mut z = [0.0f32; D];
                each(D, |j| z[j] = x[j] - of.load(2 + j as u32));
                let mut square = 0.0f32;
                each(D, |i| {
                    let mut v = 0.0f32;
                    if FULL {
                        each(i + 1, |j| {
                            let root = of.load(2 + (D + i * (i + 1) / 2 + j) as u32);
                            v = Real::fma(root, z[j], v);
                        });
                    } else {
                        v = of.load(2 + (D + i) as u32) * z[i];
                    }
                    square = Real::fma(v, v, square);
                });
                let joint = of.load(0) + of.load(1) - 0.5 * square;
                if joint > top {
                    (top, best) = (joint, first + c);
                }
                c += 1;
            }
            first += some;
        }
        if row < a.n {
            // SAFETY: `row < n`.
            unsafe { device::store(a.labels, row, best) };
        }
        tile += thread::grid_dim_x() as u64;
    }
}

/// Copies the rows of a tile, and what is known of them, into their order, and finds its box.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn gather(a: Nearby) {
    device::await_previous_grid();
    let scratch = Shared::<f64>::at(0);
    let (tile, t) = (thread::block_idx_x() as u64, thread::thread_idx_x());
    let row = tile * TILE_ROWS as u64 + t as u64;
    let there = row < a.n;
    // SAFETY: `order` holds rows below `n`, and `row` is one of the padded tile.
    unsafe {
        let from = if there { device::load(a.order, row) as u64 } else { 0 };
        if there {
            if !a.labels.is_null() {
                device::store(a.best, row, device::load(a.labels.cast_const(), from));
            }
            if !a.from_weights.is_null() {
                device::store(a.row_weights, row, device::load(a.from_weights, from));
            }
        }
        let mut j = 0;
        while j < a.d {
            let v = if anew(there) { coordinate(a.from, a.number_bytes, tiled_index(from, j, a.d)) } else { 0.0 };
            let to = tiled_index(row, j, a.d);
            if a.number_bytes == 4 {
                device::store(a.x.cast::<f32>(), to, v as f32);
            } else {
                device::store(a.x.cast::<f64>(), to, v);
            }
            let low = block_least(if anew(there) { v } else { f64::INFINITY }, scratch);
            let high = -block_least(if anew(there) { -v } else { f64::INFINITY }, scratch);
            if t == 0 {
                device::store(a.boxes, 2 * tile * a.d as u64 + j as u64, low);
                device::store(a.boxes, (2 * tile + 1) * a.d as u64 + j as u64, high);
            }
            j += 1;
        }
    }
}
