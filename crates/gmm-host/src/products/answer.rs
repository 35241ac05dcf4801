//! Results of products: allocation after a check of free memory, shape checks, and division into tiles.

use gmm_model::ModelError;
use ndarray::{Array2, ArrayViewMut2, Axis};

use super::Scalar;
use crate::{Error, memory};

/// Divides a matrix into tiles of at most `side` rows and columns. Returns each with its first row and first column.
pub(super) fn tiles<T>(whole: ArrayViewMut2<'_, T>, side: usize) -> Vec<(usize, usize, ArrayViewMut2<'_, T>)> {
    let mut all = Vec::new();
    let (mut row, mut below) = (0, whole);
    while below.nrows() > 0 {
        let r = side.min(below.nrows());
        let (mut right, rest) = below.split_at(Axis(0), r);
        below = rest;
        let mut column = 0;
        while right.ncols() > 0 {
            let c = side.min(right.ncols());
            let (tile, rest) = right.split_at(Axis(1), c);
            right = rest;
            all.push((row, column, tile));
            column += c;
        }
        row += r;
    }
    all
}

pub(super) fn bytes<T>((rows, columns): (usize, usize)) -> u128 {
    rows as u128 * columns as u128 * size_of::<T>() as u128
}

pub(super) fn allocated<T: Scalar>(shape: (usize, usize)) -> Result<Array2<T>, Error> {
    memory::check("the result of a product", bytes::<T>(shape))?;
    Ok(Array2::zeros(shape))
}

pub(super) fn zeros(len: usize) -> Result<Vec<f64>, Error> {
    memory::check("the results of a batch", 8 * len as u128)?;
    Ok(vec![0.0; len])
}

pub(super) fn check_shape(what: &'static str, found: (usize, usize), expected: (usize, usize)) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (vec![found.0, found.1], vec![expected.0, expected.1]);
    Err(ModelError::Shape { what, found, expected }.into())
}
