//! The available engines and peers (other programs) of a definition, opened once for all sizes.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use gmm_host::{Device, Engine, ResidentMatrix};
use ndarray::Array2;

use crate::definition::{Definition, What};
use crate::hardware::{self, Hardware};
use crate::peer::Peer;

/// The open engines and peers.
pub(crate) struct Programs {
    pub(crate) engines: Vec<Box<dyn Engine>>,
    pub(crate) peers: Vec<(String, Peer)>,
    /// Description and start-up time of each, for the head of a record.
    pub(crate) facts: Vec<(String, String)>,
    /// Engines and peers that are not available, and why.
    pub(crate) notes: Vec<String>,
    /// When opening began; the time budget starts there.
    pub(crate) began: Instant,
}

/// The error if no engine could be opened. The last engine's error is its source and decides the exit code.
fn nobody(notes: &[String], why: Option<gmm_host::Error>) -> anyhow::Error {
    let text = format!("none of the engines is available: {}", notes.join("; "));
    match why {
        Some(why) => anyhow::Error::new(why).context(text),
        None => anyhow::Error::msg(text),
    }
}

impl Programs {
    /// Opens the available engines among `chosen`, or among the definition's if `chosen` is empty, and the available
    /// peers. Start-up is timed here, separately from all calls.
    ///
    /// # Errors
    /// If an engine's name is invalid, or no engine is available.
    pub(crate) fn open(
        definition: &Definition,
        chosen: &[String],
        threads: usize,
        python: Option<&Path>,
    ) -> Result<Self> {
        let (engines, peers, began) = (Vec::new(), Vec::new(), Instant::now());
        let mut cast = Self { engines, peers, facts: Vec::new(), notes: Vec::new(), began };
        let mut last = None;
        let names = if chosen.is_empty() { &definition.engines[..] } else { chosen };
        for name in names {
            let device: Device = name.parse()?;
            let began = Instant::now();
            match device.open(threads) {
                Ok(opened) => {
                    let engine = opened.engine;
                    // Not every engine supports matrix products.
                    if definition.what == What::Product
                        && let Err(why) = ResidentMatrix::<f64>::new(engine.as_ref(), Array2::zeros((1, 1)))
                    {
                        cast.notes.push(format!("engine {name} does not support products: {why}"));
                        last = Some(why);
                        continue;
                    }
                    let ms = 1e3 * began.elapsed().as_secs_f64();
                    let start = format!("{}; started in {ms:.1} ms", engine.description());
                    cast.facts.push((format!("engine {}", engine.name()), start));
                    cast.engines.push(engine);
                }
                Err(why) => {
                    cast.notes.push(format!("engine {name} is not available: {why}"));
                    last = Some(why);
                }
            }
        }
        if cast.engines.is_empty() {
            return Err(nobody(&cast.notes, last));
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let Some(python) = python else {
            if !definition.peers.is_empty() {
                cast.notes.push(format!("no Python was given to run {}", definition.peers.join(", ")));
            }
            return Ok(cast);
        };
        for name in &definition.peers {
            match Peer::named(python, name, threads).and_then(|mut peer| Ok((peer.versions()?, peer))) {
                Ok((versions, peer)) => {
                    cast.facts.push((format!("peer {name}"), versions));
                    cast.peers.push((name.clone(), peer));
                }
                Err(why) => cast.notes.push(format!("peer {name} is not available: {why:#}")),
            }
        }
        Ok(cast)
    }

    /// The hardware that names the machine: the GPU of the first engine that has one, else the processor.
    pub(crate) fn hardware(&self) -> Hardware {
        let gpu = self.engines.iter().find(|engine| engine.device_input().is_some());
        hardware::describe(gpu.unwrap_or(&self.engines[0]).as_ref())
    }
}
