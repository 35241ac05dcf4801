//! The file of autotune results. It may be lost, damaged or read-only at any time; the shapes are then timed again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::{fs, io};

use gmm_kernels::ptx;
use serde::{Deserialize, Serialize};

use crate::{Tuning, TuningSource, cache_folder};

/// This program's version and kernels. Timings of other versions are outdated, and are removed at the next write.
pub(super) static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("gmm {}, kernels {:.12}", env!("CARGO_PKG_VERSION"), ptx::SOURCES));

/// Version of the file format.
const FORMAT: u32 = 2;

/// Number of entries, about a MiB, beyond which the file is cleared: a sweep over many shapes could fill it with unused
/// ones.
const MOST: usize = 4096;

#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    /// By a key that contains everything that a timing depends on.
    paths: BTreeMap<String, Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    path: String,
    /// Milliseconds per iteration of each timed path.
    ms: BTreeMap<String, f64>,
}

/// The content of the file as it was read.
pub(super) struct Cache {
    path: Option<PathBuf>,
    content: Content,
    /// Whether the file may be replaced: not if it exists and could not be read.
    writable: bool,
    warnings: Vec<String>,
}

impl Cache {
    pub(super) fn open() -> Self {
        let content = Content { format: FORMAT, paths: BTreeMap::new() };
        let mut cache = Self { path: file(), content, writable: true, warnings: Vec::new() };
        let Some(path) = &cache.path else {
            cache.warn("there is no cache folder: set GMM_CACHE_DIR");
            return cache;
        };
        match fs::read(path) {
            Ok(bytes) => match serde_json::from_slice::<Content>(&bytes) {
                Ok(content) if content.format == FORMAT => cache.content = content,
                Ok(content) => {
                    cache.warn(format!("the file has format {}, not {FORMAT}, and will be replaced", content.format));
                }
                Err(why) => cache.warn(format!("the file is damaged and will be replaced: {why}")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                cache.writable = false;
                cache.warn(format!("it cannot be read: {error}"));
            }
        }
        cache
    }

    fn warn(&mut self, why: impl std::fmt::Display) {
        let place = self.path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display()));
        self.warnings.push(format!("autotune: {place}{why}"));
    }

    pub(super) fn warnings(self) -> Vec<String> {
        self.warnings
    }

    /// The stored result for `key`, if its path is one of `paths`.
    pub(super) fn find(&self, key: &str, paths: &[&'static str]) -> Option<Tuning> {
        let entry = self.content.paths.get(key)?;
        let name = |of: &str| paths.iter().copied().find(|path| *path == of);
        let mut seconds: Vec<_> = entry.ms.iter().filter_map(|(path, ms)| Some((name(path)?, ms / 1e3))).collect();
        seconds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let source = TuningSource::File(self.path.clone()?);
        Some(Tuning { path: name(&entry.path)?, source, seconds, warnings: Vec::new() })
    }

    /// Stores a result whose first path is the fastest. If two programs write at the same time, one result may be lost.
    pub(super) fn keep(&mut self, key: &str, seconds: &[(&'static str, f64)]) {
        let (Some(file), Some((path, _)), true) = (self.path.clone(), seconds.first(), self.writable) else { return };
        let paths = &mut self.content.paths;
        paths.retain(|key, _| key.ends_with(VERSION.as_str()));
        if paths.len() >= MOST {
            paths.clear();
        }
        let ms = seconds.iter().map(|(path, seconds)| ((*path).to_owned(), 1e3 * seconds)).collect();
        paths.insert(key.to_owned(), Entry { path: (*path).to_owned(), ms });
        if let Err(error) = cache_folder::write_json(&file, &self.content) {
            self.warn(format!("it cannot be written, so the choice holds for this process only: {error}"));
        }
    }
}

/// The path of the file.
pub(super) fn file() -> Option<PathBuf> {
    cache_folder::folder().map(|folder| folder.join("autotune.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_and_one_of_another_version_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        cache_folder::FOLDER.set(Some(folder.path().join("new")));
        let version = VERSION.as_str();
        let mut cache = Cache::open();
        let old = Entry { path: "host".to_owned(), ms: BTreeMap::new() };
        cache.content.paths.insert("a shape, gmm 0.0.0".to_owned(), old.clone());
        let other_kernels = format!("a shape, gmm {}, kernels 0123456789ab", env!("CARGO_PKG_VERSION"));
        cache.content.paths.insert(other_kernels, old.clone());
        cache.keep(&format!("one, {version}"), &[("large", 1e-3)]);
        let mut cache = Cache::open();
        assert_eq!(cache.content.paths.len(), 1);
        assert_eq!(cache.find(&format!("one, {version}"), &["large", "host"]).unwrap().seconds, [("large", 1e-3)]);
        assert_eq!(cache.find(&format!("one, {version}"), &["host"]), None, "a path that there is no longer");
        cache.content.paths.extend((0..MOST).map(|i| (format!("{i}, {version}"), old.clone())));
        cache.keep(&format!("two, {version}"), &[("large", 1e-3)]);
        assert_eq!(Cache::open().content.paths.len(), 1);
        assert_eq!(cache.warnings(), Vec::<String>::new());
    }
}
