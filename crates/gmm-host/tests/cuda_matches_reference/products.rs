//! Products with a resident matrix: every kernel at odd sizes against naive sums, large sizes against the CPU engine.

use gmm_host::products::Scalar;
use gmm_host::{CudaEngine, Engine, Error, ReferenceEngine, ResidentMatrix};
use ndarray::{Array2, ArrayView2, s};

use crate::Bench;
use crate::compare::Tally;

/// Pseudo-random numbers in [-1, 1).
fn numbers<T: Scalar>(rows: usize, columns: usize, seed: u64) -> Array2<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::of((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
    })
}

fn on<T: Scalar>(engine: &dyn Engine, matrix: &Array2<T>) -> ResidentMatrix<T> {
    ResidentMatrix::new(engine, matrix.clone()).expect("a matrix on the device")
}

/// Compares entries with those of `want`; the allowed error is `limit` times the norms of the entry's row and column.
fn same<T: Scalar>(
    tally: &mut Tally,
    found: ArrayView2<'_, T>,
    want: ArrayView2<'_, T>,
    (a, b): (ArrayView2<'_, T>, ArrayView2<'_, T>),
    limit: f64,
    what: &str,
) {
    let norm = |v: ndarray::ArrayView1<'_, T>| v.iter().map(|v| v.to_f64().powi(2)).sum::<f64>().sqrt();
    let rows: Vec<f64> = a.rows().into_iter().map(norm).collect();
    let columns: Vec<f64> = b.columns().into_iter().map(norm).collect();
    let scaled = |m: ArrayView2<'_, T>| -> Vec<f64> {
        m.indexed_iter().map(|((i, j), v)| v.to_f64() / (rows[i] * columns[j]).max(f64::MIN_POSITIVE)).collect()
    };
    tally.cases += 1;
    tally.close(&scaled(found), &scaled(want), limit, 1.0, what);
}

/// The error bound of f64 sums that are rounded once.
fn exact<T: Scalar>(k: usize) -> f64 {
    T::EPSILON + 2.0 * k as f64 * f64::EPSILON
}

fn small_on<T: Scalar>(engine: &dyn Engine, tally: &mut Tally, module: &str) {
    let sizes = [(1, 1, 1), (3, 5, 2), (127, 16, 129), (128, 17, 128), (257, 300, 65), (5, 1000, 3), (70, 31, 1200)];
    for (m, k, n) in sizes {
        let (a, b) = (numbers::<T>(m, k, 1), numbers::<T>(k, n, 2));
        let (matrix, truth) = (on(engine, &a), on(&ReferenceEngine, &a));
        let want = truth.matmul(b.view()).expect("naive");
        let what = format!("{module} {m} x {k} x {n}, {} bytes", size_of::<T>());
        let found = matrix.matmul(b.view()).expect("a product");
        same(tally, found.view(), want.view(), (a.view(), b.view()), exact::<T>(k), &what);
        let questions = b.t().as_standard_layout().into_owned();
        let found = matrix.inner(questions.view()).expect("inner products");
        same(tally, found.t(), want.view(), (a.view(), b.view()), exact::<T>(k), &format!("{what}, by rows"));
        let mut out = Array2::<T>::zeros((2 * n, m));
        let to = out.slice_mut(s![..;2, ..]).reversed_axes();
        matrix.matmul_into(b.view(), to).expect("a product");
        let found = out.slice(s![..;2, ..]).reversed_axes();
        same(tally, found, want.view(), (a.view(), b.view()), exact::<T>(k), &format!("{what}, strided"));
        for count in [1, m.min(7), m] {
            let (found, want) = (matrix.top_k(questions.view(), count), truth.top_k(questions.view(), count));
            let (found, want) = (found.expect("best"), want.expect("best"));
            let values = |m: &Array2<T>| m.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
            let size = (k as f64).max(1.0);
            tally.close(
                &values(&found.values),
                &values(&want.values),
                exact::<T>(k),
                size,
                &format!("{what}, best {count}"),
            );
        }
        forms_on::<T>(engine, tally, k, n.min(70), &what);
    }
}

fn forms_on<T: Scalar>(engine: &dyn Engine, tally: &mut Tally, d: usize, q: usize, what: &str) {
    let d = d.min(200);
    let (a, x) = (numbers::<T>(d, d, 3), numbers::<T>(q, d, 4));
    let find = |engine: &dyn Engine| on(engine, &a).quadratic_form(x.view()).expect("forms");
    let size = (d * d) as f64;
    tally.close(&find(engine), &find(&ReferenceEngine), exact::<T>(d), size, &format!("{what}, forms in {d}"));
    let rows = numbers::<f64>(2 * d, d, 5);
    let covariance = rows.t().dot(&rows);
    let mean = vec![0.25; d];
    let find = |engine: &dyn Engine| {
        let factor = on(engine, &covariance).factor().expect("a factor");
        factor.mahalanobis(x.view(), Some(&mean)).expect("distances")
    };
    let want = find(&ReferenceEngine);
    let size = want.iter().copied().fold(0.0, f64::max);
    tally.close(&find(engine), &want, 1e3 * d as f64 * f64::EPSILON, size, &format!("{what}, distances in {d}"));
}

pub(crate) fn small(bench: &Bench, tally: &mut Tally) {
    for module in ["sm_75", "sm_80", "sm_90a"] {
        // A device supports only some of the modules.
        let Ok(engine) = CudaEngine::with_module(0, module) else { continue };
        small_on::<f32>(&engine, tally, module);
        small_on::<f64>(&engine, tally, module);
    }
    not_finite(bench, tally);
}

fn not_finite(bench: &Bench, tally: &mut Tally) {
    // Large enough for split fp16, except that one number does not fit it.
    let (m, k, n) = if bench.quick { (70, 9, 80) } else { (1500, 1000, 1500) };
    for strange in [f32::NAN, f32::INFINITY, 1e20] {
        let (mut a, b) = (numbers::<f32>(m, k, 1), numbers::<f32>(k, n, 2));
        a[[3, 2]] = strange;
        let found = on(&bench.gpu, &a).matmul(b.view()).expect("a product");
        tally.cases += 1;
        if strange.is_finite() {
            let want = on(&bench.cpu, &a).matmul(b.view()).expect("a product");
            same(tally, found.view(), want.view(), (a.view(), b.view()), exact::<f32>(k), "one large number");
            continue;
        }
        for ((i, j), value) in found.indexed_iter() {
            tally.expect(value.is_finite() == (i != 3) && (!strange.is_nan() || i != 3 || value.is_nan()), || {
                format!("{strange} in row 3 makes ({i}, {j}) {value}")
            });
        }
    }
    let x = ndarray::array![[1.0, f64::INFINITY], [f64::NAN, 0.0], [1.0, 1.0]];
    let matrix = on(&bench.gpu, &ndarray::array![[2.0, 0.0], [0.0, 2.0]]);
    let forms = matrix.quadratic_form(x.view()).expect("forms");
    tally.expect(forms[0].is_nan() && forms[1].is_nan() && forms[2] == 4.0, || format!("forms {forms:?}"));
}

pub(crate) fn large(bench: &Bench, tally: &mut Tally) {
    // Numbers of one sign, whose rounding errors add up, and of both signs.
    let sizes = if bench.quick {
        vec![(300, 500, 200)]
    } else {
        vec![(2000, 10_000, 1000), (999, 4099, 1021), (70, 100_000, 450)]
    };
    for (m, k, n) in sizes {
        for one_sign in [true, false] {
            let all = |m: Array2<f32>| if one_sign { m.mapv(f32::abs) } else { m };
            let (a, b) = (all(numbers(m, k, 1)), all(numbers(k, n, 2)));
            let what = format!("{m} x {k} x {n}, one sign: {one_sign}");
            let pair = (a.view(), b.view());
            let want = on(&bench.cpu, &a).matmul(b.view()).expect("a product");
            let matrix = on(&bench.gpu, &a);
            let found = matrix.matmul(b.view()).expect("a product");
            same(tally, found.view(), want.view(), pair, 2f64.powi(-20), &format!("{what}, f32"));
            let again = matrix.matmul(b.view()).expect("a product");
            tally.expect(found == again, || format!("{what}: other bits the second time"));
            let fast = matrix.fast();
            let found = fast.matmul(b.view()).expect("a product");
            same(tally, found.view(), want.view(), pair, 2f64.powi(-10), &format!("{what}, fast"));
            let (a, b) = (a.mapv(f64::from), b.mapv(f64::from));
            let want = on(&bench.cpu, &a).matmul(b.view()).expect("a product");
            let found = on(&bench.gpu, &a).matmul(b.view()).expect("a product");
            same(tally, found.view(), want.view(), (a.view(), b.view()), exact::<f64>(k), &format!("{what}, f64"));
        }
    }
    let (m, q) = if bench.quick { (5000, 10) } else { (300_000, 300) };
    let (pages, questions) = (numbers::<f32>(m, 64, 1), numbers::<f32>(q, 64, 2));
    let find = |engine: &dyn Engine| on(engine, &pages).top_k(questions.view(), 20).expect("the best rows");
    let (found, want) = (find(&bench.gpu), find(&bench.cpu));
    let values = |m: &Array2<f32>| m.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
    tally.close(&values(&found.values), &values(&want.values), 2f64.powi(-20), 64.0, "the best of many rows");
    let d = if bench.quick { 65 } else { 1000 };
    let (a, x) = (numbers::<f32>(d, d, 3), numbers::<f32>(5 * d, d, 4));
    let forms = |engine: &dyn Engine| on(engine, &a).quadratic_form(x.view()).expect("forms");
    tally.close(&forms(&bench.gpu), &forms(&bench.cpu), exact::<f64>(d), (d * d) as f64, "forms");
}

pub(crate) fn memory(bench: &Bench, tally: &mut Tally) {
    if bench.quick {
        return;
    }
    tally.cases += 1;
    // One number, broadcast: the inner products would need more memory than any device has.
    let one = ndarray::array![[1.0_f64]];
    let rows = Array2::<f64>::zeros((1 << 24, 1));
    let matrix = on(&bench.gpu, &rows);
    let questions = one.broadcast((1 << 9, 1)).expect("a broadcast");
    let free = bench.gpu.free_memory().expect("free memory");
    let found = matrix.top_k(questions, 2);
    match found {
        // A block of questions needs 16 GiB of inner products.
        Ok(best) => tally.expect(best.indices.row(511).to_vec() == [0, 1], || "equal rows in another order".to_owned()),
        Err(Error::Memory { wanted, .. }) => {
            tally.expect(wanted > u128::from(free), || format!("{wanted} bytes refused, {free} are free"));
        }
        Err(other) => tally.expect(false, || other.to_string()),
    }
}
