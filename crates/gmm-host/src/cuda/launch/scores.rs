//! Launches that evaluate mixtures: many for their likelihoods, or one for the sums of its responsibilities.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::scores::{Columns, Form, Scores, kernel};
use gmm_kernels::fused::{self, Pass, Variant};
use gmm_kernels::layout::Kind;

use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// How likelihoods of many mixtures are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScorePlan {
    pub(crate) shape: Shape,
    pub(crate) form: Form,
    /// Whether eight mixtures can be a unit: else each is one.
    pub(crate) eights: bool,
    /// Blocks that share the rows.
    pub(crate) blocks: u32,
}

impl ScorePlan {
    /// Numbers of a unit's coefficients.
    pub(crate) const fn unit(&self, columns: Columns) -> u64 {
        columns.tiles(self.shape.k) as u64 * self.form.tile()
    }
}

impl Launcher<'_> {
    /// Units of mixtures over all rows: what each block has of each mixture, into the first of `stride` numbers of each.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn scores<T: Number>(
        self,
        plan: &ScorePlan,
        columns: Columns,
        units: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
        stride: u64,
    ) -> Result<(), Error> {
        let ScorePlan { shape, form, blocks, .. } = *plan;
        let kind = shape.kernel_kind();
        check_chunk(&shape, rows);
        assert_eq!(Form::of(kind, shape.d), Some(form));
        at_least(coefficients, u64::from(units) * plan.unit(columns), "coefficients");
        let mixtures = u64::from(units * columns.mixtures());
        at_least(partials, u64::from(blocks - 1) * stride + mixtures, "partial likelihoods");
        assert!(mixtures <= stride, "{mixtures} mixtures in {stride}");
        let a = Scores::<T> {
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            norm: (kind == Kind::Spherical).into(),
            k: shape.k,
            coefficients: pointer(coefficients),
            stride,
            partials: pointer(partials),
        };
        // SAFETY: every length was checked against the field's formula; coefficients start 16-byte aligned.
        unsafe { self.launch(kernel::<T>(form, columns), (blocks, units), a) }
    }

    /// A whole pass under one mixture, [`Place::sums`](fused::place::Place::sums) of each block.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn expect<T: Number>(
        self,
        shape: &Shape,
        variant: Variant,
        blocks: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        constants: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let place = variant.place();
        check_chunk(shape, rows);
        at_least(coefficients, place.coefficients(), "coefficients");
        at_least(constants, 8 * u64::from(place.groups), "constants");
        at_least(partials, u64::from(blocks) * place.sums(), "partial sums");
        let a = Pass::<T> {
            state: std::ptr::null(),
            iteration: 1,
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            derive: fused::derived(shape.kernel_kind()),
            coefficients: pointer(coefficients),
            constants: pointer(constants),
            partials: pointer(partials),
        };
        self.pass(shape, variant, blocks, a)
    }
}
