//! Launches for products of matrices.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::layout::tiles;
use gmm_kernels::products::finish::{Finish, FinishHalves, SIDE, finish, finish_halves};
use gmm_kernels::products::forms::{Forms, TOGETHER, forms};
use gmm_kernels::products::multiply::{Multiply, multiply_doubles, multiply_halves, multiply_heads};
use gmm_kernels::products::pack::{Pack, Split, pack_doubles, split_halves, split_heads};
use gmm_kernels::products::plain::{MultiplyPlain, multiply_plain};
use gmm_kernels::products::scales::{Largest, Scales, pieces, products_largest, products_scales};
use gmm_kernels::products::select::{Select, select};
use gmm_kernels::products::{BLOCK, Form, STEPS, blocks, sums_len};

use super::arguments::{at_least, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;
use crate::cuda::number::Number;

/// A matrix on the device as it was uploaded.
#[derive(Clone, Copy)]
pub(crate) struct Raw<T: Number> {
    pub(crate) numbers: DeviceSlice<T>,
    pub(crate) rows: u64,
    pub(crate) k: u64,
    /// Column-major if true, else row-major.
    pub(crate) by_columns: bool,
}

impl<T: Number> Raw<T> {
    fn check(&self) {
        assert!(self.rows > 0 && self.k > 0);
        at_least(&self.numbers, self.rows * self.k, "a matrix");
    }
}

/// Which factor of products a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A packed factor: operands, and its rows' scales if they are fp16 or split fp16.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    pub(crate) operands: DeviceSlice<u32>,
    /// `(rows,)`, empty for `f64`.
    pub(crate) scales: DeviceSlice<f32>,
    pub(crate) rows: u64,
}

/// Shape of a product's sums, and how their terms are sliced.
#[derive(Clone, Copy)]
pub(crate) struct ProductShape {
    pub(crate) form: Form,
    /// Terms per sum.
    pub(crate) k: u64,
    /// Steps per slice.
    pub(crate) slice: u32,
    /// Whether the left factor is zero above its diagonal.
    pub(crate) triangle: bool,
}

impl ProductShape {
    fn steps(&self) -> u64 {
        self.form.steps(self.k)
    }

    /// Number of slices.
    pub(crate) fn slices(&self) -> u32 {
        self.steps().div_ceil(self.slice.into()) as u32
    }
}

/// Grid of the kernels that pack and split: rows in `x`, columns in `y`.
fn packing_grid(rows: u64, steps: u64, form: Form) -> (u32, u32) {
    let columns = steps * u64::from(form.columns());
    ((2 * blocks(rows)) as u32, columns.div_ceil(64).clamp(1, 1 << 15) as u32)
}

impl Launcher<'_> {
    /// Packs a matrix, minus `shift`, `(k,)`, into `f64` operands.
    pub(crate) fn pack<T: Number>(
        self,
        raw: &Raw<T>,
        side: Side,
        shift: Option<&DeviceSlice<f64>>,
        to: &DeviceSlice<u32>,
    ) -> Result<(), Error> {
        raw.check();
        let steps = Form::Double.steps(raw.k);
        at_least(to, Form::Double.words(raw.rows, raw.k), "operands");
        shift.iter().for_each(|shift| at_least(shift, raw.k, "a shift"));
        let a = Pack {
            from: pointer(&raw.numbers),
            rows: raw.rows,
            k: raw.k,
            by_columns: raw.by_columns.into(),
            shift: or_null(shift),
            left: (side == Side::Left).into(),
            steps,
            to: pointer(to),
        };
        // SAFETY: every length was checked against the field's formula; buffers start 256-byte aligned, and the
        // operands of a block of rows start at a multiple of 8 KiB.
        unsafe { self.launch(pack_doubles::<T>(), packing_grid(raw.rows, steps, Form::Double), a) }
    }

    /// Packs a matrix into fp16 or split-fp16 operands. Also writes its rows' scales, `(rows,)`, and the largest
    /// magnitudes from which they are computed, `(pieces, rows)`. Sets the word of `trouble` if fp16 cannot represent a
    /// row.
    pub(crate) fn split(
        self,
        raw: &Raw<f32>,
        side: Side,
        form: Form,
        largest: &DeviceSlice<u32>,
        to: &Factor,
        trouble: &DeviceSlice<u32>,
    ) -> Result<(), Error> {
        raw.check();
        let (rows, k, steps, pieces) = (raw.rows, raw.k, form.steps(raw.k), pieces(raw.k));
        at_least(&to.operands, form.words(rows, k), "operands");
        at_least(&to.scales, rows, "scales");
        at_least(largest, pieces * rows, "largest magnitudes");
        at_least(trouble, 1, "a word");
        let from = pointer(&raw.numbers).cast_const();
        let by_columns = raw.by_columns.into();
        let sizes = Largest { from, rows, k, by_columns, largest: pointer(largest) };
        let scales = Scales {
            largest: pointer(largest),
            pieces: pieces as u32,
            rows,
            scales: pointer(&to.scales),
            trouble: pointer(trouble),
        };
        let split = Split {
            from,
            rows,
            k,
            by_columns,
            scales: pointer(&to.scales),
            left: (side == Side::Left).into(),
            steps,
            to: pointer(&to.operands),
            trouble: pointer(trouble),
        };
        let kernel = match form {
            Form::HalfPrecision => split_halves(),
            Form::Heads => split_heads(),
            Form::Double => unreachable!("f64 is not split"),
        };
        // SAFETY: every length was checked against the field's formula; alignment as for `pack`.
        unsafe {
            self.launch(products_largest(), (tiles(rows) as u32, pieces as u32), sizes)?;
            self.launch(products_scales(), (tiles(rows).min(1 << 16) as u32, 1), scales)?;
            self.launch(kernel, packing_grid(rows, steps, form), split)
        }
    }

    /// Sums of the products of two factors' rows, `(slices, sums_len(m, n))`: `f64`, or `f32` for fp16 operands. The
    /// length of `sums` is in 4-byte words.
    pub(crate) fn multiply(
        self,
        cut: &ProductShape,
        left: &Factor,
        right: &Factor,
        sums: &DeviceSlice<u32>,
    ) -> Result<(), Error> {
        let ((m, n), steps) = ((left.rows, right.rows), cut.steps());
        let words = if cut.form == Form::Double { 2 } else { 1 };
        at_least(&left.operands, cut.form.words(m, cut.k), "operands of the left factor");
        at_least(&right.operands, cut.form.words(n, cut.k), "operands of the right factor");
        at_least(sums, words * u64::from(cut.slices()) * sums_len(m, n), "sums of a product");
        let grid = 2 * blocks(m) * blocks(n);
        assert!(m > 0 && n > 0 && cut.slice > 0 && cut.slice.is_multiple_of(STEPS) && grid < 1 << 31);
        assert!(steps < 1 << 31 && BLOCK.is_multiple_of(cut.form.columns()));
        let grid = (grid as u32, cut.slices());
        let (left, right) = (pointer(&left.operands).cast_const(), pointer(&right.operands).cast_const());
        let (left_blocks, right_blocks) = (blocks(m) as u32, blocks(n) as u32);
        let (steps, slice, triangle) = (steps as u32, cut.slice, cut.triangle.into());
        if cut.form == Form::Double && !self.gpu.has(multiply_doubles().name) {
            let sums = pointer(sums).cast();
            let a = MultiplyPlain { left, right, left_blocks, right_blocks, steps, slice, triangle, sums };
            // SAFETY: every length was checked against the field's formula.
            return unsafe { self.launch(multiply_plain(), grid, a) };
        }
        let kernel = match cut.form {
            Form::Double => multiply_doubles(),
            Form::HalfPrecision => multiply_halves(),
            Form::Heads => multiply_heads(),
        };
        let a = Multiply { left, right, left_blocks, right_blocks, steps, slice, triangle, sums: pointer(sums) };
        // SAFETY: every length was checked against the field's formula; all buffers start 256-byte aligned.
        unsafe { self.launch(kernel, grid, a) }
    }

    /// Computes the product, `(m, n)`, from its `f64` sums.
    pub(crate) fn finish<T: Number>(
        self,
        slices: u32,
        (m, n): (u64, u64),
        sums: &DeviceSlice<u32>,
        by_columns: bool,
        to: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        at_least(sums, 2 * u64::from(slices) * sums_len(m, n), "sums of a product");
        at_least(to, m * n, "a product");
        let sums = pointer(sums).cast_const().cast();
        let a = Finish { sums, slices, m, n, by_columns: by_columns.into(), to: pointer(to) };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(finish::<T>(), finishing_grid(m, n), a) }
    }

    /// Computes the product, `(m, n)`, from its fp16 or split-fp16 sums.
    pub(crate) fn finish_halves(
        self,
        slices: u32,
        left: &Factor,
        right: &Factor,
        sums: &DeviceSlice<u32>,
        by_columns: bool,
        to: &DeviceSlice<f32>,
    ) -> Result<(), Error> {
        let (m, n) = (left.rows, right.rows);
        at_least(sums, u64::from(slices) * sums_len(m, n), "sums of a product");
        at_least(to, m * n, "a product");
        at_least(&left.scales, m, "scales of the left factor");
        at_least(&right.scales, n, "scales of the right factor");
        let a = FinishHalves {
            sums: pointer(sums).cast_const().cast(),
            slices,
            m,
            n,
            by_columns: by_columns.into(),
            left: pointer(&left.scales),
            right: pointer(&right.scales),
            to: pointer(to),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(finish_halves(), finishing_grid(m, n), a) }
    }

    /// Computes the quadratic forms of the rows of `raw`, or, if it is `None`, squared norms of the sums, `(n,)`.
    /// `sums` are those of a matrix's `d` rows with the `n` rows.
    pub(crate) fn forms<T: Number>(
        self,
        slices: u32,
        (d, n): (u64, u64),
        sums: &DeviceSlice<u32>,
        raw: Option<&Raw<T>>,
        to: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        at_least(sums, 2 * u64::from(slices) * sums_len(d, n), "sums of a product");
        at_least(to, n, "forms");
        raw.iter().for_each(|raw| {
            raw.check();
            assert!(raw.rows == n && raw.k == d);
        });
        let a = Forms {
            sums: pointer(sums).cast_const().cast(),
            slices,
            d,
            n,
            x: or_null(raw.map(|raw| &raw.numbers)),
            by_columns: raw.is_some_and(|raw| raw.by_columns).into(),
            to: pointer(to),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(forms::<T>(), (n.div_ceil(TOGETHER.into()).min(1 << 20) as u32, 1), a) }
    }

    /// Selects the largest `count` of each of `rows` rows of `m` numbers: their indices and values, `(rows, count)`
    /// each.
    pub(crate) fn select<T: Number>(
        self,
        (rows, m): (u64, u32),
        count: u32,
        values: &DeviceSlice<T>,
        indices: &DeviceSlice<u32>,
        found: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        assert!((1..=m).contains(&count) && m < 1 << 31);
        at_least(values, rows * u64::from(m), "numbers to choose from");
        at_least(indices, rows * u64::from(count), "indices");
        at_least(found, rows * u64::from(count), "selected numbers");
        let (values, indices, found) = (pointer(values), pointer(indices), pointer(found));
        let a = Select { values, rows, m, count, indices, found };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(select::<T>(), (rows.min(1 << 20) as u32, 1), a) }
    }
}

fn finishing_grid(m: u64, n: u64) -> (u32, u32) {
    assert!(m > 0 && n > 0);
    (n.div_ceil(SIDE.into()) as u32, m.div_ceil(SIDE.into()).min(1 << 15) as u32)
}

const _: () = assert!(THREADS == BLOCK);
