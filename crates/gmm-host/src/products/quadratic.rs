//! Quadratic forms: xᵀ A x as 2 Σᵢ xᵢ Σⱼ≤ᵢ lᵢⱼ xⱼ with the folded matrix `l`, which takes half the multiplications of A
//! x.

use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;

use super::{Element, cost};
use crate::cpu::products::{TILE, each, workspace_bytes};
use crate::{CpuEngine, Error, memory};

/// The lower triangle of (A + Aᵀ)/2 with the diagonal halved: twice its quadratic form is that of `A`. Entries are
/// halved before they are added, so the sum cannot overflow.
pub(super) fn fold<T: Element>(matrix: ArrayView2<'_, T>) -> Array2<T> {
    let d = matrix.nrows();
    let mut folded = Array2::from_elem(matrix.raw_dim(), T::zero());
    // In squares of this side, of which both triangles stay in the cache: columns alone would miss it at each number.
    const SIDE: usize = 32;
    let Some(numbers) = folded.as_slice_mut().filter(|all| !all.is_empty()) else { return folded };
    numbers.par_chunks_mut(SIDE * d).enumerate().for_each(|(band, rows)| {
        for columns in (0..=band * SIDE).step_by(SIDE) {
            for (i, to) in rows.chunks_mut(d).enumerate().map(|(i, to)| (band * SIDE + i, to)) {
                let own = columns.min(i)..i.min(columns + SIDE);
                let (row, column) = (matrix.row(i), matrix.column(i));
                let pairs = row.slice_move(s![own.clone()]).into_iter().zip(column.slice_move(s![own.clone()]));
                for (to, (a, b)) in to[own].iter_mut().zip(pairs) {
                    *to = T::of(0.5 * a.to_f64() + 0.5 * b.to_f64());
                }
                to[i] = matrix[[i, i]] * T::of(0.5);
            }
        }
    });
    folded
}

/// The forms of a folded matrix, `(d, d)`, at `questions`, `(q, d)`, into `out`, `(q,)`.
pub(super) fn forms<T: Element>(
    engine: &CpuEngine,
    folded: ArrayView2<'_, T>,
    questions: ArrayView2<'_, T>,
    out: &mut [f64],
) -> Result<(), Error> {
    let ((q, d), bands) = (questions.dim(), folded.nrows().div_ceil(TILE));
    out.fill(0.0);
    let cost = cost((d, d), q) / 2;
    let workspace = workspace_bytes(engine, cost, (TILE.min(d), TILE.min(q)), d);
    memory::check("the quadratic forms", workspace + 8 * q as u128 * bands as u128)?;
    // The contribution of each band of matrix rows, `(bands, q)`; added in order below.
    let mut parts = vec![0.0; bands * q];
    // The last bands are the longest. They start first, so that no thread is left with one at the end.
    let jobs = parts.chunks_mut(q.max(1)).enumerate().rev().flat_map(|(band, parts)| {
        parts.chunks_mut(TILE).enumerate().map(move |(block, part)| (band * TILE, block * TILE, part))
    });
    each(
        engine,
        cost,
        jobs,
        || (),
        |workspace, (), (row, first, part)| {
            let end = d.min(row + TILE);
            let here = s![first..first + part.len(), ..end];
            let x = questions.slice(here);
            // Always in f64, never fast: the terms of a quadratic form can cancel.
            let products = workspace.tile(folded.slice(s![row..end, ..end]), x.t(), false);
            for (i, products) in products.rows().into_iter().enumerate() {
                let x = x.column(row + i);
                part.iter_mut().zip(products).zip(x).for_each(|((part, product), x)| *part += product * x.to_f64());
            }
        },
    );
    for part in parts.chunks(q.max(1)) {
        out.iter_mut().zip(part).for_each(|(out, part)| *out += 2.0 * part);
    }
    undefined(questions, out);
    Ok(())
}

/// Sets the results of questions with a NaN or infinite value to NaN: with the zeros of a triangle they could be
/// anything.
pub(super) fn undefined<T: Element>(questions: ArrayView2<'_, T>, out: &mut [f64]) {
    for (out, x) in out.iter_mut().zip(questions.rows()) {
        if x.iter().any(|x| !x.to_f64().is_finite()) {
            *out = f64::NAN;
        }
    }
}
