//! Arrays of rows in either precision.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::thread;

use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

use crate::{ModelError, RowArray};

/// The type in which an engine stores rows and computes products. Sums and parameters are always `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Precision {
    /// `f32` or `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "f32" => Ok(Self::F32),
            "f64" => Ok(Self::F64),
            _ => Err(ModelError::UnknownWord { what: "precision", word: text.to_owned(), choices: "f32, f64" }),
        }
    }
}

/// An `(n, d)` array of either precision, in row-major order. May contain NaN: [`Dataset`](crate::Dataset) is the checked form.
///
/// The values are owned, or borrowed for `'static` (a binding to another language can share its memory without a copy
/// if it keeps that memory alive), or shared with an owner that each [`RowArray`] keeps alive.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Single precision.
    F32(RowArray<f32>),
    /// Double precision.
    F64(RowArray<f64>),
}

impl From<RowArray<f32>> for Matrix {
    fn from(rows: RowArray<f32>) -> Self {
        Self::F32(rows)
    }
}

impl From<RowArray<f64>> for Matrix {
    fn from(rows: RowArray<f64>) -> Self {
        Self::F64(rows)
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<Array2<f32>> for Matrix {
    fn from(rows: Array2<f32>) -> Self {
        Self::F32(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<Array2<f64>> for Matrix {
    fn from(rows: Array2<f64>) -> Self {
        Self::F64(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<ArrayView2<'static, f32>> for Matrix {
    fn from(rows: ArrayView2<'static, f32>) -> Self {
        Self::F32(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<ArrayView2<'static, f64>> for Matrix {
    fn from(rows: ArrayView2<'static, f64>) -> Self {
        Self::F64(rows.into())
    }
}

impl Matrix {
    /// `(n, d)`.
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::F32(a) => a.dim(),
            Self::F64(a) => a.dim(),
        }
    }

    /// The precision of the stored values.
    pub const fn precision(&self) -> Precision {
        match self {
            Self::F32(_) => Precision::F32,
            Self::F64(_) => Precision::F64,
        }
    }

    /// Moves owned values to a shared owner, so that clones are cheap. No values are copied.
    #[must_use]
    pub fn into_shared(self) -> Self {
        match self {
            Self::F32(a) => Self::F32(a.into_shared()),
            Self::F64(a) => Self::F64(a.into_shared()),
        }
    }

    /// A clone that copies no values; `None` if the values are owned by this matrix alone.
    pub fn cheap_clone(&self) -> Option<Self> {
        match self {
            Self::F32(a) => a.cheap_clone().map(Self::F32),
            Self::F64(a) => a.cheap_clone().map(Self::F64),
        }
    }

    /// Entry `(row, column)` as `f64` (exact).
    pub fn at(&self, row: usize, column: usize) -> f64 {
        match self {
            Self::F32(a) => f64::from(a[[row, column]]),
            Self::F64(a) => a[[row, column]],
        }
    }

    /// All entries as `f64` (exact for `f32`).
    pub fn to_f64(&self) -> Array2<f64> {
        match self {
            Self::F32(a) => a.mapv(f64::from),
            Self::F64(a) => a.view().to_owned(),
        }
    }

    /// The columns of the given indices, in that order.
    ///
    /// # Panics
    /// If an index is `d` or more.
    pub fn select_columns(&self, columns: &[usize]) -> Self {
        match self {
            Self::F32(a) => Self::from(a.select(ndarray::Axis(1), columns)),
            Self::F64(a) => Self::from(a.select(ndarray::Axis(1), columns)),
        }
    }

    /// The rows of the given indices, in that order.
    ///
    /// # Panics
    /// If an index is `n` or more.
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        match self {
            Self::F32(a) => Self::from(a.select(ndarray::Axis(0), rows)),
            Self::F64(a) => Self::from(a.select(ndarray::Axis(0), rows)),
        }
    }

    /// The rows of a range, `(rows.len(), d)`. Copies values only if they are owned by this matrix alone.
    ///
    /// # Panics
    /// If the range ends beyond `n`.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        match self {
            Self::F32(a) => Self::F32(a.part(rows)),
            Self::F64(a) => Self::F64(a.part(rows)),
        }
    }

    /// A copy of consecutive rows.
    ///
    /// # Panics
    /// If the range ends after `n`.
    pub fn copy_rows(&self, rows: Range<usize>) -> Self {
        match self {
            Self::F32(a) => Self::from(a.slice(ndarray::s![rows, ..]).to_owned()),
            Self::F64(a) => Self::from(a.slice(ndarray::s![rows, ..]).to_owned()),
        }
    }

    pub(crate) fn first_not_finite(&self) -> Option<(usize, usize, f64)> {
        let found = match self {
            Self::F32(a) => first(a, |v| !v.is_finite()),
            Self::F64(a) => first(a, |v| !v.is_finite()),
        };
        found.map(|(row, column)| (row, column, self.at(row, column)))
    }

    pub(crate) fn first_infinite(&self) -> Option<(usize, usize, f64)> {
        let found = match self {
            Self::F32(a) => first(a, f32::is_infinite),
            Self::F64(a) => first(a, f64::is_infinite),
        };
        found.map(|(row, column)| (row, column, self.at(row, column)))
    }
}

/// Row and column of the first value that satisfies `wanted`. They are computed only if there is one.
fn first<T: Copy + Sync>(a: &RowArray<T>, wanted: impl Fn(T) -> bool + Sync) -> Option<(usize, usize)> {
    let d = a.ncols();
    let flat = a.as_slice().expect("a Matrix is row-major");
    first_in_order(flat, |&v| wanted(v)).map(|i| (i / d, i % d))
}

/// Smallest number of values per thread: checking fewer takes less time than starting a thread.
const SHARE: usize = 1 << 19;

/// Number of values tested together.
const BLOCK: usize = 64;

/// Index of the first value that satisfies `wanted`. Large slices are searched by all cores: one core cannot use the
/// full memory bandwidth, and the search would take a noticeable part of a fit on a GPU.
///
/// The threads live only during the call: those of a pool would not exist in a forked process.
fn first_in_order<T: Sync>(numbers: &[T], wanted: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    // Blocks are tested without an early exit, which would prevent vector instructions.
    let in_block = |block: &[T]| block.iter().fold(false, |found, v| found | wanted(v));
    let alone = |numbers: &[T]| {
        let block = numbers.chunks(BLOCK).position(in_block)?;
        numbers[block * BLOCK..].iter().position(&wanted).map(|i| block * BLOCK + i)
    };
    let cores = if numbers.len() < 2 * SHARE { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let share = numbers.len().div_ceil(cores).max(SHARE);
    if numbers.len() <= share {
        return alone(numbers);
    }
    thread::scope(|scope| {
        let mut parts = numbers.chunks(share).enumerate();
        let here = parts.next();
        let seek = |(at, part)| alone(part).map(|found| at * share + found);
        // If the system cannot start a thread, this thread searches that part itself.
        let start = |part| thread::Builder::new().spawn_scoped(scope, move || seek(part)).map_err(|_| part);
        let started: Vec<_> = parts.map(start).collect();
        // Joined in order, so that the result is the first index, whichever thread finishes first.
        started.into_iter().fold(here.and_then(seek), |first, part| {
            first.or_else(|| match part {
                Ok(thread) => thread.join().expect("a look at numbers does not panic"),
                Err(part) => seek(part),
            })
        })
    })
}
