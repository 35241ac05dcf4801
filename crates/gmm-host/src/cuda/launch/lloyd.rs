//! Launches of Lloyd's iterations on the device.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::fused::state::STATE_LEN;
use gmm_kernels::layout::tiles;
use gmm_kernels::lloyd::assign::{self, Assign};
use gmm_kernels::lloyd::centres::{MoveCentres, SEEN, Settle, lloyd_move, lloyd_settle};
use gmm_kernels::lloyd::sums::{HardSums, hard_sums};
use gmm_kernels::lloyd::{Cut, Place, labels_len};

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// How the launches of a pass are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LloydPlan {
    pub(crate) shape: Shape,
    pub(crate) place: Place,
    /// Whether a block of `assign` keeps all coefficients in shared memory.
    pub(crate) resident: bool,
    /// Blocks of `assign`.
    pub(crate) blocks: u32,
    pub(crate) cut: Cut,
}

/// The buffers of Lloyd's iterations.
#[derive(Clone, Copy)]
pub(crate) struct LloydBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `labels_len(n)`.
    pub(crate) labels: DeviceSlice<u32>,
    /// What the last pass says of itself, `(4,)`.
    pub(crate) seen: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`, less the shift.
    pub(crate) centres: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) moved: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// [`Place::coefficients`].
    pub(crate) coefficients: DeviceSlice<f64>,
    /// [`Cut::len`].
    pub(crate) sums: DeviceSlice<f64>,
    /// `(splits, Cut::len)`.
    pub(crate) partials: DeviceSlice<f64>,
}

impl Launcher<'_> {
    /// Labels under the centres that there are, and each cluster's sums about its own.
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
        assert_eq!(place, Place::of(k, shape.d), "the place of centres");
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
            self.launch(hard_sums::<T>(), (warps, 1), sums)?;
        }
        self.reduce_blocks(&b.partials, cut.splits.into(), len, &b.sums)
    }

    /// Centres to the means of their rows; at iteration 0, coefficients of the centres that are there.
    pub(crate) fn move_centres(self, plan: &LloydPlan, iteration: u32, b: &LloydBuffers) -> Result<(), Error> {
        let LloydPlan { shape, place, cut, .. } = *plan;
        let k = u64::from(shape.k);
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.sums, cut.len(shape.k), "sums");
        at_least(&b.centres, k * u64::from(shape.d), "centres");
        at_least(&b.weights, k, "weights");
        at_least(&b.moved, k, "moves");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.coefficients, place.coefficients(), "coefficients");
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

    /// Whether the loop ends after this iteration.
    pub(crate) fn settle(self, plan: &LloydPlan, iteration: u32, rest: f64, b: &LloydBuffers) -> Result<(), Error> {
        let (k, cut) = (plan.shape.k, plan.cut);
        let parts = cut.columns * cut.ranges;
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.weights, k.into(), "weights");
        at_least(&b.moved, k.into(), "moves");
        at_least(&b.seen, SEEN as u64, "what a look brings");
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
