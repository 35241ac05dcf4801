//! A mixture as the kernels read it, and sums as they write them.

use gmm_kernels::deconvolution::Form;
use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, Statistics, packed_index, packed_len};

/// Component weights, `(k,)`, then records, `(k, Form::record)`.
pub(super) fn numbers(mixture: &Mixture, form: Form) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let (columns, record) = (form.columns(d as u32) as usize, form.record(d as u32) as usize);
    let mut out = mixture.weights().to_vec();
    out.resize(k + k * record, 0.0);
    for (c, record) in out[k..].chunks_exact_mut(record).enumerate() {
        let (head, second) = record.split_at_mut(1 + columns);
        head[0] = mixture.log_weight(c);
        head[1..].iter_mut().zip(mixture.means().row(c)).for_each(|(to, mean)| *to = *mean);
        match (form, mixture.covariances()) {
            (Form::Columns, Covariances::Diag(all)) => {
                second.iter_mut().zip(all.row(c)).for_each(|(to, v)| *to = *v);
            }
            (Form::Columns, Covariances::Spherical(all)) => second.fill(all[c]),
            (_, all) => {
                let a = all.matrix(c, d);
                (0..d).for_each(|i| (0..=i).for_each(|j| second[packed_index(i, j)] = a[[i, j]]));
            }
        }
    }
    out
}

/// Adds the sums of all components, `(k, Form::sums)`, to statistics.
pub(super) fn add_sums(form: Form, sums: &[f64], out: &mut Statistics) {
    let (k, d) = out.first.dim();
    let (columns, packed) = (form.columns(d as u32) as usize, packed_len(d));
    for (c, sums) in sums.chunks_exact(form.sums(d as u32) as usize).enumerate().take(k) {
        out.weight[c] += sums[0];
        out.first.row_mut(c).iter_mut().zip(&sums[1..]).for_each(|(to, v)| *to += v);
        // Of a triangle, rows past `d` are behind the others.
        let from = &sums[1 + columns..];
        let diagonal = |i: usize| from[if form == Form::Columns { i } else { packed_index(i, i) }];
        match out.kind {
            CovarianceType::Full => add(&mut out.second[c * packed..][..packed], from),
            CovarianceType::Tied => add(&mut out.second, &from[..packed]),
            CovarianceType::Diag => (0..d).for_each(|i| out.second[c * d + i] += diagonal(i)),
            CovarianceType::Spherical => out.second[c] += (0..d).map(diagonal).sum::<f64>(),
        }
    }
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, v)| *to += v);
}

/// The error of a failure that a block wrote; the covariance kind is the caller's to set.
pub(super) fn failure(failure: &[f64]) -> ModelError {
    ModelError::NotPositiveDefinite {
        component: failure[0] as usize - 1,
        column: failure[1] as usize,
        pivot: failure[2],
        kind: CovarianceType::Full,
    }
}
