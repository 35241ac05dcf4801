//! The work at one size, done by engines and peers in turns.

use std::path::Path;

use anyhow::Result;
use gmm_host::Engine;

use crate::difference::relative;
use crate::peer::Peer;
use crate::row::{Row, digits, ms};
use crate::timing::Limits;

/// Seconds above which a call is measured only once: the first call is the measurement, and its parts are not timed.
pub(crate) const LONG: f64 = 2.0;

/// A definition's work at one size, kind and precision.
pub(crate) trait Task {
    /// The error of an engine's answer against the reference.
    ///
    /// # Errors
    /// Any error of the engine.
    fn error(&self, engine: &dyn Engine) -> Result<f64>;

    /// Makes the first call of an engine and `warm_up` more, and records their results in the row.
    ///
    /// # Errors
    /// Any error of the engine.
    fn begin<'a>(&'a self, engine: &'a dyn Engine, warm_up: usize, row: &mut Row) -> Result<Box<dyn Turns + 'a>>;

    /// Writes the input files of the peers.
    ///
    /// # Errors
    /// If they cannot be written.
    fn hand_out(&self, folder: &Path) -> Result<()>;

    /// Makes the first call of a peer. Its answer is compared with `ours`, a log-likelihood, if given.
    ///
    /// # Errors
    /// Any error of the peer.
    fn begin_peer<'a>(
        &'a self,
        peer: &'a mut Peer,
        folder: &Path,
        ours: Option<f64>,
        row: &mut Row,
    ) -> Result<Box<dyn Turns + 'a>>;
}

/// The timed calls of one engine or peer at one size.
pub(crate) trait Turns {
    /// Makes one turn: calls within the limits, at least one.
    ///
    /// # Errors
    /// Any error of the engine or peer.
    fn turn(&mut self, limits: Limits) -> Result<()>;

    /// Total seconds measured so far.
    fn measured(&self) -> f64;

    /// Records the turns' times in the row, and makes the measurements that are not part of the turns.
    ///
    /// # Errors
    /// Any error of the engine or peer.
    fn finish(self: Box<Self>, limits: Limits, row: &mut Row) -> Result<()>;
}

/// A peer's fits or log-likelihoods, in turns: `call` makes calls within the limits, and returns mean seconds and a
/// log-likelihood per row.
pub(crate) struct PeerCalls<'a, F> {
    peer: &'a mut Peer,
    call: F,
    seconds: Vec<f64>,
}

impl<'a, F: FnMut(&mut Peer, Limits) -> Result<(f64, f64)>> PeerCalls<'a, F> {
    /// Makes the first call, and records its time and its error against ours. It is not a measurement, because it may
    /// include compilation.
    ///
    /// # Errors
    /// Any error of the peer.
    pub(crate) fn begin(peer: &'a mut Peer, mut call: F, ours: Option<f64>, row: &mut Row) -> Result<Self> {
        let (first, value) = call(peer, Limits::ONE)?;
        row.first_ms = ms(first);
        row.log_likelihood = digits(value, 12);
        row.error = ours.and_then(|ours| digits(relative(value, ours), 2));
        Ok(Self { peer, call, seconds: Vec::new() })
    }
}

impl<F: FnMut(&mut Peer, Limits) -> Result<(f64, f64)>> Turns for PeerCalls<'_, F> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let Self { peer, call, seconds } = self;
        seconds.extend(limits.turn(|| Ok(call(peer, Limits::SHORT)?.0))?);
        Ok(())
    }

    fn measured(&self) -> f64 {
        self.seconds.iter().sum()
    }

    fn finish(self: Box<Self>, _: Limits, row: &mut Row) -> Result<()> {
        row.time(self.seconds);
        Ok(())
    }
}
