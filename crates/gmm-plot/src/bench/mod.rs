//! Records of benchmarks: time as sizes grow, or of several workloads beside what they are measured by.

mod dots;
mod engines;
mod growth;
mod map;
mod record;

pub use growth::{Sweep, growth};
pub use record::{Line, Record};

use crate::{Error, Picture};

/// Draws a record by what its columns are: one of `gmm bench` as lines of engines and other programs over what grows, or as
/// maps where several sizes do; one of growth as lines with the floor; any other as dots.
///
/// `sweep` chooses what grows; all that the record has, side by side, where it is none.
///
/// # Errors
/// [`Error::Record`] where it has no times, or no such sweep.
pub fn bench(record: &Record, sweep: Option<Sweep>) -> Result<Picture, Error> {
    if engines::is(record) {
        return engines::engines(record, sweep);
    }
    if record.columns().iter().any(|name| name == "sweep") {
        return growth(record, sweep);
    }
    if sweep.is_some() {
        return Err(Error::Record("nothing grows in it, so it has no sweep to choose".to_owned()));
    }
    dots::dots(record)
}
