//! Copies between matrices of any strides and contiguous row-major pieces.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;

/// Up to this many numbers are copied by the calling thread; more are divided into parts of this size for several
/// threads.
const SMALL: usize = 1 << 16;

/// Whether a column's numbers are closer together than a row's. Depends only on the strides, so that parts of a matrix
/// give the same answer.
pub(super) fn is_by_columns<T>(matrix: ArrayView2<'_, T>) -> bool {
    let strides = matrix.strides();
    strides[0].unsigned_abs() < strides[1].unsigned_abs()
}

/// Copies numbers, in row-major order from the `start`-th on, to `to`.
pub(super) fn put<T: Copy + Send + Sync>(from: ArrayView2<'_, T>, start: usize, to: &mut [T]) {
    if to.len() <= SMALL {
        return put_some(from, start, to);
    }
    to.par_chunks_mut(SMALL).enumerate().for_each(|(i, to)| put_some(from, start + i * SMALL, to));
}

fn put_some<T: Copy>(from: ArrayView2<'_, T>, start: usize, mut to: &mut [T]) {
    if let Some(all) = from.as_slice() {
        return to.copy_from_slice(&all[start..start + to.len()]);
    }
    let (width, mut at) = (from.ncols(), start);
    while !to.is_empty() {
        let (row, column) = (at / width, at % width);
        let (here, rest) = to.split_at_mut(to.len().min(width - column));
        let numbers = from.slice(s![row, column..column + here.len()]);
        match numbers.as_slice() {
            Some(numbers) => here.copy_from_slice(numbers),
            None => here.iter_mut().zip(numbers).for_each(|(to, from)| *to = *from),
        }
        at += here.len();
        to = rest;
    }
}

/// Copies `from` to the numbers of `to`, in row-major order from the `start`-th on.
pub(super) fn take<T: Copy + Send + Sync>(mut to: ArrayViewMut2<'_, T>, start: usize, mut from: &[T]) {
    if let Some(all) = to.as_slice_mut() {
        let to = &mut all[start..start + from.len()];
        if from.len() <= SMALL {
            return to.copy_from_slice(from);
        }
        return to.par_chunks_mut(SMALL).zip(from.par_chunks(SMALL)).for_each(|(to, from)| to.copy_from_slice(from));
    }
    let (width, mut at) = (to.ncols(), start);
    while !from.is_empty() {
        let (row, column) = (at / width, at % width);
        let (here, rest) = from.split_at(from.len().min(width - column));
        to.slice_mut(s![row, column..column + here.len()]).iter_mut().zip(here).for_each(|(to, from)| *to = *from);
        at += here.len();
        from = rest;
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn pieces_come_and_go_whatever_the_strides() {
        let whole = Array2::from_shape_fn((40, 60), |(i, j)| (60 * i + j) as f32);
        for view in [whole.view(), whole.t(), whole.slice(s![..;-2, 3..;2]), whole.slice(s![5..6, ..])] {
            let dense: Vec<f32> = view.iter().copied().collect();
            let mut back = Array2::<f32>::zeros(view.raw_dim());
            let mut strided = Array2::<f32>::zeros((2 * view.ncols(), view.nrows()));
            for start in (0..dense.len()).step_by(37) {
                let mut piece = vec![f32::NAN; 37.min(dense.len() - start)];
                put(view, start, &mut piece);
                assert_eq!(piece, dense[start..start + piece.len()]);
                take(back.view_mut(), start, &piece);
                take(strided.slice_mut(s![..;2, ..]).reversed_axes(), start, &piece);
            }
            assert_eq!(back, view);
            assert_eq!(strided.slice(s![..;2, ..]).t(), view);
        }
        let long = Array2::from_shape_fn((700, 300), |(i, j)| (300 * i + j) as u32);
        let (mut piece, mut back) = (vec![0; 700 * 300], Array2::<u32>::zeros((700, 300)));
        put(long.view(), 0, &mut piece);
        take(back.view_mut(), 0, &piece);
        assert_eq!(back, long);
    }

    #[test]
    fn parts_of_a_matrix_lie_as_the_whole_does() {
        let whole = Array2::<f64>::zeros((7, 9));
        assert!(!is_by_columns(whole.view()) && is_by_columns(whole.t()));
        assert!(!is_by_columns(whole.slice(s![.., 2..3])) && is_by_columns(whole.t().slice(s![4..5, ..])));
    }
}
