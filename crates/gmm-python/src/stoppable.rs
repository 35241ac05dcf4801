//! An engine that stops between passes once a flag is set: initialisations make many passes and have no observer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gmm_host::{Engine, Error, Hooks, Wrapped};

#[derive(Clone)]
struct Stop(Arc<AtomicBool>);

impl Hooks for Stop {
    fn before(&mut self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted { iterations: 0 }) } else { Ok(()) }
    }
}

/// Wraps `engine` so that its passes return [`Error::Interrupted`] once `stop` is set.
pub(crate) fn stoppable(engine: &dyn Engine, stop: Arc<AtomicBool>) -> impl Engine {
    Wrapped::new(engine, move || Stop(stop.clone()))
}
