//! Log-likelihoods on the CPU: one value of ours and one of scikit-learn's in turns, answers checked first.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use gmm_host::{CpuEngine, Engine, Likelihood};
use gmm_model::{Mixture, Precision, reference};

use crate::contest::{self, DISTURBED, TURN, Times};
use crate::cpu::Arguments;
use crate::definition::{self, Definition};
use crate::peer::{Peer, Turn};
use crate::spread::Spread;
use crate::workload::{self, Workload};
use crate::{machine, ours, record};

const COLUMNS: &str = "precision,covariance,n,k,d,status,ms,ms_min,ms_max,peer_ms,peer_ms_min,peer_ms_max,\
                       ratio,ratio_min,ratio_max,batch_ms,gradient_ms,error,peer_error,pairs,others";

/// Mixtures in a batch: as many as go over a block of rows at a time.
const BATCH: usize = 64;
/// One evaluation and no more.
const ONCE: Turn = Turn { at_least: 1, at_most: 1, seconds: 0.0 };

/// Checks, times and records.
///
/// # Errors
/// Where a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let definition = definition::read(&arguments.root.join("benches/definitions/cpu.toml"))?;
    let plan = if arguments.quick { &definition.quick } else { &definition.record };
    let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let engine = CpuEngine::new(threads)?;
    let mut peer = Peer::start(&arguments.python, &arguments.root.join("benches/peers/sklearn_cpu.py"), threads)?;
    let machine = machine::describe();
    let header = record::Header {
        what: "milliseconds per log-likelihood, ours and scikit-learn's in turns",
        machine: &machine,
        commit: machine::commit(&arguments.root),
        command: &arguments.command,
        threads,
        engine: engine.description(),
        peer: peer.versions()?,
    };
    let mut text = format!("{}{COLUMNS}\n", header.lines());
    eprint!("{text}");
    let mut wrong = 0;
    for &shape in &plan.shapes {
        let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
        for &kind in &definition.covariances {
            let mixture = workload.start(kind);
            for &precision in &definition.precisions {
                let case = Case { definition: &definition, workload: &workload, mixture: &mixture, precision };
                let (line, right) = case.run(&engine, &mut peer, plan.pairs)?;
                println!("{line}");
                let _ = writeln!(text, "{line}");
                wrong += usize::from(!right);
            }
        }
    }
    let path = record::keep(&arguments.record, &machine, "likelihood", &text)?;
    eprintln!("recorded in {}", path.display());
    if wrong > 0 { bail!("{wrong} answers were wrong and not timed") } else { Ok(()) }
}

/// One line of the record.
struct Case<'a> {
    definition: &'a Definition,
    workload: &'a Workload,
    mixture: &'a Mixture,
    precision: Precision,
}

impl Case<'_> {
    /// The line, and whether the answer is right.
    fn run(&self, engine: &dyn Engine, peer: &mut Peer, pairs: usize) -> Result<(String, bool)> {
        let Self { definition, workload, mixture, precision } = *self;
        let data = ours::dataset(workload, precision)?;
        let truth = reference::log_densities(mixture, data.rows().to_f64().view()).sum();
        let mut likelihood = Likelihood::new(engine, &data, precision)?;
        peer.load(&workload.path, precision)?;
        peer.start_from(mixture, definition.reg_covar)?;
        let error = |value: f64| ((value - truth) / truth).abs();
        let errors = [error(likelihood.value(mixture)?), error(peer.score(ONCE)?.1)];
        let right = errors[0] <= definition.tolerance.of(precision);

        let shape = workload.shape;
        let mut fields = vec![precision.to_string(), mixture.covariance_type().to_string()];
        fields.extend([shape.n, shape.k, shape.d].map(|size| size.to_string()));
        let mut disturbed = String::new();
        if right {
            let id = peer.id();
            let value = || TURN.of(|| Ok(likelihood.value(mixture).map(drop)?));
            let Times { ours, peer, ratio, others } = contest::time(pairs, id, value, || Ok(peer.score(TURN)?.0))?;
            disturbed = format!("{others:.2}");
            fields.push(if others > DISTURBED { "disturbed" } else { "ok" }.to_owned());
            for (spread, scale) in [(ours, 1e3), (peer, 1e3), (ratio, 1.0)] {
                fields.extend([spread.median, spread.min, spread.max].map(|v| format!("{:.4}", scale * v)));
            }
            let sets = vec![mixture.clone(); BATCH];
            let batch = median(pairs, || Ok(likelihood.batch(&sets).map(drop)?))? / BATCH as f64;
            let gradient = median(pairs, || Ok(likelihood.value_and_gradient(mixture).map(drop)?))?;
            fields.extend([batch, gradient].map(|seconds| format!("{:.4}", 1e3 * seconds)));
        } else {
            fields.push("wrong".to_owned());
            fields.extend(vec![String::new(); 11]);
        }
        fields.extend(errors.map(|error| format!("{error:.1e}")));
        fields.extend([pairs.to_string(), disturbed]);
        debug_assert_eq!(fields.len(), COLUMNS.split(',').count());
        Ok((fields.join(","), right))
    }
}

/// Median seconds of several turns.
fn median(turns: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let turns: Result<Vec<f64>> = (0..turns).map(|_| TURN.of(&mut work)).collect();
    Ok(Spread::of(turns?).median)
}
