//! What `bench gpu` measures: the one table of workloads, with the chip's floors and the goals.

use gmm_model::CovarianceType::{self, Diag, Full, Spherical, Tied};
use gmm_model::Precision::{self, F32, F64};

use crate::definition::Shape;

/// One EM iteration of some size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// The size's name, as in the table of goals.
    pub(crate) size: &'static str,
    /// Covariance kind.
    pub(crate) kind: CovarianceType,
    /// Type of the rows.
    pub(crate) precision: Precision,
    /// Rows, components, dimensions.
    pub(crate) shape: Shape,
    /// Different rows in the data with which the answer is checked, repeated up to `n`: what the naive reference can
    /// do in a second or two on 16 cores. Divides `n`.
    pub(crate) checked: usize,
    /// Milliseconds that an H200 needs at least: the larger of arithmetic over the measured ceiling and one read of
    /// the rows at 4 TB/s.
    pub(crate) floor_ms: f64,
    /// Milliseconds to be reached on an H200.
    pub(crate) goal_ms: f64,
    /// Whether initialisation by k-means is timed at this size too.
    pub(crate) init: bool,
    /// Whether iterations may give digits away for speed.
    pub(crate) fast: bool,
}

/// A whole fit of small data: 20 iterations, from the call to the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFit {
    /// Name.
    pub(crate) name: &'static str,
    /// Rows, components, dimensions.
    pub(crate) shape: Shape,
    /// From k-means, or from given parameters.
    pub(crate) kmeans: bool,
}

/// Log-likelihoods of rows in `f32`: milliseconds for each set of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluations {
    /// Name.
    pub(crate) name: &'static str,
    /// Covariance kind.
    pub(crate) kind: CovarianceType,
    /// Rows, components, dimensions.
    pub(crate) shape: Shape,
    /// What is evaluated.
    pub(crate) what: Evaluated,
    /// As for [`Workload`].
    pub(crate) floor_ms: f64,
    /// As for [`Workload`].
    pub(crate) goal_ms: Option<f64>,
}

/// What is timed together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluated {
    /// So many sets in a call.
    Sets(usize),
    /// One set with its gradient.
    Gradient,
    /// Sets in batches, made anew for each, for seconds.
    Million,
}

/// k-means++ and Lloyd together may take as long as this many iterations of EM.
pub(crate) const INIT_GOAL_ITERATIONS: f64 = 10.0;
/// A small fit's goal.
pub(crate) const FIT_GOAL_MS: f64 = 1.0;
/// A small fit's iterations.
pub(crate) const FIT_ITERATIONS: usize = 20;

const W1: Shape = Shape { n: 1_000_000, k: 8, d: 13 };
const W2: Shape = Shape { n: 100_000, k: 30, d: 30 };
const W3: Shape = Shape { n: 1_000_000, k: 1024, d: 128 };
const W4: Shape = Shape { n: 1_000_000, k: 64, d: 32 };
const W5: Shape = Shape { n: 10_000_000, k: 16, d: 16 };
const W6: Shape = Shape { n: 1_000_000, k: 100, d: 2 };

/// EM iterations, in the order in which they are run: the longest last.
#[rustfmt::skip]
pub(crate) const WORKLOADS: [Workload; 20] = [
    //       size  kind       type  shape  checked  floor  goal  init
    workload("W1", Full,      F32, W1, 1_000_000,  0.053,  0.12, true),
    workload("W1", Full,      F64, W1, 1_000_000,  0.053,  0.12, false),
    workload("W1", Diag,      F32, W1, 1_000_000,  0.026,  0.05, false),
    workload("W2", Full,      F32, W2,   100_000,  0.094,  0.20, true),
    workload("W2", Full,      F64, W2,   100_000,  0.094,  0.20, false),
    workload("W2", Diag,      F32, W2,   100_000,  0.011,  0.03, false),
    workload("W2", Tied,      F32, W2,   100_000,  0.010,  0.03, false),
    workload("W2", Spherical, F32, W2,   100_000,  0.006,  0.03, false),
    workload("W4", Full,      F32, W4,    40_000,  0.95,   2.2,  true),
    workload("W4", Full,      F64, W4,    40_000,  2.2,    4.4,  false),
    workload("W4", Diag,      F32, W4,    40_000,  0.26,   0.5,  false),
    workload("W5", Full,      F32, W5,   500_000,  1.5,    3.0,  true),
    workload("W6", Full,      F32, W6,   200_000,  0.05,   0.12, false),
    workload("W3", Spherical, F32, W3,    10_000,  7.0,   14.0,  true),
    workload("W3", Diag,      F32, W3,    10_000,  7.0,   14.0,  false),
    workload("W3", Full,      F32, W3,       250,  230.0, 450.0, false),
    fast(workload("W4", Full,      F32, W4, 40_000,  0.32,   2.2, false)),
    fast(workload("W3", Spherical, F32, W3, 10_000,  2.3,    4.0, false)),
    fast(workload("W3", Diag,      F32, W3, 10_000,  2.3,    4.0, false)),
    fast(workload("W3", Full,      F32, W3,    250, 77.0,  110.0, false)),
];

/// Small fits.
#[rustfmt::skip]
pub(crate) const FITS: [SmallFit; 4] = [
    SmallFit { name: "fit-272-given",  shape: Shape { n: 272,    k: 2, d: 2 }, kmeans: false },
    SmallFit { name: "fit-272-kmeans", shape: Shape { n: 272,    k: 2, d: 2 }, kmeans: true },
    SmallFit { name: "fit-1e4-given",  shape: Shape { n: 10_000, k: 3, d: 4 }, kmeans: false },
    SmallFit { name: "fit-1e4-kmeans", shape: Shape { n: 10_000, k: 3, d: 4 }, kmeans: true },
];

/// Log-likelihoods. The gradient's goal is three values, and a million are to take 15 s.
#[rustfmt::skip]
pub(crate) const EVALUATIONS: [Evaluations; 9] = [
    evaluations("likelihood-diag-1",        Diag, Evaluated::Sets(1),   0.013, Some(0.025)),
    evaluations("likelihood-diag-8",        Diag, Evaluated::Sets(8),   0.007, None),
    evaluations("likelihood-diag-64",       Diag, Evaluated::Sets(64),  0.007, Some(0.009)),
    evaluations("likelihood-diag-512",      Diag, Evaluated::Sets(512), 0.007, None),
    evaluations("likelihood-diag-gradient", Diag, Evaluated::Gradient,  0.026, Some(0.075)),
    evaluations("likelihood-diag-million",  Diag, Evaluated::Million,   0.007, Some(0.015)),
    evaluations("likelihood-full-1",        Full, Evaluated::Sets(1),   0.027, None),
    evaluations("likelihood-full-64",       Full, Evaluated::Sets(64),  0.027, None),
    evaluations("likelihood-full-gradient", Full, Evaluated::Gradient,  0.053, None),
];

const fn evaluations(
    name: &'static str,
    kind: CovarianceType,
    what: Evaluated,
    floor_ms: f64,
    goal_ms: Option<f64>,
) -> Evaluations {
    Evaluations { name, kind, shape: W1, what, floor_ms, goal_ms }
}

#[expect(clippy::too_many_arguments, reason = "a row of the table above")]
const fn workload(
    size: &'static str,
    kind: CovarianceType,
    precision: Precision,
    shape: Shape,
    checked: usize,
    floor_ms: f64,
    goal_ms: f64,
    init: bool,
) -> Workload {
    Workload { size, kind, precision, shape, checked, floor_ms, goal_ms, init, fast: false }
}

const fn fast(of: Workload) -> Workload {
    Workload { fast: true, ..of }
}

impl Workload {
    /// `W1-full-f32`, `W3-full-fast`.
    pub(crate) fn name(&self) -> String {
        let digits = if self.fast { "fast" } else { self.precision.name() };
        format!("{}-{}-{digits}", self.size, self.kind)
    }

    /// `W1-init`.
    pub(crate) fn init_name(&self) -> String {
        format!("{}-init", self.size)
    }

    /// The same in small, to try the harness and not the machine.
    pub(crate) fn quick(mut self) -> Self {
        let Shape { k, d, .. } = self.shape;
        self.shape = Shape { n: 2_000, k: k.min(8), d: d.min(8) };
        self.checked = 500;
        self
    }
}

impl Evaluations {
    /// As for [`Workload`].
    pub(crate) fn quick(mut self) -> Self {
        self.shape = Shape { n: 2_000, ..self.shape };
        if let Evaluated::Sets(sets) = &mut self.what {
            *sets = (*sets).min(20);
        }
        self
    }
}

/// What an answer may miss the reference by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Weights, first and second moments, each: relative Frobenius.
    pub(crate) sums: f64,
    /// Log-likelihood per row, absolute.
    pub(crate) log_likelihood: f64,
}

impl Tolerance {
    /// With so much more allowed to the sums.
    pub(crate) const fn and(self, sums: f64) -> Self {
        Self { sums: self.sums + sums, ..self }
    }

    /// Where digits were given away: a log density of `d` columns, of entries four standard deviations from the shift, whose
    /// squares are rounded to 2⁻¹² each; a responsibility, and so the sums, miss as much.
    pub(crate) fn and_halves(self, d: usize) -> Self {
        let more = 16.0 / 4096.0 * (d as f64).sqrt();
        Self { sums: self.sums + more, log_likelihood: self.log_likelihood + more }
    }
}

/// The tolerance for rows of a type, without a mode that trades exactness for speed.
pub(crate) const fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        F32 => Tolerance { sums: 2e-6, log_likelihood: 1e-5 },
        F64 => Tolerance { sums: 1e-12, log_likelihood: 1e-12 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_rows_repeat_up_to_n_without_a_rest() {
        for workload in WORKLOADS {
            for workload in [workload, workload.quick()] {
                assert_eq!(workload.shape.n % workload.checked, 0, "{}", workload.name());
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = WORKLOADS.iter().map(Workload::name).collect();
        names.extend(WORKLOADS.iter().filter(|w| w.init).map(Workload::init_name));
        names.extend(FITS.iter().map(|fit| fit.name.to_owned()));
        names.extend(EVALUATIONS.iter().map(|case| case.name.to_owned()));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
