//! Passes and evaluations against the naive reference, for every kind of covariance and of limits.

use gmm_host::{EvaluateOptions, Gradient};
use gmm_model::censoring::reference;
use gmm_model::{Covariances, Statistics, packed_index, packed_len};

use super::*;

/// The error of the reference, Simpson's rule of 600 steps in each of two columns.
const TOLERANCE: f64 = 1e-6;

/// Adds `r` rows with the moments of the reference to the statistics of a component.
fn add(out: &mut Statistics, c: usize, r: f64, first: &[f64], second: &[f64]) {
    let d = first.len();
    out.weight[c] += r;
    (0..d).for_each(|j| out.first[[c, j]] += r * first[j]);
    for i in 0..d {
        for j in 0..=i {
            let value = r * second[packed_index(i, j)];
            match out.kind {
                CovarianceType::Full => out.second[c * packed_len(d) + packed_index(i, j)] += value,
                CovarianceType::Tied => out.second[packed_index(i, j)] += value,
                CovarianceType::Diag if i == j => out.second[c * d + i] += value,
                CovarianceType::Spherical if i == j => out.second[c] += value,
                _ => {}
            }
        }
    }
}

/// The statistics of the naive reference, and the density of each row.
fn naive(mixture: &Mixture, data: &Dataset) -> (Statistics, Vec<f64>) {
    let (k, limits) = (mixture.n_components(), data.limits().unwrap());
    let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    let mut densities = Vec::new();
    for row in 0..data.n_rows() {
        let (lower, upper) = limits.row(row);
        let of = |c| reference::component(mixture, c, lower.as_slice().unwrap(), upper.as_slice().unwrap());
        let all: Vec<_> = (0..k).map(of).collect();
        let density: f64 = all.iter().zip(mixture.weights()).map(|(of, w)| of.0 * w).sum();
        densities.push(density);
        let w = data.weight(row);
        for (c, (own, first, second)) in all.iter().enumerate() {
            add(&mut out, c, w * own * mixture.weights()[c] / density, first.as_slice().unwrap(), second);
        }
        out.log_likelihood += w * density.ln();
        out.total_weight += w;
    }
    out.n_rows = data.n_rows() as u64;
    let Some((lower, upper)) = limits.truncation() else { return (out, densities) };
    let inside: Vec<_> = (0..k).map(|c| reference::component(mixture, c, lower, upper)).collect();
    let recorded: f64 = inside.iter().zip(mixture.weights()).map(|(of, w)| of.0 * w).sum();
    for (c, (p, first, second)) in inside.iter().enumerate() {
        // Of all rows, less those inside.
        let (open, times) = (vec![INF; lower.len()], out.total_weight * mixture.weights()[c] / recorded);
        let below: Vec<f64> = open.iter().map(|v| -v).collect();
        let (_, all_first, all_second) = reference::component(mixture, c, &below, &open);
        add(&mut out, c, times, all_first.as_slice().unwrap(), &all_second);
        add(&mut out, c, -times * p, first.as_slice().unwrap(), second);
    }
    out.log_likelihood -= out.total_weight * recorded.ln();
    densities.iter_mut().for_each(|density| *density /= recorded);
    (out, densities)
}

fn check(mixture: &Mixture, data: &Dataset, what: &str) {
    let what = &format!("{} {what}", mixture.covariance_type());
    let (want, densities) = naive(mixture, data);
    let mut resident = load(&cpu(), data);
    let got = resident.pass(mixture).unwrap();
    common::check(&got, &want, TOLERANCE, what);
    assert!((got.total_weight - want.total_weight).abs() <= 1e-12 * want.total_weight, "{what}");
    let (n, k) = (data.n_rows(), mixture.n_components());
    let (mut log_densities, mut r) = (vec![0.0; n], vec![0.0; n * k]);
    let wanted = EvaluateOptions {
        log_densities: Some(&mut log_densities),
        responsibilities: Some((&mut r).into()),
        labels: None,
    };
    let totals = resident.evaluate(mixture, wanted).unwrap();
    for (row, (found, want)) in log_densities.iter().zip(&densities).enumerate() {
        assert!(
            (found - want.ln()).abs() < TOLERANCE * (1.0 + want.ln().abs()),
            "{what}: {row}: {found} {}",
            want.ln()
        );
        assert!((r[row * k..][..k].iter().sum::<f64>() - 1.0).abs() < 1e-14);
    }
    assert!((totals.log_likelihood - got.log_likelihood).abs() < 1e-12 * got.log_likelihood.abs(), "{what}");
}

#[test]
fn passes_and_densities_are_those_of_the_reference_for_every_kind() {
    for kind in CovarianceType::ALL {
        for (d, most) in [(1, 1), (2, 2), (3, 2)] {
            let data = censored(13, d, most, d as u64);
            assert!(data.limits().unwrap().n_limited() > 0);
            let mixture = mixture(kind, 2, d, 3);
            check(&mixture, &data, "censored");
            let weights = (0..13).map(|i| 0.5 * (i % 4) as f64).collect();
            check(&mixture, &data.with_weights(weights).unwrap(), "weighted");
        }
    }
}

/// Rows within a box in the first column of one or two, and in both.
fn truncated(d: usize, upper: f64) -> Dataset {
    let rows = common::rows(40, d, 0.0, 1.0, 9);
    let inside =
        |row: &ndarray::ArrayView1<'_, f64>| row.iter().all(|v| *v > -2.0) && row[0] < 2.5 && row[d - 1] < upper;
    let kept: Vec<f64> = rows.outer_iter().filter(inside).flat_map(|row| row.to_vec()).collect();
    let rows = Array2::from_shape_vec((kept.len() / d, d), kept).unwrap();
    let mut ends = vec![upper; d];
    ends[0] = 2.5f64.min(ends[0]);
    Dataset::new(rows).unwrap().with_truncation(vec![-2.0; d], ends).unwrap()
}

#[test]
fn truncated_passes_are_those_of_the_reference_for_every_kind() {
    for kind in CovarianceType::ALL {
        for (d, upper) in [(1, 2.5), (2, INF), (2, 3.0)] {
            check(&mixture(kind, 2, d, 3), &truncated(d, upper), "truncated");
        }
    }
}

#[test]
fn statistics_give_the_gradient_of_censored_and_truncated_rows() {
    let data = [censored(60, 2, 2, 5), truncated(2, 3.0)];
    for (kind, data) in
        [CovarianceType::Full, CovarianceType::Diag].iter().flat_map(|k| data.iter().map(move |d| (*k, d)))
    {
        let mixture = mixture(kind, 2, 2, 4);
        let mut resident = load(&cpu(), data);
        let gradient = Gradient::of(&mixture, &resident.pass(&mixture).unwrap());
        let mut value = |m: &Mixture| resident.evaluate(m, EvaluateOptions::default()).unwrap().log_likelihood;
        // The error of a quotient is h² times the third derivative, and eps |value| / h.
        let h = 1e-5;
        let mut slope = |at: &dyn Fn(f64) -> Mixture| (value(&at(h)) - value(&at(-h))) / (2.0 * h);
        let mean = slope(&|by| {
            let mut means = mixture.means().to_owned();
            means[[1, 0]] += by;
            Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap()
        });
        assert!((mean - gradient.means[[1, 0]]).abs() < 1e-5 * (1.0 + mean.abs()), "{mean} {}", gradient.means[[1, 0]]);
        let weight = slope(&|by| {
            let mut w = mixture.weights().to_owned();
            w[0] *= by.exp();
            let sum = w.sum();
            Mixture::new(w / sum, mixture.means().to_owned(), mixture.covariances().clone()).unwrap()
        });
        assert!((weight - gradient.log_weights[0]).abs() < 1e-5 * (1.0 + weight.abs()), "{weight}");
        if let Covariances::Diag(all) = mixture.covariances() {
            let scale = slope(&|by| {
                let mut all = all.clone();
                all[[1, 1]] *= (2.0 * by).exp();
                Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), Covariances::Diag(all)).unwrap()
            });
            assert!((scale - gradient.scales[3]).abs() < 1e-5 * (1.0 + scale.abs()), "{scale}");
        }
    }
}

#[test]
fn threads_and_order_of_rows_change_only_rounding() {
    let (data, mixture) = (censored(200, 3, 3, 2), mixture(CovarianceType::Full, 3, 3, 1));
    let one = load(&CpuEngine::new(1).unwrap(), &data).pass(&mixture).unwrap();
    common::check(&load(&cpu(), &data).pass(&mixture).unwrap(), &one, 1e-12, "threads");
    assert_eq!(load(&cpu(), &data).pass(&mixture).unwrap(), load(&cpu(), &data).pass(&mixture).unwrap());
    let back: Vec<usize> = (0..200).rev().collect();
    common::check(&load(&cpu(), &data.select_rows(&back)).pass(&mixture).unwrap(), &one, 1e-12, "order");
}
