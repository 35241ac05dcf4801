//! Variational Bayes in the loop on the device: against the CPU engine, and its time beside EM's.

use gmm_host::{BayesOptions, Fit, FitOptions, FitRule, Init, WeightFamily, fit};
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::compare::{Tally, allowed, size};
use crate::fits::clumps;
use crate::{Bench, common, data};

const FAMILIES: [WeightFamily; 2] = [WeightFamily::Dirichlet, WeightFamily::DirichletProcess];

/// Iterations that are timed, and how often.
const TIMED: (usize, usize) = (64, 5);

#[derive(Clone, Copy)]
struct Case {
    kind: CovarianceType,
    precision: Precision,
    k: usize,
    d: usize,
}

impl Case {
    fn options(self, rule: FitRule, max_iter: usize) -> FitOptions {
        let Self { kind, precision, k, d } = self;
        let init = Init::Given(Box::new(common::mixture(kind, k, d, 0.0, 2.0, 4)));
        let precision = Some(precision);
        // So large that EM, which has no prior, keeps its covariances for as long as it is timed.
        let reg_covar = 0.1;
        FitOptions { covariance_type: kind, init, max_iter, tol: 0.0, reg_covar, precision, rule, ..FitOptions::new(k) }
    }
}

fn rule(family: WeightFamily) -> FitRule {
    FitRule { bayes: Some(BayesOptions::new(family)), ..FitRule::none() }
}

fn compare(bench: &Bench, tally: &mut Tally, case: Case, family: WeightFamily, data: &Dataset) {
    tally.cases += 1;
    let Case { kind, precision, k, d } = case;
    let what = format!("{kind} {precision} {family:?} n={} d={d} k={k}", data.n_rows());
    let iterations = 3;
    let got = fit(&bench.gpu, data, &case.options(rule(family), iterations)).expect("a fit on the GPU");
    let doubles = Case { precision: Precision::F64, ..case };
    let want = fit(&bench.cpu, data, &doubles.options(rule(family), iterations)).expect("a fit on the CPU");
    tally.expect(got.on_device.is_some_and(|on| on.iterations == iterations), || format!("{what}: not on the device"));
    let tolerance = 10.0 * allowed(precision);
    let (a, b) = (&got.summary, &want.summary);
    tally.close(&a.trace, &b.trace, tolerance, size(&b.trace), &format!("{what}: bounds"));
    let bound = |fit: &Fit| [fit.summary.lower_bound.expect("a bound")];
    tally.close(&bound(&got), &bound(&want), tolerance, bound(&want)[0].abs(), &format!("{what}: last bound"));
    let (a, b) = (got.posterior.as_ref().expect("a posterior"), want.posterior.as_ref().expect("a posterior"));
    tally.close(
        &a.counts().to_vec(),
        &b.counts().to_vec(),
        tolerance,
        data.n_rows() as f64,
        &format!("{what}: counts"),
    );
    let (a, b) = (a.mixture(), b.mixture());
    let means = |of: &gmm_model::Mixture| of.means().iter().copied().collect::<Vec<f64>>();
    tally.close(&means(a), &means(b), tolerance, size(&means(b)), &format!("{what}: means"));
    let covariances = |of: &gmm_model::Mixture| of.covariances().values().copied().collect::<Vec<f64>>();
    tally.close(&covariances(a), &covariances(b), tolerance, size(&covariances(b)), &format!("{what}: covariances"));
    let again = fit(&bench.gpu, data, &case.options(rule(family), iterations)).expect("a fit on the GPU");
    tally.expect(again.posterior == got.posterior, || format!("{what}: a repeat differs"));
}

/// The least device time of an iteration in µs, and the path.
fn time(bench: &Bench, case: Case, rule: &FitRule, data: &Dataset) -> Option<(f64, &'static str)> {
    let (iterations, repeats) = TIMED;
    let options = case.options(rule.clone(), iterations);
    // EM is only the clock here: if it fails on some data, there is no ratio.
    let one = || fit(&bench.gpu, data, &options).ok().and_then(|fit| fit.on_device);
    let all: Vec<_> = (0..repeats).map_while(|_| one()).collect();
    let each = |on: &gmm_host::OnDevice| 1e6 * on.time.as_secs_f64() / on.iterations as f64;
    let best = all.iter().min_by(|a, b| each(a).total_cmp(&each(b)))?;
    Some((each(best), best.path))
}

pub(crate) fn in_the_loop(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick {
        vec![(501, 3, 2), (1000, 4, 3)]
    } else {
        vec![(1000, 4, 3), (1001, 2, 12), (3001, 70, 3), (100_000, 30, 30), (20_000, 64, 70), (1_000_000, 13, 8)]
    };
    println!(
        "   kind, precision, n x d, k: µs per iteration of EM, with a Dirichlet distribution, with a process; ratios"
    );
    for (n, d, k) in sizes {
        let plain = clumps(n, d, k);
        let data = if n % 2 == 1 { plain.with_weights(data::weights(n)).expect("weights") } else { plain };
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                let case = Case { kind, precision, k, d };
                FAMILIES.into_iter().for_each(|family| compare(bench, tally, case, family, &data));
                let [em, finite, process] =
                    [FitRule::none(), rule(FAMILIES[0]), rule(FAMILIES[1])].map(|rule| time(bench, case, &rule, &data));
                let both = finite.is_some() && process.is_some();
                tally.expect(both, || format!("{kind} {precision} {n}x{d} k={k}: a fit was not timed"));
                let (Some(em), Some(finite), Some(process)) = (em, finite, process) else {
                    println!("   {kind} {precision} {n}x{d} k={k}: EM gave no time");
                    continue;
                };
                println!(
                    "   {kind} {precision} {n}x{d} k={k} {}: {:.1} {:.1} {:.1}; {:.3} {:.3}",
                    em.1,
                    em.0,
                    finite.0,
                    process.0,
                    finite.0 / em.0,
                    process.0 / em.0
                );
                if (em.1, em.1) != (finite.1, process.1) {
                    // Other parameters lose precision elsewhere.
                    println!("   with a prior: {} {}", finite.1, process.1);
                }
            }
        }
    }
}
