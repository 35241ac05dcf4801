//! The folder of files that may be deleted at any time: measured times and speeds.

#[cfg(not(test))]
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

#[cfg(test)]
thread_local! {
    /// A test's folder, instead of the environment's; `None` behaves as if there were no folder.
    pub(crate) static FOLDER: std::cell::RefCell<Option<PathBuf>> = const { std::cell::RefCell::new(None) };
}

/// The folder; `None` if the environment names none.
#[cfg(test)]
pub(crate) fn folder() -> Option<PathBuf> {
    FOLDER.with_borrow(Clone::clone)
}

/// The folder; `None` if the environment names none.
#[cfg(not(test))]
pub(crate) fn folder() -> Option<PathBuf> {
    folder_of(|name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

/// The cache folder by each system's convention. The XDG specification says to ignore relative paths in
/// `XDG_CACHE_HOME`.
fn folder_of(set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(folder) = set("GMM_CACHE_DIR") {
        return Some(folder);
    }
    let home = || set("HOME");
    let caches = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else {
        set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| home().map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join("gmm"))
}

/// Writes a temporary file in the same folder, then renames it, so that readers see either the old file or the new one.
///
/// # Errors
/// Any error of the file system.
pub(crate) fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, content)?;
    file.write_all(b"\n")?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_folder_is_the_users_own_unless_another_is_named() {
        let at = |all: &[(&str, &str)]| {
            let found = folder_of(|name| all.iter().find(|(of, _)| *of == name).map(|(_, value)| PathBuf::from(value)));
            found.map(|path| path.display().to_string())
        };
        assert_eq!(at(&[("HOME", "/h"), ("GMM_CACHE_DIR", "/c")]).unwrap(), "/c");
        assert_eq!(at(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(), "/x/gmm");
        assert_eq!(at(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")]).unwrap(), "/h/.cache/gmm");
        assert_eq!(at(&[]), None);
    }
}
