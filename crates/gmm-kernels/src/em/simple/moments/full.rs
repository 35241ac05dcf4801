//! Full covariances: a block owns 16×16 products of one component.
//!
//! A tile of 128 rows is staged twice, as `z` and as `r z`. Eight groups of 16 threads take every eighth row each.
//! Within a group, a thread owns 4×4 products, so 8 values loaded from shared memory feed 16 multiply-adds. A thread
//! adds 16 rows in `T`, then adds that sum in `f64`; at the end the groups are added in order. Blocks on the diagonal
//! also compute Σ r z, and the first of them Σ r.

use crate::device::{self, Shared, thread};
use crate::em::simple::moments::{
    SIDE, Sums, entry, means, partial, responsibility, split, stage, staged_bytes, stride,
};
use crate::layout::{Kind, TILE_ROWS, first_at, packed_index, packed_len, second_at};
use crate::{Real, THREADS};

/// Threads that together own a 16×16 piece, and groups of them in a block.
const GROUP: u32 = 16;
const GROUPS: u32 = THREADS / GROUP;
const PIECE: u32 = SIDE * SIDE;

/// Bytes of shared memory: two staged tiles, or one `f64` per group and product, whichever is larger.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: Real>(_: &Sums<T>) -> u64 {
    u64::from((2 * staged_bytes::<T>()).max(GROUPS * PIECE * 8))
}

/// A block's piece: products of columns `i..i+16` and `j..j+16`, `i >= j`.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    i: u32,
    j: u32,
}

impl Piece {
    /// Piece number `index` of the lower triangle, row by row.
    #[inline(always)]
    pub(crate) fn new(index: u32) -> Self {
        let (mut row, mut left) = (0, index);
        while left > row {
            left -= row + 1;
            row += 1;
        }
        Self { i: row * SIDE, j: left * SIDE }
    }

    #[inline(always)]
    fn diagonal(self) -> bool {
        self.i == self.j
    }
}

/// A thread's sums so far.
#[derive(Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) second: [[f64; 4]; 4],
    first: [f64; 4],
    weight: f64,
}

impl Moments {
    #[inline(always)]
    pub(crate) fn zero() -> Self {
        Self { second: [[0.0; 4]; 4], first: [0.0; 4], weight: 0.0 }
    }
}

/// This thread's group, and the first row and column of its 4×4 products.
#[inline(always)]
fn place() -> (u32, u32, u32) {
    let t = thread::thread_idx_x();
    (t / GROUP, t % GROUP / 4 * 4, t % 4 * 4)
}

/// Adds component `c`'s moments over this block's split of the rows.
#[inline(always)]
pub(crate) unsafe fn sweep<T: Real>(a: &Sums<T>, c: u32, piece: Piece, into: &mut Moments) {
    let (group, i, j) = place();
    let (left, right) = (Shared::<T>::at(0), Shared::<T>::at(staged_bytes::<T>()));
    let (mut tile, end) = split(a.n);
    while tile < end {
        // SAFETY: `c < k`, and the tile is one of the chunk's.
        unsafe {
            let r = responsibility(a, tile, c);
            let z = |column: u32| {
                let (high, low) = means::<T, 4>(a, c, column);
                let mut four = [T::ZERO; 4];
                let mut v = 0;
                while v < 4 {
                    four[v] = entry(a, tile, column + v as u32) - high[v] - low[v];
                    v += 1;
                }
                four
            };
            stage(left, |q| z(piece.i + q));
            stage(right, |q| z(piece.j + q).map(|v| r * v));
            into.weight += r.to_f64();
        }
        thread::sync_threads();
        let mut second = [[T::ZERO; 4]; 4];
        let mut first = [T::ZERO; 4];
        let mut row = group;
        while row < TILE_ROWS {
            let (p, q) = (left.load4(row * stride::<T>() + i), right.load4(row * stride::<T>() + j));
            let mut u = 0;
            while u < 4 {
                let mut v = 0;
                while v < 4 {
                    second[u][v] = p[u].fma(q[v], second[u][v]);
                    v += 1;
                }
                first[u] += q[u];
                u += 1;
            }
            row += GROUPS;
        }
        let mut u = 0;
        while u < 4 {
            let mut v = 0;
            while v < 4 {
                into.second[u][v] += second[u][v].to_f64();
                v += 1;
            }
            into.first[u] += first[u].to_f64();
            u += 1;
        }
        thread::sync_threads();
        tile += 1;
    }
}

/// Writes Σ r z and Σ r of component `c`, and resets them to 0.
#[inline(always)]
pub(crate) unsafe fn flush_first<T: Real>(a: &Sums<T>, kind: Kind, c: u32, piece: Piece, of: &mut Moments) {
    let t = thread::thread_idx_x();
    let (group, i, j) = place();
    let out = partial(a, kind);
    let scratch = Shared::<f64>::at(0);
    if piece.diagonal() {
        thread::sync_threads();
        if i == 0 {
            let mut v = 0;
            while v < 4 {
                scratch.store(group * SIDE + j + v, of.first[v as usize]);
                v += 1;
            }
        }
        thread::sync_threads();
        if t < SIDE && piece.j + t < a.d {
            let at = first_at(a.k) + c as u64 * a.d as u64 + (piece.j + t) as u64;
            // SAFETY: `c < k` and the column is below `d`; only this block writes it.
            unsafe { device::store(out, at, groups_sum(scratch, t, SIDE)) };
        }
        if piece.j == 0 {
            let weight = device::block_sum(of.weight, scratch);
            if t == 0 {
                // SAFETY: `c < k`; only this block writes it.
                unsafe { device::store(out, c as u64, weight) };
            }
        }
        thread::sync_threads();
    }
    (of.first, of.weight) = ([0.0; 4], 0.0);
}

/// Writes the products of this block's piece to `out`, a packed triangle.
#[inline(always)]
pub(crate) unsafe fn flush_second<T: Real>(a: &Sums<T>, out: *mut f64, piece: Piece, of: &Moments) {
    let t = thread::thread_idx_x();
    let (group, i, j) = place();
    let scratch = Shared::<f64>::at(0);
    thread::sync_threads();
    let mut u = 0;
    while u < 4 {
        let mut v = 0;
        while v < 4 {
            scratch.store(group * PIECE + (i + u) * SIDE + j + v, of.second[u as usize][v as usize]);
            v += 1;
        }
        u += 1;
    }
    thread::sync_threads();
    let mut at = t;
    while at < PIECE {
        let (row, column) = (piece.i + at / SIDE, piece.j + at % SIDE);
        if row < a.d && column <= row {
            // SAFETY: `column ≤ row < d`, so this is an entry of the packed triangle; only this block writes it.
            unsafe { device::store(out, packed_index(row, column), groups_sum(scratch, at, PIECE)) };
        }
        at += THREADS;
    }
    thread::sync_threads();
}

/// Sum of the groups' values at `at`, in order.
#[inline(always)]
fn groups_sum(scratch: Shared<f64>, at: u32, stride: u32) -> f64 {
    let mut sum = 0.0;
    let mut group = 0;
    while group < GROUPS {
        sum += scratch.load(group * stride + at);
        group += 1;
    }
    sum
}

/// Body of the kernel: block `x` has component `x / pieces`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Sums<T>) {
    let p = a.d.div_ceil(SIDE);
    // At least 1, so that no division can panic: a panic would need a call.
    let pieces = (p * (p + 1) / 2).max(1);
    let (c, piece) = (thread::block_idx_x() / pieces, Piece::new(thread::block_idx_x() % pieces));
    let mut moments = Moments::zero();
    let second = second_at(a.k, a.d) + c as u64 * packed_len(a.d);
    // SAFETY: the caller upholds `# Safety`; the grid has `k * pieces` blocks in `x`, so `c < k`.
    unsafe {
        sweep(&a, c, piece, &mut moments);
        flush_first(&a, Kind::Full, c, piece, &mut moments);
        flush_second(&a, partial(&a, Kind::Full).wrapping_add(second as usize), piece, &moments);
    }
}
