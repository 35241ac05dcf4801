//! A run that goes on, on an engine whose loop begins with iteration 1 and does not know what was before, as on a GPU.

use std::ops::Range;

use gmm_model::{CovarianceType, SyntheticOptions, m_step, sample, synthetic};
use ndarray::{Array2, ArrayView2};

use super::*;
use crate::engine::{ComponentColumns, Evaluate, FillResponsibilities, Passes, Seeding};
use crate::init::{RowDraw, WeighedRows};
use crate::{CpuEngine, Engine, EvaluateOptions, Evaluation, shift};

/// Rows of another engine, with a loop that polls after some iterations and rounds differently from the host's passes.
struct DeviceLoop {
    rows: Box<dyn Resident>,
    poll: usize,
}

impl Passes for DeviceLoop {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        self.rows.sample(rows, weights)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.rows.pass(mixture)
    }

    fn iterate(&mut self, run: &mut EmRun, options: &EmOptions, seen: &mut See<'_>) -> Result<(), Error> {
        if run.iterations > 0 {
            return Ok(());
        }
        let mut done = false;
        while !done && run.iterations < options.max_iter && !run.finished {
            let from = run.iterations;
            let mut last = f64::INFINITY;
            while !done && run.iterations < options.max_iter && run.iterations < from + self.poll {
                // Thirds are not exact: the bits are not those of the host.
                let statistics = self.rows.pass(&run.mixture)?.scaled(1.0 / 3.0);
                run.mixture = m_step(&statistics, options.reg_covar, Some(&run.mixture))?.mixture;
                run.trace.push(statistics.mean_log_likelihood());
                run.iterations += 1;
                last = run.last_change().abs();
                done = last < options.tol;
            }
            run.converged = last < options.tol;
            let on_device = run.on_device.get_or_insert_default();
            on_device.iterations = run.iterations;
            seen(run, from)?;
        }
        Ok(())
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.rows.given(kind, centres, fill)
    }
}

impl Seeding for DeviceLoop {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.rows.nearest(kind, centres)
    }

    fn forget_centres(&mut self) {
        self.rows.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.rows.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.rows.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.rows.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.rows.near(ranges)
    }
}

impl Evaluate for DeviceLoop {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.rows.evaluate(mixture, want)
    }
}

impl ComponentColumns for DeviceLoop {}

fn rows(poll: usize) -> DeviceLoop {
    let truth = synthetic(3, 2, CovarianceType::Full, 5, &SyntheticOptions::default()).unwrap();
    let data = gmm_model::Dataset::new(sample(&truth, 300, 6).unwrap().0).unwrap();
    let at = shift::of_data(&data);
    DeviceLoop { rows: CpuEngine::new(1).unwrap().load(&data, Precision::F64, &at).unwrap(), poll }
}

fn start() -> Mixture {
    let means = Array2::from_shape_fn((3, 2), |(c, j)| c as f64 * 0.7 - j as f64);
    let weights = ndarray::Array1::from_elem(3, 1.0 / 3.0);
    Mixture::new(weights, means, gmm_model::Covariances::Spherical(ndarray::Array1::from_elem(3, 4.0))).unwrap()
}

const PROGRESS: RestartProgress<'_> = RestartProgress { index: 0, begun: 1, empty_at_start: 0, best: None };

#[test]
fn a_loop_on_a_device_goes_on_from_any_poll_to_the_same_bits() {
    let (mut runs, mut ended_at_the_first) = (0, 0);
    for (poll, tol, max_iter) in [(1, 1e-4, 500), (3, 1e-4, 500), (4, 1e-3, 500), (5, 0.0, 23), (100, 1e-5, 500)] {
        let options =
            EmOptions { tol, max_iter, reg_covar: 1e-6, precision: Precision::F64, autotune: false, fast: false };
        let mut polls = Vec::new();
        let whole = run(&mut rows(poll), start(), &options, 0, &mut |step| {
            let mut state = FitState::default();
            step.save(&mut state);
            polls.extend(state.running.map(|running| running.run));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(whole.iterations > 5 && whole.converged == (tol > 0.0), "{whole:?}");
        assert_eq!(polls.last(), Some(&whole));
        for part in polls {
            ended_at_the_first += usize::from(part.iterations + 1 == whole.iterations);
            let found =
                go_on(&mut rows(poll), part, &options, &Rule::default(), PROGRESS, &mut |_| ControlFlow::Continue(()))
                    .unwrap();
            assert_eq!(found, whole, "poll {poll}, tol {tol}");
            runs += 1;
        }
    }
    assert!(runs > 20 && ended_at_the_first > 0, "{runs} {ended_at_the_first}");
}

#[test]
fn an_observer_sees_each_iteration_of_a_continued_loop_once_and_can_end_it() {
    let options =
        EmOptions { tol: 0.0, max_iter: 20, reg_covar: 1e-6, precision: Precision::F64, autotune: false, fast: false };
    let part = run(&mut rows(4), start(), &EmOptions { max_iter: 8, ..options }, 0, &mut |_| ControlFlow::Continue(()));
    let mut seen = Vec::new();
    let whole = go_on(&mut rows(4), part.unwrap(), &options, &Rule::default(), PROGRESS, &mut |step| {
        seen.push(step.iteration);
        if step.iteration == 11 {
            step.finish();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(seen, (9..=11).collect::<Vec<_>>());
    let whole = whole.unwrap();
    assert!(whole.finished && whole.iterations == 12, "ends at the next poll: {}", whole.iterations);
}
