//! Rows with measurement errors in blocks of [`WIDTH`], with the row in the last index.

use gmm_model::Dataset;

use crate::{Error, memory};

/// Rows of a block: two vectors of AVX-512, four of AVX2.
pub(super) const WIDTH: usize = 16;

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// All rows in `f64`. The last block is filled up with its last row.
pub(super) struct Layout {
    pub(super) n: usize,
    /// Columns of the true rows.
    pub(super) d: usize,
    /// Measured values of a row.
    pub(super) m: usize,
    /// Errors are independent.
    pub(super) is_diagonal: bool,
    /// `(blocks, m, WIDTH)`; 0 where a value is missing.
    measured: Vec<f64>,
    /// Variances, `(blocks, m, WIDTH)`, or packed covariances, `(blocks, m*(m+1)/2, WIDTH)`. Of a missing value the variance
    /// is 1, and covariances are 0.
    errors: Vec<f64>,
    /// `(blocks, m*d, WIDTH)`; empty without views.
    projections: Vec<f64>,
    /// 1 where a value is measured, else 0, `(m, WIDTH)`, of each block with a missing value.
    masks: Vec<Option<Box<[f64]>>>,
    /// `−o/2 ln 2π` of a row of `o` measured values, `(blocks, WIDTH)`.
    constants: Vec<f64>,
}

/// One block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) measured: &'a [f64],
    pub(super) errors: &'a [f64],
    pub(super) projections: &'a [f64],
    pub(super) mask: Option<&'a [f64]>,
    pub(super) constants: &'a [f64],
}

impl Layout {
    /// # Errors
    /// [`Error::Memory`].
    ///
    /// # Panics
    /// If the data have no measurement errors.
    pub(super) fn new(data: &Dataset) -> Result<Self, Error> {
        let errors = data.measurement_errors().expect("measurement errors");
        let (n, d, (_, m), is_diagonal) =
            (data.n_rows(), data.n_features(), errors.dim(), errors.covariances().is_diagonal());
        let (views, values) = (errors.views(), errors.covariances().values());
        let (blocks, each) = (n.div_ceil(WIDTH), values.ncols());
        let of_view = if views.is_some() { m * d } else { 0 };
        let numbers = blocks as u128 * WIDTH as u128 * (m + each + of_view + 1) as u128;
        memory::check("the rows and their measurement errors", 8 * numbers)?;
        let zeros = |len: usize| memory::zeros::<f64>(blocks * len * WIDTH);
        let (mut measured, mut own, mut projections) = (zeros(m), zeros(each), zeros(of_view));
        let (mut masks, mut constants) = (vec![None; blocks], zeros(1));
        for row in 0..blocks * WIDTH {
            let (block, lane, from) = (row / WIDTH, row % WIDTH, row.min(n - 1));
            let put = |all: &mut [f64], len: usize, at: usize, v: f64| all[(block * len + at) * WIDTH + lane] = v;
            values.row(from).iter().enumerate().for_each(|(at, &v)| put(&mut own, each, at, v));
            if let Some(views) = views {
                views.projection(from).iter().enumerate().for_each(|(at, &v)| put(&mut projections, of_view, at, v));
                views.measured().row(from).iter().enumerate().for_each(|(at, &v)| put(&mut measured, m, at, v));
                constants[row] = -0.5 * m as f64 * LN_2PI;
                continue;
            }
            let mut count = 0;
            for j in 0..m {
                let v = data.rows().at(from, j);
                if !v.is_nan() {
                    count += 1;
                    put(&mut measured, m, j, v);
                    continue;
                }
                masks[block].get_or_insert_with(|| vec![1.0; m * WIDTH].into_boxed_slice())[j * WIDTH + lane] = 0.0;
                if is_diagonal {
                    put(&mut own, each, j, 1.0);
                } else {
                    (0..m).for_each(|l| put(&mut own, each, packed_either(j, l), f64::from(j == l)));
                }
            }
            constants[row] = -0.5 * f64::from(count) * LN_2PI;
        }
        Ok(Self { n, d, m, is_diagonal, measured, errors: own, projections, masks, constants })
    }

    pub(super) const fn blocks(&self) -> usize {
        self.masks.len()
    }

    pub(super) const fn has_views(&self) -> bool {
        !self.projections.is_empty()
    }

    /// Whether nothing of a row is measured: it says nothing about a mixture.
    pub(super) fn is_unmeasured(&self, row: usize) -> bool {
        self.constants[row] == 0.0
    }

    pub(super) fn block(&self, block: usize) -> Block<'_> {
        let of = |all: &'_ [f64]| {
            let len = all.len() / self.masks.len();
            block * len..(block + 1) * len
        };
        Block {
            measured: &self.measured[of(&self.measured)],
            errors: &self.errors[of(&self.errors)],
            projections: &self.projections[of(&self.projections)],
            mask: self.masks[block].as_deref(),
            constants: &self.constants[of(&self.constants)],
        }
    }
}

/// Position of entry `(i, j)` or `(j, i)` in a packed lower triangle.
pub(super) const fn packed_either(i: usize, j: usize) -> usize {
    if i > j { gmm_model::packed_index(i, j) } else { gmm_model::packed_index(j, i) }
}
