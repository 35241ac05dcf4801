//! Times log-likelihoods of resident rows: a single value, and a value in a batch.

use std::path::Path;

use anyhow::Result;
use gmm_host::{Engine, Likelihood};

use crate::check::Mixed;
use crate::peer::Peer;
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::task::{LONG, PeerCalls, Task, Turns};
use crate::timing::{CallsPerSample, Limits, once};

/// Mixtures in a batch: as many as the CPU engine evaluates together over a block of rows.
const BATCH: usize = 64;
/// Seconds for a value above which no batch of 64 is timed.
const TOO_LONG: f64 = 0.05;

/// Log-likelihoods under the start parameters.
pub(crate) struct Values {
    pub(crate) mixed: Mixed,
}

struct Calls<'a> {
    task: &'a Values,
    likelihood: Likelihood,
    together: CallsPerSample,
    seconds: Vec<f64>,
}

impl Task for Values {
    fn error(&self, engine: &dyn Engine) -> Result<f64> {
        self.mixed.likelihood(engine)
    }

    fn begin<'a>(&'a self, engine: &'a dyn Engine, warm_up: usize, row: &mut Row) -> Result<Box<dyn Turns + 'a>> {
        let Mixed { data, start, precision, .. } = &self.mixed;
        let (load, mut likelihood) = once(|| Ok(Likelihood::new(engine, data, *precision)?))?;
        row.load_ms = ms(load);
        let (first, value) = once(|| Ok(likelihood.value(start)?))?;
        row.first_ms = ms(first);
        row.log_likelihood = digits(value / data.n_rows() as f64, 12);
        if first > LONG {
            return Ok(Box::new(Calls { task: self, likelihood, together: CallsPerSample::ONE, seconds: vec![first] }));
        }
        for _ in 1..warm_up {
            likelihood.value(start)?;
        }
        let together = CallsPerSample::of(|| Ok(likelihood.value(start).map(drop)?))?;
        Ok(Box::new(Calls { task: self, likelihood, together, seconds: Vec::new() }))
    }

    fn hand_out(&self, folder: &Path) -> Result<()> {
        self.mixed.hand_out(folder)
    }

    fn begin_peer<'a>(
        &'a self,
        peer: &'a mut Peer,
        folder: &Path,
        ours: Option<f64>,
        row: &mut Row,
    ) -> Result<Box<dyn Turns + 'a>> {
        self.mixed.load_peer(peer, folder)?;
        let rows = self.mixed.data.n_rows() as f64;
        let call = move |peer: &mut Peer, limits: Limits| {
            let (took, sum) = peer.score(limits)?;
            Ok((took, sum / rows))
        };
        Ok(Box::new(PeerCalls::begin(peer, call, ours, row)?))
    }
}

impl Turns for Calls<'_> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let (likelihood, start) = (&mut self.likelihood, &self.task.mixed.start);
        let mut value = || Ok(likelihood.value(start).map(drop)?);
        self.seconds.extend(limits.turn(|| self.together.mean(&mut value))?);
        Ok(())
    }

    fn measured(&self) -> f64 {
        self.seconds.iter().sum()
    }

    fn finish(mut self: Box<Self>, limits: Limits, row: &mut Row) -> Result<()> {
        let median = Spread::of(self.seconds.clone()).median;
        row.time(self.seconds);
        if median <= TOO_LONG {
            let sets = vec![self.task.mixed.start.clone(); BATCH];
            let mut batch = || Ok(self.likelihood.batch(&sets).map(drop)?);
            let together = CallsPerSample::of(&mut batch)?;
            let seconds = limits.turn(|| together.mean(&mut batch))?;
            row.batch_ms = ms(Spread::of(seconds).median / BATCH as f64);
        }
        Ok(())
    }
}
