//! Captures the plan that the engine chose, from its tracing events.

use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Starts listening. Only the first call in a process has an effect.
pub(crate) fn listen() {
    let _ = tracing::subscriber::set_global_default(Listener);
}

/// Returns the plan reported last, and clears it.
pub(crate) fn take() -> Option<String> {
    LAST.lock().expect("nobody panics while holding it").take()
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.fields().field("plan").is_some()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Keep);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Keep;

impl Visit for Keep {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "plan" {
            *LAST.lock().expect("nobody panics while holding it") = Some(format!("{value:?}"));
        }
    }
}
