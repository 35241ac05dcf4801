//! The integrated completed likelihood by labels: that of mclust.

use gmm_model::{Covariances, Criteria, Factors, Mixture, Precision, Statistics};

use crate::{Data, Engine, Error, EvaluateOptions, shift};

/// `BIC − 2 Σ w ln max_c r_c`: BIC of the data together with the label of each row, its component of largest
/// responsibility (Biernacki, Celeux and Govaert 2000). Lower is better;
/// mclust's `icl` is the negative of it. [`Criteria::icl`] has the entropy in place of the labels.
///
/// Rows of weight 0 do not count. Cost: loading the rows, an evaluation, and a pass; no array of `n*k` numbers.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Memory`]; any error of the engine.
pub fn labels_icl<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<f64, Error> {
    let data = data.into();
    data.require_exact("the ICL of labels")?;
    let present = data.without_absent_rows();
    let data = present.as_ref().map_or(data, Data::from);
    let (n, d) = data.dim();
    crate::engine::check_features(d, mixture.n_features())?;
    crate::memory::check("the labels", 4 * n as u128)?;
    let precision = engine.precision(precision);
    let mut rows = data.load(engine, precision, &shift::of_mixture(mixture), None)?;
    let mut labels = vec![0_u32; n];
    let totals = rows.evaluate(mixture, EvaluateOptions { labels: Some(&mut labels), ..EvaluateOptions::default() })?;
    let k = mixture.n_components();
    let fill = |first: usize, out: &mut [f64]| {
        out.fill(0.0);
        out.chunks_exact_mut(k).zip(&labels[first..]).for_each(|(row, &c)| row[c as usize] = 1.0);
    };
    let statistics = rows.given(mixture.covariance_type(), mixture.means(), &fill)?;
    let criteria = Criteria::new(mixture.n_parameters(), totals.log_likelihood, totals.total_weight, totals.entropy);
    // Σ w ln r of the labels is the log-likelihood of rows and labels less that of the rows.
    Ok(criteria.bic - 2.0 * (joint(mixture, &statistics) - totals.log_likelihood))
}

/// `Σ w ln(π_c N(x | μ_c, Σ_c))` over rows with known components, whose statistics about the means these are.
fn joint(mixture: &Mixture, statistics: &Statistics) -> f64 {
    let (k, d) = statistics.dim();
    let present = |c: &usize| statistics.weight[*c] > 0.0;
    let constants: f64 = (0..k)
        .filter(present)
        .map(|c| statistics.weight[c] * (mixture.log_weight(c) + mixture.log_normalizer(c)))
        .sum();
    let distances: f64 = match (mixture.factors(), mixture.covariances()) {
        (Factors::Full(factors), _) => {
            let per = gmm_model::packed_len(d);
            (0..k).filter(present).map(|c| trace(&factors[c], &statistics.second[c * per..][..per])).sum()
        }
        (Factors::Tied(factor), _) => trace(factor, &statistics.second),
        (_, Covariances::Diag(variances)) => statistics.second.iter().zip(variances).map(|(s, v)| s / v).sum(),
        (_, Covariances::Spherical(variances)) => statistics.second.iter().zip(variances).map(|(s, v)| s / v).sum(),
        _ => unreachable!("factors and covariances are of one kind"),
    };
    constants - 0.5 * distances
}

/// `tr(Σ⁻¹ S)` of a factor of Σ and packed S.
fn trace(factor: &gmm_model::Cholesky, packed: &[f64]) -> f64 {
    let d = factor.dim();
    let mut column = vec![0.0; d];
    let entry = |j: usize, column: &mut [f64]| {
        for (i, v) in column.iter_mut().enumerate() {
            *v = packed[gmm_model::packed_index(i.max(j), i.min(j))];
        }
        factor.solve_lower(column);
        factor.solve_lower_transposed(column);
        column[j]
    };
    (0..d).map(|j| entry(j, &mut column)).sum()
}
