//! Times products with a resident matrix: some entries are checked first; then the time is measured by the device's
//! clock with all data resident, or in wall-clock time with transfers. Also times products of square matrices of
//! growing size on CPU and GPU.

use std::time::Duration;

use anyhow::Result;
use gmm_bench::difference::frobenius;
use gmm_bench::timing::calls;
use gmm_host::products::{DeviceTime, Scalar};
use gmm_host::{CpuEngine, Engine, ResidentFactor, ResidentMatrix};
use gmm_model::Precision;
use ndarray::{Array2, ArrayView1, Axis};
use rayon::prelude::*;

use super::check::Errors;
use super::line::Line;
use super::timing::Limits;
use super::workloads::{MatrixQuery, Product, Square, Where};
use gmm_bench::spread::Spread;

/// Number of rows, and of queries, at which answers are compared with naive sums; they are spread evenly.
const CHECKED: usize = 64;
/// Number of repetitions on the device in a call.
const REPEATS: usize = 20;
/// Number of rows found for each query of a search.
const COUNT: usize = 10;

/// Compares the answers' relative Frobenius error with the tolerance. Returns whether they may be timed.
fn judge(line: &mut Line, case: &Product, (error, checked): (f64, usize)) -> bool {
    line.errors[0] = Some(Errors { second: error, ..Errors::default() });
    let wrong = error.is_nan() || error > case.tolerance();
    line.judge(checked, wrong.then(|| format!("relative error {error:.1e} of {checked} answers")))
}

/// Checks against naive sums, then times.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn run(engine: &dyn Engine, case: &Product, seed: u64, limits: Limits, line: &mut Line) -> Result<()> {
    match case.precision {
        Precision::F32 => of::<f32>(engine, case, seed, limits, line),
        Precision::F64 => of::<f64>(engine, case, seed, limits, line),
    }
}

fn of<T: Scalar>(engine: &dyn Engine, case: &Product, seed: u64, limits: Limits, line: &mut Line) -> Result<()> {
    let (m, k, n) = case.shape;
    let (a, x) = (numbers::<T>(m, k, seed), numbers::<T>(n, k, seed + 1));
    if case.asked == MatrixQuery::Distances {
        let factor = factor(engine, &a)?;
        if judge(line, case, distances_error(&factor, &x)?) {
            line.time("wall", calls(limits, || Ok(factor.mahalanobis(x.view(), None).map(drop)?))?);
        }
        return Ok(());
    }
    let matrix = ResidentMatrix::new(engine, a.clone())?;
    let matrix = if case.fast { matrix.fast() } else { matrix };
    let forms = case.asked == MatrixQuery::Forms;
    let found = match case.asked {
        MatrixQuery::Forms => forms_error(&matrix, &a, &x)?,
        MatrixQuery::Best => best_error(&matrix, &a, &x)?,
        _ => product_error(&matrix, &a, &x)?,
    };
    if !judge(line, case, found) {
        return Ok(());
    }
    if case.asked == MatrixQuery::Best {
        line.time("wall", calls(limits, || Ok(matrix.top_k(x.view(), COUNT).map(drop)?))?);
    } else if let Some(times) = matrix.device_times(x.view(), forms, REPEATS.min(limits.repeats))? {
        let part = |of: fn(&DeviceTime) -> Duration| {
            1e3 * Spread::of(times.iter().map(|time| of(time).as_secs_f64()).collect()).median
        };
        let (packing, multiplying) = (part(|time| time.packing), part(|time| time.multiplying));
        line.note = format!("packing {packing:.3} ms multiplying {multiplying:.3} ms");
        line.time("device", times.iter().map(|time| time.total.as_secs_f64()).collect());
    } else if forms {
        line.time("wall", calls(limits, || Ok(matrix.quadratic_form(x.view()).map(drop)?))?);
    } else {
        line.time("wall", inner(&matrix, &x, limits)?);
    }
    Ok(())
}

/// Seconds of a product in wall-clock time.
fn inner<T: Scalar>(matrix: &ResidentMatrix<T>, x: &Array2<T>, limits: Limits) -> Result<Vec<f64>> {
    let mut to = Array2::zeros((x.nrows(), matrix.dim().0));
    calls(limits, || Ok(matrix.inner_into(x.view(), to.view_mut())?))
}

/// Times a product of two square matrices: on the CPU, or on the engine with or without transfers (see [`Where`]).
///
/// # Errors
/// Any error of the engine.
pub(crate) fn square(engine: &dyn Engine, case: &Square, seed: u64, limits: Limits, line: &mut Line) -> Result<()> {
    match case.precision {
        Precision::F32 => square_of::<f32>(engine, case, seed, limits, line),
        Precision::F64 => square_of::<f64>(engine, case, seed, limits, line),
    }
}

fn square_of<T: Scalar>(engine: &dyn Engine, case: &Square, seed: u64, limits: Limits, line: &mut Line) -> Result<()> {
    let cpu = CpuEngine::new(0)?;
    let engine = if case.place == Where::Cpu { &cpu } else { engine };
    let (a, x) = (numbers::<T>(case.side, case.side, seed), numbers::<T>(case.side, case.side, seed + 1));
    let matrix = ResidentMatrix::new(engine, a.clone())?;
    let like = Product { precision: case.precision, ..Product::square(case.side) };
    if !judge(line, &like, product_error(&matrix, &a, &x)?) {
        return Ok(());
    }
    match case.place {
        Where::Cpu => line.time("wall", inner(&matrix, &x, limits)?),
        Where::Sent => {
            let mut to = Array2::zeros((case.side, case.side));
            let once = || Ok(ResidentMatrix::new(engine, a.view().to_owned())?.inner_into(x.view(), to.view_mut())?);
            line.time("wall", calls(limits, once)?);
        }
        Where::MatrixQuery => line.time("wall", inner(&matrix, &x, limits)?),
        Where::Resident => {
            let times = matrix.device_times(x.view(), false, REPEATS.min(limits.repeats))?.unwrap_or_default();
            line.time("device", times.iter().map(|time| time.total.as_secs_f64()).collect());
        }
    }
    Ok(())
}

/// The Cholesky factor of `AᵀA/m` plus the identity, in f64.
fn factor<T: Scalar>(engine: &dyn Engine, a: &Array2<T>) -> Result<ResidentFactor> {
    let (m, k) = a.dim();
    let a = a.mapv(T::to_f64);
    Ok(ResidentMatrix::new(engine, a.t().dot(&a) / m as f64 + Array2::<f64>::eye(k))?.factor()?)
}

/// Pseudo-random, roughly normal numbers, determined by the seed.
fn numbers<T: Scalar>(rows: usize, columns: usize, seed: u64) -> Array2<T> {
    let mut out = Array2::zeros((rows, columns));
    out.axis_iter_mut(Axis(0)).enumerate().par_bridge().for_each(|(i, mut row)| {
        let mut state = (seed << 32 ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for v in &mut row {
            let mut sum = 0.0;
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum += (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
            }
            *v = T::of(sum);
        }
    });
    out
}

/// Up to [`CHECKED`] evenly spaced indices of `0..n`, including the first and the last.
fn some(n: usize) -> Vec<usize> {
    let count = CHECKED.min(n);
    (0..count).map(|i| if count > 1 { i * (n - 1) / (count - 1) } else { 0 }).collect()
}

fn dot<T: Scalar>(a: ArrayView1<'_, T>, b: ArrayView1<'_, T>) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
}

fn product_error<T: Scalar>(matrix: &ResidentMatrix<T>, a: &Array2<T>, x: &Array2<T>) -> Result<(f64, usize)> {
    let found = matrix.inner(x.view())?;
    let (rows, questions) = (some(a.nrows()), some(x.nrows()));
    let places: Vec<(usize, usize)> = questions.iter().flat_map(|&q| rows.iter().map(move |&r| (q, r))).collect();
    let want: Vec<f64> = places.par_iter().map(|&(q, r)| dot(x.row(q), a.row(r))).collect();
    let got: Vec<f64> = places.iter().map(|&at| found[at].to_f64()).collect();
    Ok((frobenius(&got, &want, 1.0), places.len()))
}

fn forms_error<T: Scalar>(matrix: &ResidentMatrix<T>, a: &Array2<T>, x: &Array2<T>) -> Result<(f64, usize)> {
    let found = matrix.quadratic_form(x.view())?;
    let questions = some(x.nrows());
    let form = |&q: &usize| (0..a.nrows()).map(|i| x[[q, i]].to_f64() * dot(a.row(i), x.row(q))).sum();
    let want: Vec<f64> = questions.par_iter().map(form).collect();
    let got: Vec<f64> = questions.iter().map(|&q| found[q]).collect();
    Ok((frobenius(&got, &want, 1.0), questions.len()))
}

fn distances_error<T: Scalar>(factor: &ResidentFactor, x: &Array2<T>) -> Result<(f64, usize)> {
    let (found, lower) = (factor.mahalanobis(x.view(), None)?, factor.lower());
    let questions = some(x.nrows());
    let distance = |&q: &usize| {
        let mut z = x.row(q).mapv(T::to_f64);
        for i in 0..z.len() {
            let known = (0..i).map(|j| lower[[i, j]] * z[j]).sum::<f64>();
            z[i] = (z[i] - known) / lower[[i, i]];
        }
        z.dot(&z)
    };
    let want: Vec<f64> = questions.par_iter().map(distance).collect();
    let got: Vec<f64> = questions.iter().map(|&q| found[q]).collect();
    Ok((frobenius(&got, &want, 1.0), questions.len()))
}

fn best_error<T: Scalar>(matrix: &ResidentMatrix<T>, a: &Array2<T>, x: &Array2<T>) -> Result<(f64, usize)> {
    let found = matrix.top_k(x.view(), COUNT)?;
    let questions = some(x.nrows());
    let of = |&q: &usize| {
        let mut all: Vec<f64> = (0..a.nrows()).map(|r| dot(x.row(q), a.row(r))).collect();
        all.sort_unstable_by(|a, b| b.total_cmp(a));
        all.truncate(COUNT);
        all
    };
    let want: Vec<f64> = questions.par_iter().flat_map_iter(of).collect();
    let got: Vec<f64> = questions.iter().flat_map(|&q| found.values.row(q).mapv(T::to_f64)).collect();
    Ok((frobenius(&got, &want, 1.0), questions.len() * COUNT))
}
