//! Launches that evaluate mixtures: many for their likelihoods, or one for the sums of its responsibilities.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::halves::scales::{Scales, halves_scales};
use gmm_kernels::fused::scores::alone::{self, Alone, PLACES};
use gmm_kernels::fused::scores::slices::{self, Slices, Tile};
use gmm_kernels::fused::scores::{Columns, Form, Scores, kernel};
use gmm_kernels::fused::{self, Pass, Variant};
use gmm_kernels::layout::{Kind, tiled_len};

use super::launcher::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

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

/// How likelihoods of many mixtures are computed by slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlicePlan {
    pub(crate) shape: Shape,
    /// Of a mixture.
    pub(crate) tiles: u32,
    /// Mixtures of a unit at most, in whole groups that are multiplied together.
    pub(crate) unit: u32,
    /// Blocks that share the rows.
    pub(crate) blocks: u32,
}

impl SlicePlan {
    /// Numbers of a mixture's tiles.
    pub(crate) const fn set_len(&self) -> usize {
        self.tiles as usize * Tile::LEN as usize
    }
}

/// How the likelihood of one mixture is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlonePlan {
    pub(crate) shape: Shape,
    /// Entries that the kernel is for.
    pub(crate) columns: u32,
    pub(crate) blocks: u32,
    /// Tiles that the device's cache is to keep.
    pub(crate) kept: u64,
}

impl Launcher<'_> {
    /// One mixture over all rows: what each block has.
    pub(crate) fn alone<T: Number>(
        self,
        plan: &AlonePlan,
        rows: &Chunk<T>,
        coefficients: [u64; PLACES],
        values: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let AlonePlan { shape, columns, blocks, kept } = *plan;
        check_chunk(&shape, rows);
        assert!(T::BYTES == 4 && rows.row_weights.is_none() && shape.d <= columns, "rows for one mixture");
        assert!(alone::entry(columns, shape.k, 0) <= PLACES, "{} components", shape.k);
        at_least(values, blocks.into(), "values");
        let a = Alone {
            x: pointer(&rows.x).cast_const().cast(),
            n: rows.n,
            d: shape.d,
            k: shape.k,
            kept,
            values: pointer(values),
            coefficients,
        };
        // SAFETY: every length was checked against the field's formula; tiles are 16-byte aligned.
        unsafe { self.launch(alone::kernel(columns), (blocks, 1), a) }
    }

    /// Powers of two by which columns are brought below 128.
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
        unsafe { self.launch(halves_scales(), (d + 1, 1), a) }
    }

    /// Units of mixtures over all rows by slices: what each block has of each mixture, `stride` numbers apart, and the values. The
    /// units' counters are 0.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn slices<T: Number>(
        self,
        plan: &SlicePlan,
        units: u32,
        sets: u32,
        rows: &Chunk<T>,
        coefficients: &DeviceSlice<f64>,
        partials: &DeviceSlice<f64>,
        stride: u64,
        values: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let SlicePlan { shape, tiles, blocks, .. } = *plan;
        check_chunk(&shape, rows);
        assert!(T::BYTES == 4 && rows.row_weights.is_none() && shape.d <= slices::COLUMNS, "rows for slices");
        assert!(sets.is_multiple_of(slices::together(tiles)), "{sets} mixtures of a unit");
        assert_eq!(slices::tiles(shape.k), Some(tiles));
        at_least(coefficients, u64::from(units) * slices::unit_len(tiles, sets), "coefficients");
        let mixtures = u64::from(units * sets);
        at_least(partials, u64::from(blocks - 1) * stride + mixtures, "partial likelihoods");
        at_least(values, mixtures, "values");
        assert!(mixtures <= stride, "{mixtures} mixtures in {stride}");
        let a = Slices {
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
        // SAFETY: every length was checked against the field's formula; coefficients start 16-byte aligned, and every unit has an
        // even length.
        unsafe { self.launch(slices::kernel(tiles), (blocks, units), a) }
    }

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
        let a = Pass {
            state: std::ptr::null(),
            iteration: 1,
            x: pointer(&rows.x).cast(),
            number_bytes: T::BYTES,
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            derive: fused::derived(shape.kernel_kind()),
            coefficients: pointer(coefficients),
            constants: pointer(constants),
            partials: pointer(partials),
        };
        // SAFETY: lengths were checked against the fields' formulas.
        unsafe { self.fused_pass(shape, variant, blocks, a) }
    }
}
