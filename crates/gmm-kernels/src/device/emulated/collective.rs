//! Warp-wide primitives: each lane contributes operands, waits for the others, and reads the ones that it needs.

use super::block::{Stop, Thread, me};
use crate::device::WARP;

/// The operands of all lanes of a warp.
struct CollectiveInput {
    thread: &'static Thread<'static>,
    turn: usize,
}

fn bring(word: &'static str, numbers: &[u64]) -> CollectiveInput {
    let thread = me();
    let turn = thread.turn.get();
    let slots = &thread.block.slots[thread.index as usize][turn];
    slots[..numbers.len()].iter().zip(numbers).for_each(|(slot, number)| slot.set(*number));
    thread.stop(Stop::Warp(word));
    thread.turn.set(1 - turn);
    CollectiveInput { thread, turn }
}

impl CollectiveInput {
    fn lane(&self) -> u32 {
        self.thread.index % WARP
    }

    fn get(&self, lane: u32, i: u32) -> u64 {
        let thread = self.thread.index / WARP * WARP + lane % WARP;
        self.thread.block.slots[thread as usize][self.turn][i as usize].get()
    }

    fn f64(&self, lane: u32, i: u32) -> f64 {
        f64::from_bits(self.get(lane, i))
    }
}

/// Waits for all lanes of the warp. Stores before it are visible after it.
pub fn sync_warp() {
    bring("sync_warp", &[]);
}

/// The value of lane `lane_id() ^ mask`.
pub fn shuffle_xor_u32(value: u32, mask: u32) -> u32 {
    shuffle_xor_u64(value.into(), mask) as u32
}

/// As [`shuffle_xor_u32`], of 64 bits.
pub(crate) fn shuffle_xor_u64(value: u64, mask: u32) -> u64 {
    let all = bring("shuffle_xor", &[value]);
    all.get(all.lane() ^ mask, 0)
}

/// The value of lane `lane`.
pub fn shuffle_idx_u32(value: u32, lane: u32) -> u32 {
    shuffle_idx_u64(value.into(), lane) as u32
}

/// As [`shuffle_idx_u32`], of 64 bits.
pub(crate) fn shuffle_idx_u64(value: u64, lane: u32) -> u64 {
    bring("shuffle_idx", &[value]).get(lane, 0)
}

/// Whether `value` is true in any lane.
pub fn any(value: bool) -> bool {
    let all = bring("any", &[value.into()]);
    (0..WARP).any(|lane| all.get(lane, 0) != 0)
}

/// One bit per lane, the first lane lowest: whether its `value` is true.
pub fn ballot(value: bool) -> u32 {
    let all = bring("ballot", &[value.into()]);
    (0..WARP).map(|lane| (all.get(lane, 0) as u32) << lane).sum()
}

/// `Σ_k A(row, k)·B(k, column)` for this lane's entries of `D`, two in each group of eight rows.
fn multiply(lane: u32, depth: u32, c: &mut [f64], a: impl Fn(u32, u32) -> f64, b: impl Fn(u32, u32) -> f64) {
    for (i, c) in (0..).zip(c) {
        let (row, column) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
        *c += (0..depth).map(|k| a(row, k) * b(k, column)).sum::<f64>();
    }
}

fn rounded(c: &mut [f32; 4], into: impl FnOnce(&mut [f64])) {
    // Products of such short operands are exact in f64. The hardware's order of additions is unspecified.
    let mut wide = c.map(f64::from);
    into(&mut wide);
    *c = wide.map(|v| v as f32);
}

/// `mma.sync` m16n8k8, TF32 in, f32 sums.
pub fn mma_m16n8k8_tf32(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    let all = bring("mma_m16n8k8_tf32", &[a[0], a[1], a[2], a[3], b[0], b[1]].map(u64::from));
    let tf32 = |lane, i| f64::from(f32::from_bits(all.get(lane, i) as u32 & !0x1fff));
    let a = |row: u32, k: u32| tf32(row % 8 * 4 + k % 4, row / 8 + 2 * (k / 4));
    let b = |k: u32, column: u32| tf32(column * 4 + k % 4, 4 + k / 4);
    rounded(c, |c| multiply(all.lane(), 8, c, a, b));
}

/// `mma.sync` m16n8k16, BF16 in, f32 sums.
pub fn mma_m16n8k16_bf16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    let all = bring("mma_m16n8k16_bf16", &[a[0], a[1], a[2], a[3], b[0], b[1]].map(u64::from));
    let bf16 = |lane, i, half| {
        let pair = all.get(lane, i) as u32;
        f64::from(f32::from_bits(if half == 0 { pair << 16 } else { pair & 0xffff_0000 }))
    };
    let a = |row: u32, k: u32| bf16(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8), k % 2);
    let b = |k: u32, column: u32| bf16(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    rounded(c, |c| multiply(all.lane(), 16, c, a, b));
}

/// `mma.sync` m16n8k16, F16 in, f32 sums.
pub fn mma_m16n8k16_f16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    mma_m16n8k16_f16_wide(std::slice::from_mut(c), a, |_| b);
}

/// As [`mma_m16n8k16_f16`] for every eight columns `c[i]`, with `b(i)`: the lanes wait once, and decode `a` once.
pub fn mma_m16n8k16_f16_wide(c: &mut [[f32; 4]], a: [u32; 4], b: impl Fn(u32) -> [u32; 2]) {
    let decoded = |pair| super::from_halves(pair).map(f64::from);
    let mut left = [0; 8];
    for (two, pair) in left.chunks_exact_mut(2).zip(a) {
        two.copy_from_slice(&decoded(pair).map(f64::to_bits));
    }
    let me = me();
    let turn = me.turn.get();
    let wide = |thread: u32| &me.block.wide[thread as usize][turn];
    {
        let mut right = wide(me.index).borrow_mut();
        right.clear();
        right.extend((0..c.len() as u32).flat_map(|i| b(i).map(decoded)).flatten());
    }
    let all = bring("mma_m16n8k16_f16", &left);
    let (g, t) = (all.lane() / 4, all.lane() % 4);
    // Terms `2 i` and `2 i + 1` of a row are a pair of lane `i % 4`, and so are those of a column.
    let (lane, half) = (|term: usize| term % 8 / 2, |term: usize| 2 * (term / 8));
    let rows = [0, 1].map(|side: u32| {
        std::array::from_fn::<f64, 16, _>(|k| all.f64(4 * g + lane(k) as u32, 2 * side + (2 * half(k) + k % 2) as u32))
    });
    let first = me.index / WARP * WARP;
    let columns =
        [0, 1].map(|side| std::array::from_fn::<_, 4, _>(|i| wide(first + 4 * (2 * t + side) + i as u32).borrow()));
    for (i, c) in c.iter_mut().enumerate() {
        let mut sums = c.map(f64::from);
        for (side, of) in columns.iter().enumerate() {
            let column: [f64; 16] = std::array::from_fn(|k| of[lane(k)][4 * i + half(k) + k % 2]);
            for (row, numbers) in rows.iter().enumerate() {
                sums[2 * row + side] += numbers.iter().zip(&column).map(|(a, b)| a * b).sum::<f64>();
            }
        }
        *c = sums.map(towards_zero);
    }
}

/// Rounds towards zero, as the hardware rounds its sums.
fn towards_zero(v: f64) -> f32 {
    let nearest = v as f32;
    if f64::from(nearest).abs() > v.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// `mma.sync` m8n8k4, f64.
pub fn mma_m8n8k4_f64(c: &mut [f64; 2], a: f64, b: f64) {
    let all = bring("mma_m8n8k4_f64", &[a, b].map(f64::to_bits));
    let (a, b) = (|row, k| all.f64(row * 4 + k, 0), |k, column| all.f64(column * 4 + k, 1));
    multiply(all.lane(), 4, c, a, b);
}

/// `mma.sync` m16n8k16, f64.
pub fn mma_m16n8k16_f64(c: &mut [f64; 4], a: [f64; 8], b: [f64; 4]) {
    f64_rows_16("mma_m16n8k16_f64", c, &a, &b);
}

/// `mma.sync` m16n8k8, f64.
pub fn mma_m16n8k8_f64(c: &mut [f64; 4], a: [f64; 4], b: [f64; 2]) {
    f64_rows_16("mma_m16n8k8_f64", c, &a, &b);
}

/// `mma.sync` m16n8k4, f64.
pub fn mma_m16n8k4_f64(c: &mut [f64; 4], a: [f64; 2], b: [f64; 1]) {
    f64_rows_16("mma_m16n8k4_f64", c, &a, &b);
}

/// Products of 16 rows, with four terms for each number in `b`.
fn f64_rows_16(word: &'static str, c: &mut [f64; 4], a: &[f64], b: &[f64]) {
    let mut bits = [0; 12];
    for (slot, v) in bits.iter_mut().zip(a.iter().chain(b)) {
        *slot = v.to_bits();
    }
    let (all, quarters) = (bring(word, &bits[..a.len() + b.len()]), b.len() as u32);
    let a = |row: u32, k: u32| all.f64(row % 8 * 4 + k % 4, row / 8 + 2 * (k / 4));
    let b = |k: u32, column: u32| all.f64(column * 4 + k % 4, 2 * quarters + k / 4);
    multiply(all.lane(), 4 * quarters, c, a, b);
}
