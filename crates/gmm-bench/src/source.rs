//! Generates the data of a size: a known mixture, rows drawn from it on all cores, and start parameters.

use anyhow::Result;
use gmm_model::{
    CovarianceType, Covariances, Dataset, Draws, Matrix, Mixture, Precision, SyntheticOptions, reference, sample_range,
    synthetic,
};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;

use crate::Shape;

/// Minimum distance of two means, in standard deviations of a component. Neighbouring components overlap.
pub const SEPARATION: f64 = 2.0;
/// Distance of a start mean from the true mean, in standard deviations of a component.
pub const MOVED: f64 = 0.5;
/// Ratio of the start covariances to the true ones.
pub const WIDENED: f64 = 1.2;
/// Offset of the data in the second check of answers, in standard deviations of each column from the origin.
pub const OFFSET: f64 = 100.0;

/// Number of rows drawn at a time by one thread.
const PIECE: usize = 4096;

/// The data source of a size: the true mixture.
pub struct Source {
    /// Rows, components, dimensions.
    pub shape: Shape,
    truth: Mixture,
    seed: u64,
    /// [`OFFSET`] standard deviations of each column, `(d,)`.
    offset: Vec<f64>,
}

impl Source {
    /// Draws the true mixture. Its full covariances come from a Wishart distribution whose degrees of freedom ν are
    /// chosen so that components differ in shape, but not so much (d²/2ν ≈ 2 at most) that the shape alone separates
    /// them in many dimensions.
    pub fn new(shape: Shape, seed: u64) -> Result<Self> {
        let Shape { k, d, .. } = shape;
        let wide = d as f64;
        let options = SyntheticOptions {
            separation: SEPARATION / wide.sqrt(),
            degrees_of_freedom: Some(2.0 * wide + 2.0 + wide * wide / 4.0),
            ..SyntheticOptions::default()
        };
        let truth = synthetic(k, d, CovarianceType::Full, seed, &options)?;
        let (mean, variances) = (truth.mean(), diagonals(&truth));
        let offset = (0..d).map(|j| {
            let spread = |c: usize| variances[[c, j]] + (truth.means()[[c, j]] - mean[j]).powi(2);
            OFFSET * (0..k).map(|c| truth.weights()[c] * spread(c)).sum::<f64>().sqrt()
        });
        let offset = offset.collect();
        Ok(Self { shape, truth, seed, offset })
    }

    /// The first `n` rows, at the origin.
    pub fn rows(&self, n: usize, precision: Precision) -> Result<Dataset> {
        Ok(Dataset::new(self.draw(n, precision, false)?)?)
    }

    /// The first `distinct` rows, rounded to the precision and widened to `f64`, and `n` rows that repeat them in
    /// order.
    pub fn repeated(
        &self,
        distinct: usize,
        n: usize,
        precision: Precision,
        offset: bool,
    ) -> Result<(Array2<f64>, Dataset)> {
        let rows = self.draw(distinct, precision, offset)?;
        let d = self.shape.d;
        let all = match &rows {
            Matrix::F32(a) => repeat(a.view(), n, d).into(),
            Matrix::F64(a) => Matrix::from(repeat(a.view(), n, d)),
        };
        Ok((rows.to_f64(), Dataset::new(all)?))
    }

    /// The start parameters: the true mixture with the given kind of covariance, its means [moved](MOVED) and
    /// covariances [widened](WIDENED).
    pub fn start(&self, kind: CovarianceType, offset: bool) -> Result<Mixture> {
        let Shape { k, d, .. } = self.shape;
        let mut draws = Draws::for_purpose("start", self.seed, 0);
        let step = MOVED / (d as f64).sqrt();
        let mut means = Array2::from_shape_fn((k, d), |at| self.truth.means()[at] + step * draws.normal());
        if offset {
            means += &Array1::from_vec(self.offset.clone());
        }
        let covariances = match (kind, self.truth.covariances()) {
            (CovarianceType::Full, Covariances::Full(all)) => Covariances::Full(all * WIDENED),
            (CovarianceType::Tied, Covariances::Full(all)) => {
                Covariances::Tied(all.mean_axis(Axis(0)).expect("k > 0") * WIDENED)
            }
            (CovarianceType::Spherical, _) => {
                Covariances::Spherical(diagonals(&self.truth).mean_axis(Axis(1)).expect("d > 0") * WIDENED)
            }
            _ => Covariances::Diag(diagonals(&self.truth) * WIDENED),
        };
        Ok(Mixture::new(self.truth.weights().to_owned(), means, covariances)?)
    }

    fn draw(&self, n: usize, precision: Precision, offset: bool) -> Result<Matrix> {
        let none = vec![0.0; self.shape.d];
        let by = if offset { &self.offset } else { &none };
        Ok(match precision {
            Precision::F32 => self.fill(n, by, |v| v as f32)?.into(),
            Precision::F64 => self.fill(n, by, |v| v)?.into(),
        })
    }

    fn fill<T: Clone + Default + Send>(&self, n: usize, by: &[f64], to: impl Fn(f64) -> T + Sync) -> Result<Array2<T>> {
        let d = self.shape.d;
        let mut out = vec![T::default(); n * d];
        out.par_chunks_mut(PIECE * d).enumerate().try_for_each(|(piece, slots)| {
            let first = piece * PIECE;
            let count = slots.len() / d;
            let (mut rows, mut labels) = (vec![0.0; slots.len()], vec![0; count]);
            sample_range(&self.truth, self.seed, first as u64..(first + count) as u64, &mut rows, &mut labels)?;
            for (slots, row) in slots.chunks_exact_mut(d).zip(rows.chunks_exact(d)) {
                slots.iter_mut().zip(row).zip(by).for_each(|((slot, v), by)| *slot = to(v + by));
            }
            Ok::<_, gmm_model::ModelError>(())
        })?;
        Ok(Array2::from_shape_vec((n, d), out)?)
    }
}

/// Repeats `m` rows to `n` rows: row `i` is row `i % m`.
fn repeat<T: Copy + Default + Send + Sync>(rows: ArrayView2<'_, T>, n: usize, d: usize) -> Array2<T> {
    let from = rows.as_slice().expect("row-major");
    let mut out = vec![T::default(); n * d];
    out.par_chunks_mut(from.len()).for_each(|slots| slots.copy_from_slice(&from[..slots.len()]));
    Array2::from_shape_vec((n, d), out).expect("n*d values")
}

/// Variances of each component's columns, `(k, d)`.
fn diagonals(mixture: &Mixture) -> Array2<f64> {
    let (k, d) = mixture.means().dim();
    match mixture.covariances() {
        Covariances::Full(all) => Array2::from_shape_fn((k, d), |(c, j)| all[[c, j, j]]),
        Covariances::Tied(a) => Array2::from_shape_fn((k, d), |(_, j)| a[[j, j]]),
        Covariances::Diag(a) => a.clone(),
        Covariances::Spherical(a) => Array2::from_shape_fn((k, d), |(c, _)| a[c]),
    }
}

/// A measure of the components' overlap: the mean over `rows`, `(n, d)`, of exp(entropy of the responsibilities), from
/// 1 to `k`.
pub fn effective_components(mixture: &Mixture, rows: ArrayView2<'_, f64>) -> f64 {
    let rows: Vec<ArrayView1<'_, f64>> = rows.outer_iter().collect();
    let of = |x: &ArrayView1<'_, f64>| {
        let (_, r) = reference::posterior(mixture, *x);
        r.iter().filter(|r| **r > 0.0).map(|r| -r * r.ln()).sum::<f64>().exp()
    };
    let each: Vec<f64> = rows.par_iter().map(of).collect();
    each.iter().sum::<f64>() / each.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_repeat_in_order() {
        let source = Source::new(Shape { n: 60, k: 2, d: 3 }, 1).unwrap();
        let (distinct, all) = source.repeated(20, 60, Precision::F32, true).unwrap();
        assert_eq!((distinct.dim(), all.n_rows()), ((20, 3), 60));
        assert!((0..60).all(|i| (0..3).all(|j| all.rows().at(i, j) == distinct[[i % 20, j]])));
    }

    #[test]
    fn the_offset_is_a_hundred_standard_deviations_of_the_column() {
        let source = Source::new(Shape { n: 1, k: 3, d: 2 }, 1).unwrap();
        let rows = source.rows(20_000, Precision::F64).unwrap().rows().to_f64();
        let deviations = rows.std_axis(Axis(0), 0.0);
        let off = |j: usize| (source.offset[j] / OFFSET / deviations[j] - 1.0).abs();
        assert!((0..2).all(|j| off(j) < 0.05), "{:?} {deviations}", source.offset);
    }
}
