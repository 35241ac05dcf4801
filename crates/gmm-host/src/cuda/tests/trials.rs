//! Log-likelihood ratios of trials, against sorted densities.

use super::halves::problem;
use super::*;
use crate::CpuEngine;
use crate::adapt::{RatioOptions, Ratios, Speakers, Trial, Utterances, log_likelihood_ratios};

const SHAPE: (usize, usize, usize) = (700, 5, 9);

/// The mean over the rows of the ratio, with the densities of all components.
fn naive(data: &Dataset, rows: std::ops::Range<usize>, (background, speaker): (&Mixture, &Mixture), top: usize) -> f64 {
    let of = |mixture: &Mixture, x: &[f64], c: usize| {
        let at: Vec<f64> = x.iter().zip(mixture.means().row(c)).map(|(x, m)| x - m).collect();
        let z: Vec<f64> = match mixture.factors() {
            gmm_model::Factors::Diag(sd) => at.iter().zip(sd.row(c)).map(|(v, s)| v / s).collect(),
            gmm_model::Factors::Spherical(sd) => at.iter().map(|v| v / sd[c]).collect(),
            gmm_model::Factors::Full(all) => solved(&all[c], at),
            gmm_model::Factors::Tied(one) => solved(one, at),
        };
        mixture.log_weight(c) + mixture.log_normalizer(c) - 0.5 * z.iter().map(|z| z * z).sum::<f64>()
    };
    let (mut sum, mut total) = (0.0, 0.0);
    for i in rows {
        let x: Vec<f64> = (0..SHAPE.1).map(|j| at_row(data, i, j)).collect();
        let logs: Vec<f64> = (0..SHAPE.2).map(|c| of(background, &x, c)).collect();
        let mut order: Vec<usize> = (0..SHAPE.2).collect();
        order.sort_by(|&a, &b| logs[b].total_cmp(&logs[a]));
        let density = |mixture: &Mixture| order.iter().take(top).map(|&c| of(mixture, &x, c).exp()).sum::<f64>().ln();
        sum += data.weight(i) * (density(speaker) - density(background));
        total += data.weight(i);
    }
    sum / total
}

fn at_row(data: &Dataset, i: usize, j: usize) -> f64 {
    match data.rows() {
        gmm_model::Matrix::F32(rows) => rows[(i, j)].into(),
        gmm_model::Matrix::F64(rows) => rows[(i, j)],
    }
}

fn solved(factor: &gmm_model::Cholesky, mut at: Vec<f64>) -> Vec<f64> {
    factor.solve_lower(&mut at);
    at
}

/// A mixture of another kind around means that have moved.
fn moved(of: &Mixture, kind: CovarianceType, by: f64) -> Mixture {
    let (means, covariances) = (of.means().mapv(|v| v + by * (3.0 * v).sin()), problem(kind, SHAPE).1);
    Mixture::new(covariances.weights().to_owned(), means, covariances.covariances().clone()).unwrap()
}

fn with_means(of: &Mixture, means: ndarray::ArrayView2<'_, f64>) -> Mixture {
    Mixture::new(of.weights().to_owned(), means.to_owned(), of.covariances().clone()).unwrap()
}

#[test]
fn ratios_are_those_of_sorted_densities() {
    let parts = [0..1, 1..130, 130..400, 300..700];
    let trials: Vec<Trial> = [(0, 1), (2, 3), (1, 1), (0, 0), (2, 1), (1, 3)]
        .map(|(speaker, utterance)| Trial { speaker, utterance })
        .into();
    for kind in CovarianceType::ALL {
        for (top, precision, weighted) in
            [(1, Precision::F64, false), (3, Precision::F32, true), (9, Precision::F64, true)]
        {
            let what = format!("{kind} {precision} {top}");
            // Rows less the shift are rounded to their precision.
            let allowed = if precision == Precision::F32 { 2e-6 } else { 1e-12 };
            let (rows, background) = problem(kind, SHAPE);
            let mut data = match precision {
                Precision::F32 => Dataset::new(rows.mapv(|v| v as f32)).unwrap(),
                Precision::F64 => Dataset::new(rows).unwrap(),
            };
            if weighted {
                data = data.with_weights((0..SHAPE.0).map(|i| (i % 3) as f64).collect()).unwrap();
            }
            let parts = if weighted { &parts[1..] } else { &parts[..] };
            let trials: Vec<Trial> = trials.iter().filter(|trial| trial.utterance < parts.len()).copied().collect();
            let (k, d) = background.means().dim();
            let means = Array3::from_shape_fn((3, k, d), |(s, c, j)| {
                background.means()[(c, j)] + 0.2 * noise((s * k + c) * d + j)
            });
            // Speakers of the background's kind, with a matrix, and the background itself.
            let other = if kind == CovarianceType::Tied { CovarianceType::Full } else { CovarianceType::Diag };
            let mixtures = [moved(&background, kind, 0.1), moved(&background, other, 0.3), background.clone()];
            for speakers in [Speakers::Means(means.view()), Speakers::Mixtures(&mixtures)] {
                let utterances = Utterances::new(&data, parts);
                let options = RatioOptions { top };
                let of = |engine: &dyn Engine| {
                    log_likelihood_ratios(engine, &background, &speakers, &utterances, &trials, &options).unwrap()
                };
                let fake = Fake::install(Machine { multiprocessors: 8, ..Machine::default() });
                let engine = CudaEngine::new(0).unwrap();
                let found = of(&engine);
                assert_eq!(found, of(&engine), "{what}: the same bits again");
                drop(engine);
                for (trial, got) in trials.iter().zip(&found) {
                    let speaker = match &speakers {
                        Speakers::Means(means) => {
                            with_means(&background, means.index_axis(ndarray::Axis(0), trial.speaker))
                        }
                        Speakers::Mixtures(all) => all[trial.speaker].clone(),
                    };
                    let want = naive(&data, parts[trial.utterance].clone(), (&background, &speaker), top);
                    assert!((got - want).abs() <= allowed * (1.0 + want.abs()), "{what} {trial:?}: {got}, not {want}");
                    if speaker == background {
                        assert_eq!(*got, 0.0, "{what}: the background itself");
                    }
                }
                close(
                    &found,
                    &of(&CpuEngine::new(2).unwrap()),
                    if precision == Precision::F32 { 2e-5 } else { 1e-11 },
                    &what,
                );
                fake.0.assert_clean(&what);
            }
        }
    }
}

/// Chunks of one tile: sums are added, and the list of a chunk is written again for the next.
#[test]
fn chunks_of_rows_give_the_ratios_of_all() {
    for kind in [CovarianceType::Full, CovarianceType::Spherical] {
        let (rows, background) = problem(kind, SHAPE);
        let data = Dataset::new(rows).unwrap().with_weights((0..SHAPE.0).map(|i| (i % 3) as f64).collect()).unwrap();
        let storage = gmm_model::RowStorage { precision: Precision::F64, shift: vec![0.25; SHAPE.1] };
        let (utterances, speakers) = ([0..100, 130..700], [background.clone(), moved(&background, kind, 0.2)]);
        let trials = [1, 1, 1].map(|speaker| Trial { speaker, utterance: 1 });
        let speakers = Speakers::Mixtures(&speakers);
        let asked = Ratios { background: &background, speakers, utterances: &utterances, trials: &trials, top: 4 };
        let fake = Fake::install(Machine { multiprocessors: 8, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let of = |plan: &str| {
            let forced = plan::ForcedPlan::parse(plan).unwrap();
            parts::ratios_with::<f64>(&engine.gpu, &data, &storage, &asked, forced).unwrap().unwrap()
        };
        let (whole, chunks) = (of(""), of("chunk=128"));
        close(&chunks, &whole, 1e-13, &format!("{kind}"));
        let want = naive(&data, 130..700, (&background, &moved(&background, kind, 0.2)), 4);
        close(&whole, &[want; 3], 1e-12, &format!("{kind}"));
        drop(engine);
        fake.0.assert_clean("chunks");
    }
}

/// Of components without a density in the rows' precision, the CPU alone knows the largest.
#[test]
fn components_that_cannot_be_told_apart_are_left_to_the_cpu() {
    let of = |means: [f64; 3]| {
        let variances = Covariances::Diag(Array2::ones((3, 1)));
        let means = Array2::from_shape_vec((3, 1), means.to_vec()).unwrap();
        Mixture::new(Array1::from_elem(3, 1.0 / 3.0), means, variances).unwrap()
    };
    for (far, top, same) in [(20.0, 2, true), (20.0, 1, false), (3.0, 2, false)] {
        let (background, speakers) = (of([0.0, 2.0 * far, far]), [of([3.0 * far, 2.0 * far, far / 4.0])]);
        let data = Dataset::new(Array2::<f32>::from_shape_fn((200, 1), |(i, _)| (i % 2) as f32)).unwrap();
        let utterances = [0..150, 100..200];
        let trials = [0, 1].map(|utterance| Trial { speaker: 0, utterance });
        let ratios = |engine: &dyn Engine| {
            let (speakers, utterances) = (Speakers::Mixtures(&speakers), Utterances::new(&data, &utterances));
            log_likelihood_ratios(engine, &background, &speakers, &utterances, &trials, &RatioOptions { top }).unwrap()
        };
        let fake = Fake::install(Machine { multiprocessors: 8, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let (found, on_cpu) = (ratios(&engine), ratios(&CpuEngine::new(1).unwrap()));
        assert_eq!(found == on_cpu, same, "{far} {top}: {found:?}, {on_cpu:?}");
        close(&found, &on_cpu, 2e-5, &format!("{far} {top}"));
        drop(engine);
        fake.0.assert_clean("far components");
    }
}

#[test]
fn rows_of_weight_0_count_nowhere() {
    let (mut rows, background) = problem(CovarianceType::Diag, SHAPE);
    rows.row_mut(300).fill(1e200);
    let mut weights = vec![1.0; SHAPE.0];
    weights[300] = 0.0;
    let data = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
    let (speakers, all) = ([moved(&background, CovarianceType::Diag, 0.2)], [0..200, 200..700]);
    let of = |engine: &dyn Engine| {
        let (speakers, utterances) = (Speakers::Mixtures(&speakers), Utterances::new(&data, &all));
        let trials = [Trial { speaker: 0, utterance: 1 }];
        log_likelihood_ratios(engine, &background, &speakers, &utterances, &trials, &RatioOptions::default()).unwrap()
    };
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let found = of(&engine);
    assert!(found[0].is_finite());
    close(&found, &of(&CpuEngine::new(1).unwrap()), 1e-11, "a row of weight 0");
    drop(engine);
    fake.0.assert_clean("a row of weight 0");
}

#[test]
fn ratios_run_on_the_cpu_where_f64_is_slow_or_memory_lacks() {
    let (rows, background) = problem(CovarianceType::Diag, SHAPE);
    let data = Dataset::new(rows.mapv(|v| v as f32)).unwrap();
    let (parts, mixtures) = ([0..100, 100..700], [moved(&background, CovarianceType::Diag, 0.2)]);
    let trials = [Trial { speaker: 0, utterance: 1 }];
    let of = |engine: &dyn Engine| {
        let (speakers, utterances) = (Speakers::Mixtures(&mixtures), Utterances::new(&data, &parts));
        log_likelihood_ratios(engine, &background, &speakers, &utterances, &trials, &RatioOptions { top: 3 }).unwrap()
    };
    let on_cpu = of(&CpuEngine::new(1).unwrap());
    for (f32_to_f64, same) in [(64, true), (2, false)] {
        let fake = Fake::install(Machine { f32_to_f64, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        assert_eq!(of(&engine) == on_cpu, same, "the bits of the CPU in f32, or those of a GPU in f64");
        drop(engine);
        fake.0.assert_clean("ratios");
    }
    let fake = Fake::with(Machine::default(), Some(Fault::once(Class::Allocation, 3, code::OUT_OF_MEMORY)));
    assert_eq!(of(&CudaEngine::new(0).unwrap()), on_cpu);
    fake.0.assert_clean("ratios without memory");
}

#[test]
fn a_row_beyond_all_densities_is_named() {
    let (rows, background) = problem(CovarianceType::Diag, SHAPE);
    let mut rows = rows;
    rows.row_mut(300).fill(1e200);
    let (data, all) = (Dataset::new(rows).unwrap(), [0..200, 200..700]);
    let (speakers, utterances) = ([background.clone()], Utterances::new(&data, &all));
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let of = |utterance: usize| {
        let trials = [Trial { speaker: 0, utterance }];
        let speakers = Speakers::Mixtures(&speakers);
        log_likelihood_ratios(&engine, &background, &speakers, &utterances, &trials, &RatioOptions::default())
    };
    assert_eq!(of(0).unwrap(), [0.0]);
    assert!(text(of(1)).contains("number 1"), "{}", text(of(1)));
    drop(engine);
    fake.0.assert_clean("far rows");
}
