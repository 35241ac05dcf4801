//! Imputation: missing values are replaced by what a mixture says about them, given the observed values of their rows.
//!
//! The responsibilities of the marginal mixtures come from the engine, for a block of rows at a time, so that no array of
//! n×k values exists. A row's values do not depend on other rows or on blocks.

use gmm_model::{Conditional, Dataset, Draws, Factors, Mixture, Precision, reference};
use ndarray::{Array2, ArrayView1, ArrayViewMut1};

use crate::engine::check_features;
use crate::missing::patterns;
use crate::{Engine, Error, evaluate, memory};

/// Responsibilities that are evaluated at once, 8 MiB.
const AT_ONCE: usize = 1 << 20;

/// By what missing values are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imputation {
    /// The conditional mean: the guess of smallest squared error. Variances and correlations of the result are too small.
    Mean,
    /// The conditional mean in the component that is most probable given the observed values: unlike the mean, it never lies
    /// between two clusters.
    Mode,
    /// A draw from the conditional distribution. The result of several, one for each `draw`, is a multiple imputation,
    /// whose estimates [`Pooled`](gmm_model::missing::Pooled) combines. The parameters of the mixture are taken as known:
    /// where they are uncertain too, draw with one of several mixtures, such as those of a bootstrap.
    Draw {
        /// Seed. The random numbers depend only on seed, draw and row.
        seed: u64,
        /// Which of several draws, from 0.
        draw: u64,
    },
}

/// The rows in `f64`, `(n, d)`, with their missing values replaced. Observed values keep their bits.
///
/// Cost: an evaluation, and the factors of each pattern of missing values, `k*d³/3` flops (full).
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Memory`]; errors of the engine;
/// [`Error::MeasurementErrors`], for which there is [`true_rows`](crate::true_rows()); [`Error::Model`] if a column is a linear combination of others in a component.
///
/// ```
/// use gmm_host::{CpuEngine, impute};
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0, 3.0]], Covariances::Tied(array![[4.0, 2.0], [2.0, 5.0]]))?;
/// let rows = Dataset::with_holes(array![[2.0, f64::NAN], [1.0, 1.0]])?;
/// let filled = impute::impute(&CpuEngine::new(1)?, &mixture, &rows, Precision::F64, impute::Imputation::Mean)?;
/// assert_eq!(filled, array![[2.0, 4.0], [1.0, 1.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn impute(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: &Dataset,
    precision: Precision,
    how: Imputation,
) -> Result<Array2<f64>, Error> {
    let (n, d) = data.rows().dim();
    check_features(d, mixture.n_features())?;
    memory::check("the imputed rows", 16 * n as u128 * d as u128)?;
    let mut out = data.rows().to_f64();
    crate::Data::from(data).refuse_indirect("imputation")?;
    if !data.has_missing() {
        return Ok(out);
    }
    let step = (AT_ONCE / mixture.n_components()).max(1);
    for first in (0..n).step_by(step) {
        let block = Dataset::with_holes(data.rows().copy_rows(first..n.min(first + step)))?;
        if !block.has_missing() {
            continue;
        }
        let responsibilities = evaluate::responsibilities(engine, mixture, &block, precision)?;
        let (groups, unobserved) = patterns::of_rows(block.rows());
        for (observed, rows) in groups.into_iter().filter(|(observed, _)| observed.len() < d) {
            let missing: Vec<usize> = (0..d).filter(|j| observed.binary_search(j).is_err()).collect();
            let conditional = Conditional::new(mixture, &observed, &missing)?;
            let mut pattern = Pattern::new(&conditional, how);
            for row in rows {
                let x = out.row(first + row).select(ndarray::Axis(0), &observed);
                let x = x.as_slice().expect("contiguous");
                let found = pattern.fill(x, responsibilities.row(row), (first + row) as u64, d);
                missing.iter().zip(found).for_each(|(&j, v)| out[[first + row, j]] = *v);
            }
        }
        for row in unobserved {
            fill_whole(mixture, how, (first + row) as u64, out.row_mut(first + row));
        }
    }
    Ok(out)
}

/// The draws of a row: each row takes the same number of uniforms, whatever it lacks.
fn draws_of(seed: u64, draw: u64, row: u64, d: usize) -> Draws {
    let mut draws = Draws::for_purpose("impute", seed, draw);
    draws.seek(row.wrapping_mul(1 + Draws::normal_uniforms(d) as u64));
    draws
}

/// Sums from the first value to each.
fn cumulative(values: ArrayView1<'_, f64>) -> Vec<f64> {
    let sums = values.iter().scan(0.0, |sum, v| {
        *sum += v;
        Some(*sum)
    });
    sums.collect()
}

/// The rows of one pattern.
struct Pattern<'a> {
    conditional: &'a Conditional,
    how: Imputation,
    workspace: Vec<f64>,
    /// `(t,)`.
    found: Vec<f64>,
    /// `(t,)`.
    variance: Vec<f64>,
}

impl<'a> Pattern<'a> {
    fn new(conditional: &'a Conditional, how: Imputation) -> Self {
        let t = conditional.n_targets();
        let workspace = conditional.workspace();
        Self { conditional, how, workspace, found: vec![0.0; t], variance: vec![0.0; t] }
    }

    /// The missing values of a row whose observed values are `x`.
    fn fill(&mut self, x: &[f64], responsibilities: ArrayView1<'_, f64>, row: u64, d: usize) -> &[f64] {
        let Self { conditional, how, workspace, found, variance } = self;
        match *how {
            Imputation::Mean => {
                let r = responsibilities.as_slice().expect("row-major");
                conditional.moments(x, r, workspace, found, variance);
            }
            Imputation::Mode => {
                conditional.component_mean(reference::argmax(responsibilities), x, workspace, found);
            }
            Imputation::Draw { seed, draw } => {
                let draws = &mut draws_of(seed, draw, row, d);
                conditional.draw(x, &cumulative(responsibilities), draws, workspace, found);
            }
        }
        found
    }
}

/// Fills a row without observed values from the mixture.
fn fill_whole(mixture: &Mixture, how: Imputation, row: u64, mut out: ArrayViewMut1<'_, f64>) {
    let d = out.len();
    match how {
        Imputation::Mean => out.assign(&mixture.mean()),
        Imputation::Mode => out.assign(&mixture.means().row(reference::argmax(mixture.weights()))),
        Imputation::Draw { seed, draw } => {
            let mut draws = draws_of(seed, draw, row, d);
            let c = draws.weighted_index(&cumulative(mixture.weights()));
            let (mut z, mut moved) = (vec![0.0; d], vec![0.0; d]);
            draws.fill_normal(&mut z);
            match mixture.factors() {
                Factors::Full(all) => all[c].multiply_lower(&z, &mut moved),
                Factors::Tied(one) => one.multiply_lower(&z, &mut moved),
                Factors::Diag(sd) => moved.iter_mut().zip(&z).zip(sd.row(c)).for_each(|((m, z), sd)| *m = sd * z),
                Factors::Spherical(sd) => moved.iter_mut().zip(&z).for_each(|(m, z)| *m = sd[c] * z),
            }
            out.iter_mut().zip(mixture.means().row(c)).zip(moved).for_each(|((v, mean), moved)| *v = mean + moved);
        }
    }
}
