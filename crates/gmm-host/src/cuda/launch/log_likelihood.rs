//! Launches that evaluate mixtures: many for their log-likelihoods, or one for its sums of responsibilities.

use cust::memory::DeviceSlice;
use gmm_kernels::em::chunked::half_precision::scales::{Scales, chunked_half_scales};
use gmm_kernels::em::features::derived;
use gmm_kernels::em::fused::{Instance, Pass};
use gmm_kernels::layout::{Kind, tiled_len};
use gmm_kernels::log_likelihood::fixed_point::{self, FixedPointPass, Tile};
use gmm_kernels::log_likelihood::single_mixture::{self, PLACES, SingleMixturePass};
use gmm_kernels::log_likelihood::{Columns, Form, LogLikelihoods, kernel};

use super::arguments::{Chunk, at_least, check_chunk, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// How the log-likelihoods of many mixtures are computed by the `batches` kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLikelihoodPlan {
    pub(crate) shape: Shape,
    pub(crate) form: Form,
    /// Whether eight mixtures can form a unit; otherwise each is a unit.
    pub(crate) eights: bool,
    /// Blocks that share the rows.
    pub(crate) blocks: u32,
}

impl LogLikelihoodPlan {
    /// Numbers in a unit's coefficients.
    pub(crate) const fn unit(&self, columns: Columns) -> u64 {
        columns.tiles(self.shape.k) as u64 * self.form.tile()
    }
}

/// How the log-likelihoods of many mixtures are computed by the fixed-point kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedPointPlan {
    pub(crate) shape: Shape,
    /// Tiles per mixture.
    pub(crate) tiles: u32,
    /// Most mixtures per unit: a multiple of the mixtures that the kernel multiplies together.
    pub(crate) unit: u32,
    /// Blocks that share the rows.
    pub(crate) blocks: u32,
}

impl FixedPointPlan {
    /// Numbers in a mixture's tiles.
    pub(crate) const fn set_len(&self) -> usize {
        self.tiles as usize * Tile::LEN as usize
    }
}

/// How the log-likelihood of one mixture is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SingleMixturePlan {
    pub(crate) shape: Shape,
    /// Columns that the kernel is compiled for.
    pub(crate) columns: u32,
    pub(crate) blocks: u32,
    /// Leading tiles of rows that the L2 cache keeps until the next call.
    pub(crate) kept: u64,
}

impl Launcher<'_> {
    /// Evaluates one mixture over all rows, and writes each block's value.
    pub(crate) fn single_mixture<T: Number>(
        self,
        plan: &SingleMixturePlan,
        rows: &Chunk<T>,
        coefficients: [u64; PLACES],
        values: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let SingleMixturePlan { shape, columns, blocks, kept } = *plan;
        check_chunk(&shape, rows);
        assert!(T::BYTES == 4 && rows.row_weights.is_none() && shape.d <= columns, "rows for one mixture");
        assert!(single_mixture::entry(columns, shape.k, 0) <= PLACES, "{} components", shape.k);
        at_least(values, blocks.into(), "values");
        let a = SingleMixturePass {
            x: pointer(&rows.x).cast_const().cast(),
            n: rows.n,
            d: shape.d,
            k: shape.k,
            kept,
            values: pointer(values),
            coefficients,
        };
        // SAFETY: every length was checked against the field's formula; tiles are 16-byte aligned.
        unsafe { self.launch(single_mixture::kernel(columns), (blocks, 1), a) }
    }

    /// Computes powers of two that scale each column below 128.
    pub(crate) fn column_scales<T: Number>(
        self,
        rows: &Chunk<T>,
        d: u32,
        scales: &DeviceSlice<f32>,
    ) -> Result<(), Error> {
        assert_eq!(T::BYTES, 4, "rows that are scaled are f32");
        at_least(&rows.x, tiled_len(rows.n, d), "rows");
        at_least(scales, u64::from(d) + 1, "scales");
        let x = pointer(&rows.x).cast_const().cast();
        let a = Scales { x, norms: std::ptr::null(), n: rows.n, d, scales: pointer(scales) };
        // SAFETY: lengths were checked against the fields' formulas.
        unsafe { self.launch(chunked_half_scales(), (d + 1, 1), a) }
    }

    /// Evaluates units of mixtures over all rows by the fixed-point kernels. Writes each block's result for each
    /// mixture, at intervals of `stride` numbers, and the values. The counters in the units' headers must be 0.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fixed_point<T: Number>(
        self,
        plan: &FixedPointPlan,
        units: u32,
        sets: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
        stride: u64,
        values: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let FixedPointPlan { shape, tiles, blocks, .. } = *plan;
        check_chunk(&shape, rows);
        assert!(T::BYTES == 4 && rows.row_weights.is_none() && shape.d <= fixed_point::COLUMNS, "rows for fixed point");
        assert!(sets.is_multiple_of(fixed_point::together(tiles)), "{sets} mixtures of a unit");
        assert_eq!(fixed_point::tiles(shape.k), Some(tiles));
        at_least(coefficients, u64::from(units) * fixed_point::unit_len(tiles, sets), "coefficients");
        let mixtures = u64::from(units * sets);
        at_least(partials, u64::from(blocks - 1) * stride + mixtures, "partial likelihoods");
        at_least(values, mixtures, "values");
        assert!(mixtures <= stride, "{mixtures} mixtures, but a stride of {stride}");
        let a = FixedPointPass {
            x: pointer(&rows.x).cast_const().cast(),
            n: rows.n,
            d: shape.d,
            tiles,
            sets,
            units: pointer(coefficients),
            stride,
            partials: pointer(partials),
            values: pointer(values),
        };
        let by_warpgroups = fixed_point::kernel(tiles, true);
        let kernel = if self.gpu.has(by_warpgroups.name) { by_warpgroups } else { fixed_point::kernel(tiles, false) };
        // SAFETY: every length was checked against the field's formula. Coefficients start 16-byte aligned, and every
        // unit has an even length, so each unit does too.
        unsafe { self.launch(kernel, (blocks, units), a) }
    }

    /// Evaluates units of mixtures over all rows. Writes one number per mixture and block; those of a block start at a
    /// multiple of `stride` numbers.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn scores<T: Number>(
        self,
        plan: &LogLikelihoodPlan,
        columns: Columns,
        units: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
        stride: u64,
    ) -> Result<(), Error> {
        let LogLikelihoodPlan { shape, form, blocks, .. } = *plan;
        let kind = shape.kernel_kind();
        check_chunk(&shape, rows);
        assert_eq!(Form::of(kind, shape.d), Some(form));
        at_least(coefficients, u64::from(units) * plan.unit(columns), "coefficients");
        let mixtures = u64::from(units * columns.mixtures());
        at_least(partials, u64::from(blocks - 1) * stride + mixtures, "partial likelihoods");
        assert!(mixtures <= stride, "{mixtures} mixtures, but a stride of {stride}");
        let a = LogLikelihoods::<T> {
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

    /// Runs a whole E- and M-pass under one mixture, and writes each block's
    /// [`FeatureLayout::sums`](gmm_kernels::em::layout::FeatureLayout::sums).
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn expect<T: Number>(
        self,
        shape: &Shape,
        instance: Instance,
        blocks: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        constants: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let place = instance.place();
        check_chunk(shape, rows);
        at_least(coefficients, place.coefficients(), "coefficients");
        at_least(constants, 8 * u64::from(place.groups), "constants");
        at_least(partials, u64::from(blocks) * place.sums(), "partial sums");
        let a = Pass {
            state: std::ptr::null(),
            iteration: 1,
            x: pointer(&rows.x).cast(),
            number_bytes: T::BYTES,
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            derive: derived(shape.kernel_kind()),
            coefficients: pointer(coefficients),
            constants: pointer(constants),
            partials: pointer(partials),
        };
        // SAFETY: lengths were checked against the fields' formulas.
        unsafe { self.fused_pass(shape, instance, blocks, a) }
    }
}
