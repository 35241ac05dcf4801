//! The file of measured speeds. It may be lost, damaged or read-only at any time: the speeds are then measured again. A
//! process reads it once: an estimate is made for every small prediction.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cache_folder;

/// Version of the file format.
const FORMAT: u32 = 1;

/// The content as this process knows it. Tests have a folder each, and always read the file.
static KNOWN: Mutex<Option<Content>> = Mutex::new(None);

#[derive(Clone, Serialize, Deserialize)]
struct Content {
    format: u32,
    /// By number of threads, and instructions that decide which code runs: `f64` multiply-adds per second and thread.
    cpu: BTreeMap<String, f64>,
    /// Seconds that the first GPU takes to open.
    open: Option<f64>,
}

fn file() -> Option<PathBuf> {
    cache_folder::folder().map(|folder| folder.join("speeds.json"))
}

fn content() -> Content {
    let bytes = file().and_then(|path| fs::read(path).ok());
    let found = bytes.and_then(|bytes| serde_json::from_slice::<Content>(&bytes).ok());
    let found = found.filter(|content| content.format == FORMAT);
    found.unwrap_or(Content { format: FORMAT, cpu: BTreeMap::new(), open: None })
}

fn key(threads: usize) -> String {
    let sets = crate::CpuEngine::instruction_sets();
    format!("{threads} threads, {}", sets.last().copied().unwrap_or_default())
}

/// A CPU's speed that can be true.
fn speed(value: f64) -> Option<f64> {
    (1e6..1e15).contains(&value).then_some(value)
}

/// A time to open a GPU that can be true. One slow start must not keep `auto` from the GPU for good.
fn seconds(value: f64) -> Option<f64> {
    (value > 0.0).then(|| value.min(MOST_SECONDS))
}

const MOST_SECONDS: f64 = 2.0;

/// The CPU's speed with this number of threads, and the seconds to open the GPU, as far as they are stored.
pub(super) fn read(threads: usize) -> (Option<f64>, Option<f64>) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if cfg!(test) {
        *known = None;
    }
    let content = known.get_or_insert_with(content);
    (content.cpu.get(&key(threads)).copied().and_then(speed), content.open.and_then(seconds))
}

/// Stores what is given. A failure means only that it is measured again.
pub(super) fn keep(threads: usize, cpu: Option<f64>, open: Option<f64>) {
    // Another process may have stored other speeds meanwhile.
    let mut content = content();
    content.cpu.extend(cpu.map(|speed| (key(threads), speed)));
    // The shortest: the others were slowed down by something else.
    content.open = [open, content.open].into_iter().flatten().filter_map(seconds).reduce(f64::min);
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(content.clone());
    let Some(path) = file() else { return };
    if let Err(error) = cache_folder::write_json(&path, &content) {
        tracing::debug!(%error, path = %path.display(), "measured speeds are not stored");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_stored_and_a_damaged_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        cache_folder::FOLDER.set(Some(folder.path().join("new")));
        assert_eq!(read(2), (None, None));
        keep(2, Some(3e9), None);
        keep(4, None, Some(0.25));
        assert_eq!((read(2), read(4)), ((Some(3e9), Some(0.25)), (None, Some(0.25))));
        keep(0, None, Some(9.0));
        assert_eq!(read(4), (None, Some(0.25)));
        for damaged in [
            "",
            "{}",
            "{\"format\": 9, \"cpu\": {}, \"open\": 1.0}",
            "{\"format\": 1, \"cpu\": {\"2 threads\": 1e300}, \"open\": -1.0}",
        ] {
            fs::write(file().unwrap(), damaged).unwrap();
            assert_eq!(read(2), (None, None), "{damaged}");
        }
        cache_folder::FOLDER.set(None);
        keep(2, Some(1.0), None);
        assert_eq!(read(2), (None, None), "no folder");
    }
}
