//! Variational Bayes in the loop, against `gmm_model::bayes` over reference passes.

use super::harness::{How, Loop, Options, PLAIN, packed, run};
use super::same;
use crate::compare::close;
use crate::data::{Random, mixture, rows};
use crate::harness::KINDS;
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::m_step::bayes::scale_len;
use gmm_kernels::em::m_step::{self, Update, kind};
use gmm_kernels::em::state::{DONE, FINISHED, TROUBLE};
use gmm_kernels::layout::Kind;
use gmm_model::bayes::{BayesPrior, Posterior, WeightPrior};
use gmm_model::{CovarianceType, Mixture, PriorScale, packed_index, reference};
use ndarray::{Array1, Array2, Axis, array};
use std::ptr::{null, null_mut};

/// A prior on the device.
pub(super) struct Conjugate<'a> {
    prior: &'a BayesPrior,
    kind: Kind,
    k: usize,
    /// The mean less the shift, then the packed scale.
    packed: Vec<f64>,
    buffer: Buffer<f64>,
}

/// The arguments of the M-step, of which those that belong to the prior are those of EM.
pub(super) const WITHOUT_PRIOR: Update = Update {
    state: null_mut(),
    iteration: 0,
    max_iter: 0,
    tol: 0.0,
    kind: 0,
    k: 0,
    d: 0,
    steps: 0,
    groups: 0,
    classes: 0,
    sums: null(),
    scatter: null(),
    total_weight: 0.0,
    reg_covar: 0.0,
    most_terms: 0.0,
    least_left: 0.0,
    about_means: 0,
    weights: null_mut(),
    means: null_mut(),
    covariances: null_mut(),
    empty: null_mut(),
    coefficients: null_mut(),
    constants: null_mut(),
    roots: null_mut(),
    carry: null_mut(),
    trace: null_mut(),
    matrices: null_mut(),
    prior: null(),
    process: 0,
    concentration: 0.0,
    mean_precision: 0.0,
    degrees_of_freedom: 0.0,
    divergence_constant: 0.0,
    counts: null_mut(),
    divergences: null_mut(),
};

impl<'a> Conjugate<'a> {
    pub(super) fn new(prior: &'a BayesPrior, kind: Kind, k: usize, shift: &[f64]) -> Self {
        let mut packed: Vec<f64> = prior.mean.iter().zip(shift).map(|(m, shift)| m - shift).collect();
        let d = packed.len();
        match &prior.scale {
            PriorScale::Matrix(a) => (0..d).for_each(|i| (0..=i).for_each(|j| packed.push(a[[i, j]]))),
            PriorScale::Variances(v) => packed.extend(v),
            PriorScale::Variance(v) => packed.push(*v),
        }
        assert_eq!(packed.len() as u64, d as u64 + scale_len(m_step::number(kind), d as u32));
        let buffer = Buffer::new(&packed);
        Self { prior, kind, k, packed, buffer }
    }

    pub(super) fn add_to_scatter(&self, scatter: &mut [f64]) {
        if self.kind == Kind::Tied {
            let d = self.prior.mean.len();
            for i in 0..d {
                for j in 0..=i {
                    let apart = self.prior.mean_precision * self.packed[i] * self.packed[j];
                    scatter[packed_index(i, j)] += self.k as f64 * (self.packed[d + packed_index(i, j)] + apart);
                }
            }
        }
    }

    /// The arguments that belong to the prior.
    pub(super) fn arguments(&self) -> Update {
        let (prior, times) = (self.prior, if self.kind == Kind::Tied { self.k as f64 } else { 1.0 });
        let name = KINDS.iter().find(|(_, kind)| *kind == self.kind).unwrap().0;
        Update {
            prior: self.buffer.pointer(),
            process: matches!(prior.weights, WeightPrior::DirichletProcess { .. }).into(),
            concentration: prior.weights.concentration(),
            mean_precision: prior.mean_precision,
            degrees_of_freedom: prior.degrees_of_freedom * times,
            divergence_constant: prior.divergence_constant(name, self.k),
            ..WITHOUT_PRIOR
        }
    }
}

const WEIGHTS: [WeightPrior; 2] =
    [WeightPrior::Dirichlet { concentration: 0.3 }, WeightPrior::DirichletProcess { concentration: 1.7 }];

/// A prior near the rows, whose numbers all differ.
fn prior_of(kind: CovarianceType, weights: WeightPrior, data: &Array2<f64>) -> BayesPrior {
    let mean = data.mean_axis(Axis(0)).unwrap();
    let d = mean.len();
    let variances = Array1::from_shape_fn(d, |j| 0.7 + 0.1 * j as f64);
    let scale = match kind {
        CovarianceType::Full | CovarianceType::Tied => PriorScale::Matrix(Array2::from_shape_fn((d, d), |(i, j)| {
            if i == j { 1.0 + variances[i] } else { 0.3 / (1.0 + i.abs_diff(j) as f64) }
        })),
        CovarianceType::Diag => PriorScale::Variances(variances),
        CovarianceType::Spherical => PriorScale::Variance(0.8),
    };
    let mean = mean + &Array1::from_shape_fn(d, |j| 0.25 - 0.1 * j as f64);
    BayesPrior { weights, mean, mean_precision: 0.6, degrees_of_freedom: d as f64 + 0.4, scale }
}

/// The posterior and the bounds over the total weight that the host gives.
fn expected(prior: &BayesPrior, start: &Mixture, data: &Array2<f64>, o: &Options<'_>) -> (Posterior, Vec<f64>) {
    let total = o.row_weights.map_or(data.nrows() as f64, |w| w.iter().sum());
    let mut posterior = prior.update_from(start, total).unwrap();
    let mut trace = Vec::new();
    for _ in 0..o.iterations {
        let step = posterior.expectation().unwrap();
        let statistics = reference::statistics(&step.mixture, data.view(), o.row_weights);
        let bound = statistics.log_likelihood + total * step.log_scale - posterior.divergence();
        trace.push(bound / total);
        posterior = prior.update(&statistics, o.reg_covar).unwrap();
    }
    (posterior, trace)
}

fn compare(got: &Loop, (posterior, trace): (&Posterior, &[f64]), tolerance: f64, what: &str) {
    let iterations = trace.len();
    assert_eq!(got.state[TROUBLE as usize], 0, "{what}: trouble");
    assert_eq!([DONE, FINISHED].map(|at| got.state[at as usize]), [iterations as u32; 2], "{what}: finished");
    for (a, b) in got.trace.iter().zip(trace) {
        close(*a, *b, 1.0 + b.abs(), tolerance, &format!("{what}: bound"));
    }
    same(&got.counts, posterior.counts().as_slice().unwrap(), tolerance, &format!("{what}: counts"));
    same(&got.means, posterior.mixture().means().as_slice().unwrap(), tolerance, &format!("{what}: means"));
    same(&got.covariances, &packed(posterior.mixture()), tolerance, &format!("{what}: covariances"));
    assert!(got.empty.iter().all(|e| *e == u32::MAX), "{what}: `empty` is not written");
}

fn check<T: Real>(kind: (CovarianceType, Kind), (n, d, k): (usize, usize, usize), offset: f64, o: &Options<'_>) {
    let random = &mut Random((n * 1000 + d * 50 + k) as u64);
    let start = mixture(kind.0, k, d, offset, random);
    let data = rows::<T>(&start, n, random);
    for weights in WEIGHTS {
        let prior = prior_of(kind.0, weights, &data);
        let got = run::<T>(kind.1, &start, &data, &Options { prior: Some(&prior), ..*o });
        let (posterior, trace) = expected(&prior, &start, &data, o);
        let tolerance = if T::BYTES == 4 { 2e-6 } else { 1e-11 } * f64::from(o.iterations);
        let what = format!("{} {} {} n={n} d={d} k={k}", T::NAME, kind.0, weights.name());
        compare(&got, (&posterior, &trace), tolerance, &what);
    }
}

#[test]
fn the_posterior_and_the_bound_are_those_of_the_model() {
    let o = Options { iterations: 3, ..PLAIN };
    for kind in KINDS {
        for shape in [(200, 1, 1), (150, 3, 2), (301, 5, 9), (120, 17, 3)] {
            check::<f64>(kind, shape, 0.0, &o);
        }
        check::<f32>(kind, (301, 5, 4), 3.0, &o);
        check::<f64>(kind, (301, 5, 3), 1e6, &o);
    }
}

#[test]
fn rows_have_weights() {
    let random = &mut Random(5);
    let weights: Vec<f64> = (0..333).map(|i| if i % 5 == 3 { 0.0 } else { 0.25 + random.uniform() }).collect();
    for kind in KINDS {
        let o = Options { row_weights: Some(&weights), iterations: 3, blocks: 3, ..PLAIN };
        check::<f64>(kind, (333, 6, 4), 3.0, &o);
    }
}

#[test]
fn matrices_in_device_memory_and_every_kind_of_pass() {
    let wide = Options { wide: true, iterations: 2, ..PLAIN };
    check::<f64>(KINDS[0], (120, 9, 3), 0.0, &wide);
    check::<f64>(KINDS[1], (120, 9, 3), 0.0, &wide);
    let chunked = Options { how: How::DoublePrecision(128), iterations: 2, ..PLAIN };
    for kind in KINDS {
        check::<f64>(kind, (260, 18, 10), 0.0, &chunked);
    }
    // More components than a warp has lanes, and than are pooled at once.
    check::<f64>(KINDS[1], (300, 3, 40), 0.0, &Options { iterations: 2, ..PLAIN });
    // Densities about the means, from inverses of the Cholesky factors.
    let small = Options { how: How::SmallDPass, iterations: 2, ..PLAIN };
    check::<f32>(KINDS[0], (300, 2, 3), 0.0, &small);
    let split = Options { how: How::HalfPrecision { chunk: 128, one: false }, iterations: 1, ..PLAIN };
    check::<f32>(KINDS[0], (300, 17, 3), 0.0, &split);
}

#[test]
fn components_without_rows_have_the_prior() {
    for (name, kind) in KINDS {
        let random = &mut Random(11);
        let near = mixture(name, 3, 2, 0.0, random);
        let data = rows::<f64>(&near, 150, random);
        let mut means = near.means().to_owned();
        means.row_mut(1).assign(&array![1e3, -1e3]);
        let start = Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        for concentration in [1e-5, 0.2] {
            for weights in [WeightPrior::Dirichlet { concentration }, WeightPrior::DirichletProcess { concentration }] {
                let prior = prior_of(name, weights, &data);
                let o = Options { iterations: 4, ..PLAIN };
                let got = run::<f64>(kind, &start, &data, &Options { prior: Some(&prior), ..o });
                let (posterior, trace) = expected(&prior, &start, &data, &o);
                compare(&got, (&posterior, &trace), 1e-10, &format!("{name} {}", weights.name()));
            }
        }
    }
}

#[test]
fn the_loop_stops_where_the_bound_converges_and_says_if_precision_is_lost() {
    let random = &mut Random(9);
    let start = mixture(CovarianceType::Full, 2, 3, 0.0, random);
    let mut data = rows::<f64>(&start, 200, random);
    let prior = prior_of(CovarianceType::Full, WEIGHTS[0], &data);
    let o = Options { iterations: 12, tol: 1e-2, prior: Some(&prior), ..PLAIN };
    let got = run::<f64>(Kind::Full, &start, &data, &o);
    let (_, trace) = expected(&prior, &start, &data, &o);
    let stop = (1..12).find(|i| (trace[*i] - trace[*i - 1]).abs() < 1e-2).unwrap() as u32 + 1;
    assert!(stop < 12);
    assert_eq!([DONE, FINISHED].map(|at| got.state[at as usize]), [stop; 2]);
    assert!(got.trace[stop as usize..].iter().all(|v| v.is_nan()), "later launches do nothing");
    let (posterior, _) = expected(&prior, &start, &data, &Options { iterations: stop, ..o });
    same(&got.covariances, &packed(posterior.mixture()), 1e-10, "the parameters of that iteration stay");

    data[[3, 0]] = 1e200;
    data[[4, 0]] = -1e200;
    for (name, number) in KINDS {
        let start = mixture(name, 2, 3, 0.0, random);
        let prior = prior_of(name, WEIGHTS[1], &start.means().to_owned());
        let got = run::<f64>(number, &start, &data, &Options { prior: Some(&prior), ..o });
        assert_eq!(got.state[TROUBLE as usize], 1, "{name}");
    }
}

#[test]
fn kinds_are_numbered_as_in_the_m_step() {
    assert_eq!(KINDS.map(|(_, kind)| m_step::number(kind)), [kind::FULL, kind::TIED, kind::DIAG, kind::SPHERICAL]);
    assert_eq!([kind::FULL, kind::TIED, kind::DIAG, kind::SPHERICAL].map(|of| scale_len(of, 3)), [6, 6, 3, 1]);
}
