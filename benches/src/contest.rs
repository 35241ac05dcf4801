//! Compares two programs on one workload and covariance kind: checks the answers, then times both in turns.

use anyhow::Result;
use gmm_bench::flops;
use gmm_bench::pairs::{self, Times};
use gmm_bench::parameters::Parameters;
use gmm_bench::peer::Peer;
use gmm_bench::source::effective_components;
use gmm_bench::timing::Limits;
use gmm_host::Engine;
use gmm_model::{CovarianceType, Mixture, Precision, m_step, reference};
use ndarray::s;

use crate::ceiling::Ceiling;
use crate::definition::{Definition, Shape};
use crate::ours::Ours;
use crate::setup::{decimals, key, times};
use crate::workload::Workload;

/// Columns of the record.
pub(crate) const COLUMNS: &str = "precision,covariance,n,k,d,status,ms,ms_min,ms_max,peer_ms,peer_ms_min,peer_ms_max,\
                       ratio,ratio_min,ratio_max,gflops,ceiling_share,error,peer_error,disagreement,\
                       effective_components,pairs,others";

/// Number of iterations after which the programs are compared with each other.
const CHECKED: usize = 3;
/// Limits of one turn: at least one iteration, and enough to make ticks of the timer and scheduler negligible.
pub(crate) const TURN: Limits = Limits { repeats: 40, seconds: 0.15 };
/// Number of rows from which the components' overlap is computed.
const OVERLAP_ROWS: usize = 2000;

/// The result of one comparison.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) shape: Shape,
    pub(crate) kind: CovarianceType,
    pub(crate) precision: Precision,
    pub(crate) pairs: usize,
    /// Mean over rows of exp(entropy of the responsibilities).
    pub(crate) effective_components: f64,
    /// Our error against the reference after one iteration.
    pub(crate) error: f64,
    /// The peer's error against the reference after one iteration.
    pub(crate) peer_error: f64,
    /// Difference of the two programs after [`CHECKED`] iterations.
    pub(crate) disagreement: f64,
    /// Times, if our answer is right.
    pub(crate) times: Option<Times>,
}

/// A comparison on one workload and kind; shared by all precisions.
pub(crate) struct Contest<'a> {
    definition: &'a Definition,
    workload: &'a Workload,
    start: Mixture,
    truth: Parameters,
    effective_components: f64,
}

impl<'a> Contest<'a> {
    /// Computes one iteration with the reference, which takes longer than everything else.
    pub(crate) fn new(definition: &'a Definition, workload: &'a Workload, kind: CovarianceType) -> Self {
        let start = workload.start(kind);
        let statistics = reference::statistics(&start, workload.rows.view(), None);
        let truth = m_step(&statistics, definition.reg_covar, Some(&start)).expect("the workload is well-conditioned");
        let rows = workload.rows.slice(s![..OVERLAP_ROWS.min(workload.shape.n), ..]);
        let effective_components = effective_components(&start, rows);
        Self { definition, workload, truth: Parameters::of(&truth.mixture), start, effective_components }
    }

    /// Checks the answers and, if ours is right, measures `pairs` turns of each program.
    ///
    /// # Errors
    /// If a program does not answer. A wrong answer is not an error but an outcome.
    pub(crate) fn run(
        &mut self,
        precision: Precision,
        pairs: usize,
        engine: &dyn Engine,
        peer: &mut Peer,
    ) -> Result<Outcome> {
        let reg_covar = self.definition.reg_covar;
        let mut ours = Ours::start(engine, self.workload, precision, self.start.clone(), reg_covar)?;
        peer.load(&self.workload.path, precision)?;
        peer.start_from(&self.start, reg_covar)?;

        ours.iterate(Limits::ONE)?;
        peer.iterate(Limits::ONE)?;
        let error = Parameters::of(ours.mixture()).error(&self.truth);
        let peer_error = peer.parameters()?.error(&self.truth);
        for _ in 1..CHECKED {
            ours.iterate(Limits::ONE)?;
            peer.iterate(Limits::ONE)?;
        }
        let disagreement = Parameters::of(ours.mixture()).error(&peer.parameters()?);

        let tolerance = self.definition.tolerance.of(precision);
        // In f32 the peer also sums in f32, so our answer is judged by the reference only.
        let right = error <= tolerance && (precision == Precision::F32 || disagreement <= tolerance);
        Ok(Outcome {
            shape: self.workload.shape,
            kind: self.start.covariance_type(),
            precision,
            pairs,
            effective_components: self.effective_components,
            error,
            peer_error,
            disagreement,
            times: if right {
                let id = peer.id();
                Some(pairs::time(pairs, id, || ours.iterate(TURN), || peer.iterate(TURN))?)
            } else {
                None
            },
        })
    }
}

/// GFLOP/s and their share of the ceiling, if there are times and a ceiling.
fn speed(outcome: &Outcome, ceiling: &Ceiling) -> (Option<f64>, Option<f64>) {
    let operations = flops::per_iteration(outcome.kind, outcome.shape);
    let gflops = outcome.times.map(|times| operations / times.ours.median / 1e9);
    (gflops, gflops.zip(ceiling.of(outcome.precision)).map(|(gflops, top)| gflops / top))
}

/// The heading of the table on the terminal.
pub(crate) fn heading() -> String {
    let first = format!("{:4} {:9} {:>7} {:>3} {:>3} {:>9} {:>10}", "", "", "n", "k", "d", "ours ms", "sklearn ms");
    let then = format!("{:>7} {:>15} {:>8} {:>8} {:>8}", "ratio", "(min - max)", "GFLOP/s", "ceiling", "error");
    format!("{first} {then} {:>8} {:>7}", "peer's", "others")
}

/// One line of the table on the terminal.
pub(crate) fn shown(outcome: &Outcome, ceiling: &Ceiling) -> String {
    let Outcome { shape, kind, precision, error, peer_error, disagreement, .. } = outcome;
    let key = format!("{precision:4} {kind:9} {:>7} {:>3} {:>3}", shape.n, shape.k, shape.d);
    let Some(Times { ours, peer, ratio, others }) = outcome.times else {
        return format!("{key} WRONG: error {error:.1e}, the peer's {peer_error:.1e}, disagreement {disagreement:.1e}");
    };
    let (gflops, share) = speed(outcome, ceiling);
    format!(
        "{key} {:>9.2} {:>10.2} {:>6.1}x {:>15} {:>8.1} {:>8} {error:>8.0e} {peer_error:>8.0e} {:>6.0}%",
        1e3 * ours.median,
        1e3 * peer.median,
        ratio.median,
        format!("({:.1} - {:.1})", ratio.min, ratio.max),
        gflops.unwrap_or_default(),
        share.map_or_else(String::new, |share| format!("{:.0}%", 100.0 * share)),
        100.0 * others,
    )
}

/// One line of the file, in the order of [`COLUMNS`].
pub(crate) fn fields(outcome: &Outcome, ceiling: &Ceiling) -> Vec<String> {
    let Outcome { shape, kind, precision, .. } = outcome;
    let mut fields = key(precision, kind, &[shape.n, shape.k, shape.d]);
    fields.extend(times(outcome.times.as_ref(), 3));
    let (gflops, share) = speed(outcome, ceiling);
    fields.extend([decimals(gflops, 2), decimals(share, 3)]);
    fields.extend([outcome.error, outcome.peer_error, outcome.disagreement].map(|error| format!("{error:.1e}")));
    fields.extend([format!("{:.2}", outcome.effective_components), outcome.pairs.to_string()]);
    fields.push(decimals(outcome.times.map(|times| times.others), 2));
    fields
}

#[cfg(test)]
mod tests {
    use gmm_bench::spread::Spread;

    use super::*;

    fn outcome(times: Option<Times>) -> Outcome {
        Outcome {
            shape: Shape { n: 10, k: 2, d: 3 },
            kind: CovarianceType::Full,
            precision: Precision::F64,
            pairs: 1,
            effective_components: 1.5,
            error: 1e-12,
            peer_error: 1e-13,
            disagreement: 1e-12,
            times,
        }
    }

    #[test]
    fn every_line_has_a_field_for_every_column() {
        let spread = Spread::of(vec![0.25]);
        let times = Times { ours: spread, peer: spread, ratio: Spread::of(vec![1.0]), others: 0.0 };
        for times in [None, Some(times)] {
            let fields = fields(&outcome(times), &Ceiling::default());
            assert_eq!(fields.len(), COLUMNS.split(',').count(), "{fields:?}");
        }
    }
}
