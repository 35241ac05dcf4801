//! Launches of the loop on the device.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::state::STATE_LEN;
use gmm_kernels::fused::update::{self, TRACE, Update, update as update_kernel};
use gmm_kernels::fused::{self, Pass, Variant};
use gmm_kernels::layout::{packed_len, second_len};
use gmm_kernels::reduce::{NUMBERS, Reduce, reduce_blocks};

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::plan::Shape;
use crate::cuda::upload::Number;

/// The buffers of a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `(k,)`.
    pub(crate) empty: DeviceSlice<u32>,
    /// The last [`TRACE`] mean log-likelihoods.
    pub(crate) trace: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`, less the shift.
    pub(crate) means: DeviceSlice<f64>,
    /// Packed, `second_len(kind, k, d)`.
    pub(crate) covariances: DeviceSlice<f64>,
    /// `(2,)`.
    pub(crate) carry: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// [`Place::coefficients`](fused::place::Place::coefficients).
    pub(crate) coefficients: DeviceSlice<f64>,
    /// [`Place::sums`](fused::place::Place::sums).
    pub(crate) sums: DeviceSlice<f64>,
    /// `(d*(d+1)/2,)` where the covariance is tied.
    pub(crate) scatter: Option<DeviceSlice<f64>>,
    /// `(blocks, sums)`.
    pub(crate) partials: DeviceSlice<f64>,
}

/// What stays the same in a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopPlan {
    pub(crate) shape: Shape,
    pub(crate) variant: Variant,
    /// Blocks of a pass.
    pub(crate) blocks: u32,
    pub(crate) max_iter: u32,
    pub(crate) tol: f64,
    pub(crate) reg_covar: f64,
    pub(crate) total_weight: f64,
    /// See [`Update`].
    pub(crate) most_terms: f64,
    /// See [`Update`].
    pub(crate) least_left: f64,
}

impl Launcher<'_> {
    /// A pass over all rows, and its blocks' partial results into the sums.
    pub(crate) fn fused_pass<T: Number>(
        self,
        plan: &LoopPlan,
        iteration: u32,
        chunk: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (shape, place) = (&plan.shape, plan.variant.place());
        check_chunk(shape, chunk);
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.coefficients, place.coefficients(), "coefficients");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.partials, u64::from(plan.blocks) * place.sums(), "partial sums");
        at_least(&b.sums, place.sums(), "sums");
        assert_eq!(Variant::of(shape.kernel_kind(), shape.k, shape.d), Some(plan.variant));
        let pass = Pass::<T> {
            state: pointer(&b.state),
            iteration,
            x: pointer(&chunk.x),
            row_weights: or_null(chunk.row_weights.as_ref()),
            n: chunk.n,
            d: shape.d,
            derive: fused::derived(shape.kernel_kind()),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            partials: pointer(&b.partials),
        };
        let reduce = Reduce {
            partials: pointer(&b.partials),
            count: plan.blocks.into(),
            len: place.sums(),
            out: pointer(&b.sums),
            accumulate: 0,
        };
        let numbers = place.sums().div_ceil(NUMBERS.into()) as u32;
        // SAFETY: every length was checked against the field's formula, and the variant takes the shape.
        unsafe {
            self.launch(fused::kernel::<T>(plan.variant), (plan.blocks, 1), pass)?;
            self.launch(reduce_blocks(), (numbers, 1), reduce)
        }
    }

    /// The M-step that ends an iteration; at iteration 0, coefficients of the parameters that are there.
    pub(crate) fn update(self, plan: &LoopPlan, iteration: u32, b: &LoopBuffers) -> Result<(), Error> {
        let (shape, place) = (&plan.shape, plan.variant.place());
        let (kind, k, d) = (shape.kernel_kind(), u64::from(shape.k), u64::from(shape.d));
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.sums, place.sums(), "sums");
        b.scatter.iter().for_each(|s| at_least(s, packed_len(shape.d), "scatter"));
        assert_eq!(b.scatter.is_some(), kind == gmm_kernels::layout::Kind::Tied, "scatter");
        at_least(&b.weights, k, "weights");
        at_least(&b.means, k * d, "means");
        at_least(&b.covariances, second_len(kind, shape.k, shape.d), "covariances");
        at_least(&b.empty, k, "empty");
        at_least(&b.coefficients, place.coefficients(), "coefficients");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.carry, 2, "carry");
        at_least(&b.trace, TRACE, "trace");
        let a = Update {
            state: pointer(&b.state),
            iteration,
            max_iter: plan.max_iter,
            tol: plan.tol,
            kind: update::number(kind),
            k: shape.k,
            d: shape.d,
            steps: place.steps,
            groups: place.groups,
            classes: place.classes,
            sums: pointer(&b.sums),
            scatter: or_null(b.scatter.as_ref()),
            total_weight: plan.total_weight,
            reg_covar: plan.reg_covar,
            most_terms: plan.most_terms,
            least_left: plan.least_left,
            weights: pointer(&b.weights),
            means: pointer(&b.means),
            covariances: pointer(&b.covariances),
            empty: pointer(&b.empty),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            carry: pointer(&b.carry),
            trace: pointer(&b.trace),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(update_kernel(), (8 * place.groups, 1), a) }
    }
}
