//! What is done at a size, by engines and by other programs, in turns.

use std::path::Path;

use anyhow::Result;
use gmm_host::Engine;

use crate::peer::Peer;
use crate::row::Row;
use crate::timing::Limits;

/// A call that takes so long is measured once: its first is its time, and it is not taken apart.
pub(crate) const LONG: f64 = 2.0;

/// A definition's work at one size, kind and precision.
pub(crate) trait Task {
    /// How far an engine's answer is from the reference's.
    ///
    /// # Errors
    /// What the engine says.
    fn error(&self, engine: &dyn Engine) -> Result<f64>;

    /// The first call of an engine, and `warm_up` more; what they tell goes into the row.
    ///
    /// # Errors
    /// What the engine says.
    fn begin<'a>(&'a self, engine: &'a dyn Engine, warm_up: usize, row: &mut Row) -> Result<Box<dyn Turns + 'a>>;

    /// Writes what peers read.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn hand_out(&self, folder: &Path) -> Result<()>;

    /// The first call of a peer; its answer is held against `ours`, a log-likelihood, where there is one.
    ///
    /// # Errors
    /// What the peer says.
    fn begin_peer<'a>(
        &'a self,
        peer: &'a mut Peer,
        folder: &Path,
        ours: Option<f64>,
        row: &mut Row,
    ) -> Result<Box<dyn Turns + 'a>>;
}

/// Calls of one engine or peer at one size.
pub(crate) trait Turns {
    /// One turn: calls as often as the limits say, at least one.
    ///
    /// # Errors
    /// What the engine or peer says.
    fn turn(&mut self, limits: Limits) -> Result<()>;

    /// Seconds that were measured so far.
    fn measured(&self) -> f64;

    /// What the turns came to goes into the row, and what is measured apart from them is measured.
    ///
    /// # Errors
    /// What the engine or peer says.
    fn finish(self: Box<Self>, limits: Limits, row: &mut Row) -> Result<()>;
}
