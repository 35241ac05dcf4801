//! Sums of products of two columns times responsibilities over a chunk of rows, one partial result per split of the
//! rows.
//!
//! A warp owns two *units*, each sixteen columns times one, by 128 components; so a warpgroup has 128 products of
//! columns in registers. Per 64 rows, a block loads the responsibilities, the sixteen columns of its units (at most two
//! sets of sixteen), and for each unit the column that they are multiplied with. Twice as many components by half as
//! many units would take as many registers and load more.

use crate::Real;
use crate::device::mma::{multiply_halves, stores_before_products};
use crate::device::warpgroup::{Cores, LeftOfHalves, Sums as _};
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::chunked::half_precision::moments::{add, back};
use crate::em::chunked::half_precision::operand::{EXPONENTIAL, two};
use crate::em::state::stopped;
use crate::em::wgmma::full::units::{self, OF_BLOCK, OF_WARP, Unit};
use crate::em::wgmma::full::{COMPONENTS, CORE, Full, column_bytes, columns, groups, responsibility_bytes};

kernels! {
    /// The grid is [`Full::blocks_of_split`] times `splits` blocks.
    Moments {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// Rows of the chunk.
        n: u64,
        /// Components.
        k: u32,
        /// Dimensions, at most [`columns_at_most`](crate::em::wgmma::full::columns_at_most).
        d: u32,
        /// `(d,)`: scales of columns; powers of two.
        scales: *const f32,
        /// [`Full::column_words`] words, 16-byte aligned.
        columns: *const u32,
        /// [`Full::responsibilities`] words, 16-byte aligned.
        responsibilities: *const u32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements.
        likelihoods: *const f64,
        /// Number of partial results.
        splits: u32,
        /// Nonzero: add to the existing partial results.
        accumulate: u32,
        /// `(splits, FeatureLayout::sums)` with [`Full::place`], written or added to at the positions of features;
        /// zeroed beforehand.
        partials: *mut f64,
    }
    /// Hi parts only.
    wgmma_moments_full => body::<true>, shared_bytes::<true>, threads;
    /// Split fp16.
    wgmma_moments_halves => body::<false>, shared_bytes::<false>, threads;
}

/// Threads per block: two warpgroups.
pub const THREADS: u32 = 256;

/// Groups of 64 rows per buffer: one barrier for that many lets the warpgroups drift apart.
const fn together(one: bool) -> u32 {
    if one { 4 } else { 2 }
}

/// Groups summed in `f32`: 16384 rows of hi parts, half as many in split fp16.
const fn run(one: bool) -> u32 {
    if one { 256 } else { 128 }
}

/// Bytes of sixteen columns.
const fn sixteen_bytes(one: bool) -> u32 {
    16 * column_bytes(one)
}

/// Offset in a group of the column that each unit's sixteen are multiplied with.
const fn partners_at(one: bool) -> u32 {
    responsibility_bytes(one) + 2 * sixteen_bytes(one)
}

/// Bytes of a group: responsibilities, the units' columns, and the columns that these are multiplied with.
const fn group_bytes(one: bool) -> u32 {
    partners_at(one) + OF_BLOCK * column_bytes(one)
}

/// Bytes of shared memory: two buffers of groups, one in use and one being filled.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(one: bool) -> u64 {
    (2 * together(one) * group_bytes(one)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<const ONE: bool>(_: &Moments) -> u64 {
    shared_len(ONE)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Moments) -> u32 {
    THREADS
}

/// Groups of eight components per block.
const GROUPS: usize = COMPONENTS as usize / 8;

/// Sums of a warp's units: each sixteen columns by 128 components.
type Of = [[f32; 64]; OF_WARP as usize];

/// Body of the kernel; with `ONE`, hi parts only.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn body<const ONE: bool>(a: Moments) {
    let (together, group, column) = const { (together(ONE), group_bytes(ONE), column_bytes(ONE)) };
    // SAFETY: `state` is null or a loop's state, as `Moments` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let Some(cut) = BlockShare::new::<ONE>(&a) else { return };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let (g, t) = (lane / 4, lane % 4);
    let sent = ThreadCopies::new::<ONE>(&a, &cut);
    let groups = groups(a.n) as u32;
    // Number of this split's groups.
    let count = if cut.split < groups { (groups - cut.split).div_ceil(a.splits) } else { 0 };
    let send = |half: u32, i: u32| {
        if i < count {
            let to = (half * together + i % together) * group;
            // SAFETY: `i < count`, so the group exists.
            unsafe { sent.send::<ONE>(&a, to, cut.split + i * a.splits) };
        }
    };
    each(together as usize, |i| send(0, i as u32));

    // Offset of this lane's first vector of its columns in a group.
    let unit = |u: usize| Unit::of(a.d, cut.unit + OF_WARP * me + u as u32);
    let second = (unit(0).sixteen != sent.sixteens[0]) as u32;
    let own =
        const { responsibility_bytes(ONE) } + second * const { sixteen_bytes(ONE) } + g * column + g % 2 * 64 + 16 * t;
    let mut partners = [0; OF_WARP as usize];
    each(OF_WARP as usize, |u| {
        partners[u] =
            const { partners_at(ONE) } + (OF_WARP * me + u as u32) * column + unit(u).column(a.d) % 2 * 64 + 16 * t;
    });
    let (mut i, mut half, mut fresh) = (0, 0, [0.0; 32]);
    let mut accumulate = a.accumulate != 0;
    // A split without rows writes zeros.
    let mut again = true;
    while again {
        let mut sums: Of = [[0.0; 64]; OF_WARP as usize];
        let end = count.min(i + const { run(ONE) });
        while i < end {
            copies::arrive();
            stores_before_products();
            // Makes all threads' copies visible, and ensures that no thread still reads the other buffer.
            thread::sync_threads();
            let mut q = 0;
            while q < together {
                if i + q < end {
                    let at = (half * together + q) * group;
                    if ONE {
                        add_products(&mut sums, at, own, partners);
                    } else {
                        add_products_of_halves(&mut sums, &mut fresh, at, own, partners);
                    }
                }
                // After a product, so that other warps compute meanwhile; and early, so that the copies arrive before
                // the next barrier.
                if q < together / 2 {
                    each(2, |odd| send(1 - half, i + together + 2 * q + odd as u32));
                }
                q += 1;
            }
            i += together;
            half = 1 - half;
        }
        // SAFETY: only this block's warps write these sums of the split.
        unsafe { flush::<ONE>(&a, &sums, accumulate) };
        accumulate = true;
        again = i < count;
    }
    // SAFETY: only the split's first block writes the log-likelihood.
    unsafe { add_likelihood::<ONE>(&a, &cut, count) };
}

/// Adds the products of 64 rows, from hi parts only.
#[inline(always)]
fn add_products(sums: &mut Of, group: u32, own: u32, partners: [u32; OF_WARP as usize]) {
    let four = |at: u32| Shared::<f32>::at(group + at).load4(0).map(f32::to_bits);
    // The lane's two columns, in each half of the rows.
    let mut x = [[[0; 4]; 2]; 2];
    each(2, |half| {
        each(2, |row| x[half][row] = four((own ^ (64 * half as u32)) + row as u32 * 8 * const { column_bytes(true) }))
    });
    let mut left = [[0; 16]; OF_WARP as usize];
    each(OF_WARP as usize, |u| {
        each(2, |half| {
            let by = four(partners[u] ^ (64 * half as u32));
            each(8, |i| {
                let (word, row) = (i / 2, i % 2);
                left[u][8 * half + i] = multiply_halves(x[half][row][word], by[word]);
            });
        });
    });
    each(OF_WARP as usize, |u| {
        sums[u].four_steps(&left[u], Cores { at: group, terms: CORE, others: 8 * CORE }, false);
    });
}

/// Adds the products of 64 rows in split fp16: products of columns are computed in `f32` and then split; each product
/// becomes three, for half of the components at a time.
#[inline(always)]
fn add_products_of_halves(
    sums: &mut Of,
    fresh: &mut [f32; 32],
    group: u32,
    own: u32,
    partners: [u32; OF_WARP as usize],
) {
    let column = const { column_bytes(false) };
    let four = |at: u32, half: usize, four: usize| {
        Shared::<f32>::at(group + (at ^ (64 * four as u32)) + 128 * half as u32).load4(0)
    };
    each(OF_WARP as usize, |u| {
        // Hi and lo parts; a step has two vectors of four rows of 32.
        let mut left = [[[0; 4]; 4]; 2];
        each(4, |i| {
            let (half, of_half) = (i / 2, i % 2);
            let by = four(partners[u], half, of_half);
            each(2, |row| {
                let x = four(own + row as u32 * 8 * column, half, of_half);
                each(2, |word| {
                    let both = two(x[2 * word] * by[2 * word], x[2 * word + 1] * by[2 * word + 1]);
                    each(2, |which| left[which][i][2 * word + row] = both[which]);
                });
            });
        });
        each(2, |c| {
            let at = group + c as u32 * 8 * 8 * CORE;
            let right = Cores { at, terms: CORE, others: 8 * CORE };
            LeftOfHalves::times(&left, fresh, right, const { responsibility_bytes(true) });
            each(32, |i| sums[u][32 * c + i] += fresh[i]);
        });
    });
}

/// Adds a warp's sums to its partial results.
#[inline(always)]
unsafe fn flush<const ONE: bool>(a: &Moments, sums: &Of, accumulate: bool) {
    // Recomputed, so that no register holds it throughout the loop.
    let a = &Moments { d: device::unknown(a.d), ..*a };
    let Some(cut) = BlockShare::new::<ONE>(a) else { return };
    let (thread, place) = (thread::thread_idx_x_anew(), Full { k: a.k, d: a.d, one: ONE }.place());
    let (lane, me) = (thread % WARP, thread / WARP);
    let (g, t) = (lane / 4, lane % 4);
    let partials = a.partials.wrapping_add((cut.split as u64 * place.sums()) as usize);
    // SAFETY: `column < d`, and `scales` has `d` elements.
    let scale = |column: u32| if column < a.d { unsafe { device::load(a.scales, column as u64) } } else { 1.0 };
    each(OF_WARP as usize, |u| {
        let unit = Unit::of(a.d, cut.unit + OF_WARP * me + u as u32);
        each(2, |row| {
            let i = g + 8 * row as u32;
            let Some(to) = unit.sums(place, a.d, i, COMPONENTS * cut.tile + 2 * t) else { return };
            // Factors are powers of two: nothing is rounded.
            let by = back(scale(16 * unit.sixteen + i)).to_f64() * back(scale(unit.column(a.d))).to_f64()
                / EXPONENTIAL.to_f64();
            // Several at a time, so that latencies overlap.
            each(GROUPS / 4, |four| {
                let group = COMPONENTS / 8 * cut.tile + 4 * four as u32;
                if group < place.groups {
                    let at = |i: usize| to.first + to.group * (4 * four + i / 2) as u64 + to.odd * (i % 2) as u64;
                    let mut before = [0.0; 8];
                    if accumulate {
                        // SAFETY: positions within the partial result, which only this lane accesses, here and below.
                        each(8, |i| before[i] = unsafe { device::load(partials.cast_const(), at(i)) });
                    }
                    each(8, |i| {
                        // Opaque: otherwise the compiler converts all sums to `f64` before it stores any, which takes
                        // twice the registers.
                        let sum = device::unknown(sums[u][4 * (4 * four + i / 2) + 2 * row + i % 2].to_bits());
                        let sum = f32::from_bits(sum).to_f64();
                        // SAFETY: only this lane accesses the position.
                        unsafe { device::store(partials, at(i), Real::fma(sum, by, before[i])) };
                    });
                }
            });
        });
    });
}

/// Adds the log-likelihoods of the split's `count` groups of rows; one block per split does it.
#[inline(always)]
unsafe fn add_likelihood<const ONE: bool>(a: &Moments, cut: &BlockShare, count: u32) {
    let thread = thread::thread_idx_x_anew();
    let mine = cut.unit == 0 && cut.tile == 0 && thread < WARP;
    let mut sum = 0.0;
    let mut i = if mine { thread } else { count };
    while i < count {
        let at = 4 * (cut.split + i * a.splits) as u64;
        // SAFETY: `i < count`, so the group's four sixteens exist.
        each(4, |sixteen| sum += unsafe { device::load(a.likelihoods, at + sixteen as u64) });
        i += WARP;
    }
    // All lanes take part in the shuffles, so they are outside the condition.
    each(5, |i| sum += warp::shuffle_xor(sum, 1 << i));
    if mine && thread == 0 {
        let place = Full { k: a.k, d: a.d, one: ONE }.place();
        let partials = a.partials.wrapping_add((cut.split as u64 * place.sums()) as usize);
        // SAFETY: the position is within the partial result, and only this thread accesses it.
        unsafe { add(partials, a.accumulate != 0, place.log_likelihood(), sum) };
    }
}

/// A block's share of the work.
struct BlockShare {
    /// Its first unit.
    unit: u32,
    /// Tile of the components.
    tile: u32,
    /// Split of the rows.
    split: u32,
}

impl BlockShare {
    /// `None` if there is nothing to do; the check tells the compiler that the divisors are not 0.
    #[inline(always)]
    fn new<const ONE: bool>(a: &Moments) -> Option<Self> {
        let (parts, tiles) = (units::parts(a.d), Full { k: a.k, d: a.d, one: ONE }.tiles());
        if parts == 0 || tiles == 0 || a.splits == 0 {
            return None;
        }
        let at = thread::block_idx_x();
        let (part, rest) = (at % parts, at / parts);
        Some(Self { unit: OF_BLOCK * part, tile: rest % tiles, split: rest / tiles })
    }
}

/// A thread's copies of each group.
struct ThreadCopies {
    tile: u32,
    /// The block's first sixteen columns, and its last.
    sixteens: [u32; 2],
    /// Offset, in words, of the thread's part of a unit's other column.
    partner: u32,
}

impl ThreadCopies {
    #[inline(always)]
    fn new<const ONE: bool>(a: &Moments, cut: &BlockShare) -> Self {
        let t = thread::thread_idx_x() % const { copiers(ONE) };
        let sixteens = [0, OF_BLOCK - 1].map(|unit| Unit::of(a.d, cut.unit + unit).sixteen);
        let pieces = const { column_bytes(ONE) / 16 };
        let partner = Unit::of(a.d, cut.unit + t / pieces).column(a.d) * (4 * pieces) + t % pieces * 4;
        Self { tile: cut.tile, sixteens, partner }
    }

    /// Starts the copy of a group; all threads of the block call it.
    #[inline(always)]
    unsafe fn send<const ONE: bool>(&self, a: &Moments, to: u32, group: u32) {
        let t = thread::thread_idx_x_anew();
        let copy = |to: u32, from: *const u32| {
            // SAFETY: the caller passes a group that exists; the buffers have the lengths that `Moments` documents.
            unsafe { copies::send(to, from.cast()) };
        };
        let (responsibilities, column) = const { (responsibility_bytes(ONE), column_bytes(ONE)) };
        let before =
            (group * Full { k: a.k, d: a.d, one: ONE }.tiles() + self.tile) as u64 * (responsibilities / 4) as u64;
        let from = a.responsibilities.wrapping_add(before as usize + 4 * t as usize);
        let to_own = to + 16 * t;
        each((responsibilities / (16 * THREADS)) as usize, |i| {
            copy(to_own + i as u32 * 16 * THREADS, from.wrapping_add(i * 4 * THREADS as usize));
        });
        let from = a.columns.wrapping_add((group as u64 * (columns(a.d) * column / 4) as u64) as usize);
        // The columns that the units have in common, and each unit's other column.
        let copiers = const { copiers(ONE) };
        let own = || {
            let sixteen_bytes = const { sixteen_bytes(ONE) };
            let sixteen = |i: usize| from.wrapping_add((self.sixteens[i] * (sixteen_bytes / 4) + 4 * t) as usize);
            copy(to_own + responsibilities, sixteen(0));
            if self.sixteens[0] != self.sixteens[1] {
                copy(to_own + responsibilities + sixteen_bytes, sixteen(1));
            }
        };
        let partner = |t: u32| copy(to + const { partners_at(ONE) } + 16 * t, from.wrapping_add(self.partner as usize));
        if copiers == THREADS {
            own();
            partner(t);
        } else if t < copiers {
            own();
        } else {
            partner(t - copiers);
        }
    }
}

/// Threads that copy sixteen columns, 16 bytes each.
const fn copiers(one: bool) -> u32 {
    sixteen_bytes(one) / 16
}

const _: () = assert!(copiers(true) == THREADS / 2 && copiers(false) == THREADS && OF_BLOCK == 16);
