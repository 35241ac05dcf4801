//! Mixtures given by factors of their precisions: every engine and code path against the reference, which evaluates
//! `Uᵀ(x − μ)`.

use gmm_host::{CpuEngine, Engine, Error, EvaluateOptions, Evaluation, ReferenceEngine, Resident, evaluate, shift};
use gmm_model::{CovarianceType, Dataset, FactorShape, Matrix, ModelError, Numbers, Precision, PrecisionMixture};
use ndarray::{Array1, Array2, ArrayView1, s};

/// Pseudo-random numbers in (−1, 1).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Attributes of an estimator, also in single precision.
struct Attributes {
    kind: CovarianceType,
    precision: Precision,
    weights: Array1<f64>,
    means: Array2<f64>,
    single: Vec<f32>,
    double: Vec<f64>,
    shape: Vec<usize>,
}

impl Attributes {
    fn new(kind: CovarianceType, form: FactorShape, precision: Precision, k: usize, d: usize, offset: f64) -> Self {
        let mut random = Random((k * 1009 + d) as u64);
        let mut entry = |i: usize, j: usize| {
            let inside = match form {
                FactorShape::Upper => i < j,
                FactorShape::Lower => i > j,
                FactorShape::General => i != j,
            };
            match (i == j, inside) {
                // Negative entries are allowed: the density uses the absolute value of the determinant.
                (true, _) => (2.0 + random.next()) * if i % 3 == 1 { -1.0 } else { 1.0 },
                (_, true) => random.next() / (d as f64).sqrt(),
                _ => 0.0,
            }
        };
        let shape = match kind {
            CovarianceType::Full => vec![k, d, d],
            CovarianceType::Tied => vec![d, d],
            CovarianceType::Diag => vec![k, d],
            CovarianceType::Spherical => vec![k],
        };
        let double: Vec<f64> = match kind {
            CovarianceType::Full => (0..k * d * d).map(|at| entry(at / d % d, at % d)).collect(),
            CovarianceType::Tied => (0..d * d).map(|at| entry(at / d, at % d)).collect(),
            _ => (0..shape.iter().product()).map(|_| entry(0, 0)).collect(),
        };
        let single: Vec<f32> = double.iter().map(|v| *v as f32).collect();
        let mut means = Array2::from_shape_fn((k, d), |_| offset + 3.0 * random.next());
        let mut double = double;
        if precision == Precision::F32 {
            means.mapv_inplace(|v| f64::from(v as f32));
            double = single.iter().map(|v| f64::from(*v)).collect();
        }
        let raw = Array1::from_shape_fn(k, |c| 1.0 + (c % 3) as f64);
        Self { kind, precision, weights: &raw / raw.sum(), means, single, double, shape }
    }

    fn mixture(&self) -> PrecisionMixture<'_> {
        let factors = match self.precision {
            Precision::F32 => Numbers::F32(&self.single),
            Precision::F64 => Numbers::F64(&self.double),
        };
        let means = (self.means.clone(), self.precision);
        PrecisionMixture::new(self.kind, self.weights.clone(), means, factors, &self.shape).unwrap()
    }
}

fn rows(attributes: &Attributes, n: usize) -> Dataset {
    let mut random = Random(n as u64);
    let (k, d) = attributes.means.dim();
    let rows = Array2::from_shape_fn((n, d), |(i, j)| attributes.means[[i % k, j]] + 2.0 * random.next());
    dataset(rows, attributes.precision)
}

fn dataset(rows: Array2<f64>, precision: Precision) -> Dataset {
    Dataset::new(match precision {
        Precision::F32 => Matrix::from(rows.mapv(|v| v as f32)),
        Precision::F64 => Matrix::from(rows),
    })
    .unwrap()
}

/// Log densities, responsibilities, labels and totals.
type Found = (Vec<f64>, Vec<f64>, Vec<u32>, Evaluation);

fn found(
    n: usize,
    k: usize,
    run: impl FnOnce(EvaluateOptions<'_>) -> Result<Evaluation, Error>,
) -> Result<Found, Error> {
    let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
    let want = EvaluateOptions {
        log_densities: Some(&mut densities),
        responsibilities: Some((&mut r).into()),
        labels: Some(&mut labels),
    };
    let totals = run(want)?;
    Ok((densities, r, labels, totals))
}

fn in_blocks(engine: &dyn Engine, mixture: &PrecisionMixture<'_>, data: &Dataset, precision: Precision) -> Found {
    let at = shift::of_precisions(mixture, data.rows().precision(), precision);
    let mut rows: Box<dyn Resident> = engine.load(data, precision, &at).unwrap();
    found(data.n_rows(), mixture.n_components(), |want| rows.evaluate_precisions(mixture, want)).unwrap()
}

fn as_callers_do(engine: &dyn Engine, mixture: &PrecisionMixture<'_>, data: &Dataset, precision: Precision) -> Found {
    let dim = (data.n_rows(), mixture.n_components());
    found(dim.0, dim.1, |want| evaluate::precisions(engine, mixture, data, precision, want)).unwrap()
}

fn eps(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => f64::from(f32::EPSILON),
        Precision::F64 => f64::EPSILON,
    }
}

/// Checks results to within their own rounding, independent of where rows and means are.
fn check(attributes: &Attributes, n: usize, precision: Precision) {
    check_within(attributes, n, precision, |data, want| {
        let d = data.n_features() as f64;
        let scale = want.0.iter().fold(d, |m, v| m.max(v.abs()));
        vec![8.0 * eps(precision) * scale * (1.0 + d.sqrt() / 8.0); n]
    });
}

/// Checks log densities to within 4 steps. A step is the largest change of a log density if every input changes by one
/// unit in its last place, plus one unit in the last place of the log density.
fn check_steps(attributes: &Attributes, n: usize, precision: Precision) {
    let ulp = |v: f64| if v == 0.0 { 0.0 } else { eps(precision) * v.abs().log2().floor().exp2() };
    check_within(attributes, n, precision, |data, want| {
        let (x, (k, d)) = (data.rows().to_f64(), attributes.means.dim());
        let u = |j: usize, i: usize| attributes.double[j * d + i];
        let of_component = |x: ArrayView1<'_, f64>, c: usize| {
            let mean = attributes.means.row(c);
            let z = &x - &mean;
            let y: Vec<f64> = (0..d).map(|i| (0..d).map(|j| u(j, i) * z[j]).sum()).collect();
            let of_column = |j: usize| {
                let gradient: f64 = (0..d).map(|i| u(j, i) * y[i]).sum();
                let of_factor: f64 = (0..d).map(|i| (z[j] * y[i]).abs() * ulp(u(j, i))).sum();
                gradient.abs() * (ulp(x[j]) + ulp(mean[j])) + of_factor
            };
            (0..d).map(of_column).sum::<f64>()
        };
        let step =
            |i: usize| (0..k).map(|c| want.1[i * k + c] * of_component(x.row(i), c)).sum::<f64>() + ulp(want.0[i]);
        (0..n).map(|i| 4.0 * step(i)).collect()
    });
}

/// Checks against the reference; `bounds` returns the allowed difference of each row.
fn check_within(
    attributes: &Attributes,
    n: usize,
    precision: Precision,
    bounds: impl Fn(&Dataset, &Found) -> Vec<f64>,
) {
    let mixture = attributes.mixture();
    let (k, d) = mixture.means().dim();
    let data = rows(attributes, n);
    let want = as_callers_do(&ReferenceEngine, &mixture, &data, Precision::F64);
    let bounds = bounds(&data, &want);
    for instructions in CpuEngine::instruction_sets() {
        let engine = CpuEngine::with_instructions(2, instructions).unwrap();
        let what = format!("{instructions} {} {precision} n={n} d={d} k={k}", attributes.kind);
        let all = in_blocks(&engine, &mixture, &data, precision);
        for (i, &bound) in bounds.iter().enumerate() {
            assert!((all.0[i] - want.0[i]).abs() <= bound, "{what}: row {i}: {} and {}", all.0[i], want.0[i]);
            for (a, b) in all.1[i * k..][..k].iter().zip(&want.1[i * k..]) {
                assert!((a - b).abs() <= bound, "{what}: row {i}: {a} and {b}");
            }
        }
        assert_eq!(as_callers_do(&engine, &mixture, &data, precision), all, "{what}: few rows");
        let middle = data.rows().to_f64().slice_move(s![n / 2..n / 2 + 1, ..]);
        let alone = as_callers_do(&engine, &mixture, &dataset(middle, attributes.precision), precision);
        assert_eq!(alone.0[0].to_bits(), all.0[n / 2].to_bits(), "{what}: a row alone");
        assert_eq!(alone.1, all.1[n / 2 * k..][..k], "{what}: a row alone");
    }
}

const SHAPES: [(usize, usize, usize); 7] =
    [(1, 1, 1), (3, 2, 1), (9, 3, 4), (64, 5, 2), (17, 16, 3), (5, 70, 3), (2, 530, 2)];

#[test]
fn a_row_alone_and_among_others_has_the_same_bits_and_those_of_the_reference_within_rounding() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            for (n, d, k) in SHAPES {
                check(&Attributes::new(kind, FactorShape::Upper, precision, k, d, 0.0), n, precision);
                check(&Attributes::new(kind, FactorShape::Upper, precision, k, d, 1e5), n, precision);
            }
        }
    }
}

#[test]
fn columns_that_are_shared_out_among_threads_give_the_same_bits() {
    // Enough rows and columns for a second thread.
    for form in [FactorShape::Upper, FactorShape::Lower] {
        check(&Attributes::new(CovarianceType::Full, form, Precision::F64, 2, 530, 0.0), 64, Precision::F64);
    }
}

#[test]
fn lower_factors_and_other_square_roots_serve_as_well() {
    for kind in [CovarianceType::Full, CovarianceType::Tied] {
        for form in [FactorShape::Lower, FactorShape::General] {
            for precision in [Precision::F32, Precision::F64] {
                for (n, d, k) in SHAPES {
                    let attributes = Attributes::new(kind, form, precision, k, d, 10.0);
                    if d > 1 {
                        assert_eq!(attributes.mixture().factor_shape(k - 1), form);
                    }
                    check(&attributes, n, precision);
                }
            }
        }
    }
}

#[test]
fn tied_rows_near_and_far_have_the_digits_of_the_reference_one_by_one_and_in_bulk() {
    // Near the shift, rows are multiplied once for all components; far from it, that would lose the precision that
    // `check` requires.
    for form in [FactorShape::Upper, FactorShape::Lower, FactorShape::General] {
        for precision in [Precision::F32, Precision::F64] {
            for (n, d, k) in [(9, 5, 3), (64, 13, 8), (300, 13, 8), (300, 64, 5), (33, 130, 2)] {
                let tied = |offset| Attributes::new(CovarianceType::Tied, form, precision, k, d, offset);
                for near in [0.0, 3.0, 10.0, 30.0] {
                    check_steps(&tied(near), n, precision);
                }
                for far in [1e3, -1e6] {
                    check(&tied(far), n, precision);
                }
            }
        }
    }
}

#[test]
fn one_component_with_a_lower_factor_does_not_change_the_others() {
    let mut attributes = Attributes::new(CovarianceType::Full, FactorShape::Upper, Precision::F64, 3, 5, 0.0);
    attributes.double[25..50].swap(1, 5);
    let mixture = attributes.mixture();
    let shapes: Vec<_> = (0..3).map(|c| mixture.factor_shape(c)).collect();
    assert_eq!(shapes, [FactorShape::Upper, FactorShape::General, FactorShape::Upper]);
    check(&attributes, 20, Precision::F64);
}

#[test]
fn the_density_is_that_of_the_covariances() {
    for kind in CovarianceType::ALL {
        for form in [FactorShape::Upper, FactorShape::Lower, FactorShape::General] {
            let attributes = Attributes::new(kind, form, Precision::F64, 3, 7, 1.0);
            let (mixture, data) = (attributes.mixture(), rows(&attributes, 40));
            let got = as_callers_do(&ReferenceEngine, &mixture, &data, Precision::F64).0;
            let dense = mixture.to_mixture().unwrap();
            let (want, _) = evaluate::log_densities(&ReferenceEngine, &dense, &data, Precision::F64).unwrap();
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-11 * want.abs(), "{kind} {form:?}: {got} {want}");
            }
        }
    }
}

#[test]
fn rows_and_attributes_of_different_precision_are_evaluated_in_either() {
    for kind in CovarianceType::ALL {
        let attributes = Attributes::new(kind, FactorShape::Upper, Precision::F32, 3, 20, 1e3);
        let mixture = attributes.mixture();
        for (rows_in, precision) in [(Precision::F64, Precision::F32), (Precision::F64, Precision::F64)] {
            let data = dataset(rows(&attributes, 30).rows().to_f64(), rows_in);
            let want = as_callers_do(&ReferenceEngine, &mixture, &data, Precision::F64).0;
            let engine = CpuEngine::new(1).unwrap();
            let got = as_callers_do(&engine, &mixture, &data, precision);
            assert_eq!(got, in_blocks(&engine, &mixture, &data, precision), "{kind} {precision}");
            for (got, want) in got.0.iter().zip(want) {
                assert!((got - want).abs() < 1e4 * eps(precision) * want.abs(), "{kind} {precision}: {got} {want}");
            }
        }
    }
}

#[test]
fn a_row_beyond_the_range_of_squares_has_the_weights() {
    for kind in CovarianceType::ALL {
        let attributes = Attributes::new(kind, FactorShape::Upper, Precision::F64, 3, 4, 0.0);
        let mixture = attributes.mixture();
        let far =
            dataset(Array2::from_shape_fn((2, 4), |(i, j)| [1e200, -1e308][i] * (j as f64 - 1.5)), Precision::F64);
        for engine in [&CpuEngine::new(1).unwrap() as &dyn Engine, &ReferenceEngine] {
            let got = as_callers_do(engine, &mixture, &far, Precision::F64);
            assert_eq!(got.0, [f64::NEG_INFINITY; 2], "{kind}");
            let weights = mixture.weights();
            assert!((0..6).all(|i| (got.1[i] - weights[i % 3]).abs() < 1e-15), "{kind}: {:?}", got.1);
        }
    }
}

#[test]
fn an_entry_that_is_not_finite_is_an_error_wherever_it_is() {
    for kind in CovarianceType::ALL {
        let mut attributes = Attributes::new(kind, FactorShape::Upper, Precision::F64, 3, 4, 0.0);
        let data = rows(&attributes, 100);
        let few = rows(&attributes, 1);
        for at in 0..attributes.double.len() {
            for bad in [f64::NAN, f64::INFINITY] {
                let good = std::mem::replace(&mut attributes.double[at], bad);
                let component = if kind == CovarianceType::Tied { 0 } else { at * 3 / attributes.double.len() };
                let means = (attributes.means.clone(), Precision::F64);
                let numbers = Numbers::F64(&attributes.double);
                let made = PrecisionMixture::new(kind, attributes.weights.clone(), means, numbers, &attributes.shape);
                let errors = match &made {
                    Err(error) => vec![error.clone()],
                    Ok(mixture) => [
                        (&data, &CpuEngine::new(1).unwrap() as &dyn Engine),
                        (&few, &CpuEngine::new(1).unwrap()),
                        (&few, &ReferenceEngine),
                    ]
                    .map(|(data, engine)| {
                        let found =
                            evaluate::precisions(engine, mixture, data, Precision::F64, EvaluateOptions::default());
                        match found {
                            Err(Error::Model(error)) => error,
                            other => panic!("{kind} entry {at}: {other:?}"),
                        }
                    })
                    .to_vec(),
                };
                for error in errors {
                    let named = matches!(error, ModelError::NotFinite { what: "precisions_cholesky_", component: c, .. } if c == component);
                    assert!(named, "{kind} entry {at}: {error:?}");
                }
                attributes.double[at] = good;
            }
        }
    }
}

#[test]
fn a_zero_on_the_diagonal_is_an_error_unless_the_square_root_is_general() {
    let mut attributes = Attributes::new(CovarianceType::Full, FactorShape::Upper, Precision::F64, 2, 3, 0.0);
    attributes.double[9 + 4] = 0.0;
    let make = |attributes: &Attributes| {
        let numbers = (attributes.means.clone(), Precision::F64);
        let factors = Numbers::F64(&attributes.double);
        PrecisionMixture::new(CovarianceType::Full, attributes.weights.clone(), numbers, factors, &[2, 3, 3]).err()
    };
    let kind = CovarianceType::Full;
    assert_eq!(make(&attributes), Some(ModelError::NotPositiveDefinite { component: 1, column: 1, pivot: 0.0, kind }));
    // A triangular factor with permuted rows: zeros on the diagonal, but a nonzero determinant.
    attributes.double[9..].copy_from_slice(&[0.0, 2.0, 0.0, 0.0, 0.5, 3.0, 1.0, 0.0, 0.25]);
    assert_eq!(make(&attributes), None);
    check(&attributes, 10, Precision::F64);
    // Singular.
    attributes.double[9..].copy_from_slice(&[1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 0.5, 0.25]);
    let mixture = attributes.mixture();
    for n in [1, 100] {
        let data = rows(&attributes, n);
        let found = evaluate::precisions(
            &CpuEngine::new(1).unwrap(),
            &mixture,
            &data,
            Precision::F64,
            EvaluateOptions::default(),
        );
        assert!(matches!(found, Err(Error::Model(ModelError::NotPositiveDefinite { component: 1, .. }))), "{found:?}");
    }
}
