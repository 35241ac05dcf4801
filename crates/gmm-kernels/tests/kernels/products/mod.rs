//! Matrix products: packing, sums in every form and number of slices, and results computed from them ([`answers`]),
//! against naive sums in `f64`.

mod answers;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::products::finish::{Finish, FinishHalves, finish, finish_halves};
use gmm_kernels::products::multiply::{Multiply, multiply_doubles, multiply_halves, multiply_heads};
use gmm_kernels::products::pack::{Pack, Split, pack_doubles, split_halves, split_heads};
use gmm_kernels::products::plain::{MultiplyPlain, multiply_plain};
use gmm_kernels::products::scales::{Largest, Scales, pieces, products_largest, products_scales};
use gmm_kernels::products::{Form, STEPS, blocks, sums_len};

use crate::data::Random;

/// A matrix, row-major.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    k: usize,
    entries: Vec<f64>,
}

impl Matrix {
    /// Random numbers, rounded to `T`.
    fn random<T: Real>(rows: usize, k: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let entries = (0..rows * k).map(|_| T::from_f64(random.normal()).to_f64()).collect();
        Self { rows, k, entries }
    }

    fn at(&self, i: usize, l: usize) -> f64 {
        self.entries[i * self.k + l]
    }

    /// Copies the matrix to the device, row-major or column-major.
    fn buffer<T: Real>(&self, by_columns: bool) -> Buffer<T> {
        let mut all = Vec::with_capacity(self.entries.len());
        for at in 0..self.entries.len() {
            let (i, l) = if by_columns { (at % self.rows, at / self.rows) } else { (at / self.k, at % self.k) };
            all.push(T::from_f64(self.at(i, l)));
        }
        Buffer::new(&all)
    }
}

/// Σ a b and Σ |a||b| of row `i` and row `j`.
fn naive(a: &Matrix, b: &Matrix, i: usize, j: usize) -> (f64, f64) {
    let terms = || (0..a.k).map(|l| a.at(i, l) * b.at(j, l));
    (terms().sum(), terms().map(f64::abs).sum())
}

fn packed<T: Real>(a: &Matrix, by_columns: bool, left: bool, shift: Option<&[f64]>) -> Buffer<u32> {
    let (rows, k) = (a.rows as u64, a.k as u64);
    let mut to = Buffer::unwritten(Form::Double.words(rows, k) as usize);
    let (from, shift) = (a.buffer::<T>(by_columns), shift.map(Buffer::new));
    let args = Pack {
        from: from.pointer(),
        rows,
        k,
        by_columns: by_columns.into(),
        shift: shift.as_ref().map_or(std::ptr::null(), Buffer::pointer),
        left: left.into(),
        steps: Form::Double.steps(k),
        to: to.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { pack_doubles::<T>().emulate((2 * blocks(rows) as u32, 2), args) };
    to
}

/// Returns operands, scales, and whether trouble was reported.
fn split(a: &Matrix, by_columns: bool, left: bool, form: Form) -> (Buffer<u32>, Buffer<f32>, bool) {
    let (rows, k) = (a.rows as u64, a.k as u64);
    let (from, mut trouble) = (a.buffer::<f32>(by_columns), Buffer::new(&[0_u32]));
    let mut largest = Buffer::unwritten((pieces(k) * rows) as usize);
    let mut scales = Buffer::unwritten(a.rows);
    let mut to = Buffer::unwritten(form.words(rows, k) as usize);
    let by_columns = u32::from(by_columns);
    let first = Largest { from: from.pointer(), rows, k, by_columns, largest: largest.pointer_mut() };
    let second = Scales {
        largest: largest.pointer(),
        pieces: pieces(k) as u32,
        rows,
        scales: scales.pointer_mut(),
        trouble: trouble.pointer_mut(),
    };
    let third = Split {
        from: from.pointer(),
        rows,
        k,
        by_columns,
        scales: scales.pointer(),
        left: left.into(),
        steps: form.steps(k),
        to: to.pointer_mut(),
        trouble: trouble.pointer_mut(),
    };
    let kernel = if form == Form::HalfPrecision { split_halves() } else { split_heads() };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe {
        products_largest().emulate((blocks(rows) as u32, pieces(k) as u32), first);
        products_scales().emulate((1, 1), second);
        kernel.emulate((2 * blocks(rows) as u32, 3), third);
    }
    let trouble = trouble.to_vec()[0] != 0;
    (to, scales, trouble)
}

/// Division of the sums.
#[derive(Clone, Copy)]
struct Parts {
    slices: u32,
    triangle: bool,
}

const WHOLE: Parts = Parts { slices: 1, triangle: false };

/// Steps per slice, and number of slices.
fn slice(form: Form, k: usize, cut: Parts) -> (u32, u32) {
    let steps = form.steps(k as u64) as u32;
    let slice = steps.div_ceil(cut.slices).next_multiple_of(STEPS).max(STEPS);
    (slice, steps.div_ceil(slice).max(1))
}

/// Returns sums in `f64`, and the number of slices.
fn doubles<T: Real>(a: &Matrix, b: &Matrix, by_columns: bool, cut: Parts, plain: bool) -> (Buffer<f64>, u32) {
    sums_of(
        packed::<T>(a, false, true, None),
        packed::<T>(b, by_columns, false, None),
        (a.rows, b.rows, a.k),
        cut,
        plain,
    )
}

fn sums_of(
    left: Buffer<u32>,
    right: Buffer<u32>,
    (m, n, k): (usize, usize, usize),
    cut: Parts,
    plain: bool,
) -> (Buffer<f64>, u32) {
    let (m, n) = (m as u64, n as u64);
    let (slice, slices) = slice(Form::Double, k, cut);
    let mut sums = Buffer::<f64>::unwritten((sums_len(m, n) * u64::from(slices)) as usize);
    let grid = ((2 * blocks(m) * blocks(n)) as u32, slices);
    let (left_blocks, right_blocks) = (blocks(m) as u32, blocks(n) as u32);
    let (steps, triangle) = (Form::Double.steps(k as u64) as u32, cut.triangle.into());
    let (left, right, to) = (left.pointer(), right.pointer(), sums.pointer_mut());
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe {
        if plain {
            let a = MultiplyPlain { left, right, left_blocks, right_blocks, steps, slice, triangle, sums: to };
            multiply_plain().emulate(grid, a);
        } else {
            let a = Multiply { left, right, left_blocks, right_blocks, steps, slice, triangle, sums: to.cast() };
            multiply_doubles().emulate(grid, a);
        }
    }
    (sums, slices)
}

fn finished<T: Real>(sums: &Buffer<f64>, slices: u32, m: usize, n: usize, by_columns: bool) -> Vec<f64> {
    let mut to = Buffer::unwritten(m * n);
    let args = Finish::<T> {
        sums: sums.pointer(),
        slices,
        m: m as u64,
        n: n as u64,
        by_columns: by_columns.into(),
        to: to.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { finish::<T>().emulate((n.div_ceil(32) as u32, 2), args) };
    to.to_vec().into_iter().map(T::to_f64).collect()
}

/// Entry `(i, j)` of a product.
fn entry(product: &[f64], m: usize, n: usize, by_columns: bool, i: usize, j: usize) -> f64 {
    product[if by_columns { j * m + i } else { i * n + j }]
}

fn doubles_are_naive_sums<T: Real>(m: usize, n: usize, k: usize, by_columns: bool, slices: u32, plain: bool) {
    let (a, b) = (Matrix::random::<T>(m, k, 1), Matrix::random::<T>(n, k, 2));
    let (sums, slices) = doubles::<T>(&a, &b, by_columns, Parts { slices, triangle: false }, plain);
    let product = finished::<T>(&sums, slices, m, n, by_columns);
    let eps = if T::BYTES == 4 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    for i in 0..m {
        for j in 0..n {
            let (want, size) = naive(&a, &b, i, j);
            let found = entry(&product, m, n, by_columns, i, j);
            let limit = 0.5 * eps * want.abs() + k as f64 * f64::EPSILON * size;
            assert!((found - want).abs() <= limit, "{m} {n} {k} ({i}, {j}): {found} is not {want}");
        }
    }
}

#[test]
fn doubles_are_those_of_naive_sums_at_odd_sizes() {
    for (m, n, k, slices) in [(1, 1, 1, 1), (129, 3, 17, 1), (5, 140, 100, 3), (130, 131, 33, 1), (64, 65, 257, 4)] {
        for by_columns in [false, true] {
            doubles_are_naive_sums::<f32>(m, n, k, by_columns, slices, false);
            doubles_are_naive_sums::<f64>(m, n, k, by_columns, slices, false);
        }
    }
}

#[test]
fn doubles_without_tensor_cores_are_those_of_naive_sums() {
    for (m, n, k, slices) in [(1, 1, 1, 1), (129, 3, 17, 1), (5, 140, 100, 3)] {
        doubles_are_naive_sums::<f32>(m, n, k, true, slices, true);
        doubles_are_naive_sums::<f64>(m, n, k, false, slices, true);
    }
}

#[test]
fn many_blocks_are_each_multiplied_once() {
    // More blocks of rows than in a group of shares, and a partial group.
    doubles_are_naive_sums::<f64>(1100, 200, 3, false, 1, false);
}

/// Largest error relative to the norms of the two rows multiplied.
fn halves_error(a: &Matrix, b: &Matrix, form: Form, by_columns: bool, slices: u32) -> f64 {
    let (m, n, k) = (a.rows, b.rows, a.k);
    let ((left, left_scales, first), (right, right_scales, second)) =
        (split(a, !by_columns, true, form), split(b, by_columns, false, form));
    assert!(!first && !second, "{m} {n} {k}: precision is lost");
    let (slice, slices) = slice(form, k, Parts { slices, triangle: false });
    let (rows, columns) = (m as u64, n as u64);
    let mut sums = Buffer::<f32>::unwritten((sums_len(rows, columns) * u64::from(slices)) as usize);
    let args = Multiply {
        left: left.pointer(),
        right: right.pointer(),
        left_blocks: blocks(rows) as u32,
        right_blocks: blocks(columns) as u32,
        steps: form.steps(k as u64) as u32,
        slice,
        triangle: 0,
        sums: sums.pointer_mut().cast(),
    };
    let mut to = Buffer::unwritten(m * n);
    let last = FinishHalves {
        sums: sums.pointer(),
        slices,
        m: rows,
        n: columns,
        by_columns: by_columns.into(),
        left: left_scales.pointer(),
        right: right_scales.pointer(),
        to: to.pointer_mut(),
    };
    let kernel = if form == Form::HalfPrecision { multiply_halves() } else { multiply_heads() };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe {
        kernel.emulate(((2 * blocks(rows) * blocks(columns)) as u32, slices), args);
        finish_halves().emulate((n.div_ceil(32) as u32, 2), last);
    }
    let product: Vec<f64> = to.to_vec().into_iter().map(f64::from).collect();
    let norm = |a: &Matrix, i: usize| (0..k).map(|l| a.at(i, l) * a.at(i, l)).sum::<f64>().sqrt();
    let mut worst = 0.0_f64;
    for i in 0..m {
        for j in 0..n {
            let error = (entry(&product, m, n, by_columns, i, j) - naive(a, b, i, j).0).abs();
            let size = (norm(a, i) * norm(b, j)).max(f64::MIN_POSITIVE);
            worst = worst.max(if error.is_nan() { f64::INFINITY } else { error / size });
        }
    }
    worst
}

#[test]
fn halves_keep_the_digits_of_f32_and_heads_those_of_halves() {
    for (m, n, k, slices) in [(1, 1, 1, 1), (129, 3, 33, 1), (5, 140, 300, 3), (40, 50, 65, 2)] {
        let (mut a, mut b) = (Matrix::random::<f32>(m, k, 1), Matrix::random::<f32>(n, k, 2));
        // Rows of very different sizes, and one of zeros.
        for i in 0..m {
            let by = 2f64.powi(20 * (i as i32 % 9 - 4));
            a.entries[i * k..(i + 1) * k].iter_mut().for_each(|v| *v *= by);
        }
        if n > 2 {
            b.entries[k..2 * k].fill(0.0);
        }
        for by_columns in [false, true] {
            let error = halves_error(&a, &b, Form::HalfPrecision, by_columns, slices);
            assert!(error <= 2f64.powi(-21), "{m} {n} {k}: {error:e}");
            let error = halves_error(&a, &b, Form::Heads, by_columns, slices);
            assert!(error <= 2f64.powi(-10), "{m} {n} {k}: {error:e}");
        }
    }
}

#[test]
fn long_sums_of_halves_of_one_sign_lose_no_more() {
    let (mut a, mut b) = (Matrix::random::<f32>(2, 4096, 1), Matrix::random::<f32>(3, 4096, 2));
    a.entries.iter_mut().chain(&mut b.entries).for_each(|v| *v = v.abs());
    let error = halves_error(&a, &b, Form::HalfPrecision, false, 1);
    assert!(error <= 2f64.powi(-21), "{error:e}");
}

#[test]
fn rows_that_halves_cannot_hold_are_told() {
    let troubled = |change: &dyn Fn(&mut [f64])| {
        let mut a = Matrix::random::<f32>(70, 100, 1);
        change(&mut a.entries[6900..]);
        [Form::HalfPrecision, Form::Heads]
            .map(|form| [false, true].map(|by_columns| split(&a, by_columns, by_columns, form).2))
    };
    assert_eq!(troubled(&|_| ()), [[false; 2]; 2]);
    assert_eq!(troubled(&|row| row.fill(0.0)), [[false; 2]; 2]);
    assert_eq!(troubled(&|row| row[77] = f64::NAN), [[true; 2]; 2]);
    assert_eq!(troubled(&|row| row[77] = f64::NEG_INFINITY), [[true; 2]; 2]);
    assert_eq!(troubled(&|row| row.iter_mut().for_each(|v| *v *= 1e-36)), [[true; 2]; 2]);
    assert_eq!(troubled(&|row| row[3] = 1e10), [[true; 2]; 2]);
    assert_eq!(troubled(&|row| row[3] = 1e3), [[false; 2]; 2]);
}

#[test]
fn numbers_that_are_none_touch_the_sums_that_they_are_in() {
    let (mut a, mut b) = (Matrix::random::<f64>(20, 19, 1), Matrix::random::<f64>(9, 19, 2));
    (a.entries[3 * 19 + 2], b.entries[5 * 19 + 18]) = (f64::NAN, f64::INFINITY);
    for plain in [false, true] {
        let (sums, slices) = doubles::<f64>(&a, &b, false, WHOLE, plain);
        let product = finished::<f64>(&sums, slices, 20, 9, false);
        for i in 0..20 {
            for j in 0..9 {
                let value = entry(&product, 20, 9, false, i, j);
                assert_eq!((value.is_nan(), value.is_infinite()), (i == 3, i != 3 && j == 5), "({i}, {j})");
            }
        }
    }
}
