//! Compares log-likelihoods of the CPU engine and of scikit-learn in turns, after checking the answers.

use anyhow::Result;
use gmm_bench::difference::relative;
use gmm_bench::pairs;
use gmm_bench::peer::Peer;
use gmm_bench::spread::Spread;
use gmm_bench::timing::Limits;
use gmm_host::{Engine, Likelihood};
use gmm_model::{Mixture, Precision, reference};

use crate::contest::TURN;
use crate::cpu::Arguments;
use crate::definition::Definition;
use crate::setup::Setup;
use crate::workload::{self, Workload};
use crate::{ours, setup};

const COLUMNS: &str = "precision,covariance,n,k,d,status,ms,ms_min,ms_max,peer_ms,peer_ms_min,peer_ms_max,\
                       ratio,ratio_min,ratio_max,batch_ms,gradient_ms,error,peer_error,pairs,others";

/// Mixtures in a batch: as many as the engine evaluates together over a block of rows.
const BATCH: usize = 64;

/// Checks, times and records.
///
/// # Errors
/// If a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let what = "milliseconds per log-likelihood, ours and scikit-learn's in turns";
    let mut setup = Setup::open(arguments, what, "cpu", "sklearn_cpu.py", None)?;
    eprintln!("{}{COLUMNS}", setup.facts);
    let mut lines = setup.record(arguments, "likelihood", COLUMNS)?;
    let Setup { definition, engine, peer, .. } = &mut setup;
    let plan = definition.plan(arguments.quick);
    for &shape in &plan.shapes {
        let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
        for &kind in &definition.covariances {
            let mixture = workload.start(kind);
            for &precision in &definition.precisions {
                let case = Case { definition, workload: &workload, mixture: &mixture, precision };
                let (line, right) = case.run(engine.as_ref(), peer, plan.pairs)?;
                println!("{line}");
                lines.push(&line, right)?;
            }
        }
    }
    lines.finish()
}

/// One line of the record.
struct Case<'a> {
    definition: &'a Definition,
    workload: &'a Workload,
    mixture: &'a Mixture,
    precision: Precision,
}

impl Case<'_> {
    /// Runs the case; returns its line, and whether the answer is right.
    fn run(&self, engine: &dyn Engine, peer: &mut Peer, pairs: usize) -> Result<(String, bool)> {
        let Self { definition, workload, mixture, precision } = *self;
        let data = ours::dataset(workload, precision)?;
        let truth = reference::log_densities(mixture, data.rows().to_f64().view()).sum();
        let mut likelihood = Likelihood::new(engine, &data, precision)?;
        peer.load(&workload.path, precision)?;
        peer.start_from(mixture, definition.reg_covar)?;
        let errors = [likelihood.value(mixture)?, peer.score(Limits::ONE)?.1].map(|value| relative(value, truth));
        let right = errors[0] <= definition.tolerance.of(precision);

        let shape = workload.shape;
        let mut fields = setup::key(precision, mixture.covariance_type(), &[shape.n, shape.k, shape.d]);
        let (mut times, mut alone) = (None, [None; 2]);
        if right {
            let id = peer.id();
            let value = || TURN.mean(|| Ok(likelihood.value(mixture).map(drop)?));
            times = Some(pairs::time(pairs, id, value, || Ok(peer.score(TURN)?.0))?);
            let sets = vec![mixture.clone(); BATCH];
            let batch = median(pairs, || Ok(likelihood.batch(&sets).map(drop)?))? / BATCH as f64;
            let gradient = median(pairs, || Ok(likelihood.value_and_gradient(mixture).map(drop)?))?;
            alone = [batch, gradient].map(|seconds| Some(1e3 * seconds));
        }
        fields.extend(setup::times(times.as_ref(), 4));
        fields.extend(alone.map(|ms| setup::decimals(ms, 4)));
        fields.extend(errors.map(|error| format!("{error:.1e}")));
        fields.extend([pairs.to_string(), setup::decimals(times.map(|times| times.others), 2)]);
        Ok((fields.join(","), right))
    }
}

/// Median seconds of several turns.
fn median(turns: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let turns: Result<Vec<f64>> = (0..turns).map(|_| TURN.mean(&mut work)).collect();
    Ok(Spread::of(turns?).median)
}
