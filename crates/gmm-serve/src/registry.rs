//! What is served under which name, and how a changed file takes the place of the old one.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use gmm_data::{FileError, ReadOptions};
use gmm_host::Engine;
use gmm_model::Precision;
use serde_json::json;

use crate::batch::{BatchOptions, Batcher};
use crate::log::Log;
use crate::matrix::ServedMatrix;
use crate::metrics::{Metrics, of_model};
use crate::model::Model;
use crate::{Refusal, ServeError};

/// A file and the name under which it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name in addresses.
    pub name: String,
    /// The version in addresses; a request that names none gets the highest.
    pub version: u64,
    /// A model file, or a table.
    pub path: PathBuf,
}

impl Source {
    /// Reads `[NAME[:VERSION]=]FILE`. The name is that of the file without its extensions if it is not given, and the
    /// version 1.
    ///
    /// # Errors
    /// Errors if the name has other characters than letters, digits, `.`, `_` and `-`.
    ///
    /// ```
    /// use gmm_serve::Source;
    ///
    /// let source: Source = "wine:2=models/wine.json".parse()?;
    /// assert_eq!((source.name.as_str(), source.version), ("wine", 2));
    /// let source: Source = "models/wine.json".parse()?;
    /// assert_eq!((source.name.as_str(), source.version), ("wine", 1));
    /// # Ok::<(), String>(())
    /// ```
    fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (Some(name), Path::new(path)),
            None => (None, Path::new(text)),
        };
        if path.as_os_str().is_empty() {
            return Err("it must be FILE or NAME=FILE".to_owned());
        }
        let stem = || path.file_name().unwrap_or_default().to_string_lossy().split('.').next().map(str::to_owned);
        let named = match name {
            Some(name) => name.to_owned(),
            None => stem().unwrap_or_default(),
        };
        let (name, version) = match named.split_once(':') {
            Some((name, version)) => {
                let version = version.parse().ok().filter(|version| *version > 0);
                (name.to_owned(), version.ok_or("the version behind ':' must be a whole number from 1")?)
            }
            None => (named, 1),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            let name = gmm_model::shown(&name).into_owned();
            let must = "letters, digits, '.', '_' and '-' only: give one as NAME=FILE";
            return Err(format!("the name '{name}' must have {must}"));
        }
        Ok(Self { name, version, path: path.to_owned() })
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

/// How files become what is served.
pub(crate) struct Loader {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) precision: Precision,
    pub(crate) threads: usize,
    pub(crate) batch: BatchOptions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
}

/// What answers requests under a name.
pub(crate) enum Served {
    Model(Arc<Batcher>),
    Matrix(Box<ServedMatrix>),
}

impl Loader {
    fn load(&self, source: &Source, is_matrix: bool) -> Result<Served, ServeError> {
        let in_file = |error: String| ServeError::Load { path: source.path.display().to_string(), error };
        if is_matrix {
            let matrix = read_matrix(&source.path)?;
            let matrix = ServedMatrix::resident(matrix, &self.engine).map_err(|e| in_file(e.to_string()))?;
            return Ok(Served::Matrix(Box::new(matrix)));
        }
        let file = gmm_data::read_model(&source.path)?;
        let model = Model::new(file, self.engine.clone(), self.precision, self.threads);
        let model = model.map_err(|e| in_file(e.to_string()))?;
        Ok(Served::Model(Batcher::new(model, self.batch, self.metrics.clone())))
    }
}

/// Reads a table into memory of this process: a mapped file could be truncated under the server.
fn read_matrix(path: &Path) -> Result<gmm_model::Matrix, FileError> {
    let options = ReadOptions::default();
    let is_npy = path.extension().is_some_and(|extension| extension == "npy");
    let table = match File::open(path) {
        Ok(file) if is_npy => gmm_data::read_stream(file, &path.display().to_string(), &options)?,
        // Errors are those of the reader, which names the file.
        _ => gmm_data::read_table(path, &options)?,
    };
    Ok(table.matrix)
}

/// What shows that a file has changed: time, length, and number of the file.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), number(&meta)))
}

/// The inode: a file that is renamed to this name within the same tick of the file system's clock, some milliseconds, and
/// with the same length, has another one.
#[cfg(unix)]
fn number(meta: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
const fn number(_: &std::fs::Metadata) -> u64 {
    0
}

/// One name and version.
pub(crate) struct Slot {
    pub(crate) source: Source,
    is_matrix: bool,
    current: RwLock<Arc<Served>>,
    /// The file as it was last read, and why that failed if it did.
    state: Mutex<(Stamp, Option<String>)>,
}

impl Slot {
    /// What is served now. It stays the same for a request that holds it, whatever is loaded meanwhile.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the file as it is now cannot be read, if it cannot.
    pub(crate) fn error(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// `name:version`.
    fn label(&self) -> String {
        format!("{}:{}", self.source.name, self.source.version)
    }

    /// Reads the file again if it has changed.
    fn refresh(&self, loader: &Loader) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the file is read: a later change is seen the next time.
        let now = stamp(&self.source.path);
        if now == state.0 {
            return;
        }
        let (metrics, label) = (&loader.metrics, of_model(&self.label()));
        match loader.load(&self.source, self.is_matrix) {
            Ok(served) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
                metrics.reloads.get_or_create(&label).inc();
                metrics.stale.get_or_create(&label).set(0);
                loader.log.info("reloaded", json!({"model": self.label(), "file": self.source.path}));
                *state = (now, None);
            }
            Err(error) => {
                let error = error.to_string();
                metrics.reload_failures.get_or_create(&label).inc();
                metrics.stale.get_or_create(&label).set(1);
                let fields = json!({"model": self.label(), "file": self.source.path, "error": error});
                loader.log.error("the changed file cannot be served; the old one still is", fields);
                *state = (now, Some(error));
            }
        }
    }
}

/// All names.
pub(crate) struct Models {
    /// In the order of the command line.
    pub(crate) slots: Vec<Arc<Slot>>,
    by_name: HashMap<String, BTreeMap<u64, Arc<Slot>>>,
    loader: Loader,
}

impl Models {
    /// Reads all files.
    ///
    /// # Errors
    /// The first file that cannot be read; two files under one name and version.
    pub(crate) fn load(models: &[Source], matrices: &[Source], loader: Loader) -> Result<Self, ServeError> {
        let mut made = Self { slots: Vec::new(), by_name: HashMap::new(), loader };
        let models = models.iter().map(|source| (source, false));
        for (source, is_matrix) in models.chain(matrices.iter().map(|source| (source, true))) {
            let stamp = stamp(&source.path);
            let served = made.loader.load(source, is_matrix)?;
            let slot = Arc::new(Slot {
                source: source.clone(),
                is_matrix,
                current: RwLock::new(Arc::new(served)),
                state: Mutex::new((stamp, None)),
            });
            made.loader.metrics.stale.get_or_create(&of_model(&slot.label())).set(0);
            let versions = made.by_name.entry(source.name.clone()).or_default();
            if versions.values().any(|other| other.is_matrix != is_matrix) {
                return Err(ServeError::Names(format!(
                    "'{}' is a model and a matrix: name one NAME=FILE",
                    source.name
                )));
            }
            if versions.insert(source.version, slot.clone()).is_some() {
                let Source { name, version, .. } = source;
                let message = format!("two files are '{name}', version {version}: name them as NAME:VERSION=FILE");
                return Err(ServeError::Names(message));
            }
            made.slots.push(slot);
        }
        Ok(made)
    }

    /// # Errors
    /// 404 with the names or versions that there are.
    pub(crate) fn find(&self, name: &str, version: Option<&str>) -> Result<&Arc<Slot>, Refusal> {
        let Some(versions) = self.by_name.get(name) else {
            let mut names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            names.sort_unstable();
            let message = format!("no model '{}': there are {}", gmm_model::shown(name), names.join(", "));
            return Err(Refusal::unknown(message));
        };
        let found = match version {
            None => versions.values().next_back(),
            Some(version) => version.parse().ok().and_then(|version: u64| versions.get(&version)),
        };
        found.ok_or_else(|| {
            let all: Vec<String> = versions.keys().map(u64::to_string).collect();
            let version = gmm_model::shown(version.unwrap_or_default());
            Refusal::unknown(format!("'{name}' has no version '{version}': there are {}", all.join(", ")))
        })
    }

    /// Versions of a name, as text.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        self.by_name.get(name).map_or_else(Vec::new, |all| all.keys().map(u64::to_string).collect())
    }

    /// The only name of a kind, for requests that need not name it.
    ///
    /// # Errors
    /// 400 if there are several or none.
    pub(crate) fn only(&self, is_matrix: bool) -> Result<&str, Refusal> {
        let of_kind = |versions: &&BTreeMap<u64, Arc<Slot>>| versions.values().any(|slot| slot.is_matrix == is_matrix);
        let mut found = self.by_name.iter().filter(|(_, versions)| of_kind(versions)).map(|(name, _)| name);
        let (what, option) = if is_matrix { ("matrix", "matrix") } else { ("model", "model") };
        match (found.next(), found.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(Refusal::bad(format!("this server has no {what}"))),
            _ => Err(Refusal::bad(format!("this server has several: name one as \"{option}\""))),
        }
    }

    /// Looks for changed files every `interval`, until `is_stopping`.
    pub(crate) fn watch(&self, interval: Duration, is_stopping: impl Fn() -> bool) {
        loop {
            // In short pieces, so that the thread ends soon after the server.
            let mut left = interval;
            while !left.is_zero() {
                if is_stopping() {
                    return;
                }
                let piece = left.min(Duration::from_millis(50));
                std::thread::sleep(piece);
                left -= piece;
            }
            self.slots.iter().for_each(|slot| slot.refresh(&self.loader));
        }
    }
}
