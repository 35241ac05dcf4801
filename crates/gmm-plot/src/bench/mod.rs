//! Draws benchmark records: time over growing sizes, the times of several workloads beside goals and floors, or bars of
//! programs side by side.

mod bars;
mod dots;
mod engines;
mod growth;
mod map;
mod record;

pub use bars::{Only, bars};
pub use growth::{Sweep, growth};
pub use record::{Line, Record};

use crate::{Error, Picture};

/// Draws a record in the form that its columns call for. A record of `gmm bench` is drawn as lines of engines and other
/// programs over the growing size, or as maps if several sizes vary; a growth record as lines with the floor; any other
/// record as dots.
///
/// `sweep` selects the growing size; `None` draws all sweeps of the record side by side.
///
/// # Errors
/// [`Error::Record`] if the record has no times, or no such sweep.
pub fn bench(record: &Record, sweep: Option<Sweep>) -> Result<Picture, Error> {
    if engines::is(record) {
        return engines::engines(record, sweep);
    }
    if record.columns().iter().any(|name| name == "sweep") {
        return growth(record, sweep);
    }
    if sweep.is_some() {
        return Err(Error::Record("it has no sweeps, so none can be chosen".to_owned()));
    }
    dots::dots(record)
}
