//! The components that may matter in a group of tiles.

use crate::device::{self, Shared, thread};
use crate::em::lanes::row_weight;
use crate::em::m_step::has_matrix;
use crate::em::nearby::component::ROUNDING;
use crate::em::nearby::prepare::coordinate;
use crate::em::nearby::{FLOOR, Nearby, SCRATCH, TILES, block_least, block_positions, record};
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, packed_index, tiled_index, tiles};

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Nearby`] document.
#[inline(always)]
pub(super) unsafe fn body(a: Nearby) {
    device::await_previous_grid();
    // SAFETY: the caller upholds `# Safety`.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (scratch, edges) = (Shared::<f64>::at(0), Shared::<f64>::at(8 * SCRATCH));
    let (group, t, d, k) = (thread::block_idx_x() as u64, thread::thread_idx_x(), a.d, a.k as u64);
    let first = group * TILES as u64;
    let end = if first + TILES as u64 <= tiles(a.n) { first + TILES as u64 } else { tiles(a.n) };
    // SAFETY: tiles of the group exist, columns are below `d` and components below `k`.
    unsafe {
        let mut low = f64::INFINITY;
        let mut tile = first;
        while tile < end {
            let row = tile * TILE_ROWS as u64 + t as u64;
            let counts = row_weight(a.row_weights.cast_const(), a.n, row) > 0.0;
            let own = if counts { at_best(&a, row) } else { f64::INFINITY };
            let of_tile = block_least(own, scratch);
            if t == 0 {
                device::store(a.lows, tile, of_tile);
            }
            low = if of_tile < low { of_tile } else { low };
            tile += 1;
        }
        let mut j = t;
        while j < 2 * d {
            let mut edge = device::load(a.boxes.cast_const(), 2 * first * d as u64 + j as u64);
            let mut tile = first + 1;
            while tile < end {
                let v = device::load(a.boxes.cast_const(), 2 * tile * d as u64 + j as u64);
                if if j < d { v < edge } else { v > edge } {
                    edge = v;
                }
                tile += 1;
            }
            edges.store(j, edge);
            j += TILE_ROWS;
        }
        thread::sync_threads();
        let (mut found, mut from) = (0, 0);
        while from < a.k {
            let c = from + t;
            let keep = c < a.k && {
                let mut square = 0.0;
                let mut j = 0;
                while j < d {
                    let mean = device::load(a.columns.cast_const(), j as u64 * k + c as u64);
                    let scale = device::load(a.columns.cast_const(), (d + j) as u64 * k + c as u64);
                    let (below, above) = (edges.load(j) - mean, mean - edges.load(d + j));
                    let gap = if below > above { below } else { above };
                    let gap = if gap > 0.0 { gap * scale } else { 0.0 };
                    if !has_matrix(a.kind) {
                        square += gap * gap;
                    } else if gap * gap > square {
                        square = gap * gap;
                    }
                    j += 1;
                }
                let constant = device::load(a.columns.cast_const(), 2 * d as u64 * k + c as u64);
                constant - 0.5 * square * (1.0 - ROUNDING) >= low - FLOOR
            };
            let (position, all) = block_positions(keep, scratch);
            if let Some(position) = position {
                device::store(a.lists, group * k + (found + position) as u64, c);
            }
            found += all;
            from += TILE_ROWS;
        }
        if t == 0 {
            device::store(a.counts, group, found);
        }
    }
}

/// The log joint density of an ordered row and its best component of the pass before.
#[inline(always)]
unsafe fn at_best(a: &Nearby, row: u64) -> f64 {
    // SAFETY: `row < n`, and `best` holds components below `k`.
    unsafe {
        let c = device::load(a.best.cast_const(), row) as u64;
        let own = c * record(a.padded, has_matrix(a.kind)) as u64;
        let get = |at: u64| device::load(a.records.cast_const(), own + at);
        let z = |j: u32| coordinate(a.x.cast_const(), a.number_bytes, tiled_index(row, j, a.d)) - get(2 + j as u64);
        let root = 2 + a.padded as u64;
        let mut square = 0.0;
        let mut i = 0;
        while i < a.d {
            let mut v = 0.0;
            if has_matrix(a.kind) {
                let mut j = 0;
                while j <= i {
                    v += get(root + packed_index(i, j)) * z(j);
                    j += 1;
                }
            } else {
                v = get(root + i as u64) * z(i);
            }
            square += v * v;
            i += 1;
        }
        get(0) + get(1) - 0.5 * square
    }
}
