//! Many fits in one call give what each gives alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gmm_host::many::{
    GroupRun, Grouping, Groups, Job, Progress, SmallFit, fit_jobs, fit_many, fit_many_watched, refusal,
};
use gmm_host::{
    BayesOptions, BootstrapOptions, Candidate, Fit, FitRule, NoiseOptions, Resampling, Resident, WeightFamily,
    bootstrap, select,
};
use gmm_model::DataError;

use super::*;

/// Group sizes around the engine's limits: too few rows, blocks of 256 rows, and more.
const SIZES: [usize; 12] = [1, 2, 3, 7, 63, 64, 65, 255, 256, 257, 300, 600];

const KINDS: [CovarianceType; 4] =
    [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag, CovarianceType::Spherical];

fn ranges(sizes: &[usize]) -> Vec<Range<usize>> {
    let ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.zip(sizes).map(|(end, size)| end - size..end).collect()
}

/// What two equal fits share: everything but the time.
fn content(fit: &Result<Fit, Error>) -> String {
    match fit {
        Ok(fit) => {
            let Fit { mixture, summary, storage, warnings, state, starts, .. } = fit;
            // The shortest text that reads back as the same number: equal texts are equal bits.
            format!("{mixture:?} {summary:?} {storage:?} {warnings:?} {state:?} {starts:?}")
        }
        Err(error) => error.to_string(),
    }
}

/// Panics unless each of many fits equals the fit alone; returns the fits.
fn check(engine: &dyn Engine, data: &Dataset, rows: &[Range<usize>], options: &FitOptions) -> Vec<Result<Fit, Error>> {
    let fits = fit_many(engine, &Groups::new(data, rows), options);
    assert_eq!(fits.len(), rows.len());
    for (found, range) in fits.iter().zip(rows) {
        let alone = fit(engine, &data.part(range.clone()), options);
        assert_eq!(content(found), content(&alone), "rows {range:?} with {}", options.covariance_type);
    }
    fits
}

fn engines() -> [CpuEngine; 3] {
    [1, 2, 5].map(|threads| CpuEngine::new(threads).unwrap())
}

#[test]
fn each_fit_has_the_bits_of_the_fit_alone() {
    let rows = ranges(&SIZES);
    let (values, _) = separated(SIZES.iter().sum(), 3, 3, CovarianceType::Full);
    let n = values.nrows();
    let weights: Vec<f64> = (0..n).map(|i| [1.0, 2.0, 0.25, 0.0][i % 4]).collect();
    let single = Dataset::new(values.mapv(|v| v as f32)).unwrap();
    let double = Dataset::new(values).unwrap();
    let weighted = double.clone().with_weights(weights).unwrap();
    for engine in engines() {
        for kind in KINDS {
            for data in [&single, &double, &weighted] {
                let options = FitOptions { covariance_type: kind, n_init: 2, ..FitOptions::new(3) };
                let fits = check(&engine, data, &rows, &options);
                assert!(fits[..2].iter().all(Result::is_err), "1 and 2 rows are fewer than 3 components");
                assert!(fits[4..].iter().all(Result::is_ok));
            }
        }
    }
}

#[test]
fn every_start_and_rule_has_the_bits_of_the_fit_alone() {
    let rows = ranges(&[40, 90, 41, 300]);
    let data = Dataset::new(separated(471, 2, 2, CovarianceType::Diag).0).unwrap();
    let engine = cpu();
    for init in inits() {
        check(&engine, &data, &rows, &FitOptions { init, max_iter: 5, ..FitOptions::new(2) });
    }
    let rules = [
        FitRule { noise: Some(NoiseOptions::default()), ..FitRule::none() },
        FitRule { bayes: Some(BayesOptions::new(WeightFamily::Dirichlet)), ..FitRule::none() },
    ];
    for rule in rules {
        check(&engine, &data, &rows, &FitOptions { rule, ..FitOptions::new(2) });
    }
}

#[test]
fn awkward_groups_spoil_no_other() {
    let (mut values, _) = separated(500, 2, 3, CovarianceType::Full);
    values.slice_mut(s![100..200, ..]).fill(3.25);
    values[[250, 1]] = 1e8;
    values[[350, 2]] = 1e160;
    let data = Dataset::new(values).unwrap();
    let rows = [0..100, 100..200, 200..300, 300..400, 0..0, 400..401, 400..500];
    for reg_covar in [1e-6, 0.0] {
        let options = FitOptions { reg_covar, ..FitOptions::new(2) };
        let found = fit_many(&cpu(), &Groups::new(&data, &rows), &options);
        for i in [0, 1, 2, 3, 5, 6] {
            assert_eq!(content(&found[i]), content(&fit(&cpu(), &data.part(rows[i].clone()), &options)), "{i}");
        }
        assert!(found[0].is_ok() && found[6].is_ok());
        assert_eq!(found[1].is_ok(), reg_covar > 0.0, "equal rows are singular without reg_covar");
        assert!(matches!(found[3], Err(Error::Scale { column: 2, .. })), "{:?}", found[3]);
        assert!(matches!(found[4], Err(Error::Data(DataError::Empty { n: 0, d: 3 }))), "{:?}", found[4]);
        assert!(found[5].is_err());
    }
}

#[test]
fn known_labels_are_those_of_the_table() {
    let rows = ranges(&[60, 80]);
    let (values, truth) = separated(140, 2, 2, CovarianceType::Full);
    let data = Dataset::new(values).unwrap();
    let classes = evaluate::labels(&cpu(), &truth, &data, Precision::F64).unwrap();
    let labels: Vec<Option<usize>> =
        classes.iter().enumerate().map(|(i, &c)| (i % 3 == 0).then_some(c as usize)).collect();
    let of = |labels: &[Option<usize>]| {
        let rule = FitRule { labels: Some(Arc::new(labels.to_vec())), ..FitRule::none() };
        FitOptions { rule, ..FitOptions::new(2) }
    };
    let found = fit_many(&cpu(), &Groups::new(&data, &rows), &of(&labels));
    for (found, rows) in found.iter().zip(&rows) {
        let alone = fit(&cpu(), &data.part(rows.clone()), &of(&labels[rows.clone()]));
        assert_eq!(content(found), content(&alone));
        assert!(found.is_ok());
    }
    let short = fit_many(&cpu(), &Groups::new(&data, &rows), &of(&labels[1..]));
    assert!(short[0].as_ref().unwrap_err().to_string().contains("139 values"), "{:?}", short[0]);
}

#[test]
fn the_reference_engine_has_the_same_fits() {
    let rows = ranges(&[50, 70, 33]);
    let data = Dataset::new(separated(153, 2, 3, CovarianceType::Full).0).unwrap();
    let options = FitOptions { tol: 1e-9, max_iter: 300, ..FitOptions::new(2) };
    let reference = check(&ReferenceEngine, &data, &rows, &options);
    let found = fit_many(&cpu(), &Groups::new(&data, &rows), &options);
    for (found, reference) in found.iter().zip(&reference) {
        let (found, reference) = (found.as_ref().unwrap(), reference.as_ref().unwrap());
        // Both have converged to within `tol` of the same maximum.
        let difference =
            (&found.mixture.means() - &reference.mixture.means()).iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!(difference < 1e-4, "{difference}");
        assert!((found.summary.mean_log_likelihood - reference.summary.mean_log_likelihood).abs() < 1e-8);
    }
}

#[test]
fn a_break_ends_all_fits_and_keeps_those_that_ended() {
    let rows = ranges(&[50; 40]);
    let data = Dataset::new(separated(2000, 2, 2, CovarianceType::Full).0).unwrap();
    for engine in engines() {
        let ended = AtomicUsize::new(0);
        let found =
            fit_many_watched(&engine, &Groups::new(&data, &rows), &FitOptions::new(2), &|progress| match progress {
                Progress::Done { fit, .. } if fit.is_ok() && ended.fetch_add(1, Ordering::Relaxed) == 9 => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            });
        let fitted = found.iter().filter(|fit| fit.is_ok()).count();
        assert!((10..10 + engine.threads()).contains(&fitted), "{fitted}");
        let interrupted = |fit: &&Result<Fit, Error>| matches!(fit, Err(Error::Interrupted { .. }));
        assert_eq!(found.iter().filter(interrupted).count(), 40 - fitted);
    }
}

#[test]
fn rows_are_grouped_by_labels_of_any_kind() {
    let of_rows = ["b", "a", "b", "c", "a", "b"];
    let grouping = Grouping::new(&of_rows);
    assert_eq!(grouping.labels(), ["a", "b", "c"]);
    assert_eq!(grouping.rows(), [0..2, 2..5, 5..6]);
    let table = Array2::from_shape_fn((6, 2), |(i, j)| (10 * i + j) as f64);
    let weights = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let sorted = grouping.sorted(Dataset::new(table).unwrap().with_weights(weights).unwrap()).unwrap();
    assert_eq!(sorted.rows().to_f64().column(0).to_vec(), [10.0, 40.0, 0.0, 20.0, 50.0, 30.0]);
    assert_eq!(sorted.weights().unwrap(), [1.0, 4.0, 0.0, 2.0, 5.0, 3.0]);
    assert_eq!(grouping.in_table_order(sorted.weights().unwrap().to_vec()), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    // Rows that are together already stay where they are, also if the groups are in another order.
    let together = Grouping::new(&[7u64, 7, 3, 9]);
    assert_eq!((together.labels(), together.rows()), (&[3, 7, 9][..], &[2..3, 0..2, 3..4][..]));
    assert_eq!(together.table_row(2), 2);
}

/// An engine with a way of its own for fits of fewer than 100 rows.
struct WithOwnWay {
    cpu: CpuEngine,
    own: AtomicUsize,
}

impl Engine for WithOwnWay {
    fn name(&self) -> String {
        self.cpu.name()
    }

    fn description(&self) -> String {
        self.cpu.description()
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.cpu.load(data, precision, shift)
    }

    fn takes_small(&self, (n, _): (usize, usize), _: &FitOptions) -> bool {
        n < 100
    }

    fn fit_small(&self, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
        let run = |Job { rows, options }: &Job<'_>| {
            if rows.len() >= 100 {
                return None;
            }
            self.own.fetch_add(1, Ordering::Relaxed);
            Some(fit(&self.cpu, &data.part(rows.clone()), options).map(|fit| {
                let best = fit.state.best.unwrap();
                let part = data.part(rows.clone());
                let evaluation = evaluate::score(&self.cpu, &fit.mixture, &part, fit.storage.precision).unwrap();
                let rows = part.rows().to_f64();
                GroupRun {
                    variances: rows.var_axis(ndarray::Axis(0), 0.0).to_vec(),
                    run: best.run,
                    restart: best.index,
                    empty_at_start: best.empty_at_start,
                    starts: fit.starts,
                    evaluation,
                    storage: fit.storage,
                    elapsed: fit.elapsed,
                }
            }))
        };
        Ok(Some(jobs.iter().map(run).collect()))
    }
}

#[test]
fn an_engine_may_run_small_fits_by_itself() {
    let rows = ranges(&[1, 2, 40, 99, 100, 300, 41]);
    let mut values = separated(583, 2, 3, CovarianceType::Full).0;
    values.slice_mut(s![542.., 1]).fill(2.0);
    let data = Dataset::new(values).unwrap();
    let engine = WithOwnWay { cpu: cpu(), own: AtomicUsize::new(0) };
    let found = fit_many(&engine, &Groups::new(&data, &rows), &FitOptions::new(2));
    assert_eq!(engine.own.load(Ordering::Relaxed), 4, "2, 40, 99 and 41 rows");
    for (found, rows) in found.iter().zip(&rows) {
        let alone = fit(&cpu(), &data.part(rows.clone()), &FitOptions::new(2));
        assert_eq!(content(found), content(&alone), "{rows:?}");
    }
    assert!(matches!(found[6].as_ref().unwrap().warnings[0], Warning::RegularisationDominates { .. }));
    // A rule is left to the host.
    let rule = FitRule { noise: Some(NoiseOptions::default()), ..FitRule::none() };
    assert!(refusal(&FitOptions { rule: rule.clone(), ..FitOptions::new(2) }).unwrap().contains("rule"));
    let _ = fit_many(&engine, &Groups::new(&data, &rows), &FitOptions { rule, ..FitOptions::new(2) });
    assert_eq!(engine.own.load(Ordering::Relaxed), 4);
}

#[test]
fn selections_restarts_and_bootstraps_use_an_engines_own_way() {
    let engine = WithOwnWay { cpu: cpu(), own: AtomicUsize::new(0) };
    let own = || engine.own.swap(0, Ordering::Relaxed);
    for (n, is_own) in [(99, true), (160, false)] {
        let data = Dataset::new(separated(n, 2, 2, CovarianceType::Full).0).unwrap();
        let options = FitOptions { n_init: 3, ..FitOptions::new(2) };
        let found = fit(&engine, &data, &options);
        assert_eq!((content(&found), own()), (content(&fit(&cpu(), &data, &options)), usize::from(is_own)));
        let all = |engine: &dyn Engine| -> Vec<String> {
            let go_on = &mut |_: &Candidate| ControlFlow::Continue(());
            let found =
                select(engine, &data, &options, &[1, 2, 200], &KINDS, go_on, &mut |_| ControlFlow::Continue(()));
            found.unwrap().iter().map(|candidate| content(&candidate.outcome)).collect()
        };
        assert_eq!((all(&engine), own()), (all(&cpu()), if is_own { 8 } else { 0 }));
        let start = found.unwrap().mixture;
        for resampling in [Resampling::Nonparametric, Resampling::Weighted] {
            let how = BootstrapOptions { replicates: 7, resampling, seed: 2, rules: None };
            let run = |engine: &dyn Engine| {
                bootstrap(engine, &start, &data, &options, &how, &mut |_| ControlFlow::Continue(())).unwrap()
            };
            assert_eq!(run(&engine), run(&cpu()));
            // Of 160 rows, about 101 different ones are drawn.
            assert!(if is_own { own() == 7 } else { own() == 0 }, "{n} {}", resampling.name());
        }
    }
}

#[test]
fn fits_of_the_same_rows_may_differ_in_options() {
    let data = Dataset::new(separated(300, 3, 2, CovarianceType::Full).0).unwrap();
    let options: Vec<FitOptions> = (1..5)
        .flat_map(|k| KINDS.map(|covariance_type| FitOptions { covariance_type, seed: k as u64, ..FitOptions::new(k) }))
        .collect();
    let jobs: Vec<Job<'_>> = options.iter().map(|options| Job { rows: 0..300, options }).collect();
    let found = fit_jobs(&cpu(), &data, &jobs, &|_| ControlFlow::Continue(()));
    for (found, options) in found.iter().zip(&options) {
        assert_eq!(content(found), content(&fit(&cpu(), &data, options)));
    }
}
