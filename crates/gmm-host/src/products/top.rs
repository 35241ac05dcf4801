//! Top-k search: the best rows for each question, without storing all inner products.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ndarray::{Array2, ArrayView2, s};

use super::{Element, Scalar, cost};
use crate::cpu::products::{each, side, workspace_bytes};
use crate::{CpuEngine, Error, memory};

/// The result of a top-k search, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK<T> {
    /// Indices of the matrix rows, from 0, `(q, count)`.
    pub indices: Array2<usize>,
    /// Their inner products, `(q, count)`.
    pub values: Array2<T>,
}

/// A row and its value, ordered from best to worst: the maximum, at the top of a max-heap, is the worst.
#[derive(Clone, Copy)]
struct RankedRow {
    value: f64,
    index: usize,
}

impl Ord for RankedRow {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_value = match other.value.partial_cmp(&self.value) {
            Some(order) => order,
            None => self.value.is_nan().cmp(&other.value.is_nan()),
        };
        by_value.then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for RankedRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RankedRow {}

type Heap = BinaryHeap<RankedRow>;

/// Adds `found` to a heap of the best `count`.
fn offer(heap: &mut Heap, count: usize, found: RankedRow) {
    if heap.len() < count {
        heap.push(found);
    } else if let Some(mut worst) = heap.peek_mut()
        && found < *worst
    {
        *worst = found;
    }
}

/// The best `count` rows of `matrix`, `(m, k)`, for each of `questions`, `(q, k)`.
pub(super) fn search<T: Scalar>(
    engine: &CpuEngine,
    matrix: ArrayView2<'_, T>,
    questions: ArrayView2<'_, T>,
    count: usize,
    fast: bool,
) -> Result<TopK<T>, Error> {
    let ((m, _), q) = (matrix.dim(), questions.nrows());
    // The same tiles as for all inner products, so that values have the same bits.
    let side = side((m, q));
    // Entries: a heap per thread and question of a block, one more per question of the block, and the result.
    let entries = (engine.threads() as u128 + 1) * side.min(q) as u128 + q as u128;
    let workspace = workspace_bytes(engine, u128::MAX, (side.min(m), side.min(q)), matrix.ncols());
    let wanted = workspace + entries * count as u128 * size_of::<RankedRow>() as u128;
    memory::check("the best rows of a search", wanted)?;
    let mut best = TopK { indices: Array2::zeros((q, count)), values: Array2::zeros((q, count)) };
    if count == 0 {
        return Ok(best);
    }
    for first in (0..q).step_by(side) {
        let here = questions.slice(s![first..q.min(first + side), ..]);
        let heaps = || vec![Heap::with_capacity(count); here.nrows()];
        // It does not matter which thread saw which rows: `RankedRow` is a total order.
        let all =
            each(engine, cost(matrix.dim(), here.nrows()), (0..m).step_by(side), heaps, |workspace, heaps, row| {
                let rows = matrix.slice(s![row..m.min(row + side), ..]);
                let values = workspace.tile(rows, here.t(), fast);
                for (i, values) in values.rows().into_iter().enumerate() {
                    for (heap, &value) in heaps.iter_mut().zip(values) {
                        offer(heap, count, RankedRow { value: T::of(value).to_f64(), index: row + i });
                    }
                }
            });
        for question in 0..here.nrows() {
            let mut found = Heap::with_capacity(count);
            all.iter().flat_map(|heaps| &heaps[question]).for_each(|&one| offer(&mut found, count, one));
            best.put(first + question, found.into_sorted_vec());
        }
    }
    Ok(best)
}

/// The same result from all inner products, `(q, m)`: for the reference.
pub(super) fn sorted<T: Scalar>(inner: &Array2<T>, count: usize) -> Result<TopK<T>, Error> {
    let q = inner.nrows();
    let mut best = TopK { indices: Array2::zeros((q, count)), values: Array2::zeros((q, count)) };
    for (question, values) in inner.rows().into_iter().enumerate() {
        let found = values.iter().enumerate().map(|(index, value)| RankedRow { value: value.to_f64(), index });
        let mut found: Vec<RankedRow> = found.collect();
        found.sort_unstable();
        found.truncate(count);
        best.put(question, found);
    }
    Ok(best)
}

/// The best `count` of the rows found for each question, `(q, candidates)`, in the order of a search.
pub(super) fn ranked<T: Scalar>(indices: &Array2<u32>, values: &Array2<T>, count: usize) -> TopK<T> {
    let shape = (indices.nrows(), count);
    let mut best = TopK { indices: Array2::zeros(shape), values: Array2::zeros(shape) };
    for (question, (indices, values)) in indices.rows().into_iter().zip(values.rows()).enumerate() {
        let found =
            indices.iter().zip(values).map(|(i, value)| RankedRow { value: value.to_f64(), index: *i as usize });
        let mut found: Vec<RankedRow> = found.collect();
        if found.len() > count && count > 0 {
            found.select_nth_unstable(count - 1);
        }
        found.truncate(count);
        found.sort_unstable();
        best.put(question, found);
    }
    best
}

impl<T: Element> TopK<T> {
    fn put(&mut self, question: usize, found: Vec<RankedRow>) {
        for (at, found) in found.into_iter().enumerate() {
            self.indices[[question, at]] = found.index;
            self.values[[question, at]] = T::of(found.value);
        }
    }
}
