//! One workload and kind: the answers checked, then both programs timed in turns.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use gmm_host::Engine;
use gmm_model::{CovarianceType, Mixture, Precision, m_step, reference};

use crate::definition::{Definition, Shape};
use crate::ours::Ours;
use crate::parameters::Parameters;
use crate::peer::{Peer, Turn};
pub(crate) use crate::quiet::DISTURBED;
use crate::quiet::Watch;
use crate::spread::Spread;
use crate::workload::Workload;

/// One iteration and no more.
const ONE: Turn = Turn { at_least: 1, at_most: 1, seconds: 0.0 };
/// After this many iterations the programs must still agree.
const CHECKED: usize = 3;
/// One turn of a pair: at least one iteration, and enough of them that a timer's or scheduler's tick does not matter.
pub(crate) const TURN: Turn = Turn { at_least: 1, at_most: 40, seconds: 0.15 };
/// Time for the other program's threads to stop spinning.
const PAUSE: Duration = Duration::from_millis(300);
/// Pairs that are tried for each that is wanted.
const ATTEMPTS: usize = 3;
/// Time for others to finish.
const RESPITE: Duration = Duration::from_millis(1500);
/// Rows from which the overlap of the components is told.
const OVERLAP_ROWS: usize = 2000;

/// What came out of one contest.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) shape: Shape,
    pub(crate) kind: CovarianceType,
    pub(crate) precision: Precision,
    pub(crate) pairs: usize,
    /// Mean over rows of the exponential of the entropy of the responsibilities.
    pub(crate) effective_components: f64,
    /// Our difference from the reference after one iteration.
    pub(crate) error: f64,
    /// The peer's difference from the reference after one iteration.
    pub(crate) peer_error: f64,
    /// Difference of the two programs after [`CHECKED`] iterations.
    pub(crate) disagreement: f64,
    /// Times, where the answer is right.
    pub(crate) times: Option<Times>,
}

/// Seconds per iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ours: Spread,
    pub(crate) peer: Spread,
    /// Peer over ours, pair by pair.
    pub(crate) ratio: Spread,
    /// The largest share of the machine that other processes took during a pair that counts.
    pub(crate) others: f64,
}

/// What the contests of all precisions on one workload and kind share.
pub(crate) struct Contest<'a> {
    definition: &'a Definition,
    workload: &'a Workload,
    start: Mixture,
    truth: Parameters,
    effective_components: f64,
}

impl<'a> Contest<'a> {
    /// Computes one iteration by the reference; this takes longer than the rest.
    pub(crate) fn new(definition: &'a Definition, workload: &'a Workload, kind: CovarianceType) -> Self {
        let start = workload.start(kind);
        let statistics = reference::statistics(&start, workload.rows.view(), None);
        let truth = m_step(&statistics, definition.reg_covar, Some(&start)).expect("the workload is well-conditioned");
        let effective_components = overlap(workload, &start);
        Self { definition, workload, truth: Parameters::of(&truth.mixture), start, effective_components }
    }

    /// Checks, and where the answer is right measures `pairs` turns of each program.
    ///
    /// # Errors
    /// Where a program fails to answer at all. A wrong answer is an outcome.
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

        ours.iterate(ONE)?;
        peer.iterate(ONE)?;
        let error = Parameters::of(ours.mixture()).error(&self.truth);
        let peer_error = peer.parameters()?.error(&self.truth);
        for _ in 1..CHECKED {
            ours.iterate(ONE)?;
            peer.iterate(ONE)?;
        }
        let disagreement = Parameters::of(ours.mixture()).error(&peer.parameters()?);

        let tolerance = self.definition.tolerance.of(precision);
        // In f32 the peer sums in f32 as well, so that only the reference can judge us.
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
                Some(time(pairs, id, || ours.iterate(TURN), || peer.iterate(TURN))?)
            } else {
                None
            },
        })
    }
}

/// One turn of each program.
struct Pair {
    ours: f64,
    peer: f64,
    /// Share of the machine that other processes took; 0 where that is not known.
    others: f64,
}

/// Turns of both programs, one after the other, so that whatever else the machine does slows both.
///
/// Pairs in which others took more than [`DISTURBED`] are made again, up to [`ATTEMPTS`] per pair; then the least
/// disturbed count. What was measured has no say in which. `peer` is the process that does `theirs`.
pub(crate) fn time(
    wanted: usize,
    peer: u32,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<Times> {
    let mut pairs = Vec::new();
    let mut quiet = 0;
    while quiet < wanted && pairs.len() < ATTEMPTS * wanted {
        let pair = pair(peer, &mut ours, &mut theirs)?;
        if pair.others <= DISTURBED {
            quiet += 1;
        } else {
            sleep(RESPITE);
        }
        pairs.push(pair);
    }
    pairs.sort_by(|a, b| a.others.total_cmp(&b.others));
    pairs.truncate(wanted);
    let spread = |of: fn(&Pair) -> f64| Spread::of(pairs.iter().map(of).collect());
    Ok(Times {
        ours: spread(|pair| pair.ours),
        peer: spread(|pair| pair.peer),
        ratio: spread(|pair| pair.peer / pair.ours),
        others: spread(|pair| pair.others).max,
    })
}

fn pair(peer: u32, ours: &mut impl FnMut() -> Result<f64>, theirs: &mut impl FnMut() -> Result<f64>) -> Result<Pair> {
    sleep(PAUSE);
    let watch = Watch::begin(Some(peer));
    let peer = theirs()?;
    sleep(PAUSE);
    let ours = ours()?;
    Ok(Pair { ours, peer, others: watch.others().unwrap_or(0.0) })
}

fn overlap(workload: &Workload, mixture: &Mixture) -> f64 {
    let rows = workload.rows.outer_iter().take(OVERLAP_ROWS);
    let perplexities = rows.map(|x| {
        let (_, r) = reference::posterior(mixture, x);
        r.iter().filter(|r| **r > 0.0).map(|r| -r * r.ln()).sum::<f64>().exp()
    });
    perplexities.sum::<f64>() / OVERLAP_ROWS.min(workload.shape.n) as f64
}
