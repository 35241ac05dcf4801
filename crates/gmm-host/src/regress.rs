//! Gaussian mixture regression on many rows: means, standard deviations, draws and densities of target columns given
//! others.
//!
//! The responsibilities of the marginal mixture come from the engine, for a block of rows at a time, so that no array of
//! n×k values exists. What follows from them is computed on the current rayon thread pool. A row's results do not depend
//! on other rows, on blocks or on the number of threads.

use gmm_model::{Conditional, Dataset, Draws, Matrix, Precision};
use ndarray::aview1;
use rayon::prelude::*;

use crate::engine::check_features;
use crate::{Engine, Error, evaluate};

/// Responsibilities that are evaluated at once, 8 MiB.
const AT_ONCE: usize = 1 << 20;

/// Rows that a thread processes at a time.
const PIECE: usize = 1024;

/// Writes the mean and the standard deviation of each target, `(n, t)` each in row-major order, for the `(n, g)` given
/// columns in `data`.
///
/// # Errors
/// [`Error::Features`] if the number of columns is not `g`; errors of the engine.
///
/// # Panics
/// If an output does not have `n*t` values.
///
/// ```
/// use gmm_host::{ReferenceEngine, regress};
/// use gmm_model::{Conditional, Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0, 3.0]], Covariances::Tied(array![[4.0, 2.0], [2.0, 5.0]]))?;
/// let second = Conditional::new(&mixture, &[0], &[1])?;
/// let rows = Dataset::new(array![[2.0], [-2.0]])?;
/// let (mut means, mut deviations) = ([0.0; 2], [0.0; 2]);
/// regress::moments(&ReferenceEngine, &second, &rows, Precision::F64, &mut means, &mut deviations)?;
/// assert_eq!((means, deviations), ([4.0, 2.0], [2.0, 2.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn moments(
    engine: &dyn Engine,
    conditional: &Conditional,
    data: &Dataset,
    precision: Precision,
    means: &mut [f64],
    deviations: &mut [f64],
) -> Result<(), Error> {
    let (n, k, t) = (data.n_rows(), conditional.n_components(), conditional.n_targets());
    assert_eq!((means.len(), deviations.len()), (n * t, n * t), "t values of each row");
    let mut outputs = (means, deviations);
    by_block(engine, conditional, data, precision, |block| {
        let len = block.rows.dim().0 * t;
        let (means, deviations) = (front(&mut outputs.0, len), front(&mut outputs.1, len));
        let pieces = means.par_chunks_mut(PIECE * t).zip(deviations.par_chunks_mut(PIECE * t)).enumerate();
        pieces.for_each(|(piece, (means, deviations))| {
            let Row { mut x, mut workspace, .. } = Row::new(conditional);
            let rows = block.responsibilities.chunks_exact(k).enumerate().skip(piece * PIECE);
            for ((i, responsibilities), (mean, deviation)) in
                rows.zip(means.chunks_exact_mut(t).zip(deviations.chunks_exact_mut(t)))
            {
                let x = block.given(i, &mut x);
                conditional.moments(x, responsibilities, &mut workspace, mean, deviation);
                deviation.iter_mut().for_each(|v| *v = v.sqrt());
            }
        });
    })
}

/// The draws of each row's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawOptions {
    /// Number of draws for each row, at least 1.
    pub count: usize,
    /// Seed. The random numbers of a draw depend only on the seed, the row's index, and the draw's.
    pub seed: u64,
    /// Index of the first row among all rows, of which `data` may be a part.
    pub first_row: u64,
}

/// Writes draws of the targets, `(n, count, t)` in row-major order, for the `(n, g)` given columns in `data`.
///
/// The random numbers are the same on every machine. The responsibilities are those of the engine.
///
/// # Errors
/// As for [`moments`].
///
/// # Panics
/// If `out` does not have `n*count*t` values.
pub fn draw(
    engine: &dyn Engine,
    conditional: &Conditional,
    data: &Dataset,
    precision: Precision,
    options: DrawOptions,
    out: &mut [f64],
) -> Result<(), Error> {
    let DrawOptions { count, seed, mut first_row } = options;
    let (k, t, per_row) = (conditional.n_components(), conditional.n_targets(), count * conditional.n_targets());
    assert_eq!(out.len(), data.n_rows() * per_row, "count*t values of each row");
    let uniforms = count as u64 * conditional.uniforms() as u64;
    let mut out = out;
    by_block(engine, conditional, data, precision, |block| {
        let rows = block.rows.dim().0;
        let values = front(&mut out, rows * per_row);
        values.par_chunks_mut(PIECE * per_row).enumerate().for_each(|(piece, values)| {
            let Row { mut x, mut cumulative, mut workspace } = Row::new(conditional);
            let mut draws = Draws::for_purpose("regress", seed, 0);
            // Every draw takes the same number of uniforms, so one seek is enough for consecutive rows.
            draws.seek((first_row + (piece * PIECE) as u64).wrapping_mul(uniforms));
            let rows = block.responsibilities.chunks_exact(k).enumerate().skip(piece * PIECE);
            for ((i, responsibilities), values) in rows.zip(values.chunks_exact_mut(per_row)) {
                let x = block.given(i, &mut x);
                let mut sum = 0.0;
                for (slot, r) in cumulative.iter_mut().zip(responsibilities) {
                    sum += r;
                    *slot = sum;
                }
                for out in values.chunks_exact_mut(t) {
                    conditional.draw(x, &cumulative, &mut draws, &mut workspace, out);
                }
            }
        });
        first_row += rows as u64;
    })
}

/// The log density of the targets given the other columns, `(n,)`; `data`, `(n, g + t)`, has the given columns first.
///
/// It is the difference of the log densities of joint and marginal mixture, both from the engine. A row whose marginal
/// density is 0 gets its components' prior weights.
///
/// # Errors
/// As for [`moments`], where the number of columns must be `g + t`.
pub fn log_densities(
    engine: &dyn Engine,
    conditional: &Conditional,
    data: &Dataset,
    precision: Precision,
) -> Result<Vec<f64>, Error> {
    let given = conditional.n_given();
    check_features(data.n_features(), given + conditional.n_targets())?;
    let (joint, _) = evaluate::log_densities(engine, conditional.joint(), data, precision)?;
    crate::Data::from(data).refuse_indirect("a conditional density")?;
    let columns: Vec<usize> = (0..given).collect();
    let marginal = Dataset::new(data.rows().select_columns(&columns))?;
    let (marginal, _) = evaluate::log_densities(engine, conditional.marginal(), &marginal, precision)?;
    let mut out = joint.into_raw_vec_and_offset().0;
    for (row, (value, marginal)) in out.iter_mut().zip(marginal).enumerate() {
        if marginal == f64::NEG_INFINITY {
            let all: Vec<f64> = (0..data.n_features()).map(|column| data.rows().at(row, column)).collect();
            let (x, y) = all.split_at(given);
            *value = conditional.log_density(x, aview1(y));
        } else {
            *value -= marginal;
        }
    }
    Ok(out)
}

/// A block of rows and their responsibilities, `(rows, k)`.
struct Block<'a> {
    rows: &'a Matrix,
    responsibilities: &'a [f64],
}

/// Calls `see` on each block of rows, in order.
fn by_block(
    engine: &dyn Engine,
    conditional: &Conditional,
    data: &Dataset,
    precision: Precision,
    mut see: impl FnMut(Block<'_>),
) -> Result<(), Error> {
    let (n, k) = (data.n_rows(), conditional.n_components());
    check_features(data.n_features(), conditional.n_given())?;
    crate::Data::from(data).refuse_indirect("a conditional mean or density")?;
    if k == 1 {
        see(Block { rows: data.rows(), responsibilities: &vec![1.0; n] });
        return Ok(());
    }
    let step = (AT_ONCE / k).max(1);
    for first in (0..n).step_by(step) {
        let block = Dataset::new(data.rows().part(first..n.min(first + step)))?;
        let responsibilities = evaluate::responsibilities(engine, conditional.marginal(), &block, precision)?;
        see(Block { rows: block.rows(), responsibilities: responsibilities.as_slice().expect("row-major") });
    }
    Ok(())
}

/// Buffers for one row.
struct Row {
    x: Vec<f64>,
    cumulative: Vec<f64>,
    workspace: Vec<f64>,
}

impl Row {
    fn new(conditional: &Conditional) -> Self {
        Self {
            x: vec![0.0; conditional.n_given()],
            cumulative: vec![0.0; conditional.n_components()],
            workspace: conditional.workspace(),
        }
    }
}

impl Block<'_> {
    /// The given columns of a row in `f64`, `(g,)`.
    fn given<'a>(&'a self, row: usize, buffer: &'a mut [f64]) -> &'a [f64] {
        let g = buffer.len();
        match self.rows {
            Matrix::F64(a) => &a.as_slice().expect("row-major")[row * g..][..g],
            Matrix::F32(a) => {
                let row = &a.as_slice().expect("row-major")[row * g..][..g];
                buffer.iter_mut().zip(row).for_each(|(x, v)| *x = f64::from(*v));
                buffer
            }
        }
    }
}

/// Cuts the first `len` values off.
fn front<'a>(all: &mut &'a mut [f64], len: usize) -> &'a mut [f64] {
    let (head, tail) = std::mem::take(all).split_at_mut(len);
    *all = tail;
    head
}
