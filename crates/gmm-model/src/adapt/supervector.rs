//! Supervectors of means, and scores that are linear in them.

use ndarray::{Array1, Array2, ArrayView2, ArrayView3, ArrayViewMut1, Axis};

use super::of_background;
use crate::{Factors, Mixture, ModelError, Statistics};

/// The form of a supervector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervector {
    /// The means of all components, one after another.
    Mean,
    /// `√w_c L_c⁻¹ (m_c − M_c)` with the weights, means and covariances `L_c L_cᵀ` of the background: half the squared
    /// distance of two speakers is then an upper bound of the divergence of their mixtures, and their product the kernel of
    /// Campbell, Sturim and Reynolds 2006 ("Support vector machines using GMM supervectors for speaker verification", IEEE
    /// Signal Processing Letters 13, eqs. 6 to 8), about the background.
    Normalised,
}

/// The supervector of adapted `means`, `(k, d)`: `(k*d,)`.
///
/// # Errors
/// [`ModelError::Shape`] if the means are not `(k, d)`.
///
/// Cost: `k d` operations; `k d²` for covariances that are full or tied.
pub fn supervector(
    means: ArrayView2<'_, f64>,
    background: &Mixture,
    form: Supervector,
) -> Result<Array1<f64>, ModelError> {
    check("adapted means", means.shape(), background.means().shape())?;
    Ok(match form {
        Supervector::Mean => means.iter().copied().collect(),
        Supervector::Normalised => {
            let mut all = &means - &background.means();
            for (c, (mut row, w)) in all.outer_iter_mut().zip(background.weights()).enumerate() {
                whiten(background.factors(), c, row.view_mut());
                row *= w.sqrt();
            }
            all.into_iter().collect()
        }
    })
}

/// The linear approximation of a log-likelihood ratio: `Σ_c (m_c − M_c)ᵀ Σ_c⁻¹ F_c`, with `F_c = Σrz` the first moments of
/// a test utterance about the background's means; divided by the weight of its rows if `per_row`.
///
/// # Errors
/// [`ModelError`] if a shape differs, or the statistics record another mixture.
///
/// Source: Glembek, Burget, Dehak, Brümmer and Kenny 2009, "Comparison of scoring methods used in speaker recognition with
/// joint factor analysis", ICASSP; bob.learn.em's `linear_scoring`, with `frame_length_normalization` for `per_row`.
pub fn linear_score(
    means: ArrayView2<'_, f64>,
    background: &Mixture,
    test: &Statistics,
    per_row: bool,
) -> Result<f64, ModelError> {
    let test = of_background(background, test)?;
    let first = test.first.view().insert_axis(Axis(0));
    let rows = per_row.then_some([test.total_weight]);
    let scores = linear_scores(means.insert_axis(Axis(0)), background, first, rows.as_ref().map(<[f64; 1]>::as_slice))?;
    Ok(scores[[0, 0]])
}

/// [`linear_score`] of every speaker on every test utterance, `(s, u)`. `means` are `(s, k, d)`; `first` are the
/// utterances' first moments about the background's means, `(u, k, d)`, and `rows` the weights of their rows, `(u,)`, by
/// which scores are divided.
///
/// # Errors
/// [`ModelError::Shape`].
///
/// Cost: one product of matrices, `2 s u k d` flops, and memory for copies of `means` and `first`.
pub fn linear_scores(
    means: ArrayView3<'_, f64>,
    background: &Mixture,
    first: ArrayView3<'_, f64>,
    rows: Option<&[f64]>,
) -> Result<Array2<f64>, ModelError> {
    let (k, d) = background.means().dim();
    let ((s, ..), (u, ..)) = (means.dim(), first.dim());
    check("adapted means", means.shape(), &[s, k, d])?;
    check("first moments", first.shape(), &[u, k, d])?;
    if let Some(rows) = rows {
        check("weights of the test utterances", &[rows.len()], &[u])?;
    }
    let flat = |mut all: ndarray::Array3<f64>, count: usize| {
        for mut one in all.outer_iter_mut() {
            one.outer_iter_mut().enumerate().for_each(|(c, row)| whiten(background.factors(), c, row));
        }
        Array2::from_shape_vec((count, k * d), all.into_iter().collect()).expect("k*d numbers each")
    };
    let mut scores = flat(&means - &background.means(), s).dot(&flat(first.to_owned(), u).t());
    if let Some(rows) = rows {
        for (mut column, &n) in scores.axis_iter_mut(Axis(1)).zip(rows) {
            // Without rows there is nothing to score, as in bob.
            column.mapv_inplace(|v| if n > 0.0 { v / n } else { 0.0 });
        }
    }
    Ok(scores)
}

fn check(what: &'static str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: found.to_vec(), expected: expected.to_vec() })
}

/// `L_c⁻¹ z` in place.
fn whiten(factors: &Factors, c: usize, mut z: ArrayViewMut1<'_, f64>) {
    match factors {
        Factors::Diag(sd) => z /= &sd.row(c),
        Factors::Spherical(sd) => z /= sd[c],
        Factors::Full(all) => all[c].solve_lower(z.as_slice_mut().expect("row-major")),
        Factors::Tied(one) => one.solve_lower(z.as_slice_mut().expect("row-major")),
    }
}
