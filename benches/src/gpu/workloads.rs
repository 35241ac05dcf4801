//! The table of workloads of `bench gpu`, with the chip's floors and the goals.

use gmm_model::CovarianceType::{self, Diag, Full, Spherical, Tied};
use gmm_model::Precision::{self, F32, F64};

use crate::definition::Shape;

/// An EM iteration of one size.
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
    /// Number of distinct rows with which the answer is checked, repeated up to `n`: what the naive reference can sum
    /// in a second or two on 16 cores. Divides `n`.
    pub(crate) checked: usize,
    /// Minimum milliseconds on an H200: the larger of arithmetic at the measured ceiling and one read of the rows at 4
    /// TB/s.
    pub(crate) floor_ms: f64,
    /// Target milliseconds on an H200.
    pub(crate) goal_ms: f64,
    /// Whether initialisation by k-means is timed at this size too.
    pub(crate) init: bool,
    /// Whether iterations use `EmOptions::fast`, which trades precision for speed.
    pub(crate) fast: bool,
}

/// A whole fit of small data: 20 iterations, from the call to the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFit {
    /// Name.
    pub(crate) name: &'static str,
    /// Rows, components, dimensions.
    pub(crate) shape: Shape,
    /// Whether the fit starts from k-means; else from given parameters.
    pub(crate) kmeans: bool,
}

/// Log-likelihoods of rows in `f32`, in milliseconds per parameter set.
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

/// The evaluation that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluated {
    /// A batch of this many sets in one call.
    Sets(usize),
    /// One set with its gradient.
    Gradient,
    /// A change of one component, with the other components' densities taken from a cache.
    Step,
    /// Batches of newly made sets for some seconds, extrapolated to a million sets.
    Million,
}

/// A query to a resident matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Name.
    pub(crate) name: &'static str,
    /// Type of the matrix.
    pub(crate) precision: Precision,
    /// Whether precision is traded for speed.
    pub(crate) fast: bool,
    /// The kind of query.
    pub(crate) asked: MatrixQuery,
    /// Rows and columns of the matrix, and number of queries.
    pub(crate) shape: (usize, usize, usize),
    /// As for [`Workload`].
    pub(crate) floor_ms: f64,
    /// As for [`Workload`].
    pub(crate) goal_ms: Option<f64>,
}

/// The kind of query to a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixQuery {
    /// Products with its rows.
    Product,
    /// Quadratic forms.
    Forms,
    /// Mahalanobis distances, in f64.
    Distances,
    /// The best ten rows.
    Best,
}

/// A product of two square matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Square {
    /// Number of rows and columns.
    pub(crate) side: usize,
    /// Type of the entries.
    pub(crate) precision: Precision,
    /// Where the product is computed, and which transfers are included.
    pub(crate) place: Where,
}

/// Where square matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// On all CPU cores.
    Cpu,
    /// On the GPU: both factors are copied to it, and the product back.
    Sent,
    /// On the GPU: one factor is resident; the other is copied to it, and the product back.
    MatrixQuery,
    /// On the GPU, without transfers.
    Resident,
}

/// Goal of k-means++ and Lloyd together: the time of this many EM iterations.
pub(crate) const INIT_GOAL_ITERATIONS: f64 = 10.0;
/// Goal of a small fit, in milliseconds.
pub(crate) const FIT_GOAL_MS: f64 = 1.0;
/// Iterations of a small fit.
pub(crate) const FIT_ITERATIONS: usize = 20;

const W1: Shape = Shape { n: 1_000_000, k: 8, d: 13 };
const W2: Shape = Shape { n: 100_000, k: 30, d: 30 };
const W3: Shape = Shape { n: 1_000_000, k: 1024, d: 128 };
const W4: Shape = Shape { n: 1_000_000, k: 64, d: 32 };
const W5: Shape = Shape { n: 10_000_000, k: 16, d: 16 };
const W6: Shape = Shape { n: 1_000_000, k: 100, d: 2 };

/// EM iterations, in the order in which they are run.
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

/// Log-likelihoods. The gradient's goal is the time of three values; a million values should take 15 s. The floor of
/// diagonal batches is six products of half-precision slices with 32 terms each, at 790 TFLOP/s.
#[rustfmt::skip]
pub(crate) const EVALUATIONS: [Evaluations; 11] = [
    evaluations("likelihood-diag-1",        Diag, Evaluated::Sets(1),   0.013, Some(0.025)),
    evaluations("likelihood-diag-8",        Diag, Evaluated::Sets(8),   0.004, None),
    evaluations("likelihood-diag-64",       Diag, Evaluated::Sets(64),  0.004, Some(0.009)),
    evaluations("likelihood-diag-512",      Diag, Evaluated::Sets(512), 0.004, None),
    evaluations("likelihood-diag-gradient", Diag, Evaluated::Gradient,  0.026, Some(0.075)),
    // Floor: reading the rows once, writing the component's densities once, and reading all components' once.
    evaluations("likelihood-diag-step",     Diag, Evaluated::Step,      0.031, None),
    evaluations("likelihood-diag-million",  Diag, Evaluated::Million,   0.004, Some(0.015)),
    evaluations("likelihood-full-1",        Full, Evaluated::Sets(1),   0.027, None),
    evaluations("likelihood-full-64",       Full, Evaluated::Sets(64),  0.027, None),
    evaluations("likelihood-full-gradient", Full, Evaluated::Gradient,  0.053, None),
    evaluations("likelihood-full-step",     Full, Evaluated::Step,      0.031, None),
];

const WIDE: (usize, usize, usize) = (2000, 40_000, 2000);
const FORMS: (usize, usize, usize) = (1000, 1000, 50_000);

/// Queries to a matrix. Floors: 66.3 TFLOP/s in f64; 558 in fp16, with three products for one in f32. Forms and
/// distances need only triangles.
#[rustfmt::skip]
pub(crate) const PRODUCTS: [Product; 8] = [
    product("product-f64",      F64, false, MatrixQuery::Product,   WIDE,  4.83, Some(6.5)),
    product("product-f32",      F32, false, MatrixQuery::Product,   WIDE,  1.72, Some(3.2)),
    product("product-f32-fast", F32, true,  MatrixQuery::Product,   WIDE,  0.57, None),
    product("product-forms-f32",        F32, false, MatrixQuery::Forms,     FORMS, 0.75, Some(3.0)),
    product("product-forms-f64",        F64, false, MatrixQuery::Forms,     FORMS, 0.75, None),
    product("product-distances",        F64, false, MatrixQuery::Distances, FORMS, 0.75, None),
    product("product-search-f32",       F32, false, MatrixQuery::Best, (1_000_000, 128, 100), 0.13, None),
    product("product-search-1-f32",     F32, false, MatrixQuery::Best, (1_000_000, 128, 1),   0.13, None),
];

/// Sides of the square matrices with which CPU and GPU are compared.
const SIDES: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// Products of square matrices, smallest first.
pub(crate) fn squares() -> impl Iterator<Item = Square> {
    let places = [Where::Cpu, Where::Sent, Where::MatrixQuery, Where::Resident];
    SIDES.into_iter().flat_map(move |side| {
        [F32, F64].into_iter().flat_map(move |precision| places.map(move |place| Square { side, precision, place }))
    })
}

const fn product(
    name: &'static str,
    precision: Precision,
    fast: bool,
    asked: MatrixQuery,
    shape: (usize, usize, usize),
    floor_ms: f64,
    goal_ms: Option<f64>,
) -> Product {
    Product { name, precision, fast, asked, shape, floor_ms, goal_ms }
}

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
    /// The name, such as `W1-full-f32` or `W3-full-fast`.
    pub(crate) fn name(&self) -> String {
        let digits = if self.fast { "fast" } else { self.precision.name() };
        format!("{}-{}-{digits}", self.size, self.kind)
    }

    /// The name of its initialisation, such as `W1-init`.
    pub(crate) fn init_name(&self) -> String {
        format!("{}-init", self.size)
    }

    /// A small version of this workload, to try the program.
    pub(crate) fn quick(mut self) -> Self {
        let Shape { k, d, .. } = self.shape;
        self.shape = Shape { n: 2_000, k: k.min(8), d: d.min(8) };
        self.checked = 500;
        self
    }
}

impl Product {
    /// A product of two square matrices.
    pub(crate) const fn square(side: usize) -> Self {
        product("square", F64, false, MatrixQuery::Product, (side, side, side), 0.0, None)
    }

    /// Maximum relative Frobenius error. For quadratic forms in f32 it includes the rounding of the folded (triangular)
    /// matrix.
    pub(crate) const fn tolerance(&self) -> f64 {
        match (self.precision, self.fast) {
            (F64, _) => 1e-12,
            (F32, false) => 2e-6,
            (F32, true) => 1e-3,
        }
    }

    /// As for [`Workload`].
    pub(crate) fn quick(mut self) -> Self {
        let (m, k, n) = self.shape;
        // The matrix of a quadratic form must stay square.
        let most = if m == k { (100, 100) } else { (150, 300) };
        self.shape = (m.min(most.0), k.min(most.1), n.min(200));
        self
    }
}

impl Square {
    /// The name, such as `square-512-f32-sent`.
    pub(crate) fn name(&self) -> String {
        let place = match self.place {
            Where::Cpu => "cpu",
            Where::Sent => "sent",
            Where::MatrixQuery => "asked",
            Where::Resident => "resident",
        };
        format!("square-{}-{}-{place}", self.side, self.precision)
    }

    /// As for [`Workload`].
    pub(crate) fn quick(mut self) -> Self {
        self.side = self.side.min(128);
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

/// Maximum errors of an answer against the reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Relative Frobenius error of each of weights, first and second moments.
    pub(crate) sums: f64,
    /// Absolute error of the log-likelihood per row.
    pub(crate) log_likelihood: f64,
}

impl Tolerance {
    /// Adds `sums` to the tolerance of the sums.
    pub(crate) const fn and(self, sums: f64) -> Self {
        Self { sums: self.sums + sums, ..self }
    }

    /// Adds the error of `fast`: that of a log density of `d` columns whose entries are four standard deviations from
    /// the shift, and whose squares are rounded to fp16 with a relative error of 2⁻¹² each. Responsibilities, and thus
    /// the sums, have the same error.
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
        names.extend(PRODUCTS.iter().map(|case| case.name.to_owned()));
        names.extend(squares().map(|case| case.name()));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
