//! Launches of Lloyd's iterations on the device.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::layout::{packed_len, tiles};
use gmm_kernels::seeding::lloyd::assign::{self, Assign};
use gmm_kernels::seeding::lloyd::centres::{MoveCentres, SEEN, Settle, lloyd_move, lloyd_settle};
use gmm_kernels::seeding::lloyd::end::{EndOfPass, MOST_CENTRES, MOST_NUMBERS, lloyd_end, waits};
use gmm_kernels::seeding::lloyd::products::{HardProducts, hard_products, pieces};
use gmm_kernels::seeding::lloyd::sums::{HardSums, hard_sums};
use gmm_kernels::seeding::lloyd::{CentreLayout, SumSplits, labels_len};

use super::arguments::{Chunk, at_least, check_chunk, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// How a pass of Lloyd's iterations is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LloydPlan {
    pub(crate) shape: Shape,
    pub(crate) place: CentreLayout,
    /// Whether a block of `assign` keeps all coefficients in shared memory.
    pub(crate) resident: bool,
    /// Blocks of `assign`.
    pub(crate) blocks: u32,
    pub(crate) cut: SumSplits,
    /// For full and tied covariances, where second moments are wanted.
    pub(crate) products: Option<ProductSplits>,
    pub(crate) end: End,
}

/// Division of the products of clusters into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProductSplits {
    /// Whether the products of all clusters are added up.
    pub(crate) tied: bool,
    /// Centres of a block.
    pub(crate) range: u32,
    /// Parts of the rows, each with its own partial result.
    pub(crate) splits: u32,
}

impl ProductSplits {
    /// Length of a partial result.
    pub(crate) fn len(self, shape: &Shape) -> u64 {
        packed_len(shape.d) * if self.tied { 1 } else { u64::from(shape.k) }
    }
}

/// The launches that end a pass, after labels and partial sums. A single block saves one or two launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A reduction, then `lloyd_move` with one block per centre, then `lloyd_settle`, which tests convergence.
    Launches,
    /// A reduction, then one block for the rest.
    OneBlock,
    /// One block for everything, including the reduction.
    OneBlockOfAll,
}

/// Most waits for device memory during which one block adds up the partial results: beyond that a separate launch is
/// faster.
const MOST_WAITS: u32 = 8;

impl End {
    pub(crate) fn of(cut: SumSplits, k: u32) -> Self {
        let len = cut.len(k);
        if len > MOST_NUMBERS.into() || k > MOST_CENTRES {
            Self::Launches
        } else if waits(len as u32, cut.splits) > MOST_WAITS {
            Self::OneBlock
        } else {
            Self::OneBlockOfAll
        }
    }
}

/// The buffers of Lloyd's iterations.
#[derive(Clone, Copy)]
pub(crate) struct LloydBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `labels_len(n)`.
    pub(crate) labels: DeviceSlice<u32>,
    /// Statistics of the last pass, `(4,)`: see [`SEEN`].
    pub(crate) seen: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`: centres minus the shift.
    pub(crate) centres: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) moved: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// [`CentreLayout::coefficients`].
    pub(crate) coefficients: DeviceSlice<f64>,
    /// [`SumSplits::len`].
    pub(crate) sums: DeviceSlice<f64>,
    /// [`ProductSplits::len`], or empty.
    pub(crate) products: DeviceSlice<f64>,
    /// `(splits, SumSplits::len)`; later `(splits, ProductSplits::len)`.
    pub(crate) partials: DeviceSlice<f64>,
}

impl LloydBuffers {
    /// Panics unless the centres and the operands of `assign` are as long as the plan's kernels expect.
    fn check_centres(&self, LloydPlan { shape, place, .. }: &LloydPlan) {
        let k = u64::from(shape.k);
        at_least(&self.centres, k * u64::from(shape.d), "centres");
        at_least(&self.weights, k, "weights");
        at_least(&self.constants, 8 * u64::from(place.groups), "constants");
        at_least(&self.coefficients, place.coefficients(), "coefficients");
    }
}

impl Launcher<'_> {
    /// Assigns rows to the current centres, and computes each cluster's partial sums about its centre.
    pub(crate) fn hard_pass<T: Number>(
        self,
        plan: &LloydPlan,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LloydBuffers,
    ) -> Result<(), Error> {
        let LloydPlan { shape, place, cut, .. } = *plan;
        let (k, len) = (shape.k, cut.len(shape.k));
        check_chunk(&shape, rows);
        assert_eq!(place, CentreLayout::of(k, shape.d), "the layout of centres");
        assert!(cut.columns == shape.d + 1 || cut.columns == 2 * shape.d + 1, "columns of sums");
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.labels, labels_len(rows.n), "labels");
        at_least(&b.partials, u64::from(cut.splits) * len, "partial sums");
        at_least(&b.centres, u64::from(k) * u64::from(shape.d), "centres");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.coefficients, place.coefficients(), "coefficients");
        let assign = Assign::<T> {
            state: pointer(&b.state),
            iteration,
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            steps: place.steps,
            groups: place.groups,
            resident: plan.resident.into(),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            labels: pointer(&b.labels),
        };
        let sums = HardSums::<T> {
            state: pointer(&b.state),
            iteration,
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            k,
            labels: pointer(&b.labels),
            centres: pointer(&b.centres),
            columns: cut.columns,
            ranges: cut.ranges,
            splits: cut.splits,
            partials: pointer(&b.partials),
        };
        let blocks = u64::from(plan.blocks).min(tiles(rows.n)) as u32;
        let warps = u32::try_from(cut.warps().div_ceil(u64::from(THREADS / WARP))).expect("a grid of blocks");
        // SAFETY: every length was checked against the field's formula; coefficients start 16-byte aligned.
        unsafe {
            self.launch(assign::kernel::<T>(place.at_once), (blocks, 1), assign)?;
            self.launch(hard_sums::<T>(), (warps, 1), sums)
        }
    }

    /// Reduces the partial sums; adds them to the sums so far if `accumulate`.
    pub(crate) fn hard_sums(self, plan: &LloydPlan, b: &LloydBuffers, accumulate: bool) -> Result<(), Error> {
        self.reduce_blocks(&b.partials, plan.cut.splits.into(), plan.cut.len(plan.shape.k), &b.sums, accumulate)
    }

    /// Computes the products of clusters from the labels of [`hard_pass`](Self::hard_pass), whose partial sums it
    /// overwrites; adds them to the products so far if `accumulate`.
    pub(crate) fn hard_products<T: Number>(
        self,
        plan: &LloydPlan,
        cut: ProductSplits,
        rows: &Chunk<T>,
        b: &LloydBuffers,
        accumulate: bool,
    ) -> Result<(), Error> {
        let shape = plan.shape;
        let len = cut.len(&shape);
        check_chunk(&shape, rows);
        at_least(&b.labels, labels_len(rows.n), "labels");
        at_least(&b.centres, u64::from(shape.k) * u64::from(shape.d), "centres");
        at_least(&b.partials, u64::from(cut.splits) * len, "partial products");
        assert!(cut.range > 0 && (!cut.tied || cut.range >= shape.k), "centres of a block");
        let a = HardProducts::<T> {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            k: shape.k,
            tied: cut.tied.into(),
            labels: pointer(&b.labels),
            centres: pointer(&b.centres),
            range: cut.range,
            partials: pointer(&b.partials),
        };
        let blocks = pieces(shape.d) * shape.k.div_ceil(cut.range);
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(hard_products::<T>(), (blocks, cut.splits), a)? };
        self.reduce_blocks(&b.partials, cut.splits.into(), len, &b.products, accumulate)
    }

    /// Moves the centres to the means of their rows, and decides whether the loop ends after this iteration.
    pub(crate) fn end_pass(self, plan: &LloydPlan, iteration: u32, rest: f64, b: &LloydBuffers) -> Result<(), Error> {
        if plan.end != End::OneBlockOfAll {
            self.hard_sums(plan, b, false)?;
        }
        if plan.end == End::Launches {
            self.move_centres(plan, iteration, b)?;
            return self.settle(plan, iteration, rest, b);
        }
        let LloydPlan { shape, place, cut, .. } = *plan;
        let len = cut.len(shape.k);
        let (partials, splits) = if plan.end == End::OneBlock { (&b.sums, 1) } else { (&b.partials, cut.splits) };
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(partials, u64::from(splits) * len, "partial sums");
        b.check_centres(plan);
        at_least(&b.seen, SEEN as u64, "statistics of the last pass");
        assert!(len <= MOST_NUMBERS.into(), "{len} numbers for one block");
        let a = EndOfPass {
            state: pointer(&b.state),
            iteration,
            k: shape.k,
            d: shape.d,
            at_once: place.at_once,
            groups: place.groups,
            steps: place.steps,
            rest,
            partials: pointer(partials),
            splits,
            len: len as u32,
            parts: cut.columns * cut.ranges,
            centres: pointer(&b.centres),
            weights: pointer(&b.weights),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            seen: pointer(&b.seen),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(lloyd_end(), (1, 1), a) }
    }

    /// Moves the centres to the means of their rows; at iteration 0, only computes coefficients of the given centres.
    pub(crate) fn move_centres(self, plan: &LloydPlan, iteration: u32, b: &LloydBuffers) -> Result<(), Error> {
        let LloydPlan { shape, place, cut, .. } = *plan;
        let k = u64::from(shape.k);
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.sums, cut.len(shape.k), "sums");
        at_least(&b.moved, k, "moves");
        b.check_centres(plan);
        let a = MoveCentres {
            state: pointer(&b.state),
            iteration,
            k: shape.k,
            d: shape.d,
            at_once: place.at_once,
            groups: place.groups,
            steps: place.steps,
            sums: pointer(&b.sums),
            centres: pointer(&b.centres),
            weights: pointer(&b.weights),
            moved: pointer(&b.moved),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(lloyd_move(), (8 * place.groups, 1), a) }
    }

    /// Decides whether the loop ends after this iteration.
    fn settle(self, plan: &LloydPlan, iteration: u32, rest: f64, b: &LloydBuffers) -> Result<(), Error> {
        let (k, cut) = (plan.shape.k, plan.cut);
        let parts = cut.columns * cut.ranges;
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.weights, k.into(), "weights");
        at_least(&b.moved, k.into(), "moves");
        at_least(&b.seen, SEEN as u64, "statistics of the last pass");
        at_least(&b.sums, cut.len(k), "sums");
        let a = Settle {
            state: pointer(&b.state),
            iteration,
            k,
            rest,
            weights: pointer(&b.weights),
            moved: pointer(&b.moved),
            inertia: pointer(&b.sums.index((cut.len(k) - u64::from(parts)) as usize..)),
            parts,
            seen: pointer(&b.seen),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(lloyd_settle(), (1, 1), a) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_ends_a_pass_of_few_numbers() {
        let of = |d: u32, k: u32, splits: u32| End::of(SumSplits { columns: d + 1, ranges: 1, splits }, k);
        assert_eq!([of(13, 8, 64), of(2, 3, 256)], [End::OneBlockOfAll; 2]);
        // Many partial results: 64 of a thousand numbers, or 3000 of twelve numbers.
        assert_eq!([of(30, 30, 64), of(2, 3, 3000)], [End::OneBlock; 2]);
        // Many numbers, many centres.
        assert_eq!([of(40, 30, 1), of(1, 65, 1)], [End::Launches; 2]);
    }
}
