//! The temporary file that a write fills before it is renamed to its final name.
//!
//! If the file system supports it, the file has no name until it is complete (`O_TMPFILE`), so nothing is left however
//! the process ends. Elsewhere it is a hidden file in the same folder, on which its process holds a lock. The lock
//! tells a file of a running process from one that a killed process left behind; the next process that writes in the
//! folder deletes the latter.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempPath;

const PREFIX: &str = ".gmm-";
const SUFFIX: &str = ".tmp";
/// Number of random letters and digits between prefix and suffix.
const RANDOM: usize = 6;

/// All writes in progress in this process. A signal handler needs the list, because no destructor runs when a signal
/// ends the process.
struct WritesInProgress {
    /// Temporary files that have a name.
    named: BTreeSet<PathBuf>,
    /// Number of calls of [`abandon`].
    given_up: u64,
    /// Folders from which this process has already deleted the files of killed processes.
    swept: BTreeSet<PathBuf>,
}

static UNDER_WAY: Mutex<WritesInProgress> =
    Mutex::new(WritesInProgress { named: BTreeSet::new(), given_up: 0, swept: BTreeSet::new() });

fn under_way() -> MutexGuard<'static, WritesInProgress> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard that [`abandon`] returns. No write begins or ends while it is held.
pub struct Abandoned(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, WritesInProgress>);

/// Deletes the temporary files of all writes in progress, for a process that is about to end without running
/// destructors. A file already renamed stays, complete; the other writes fail if the process continues.
#[must_use = "hold it until the process ends: a write could begin again"]
pub fn abandon() -> Abandoned {
    let mut state = under_way();
    state.given_up += 1;
    for file in &state.named {
        // A file that cannot be deleted stays; the process is ending, so the error is not reported.
        let _ = fs::remove_file(file);
    }
    Abandoned(state)
}

/// A temporary file, deleted on drop unless [`persist`](Self::persist) has renamed it.
pub(super) struct Temporary {
    folder: PathBuf,
    /// `None` if the file has no name.
    name: Option<TempPath>,
    /// The value of [`WritesInProgress::given_up`] when it was created.
    since: u64,
}

impl Temporary {
    /// Creates a file in a folder, open for writing.
    pub(super) fn new(folder: &Path) -> io::Result<(File, Self)> {
        // Created and listed under one lock, so that `abandon` cannot miss it.
        let mut state = under_way();
        if state.swept.insert(folder.to_owned()) {
            sweep(folder);
        }
        let (file, name) = match unnamed(folder) {
            Some(file) => (file, None),
            None => named(folder).map(|(file, name)| (file, Some(name)))?,
        };
        state.named.extend(name.as_ref().map(|name| name.to_path_buf()));
        let since = state.given_up;
        Ok((file, Self { folder: folder.to_owned(), name, since }))
    }

    /// Renames the file to `target`, replacing an older file.
    pub(super) fn persist(mut self, file: &File, target: &Path) -> io::Result<()> {
        let mut state = under_way();
        if state.given_up != self.since {
            return Err(io::Error::other("the write was cancelled"));
        }
        let name = match self.name.take() {
            Some(name) => {
                state.named.remove(&name.to_path_buf());
                name
            }
            // Only a rename can replace a file, and only a named file can be renamed.
            None => link(file, &self.folder)?,
        };
        name.persist(target).map_err(|e| e.error)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let mut state = under_way();
        state.named.remove(&name.to_path_buf());
        // Dropping the `TempPath` deletes the file, while the lock is held.
        drop(name);
    }
}

/// Creates an unnamed file; `None` if the system does not support that, or could not name the file later.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    let file = as_any_other().custom_flags(flags).open(folder).ok()?;
    fs::symlink_metadata(opened(&file)).ok()?;
    // Locked before it has a name, so that no other process mistakes it for one that was left behind. On a file system
    // without locks `sweep` deletes nothing.
    let _ = file.try_lock();
    Some(file)
}

#[cfg(target_os = "linux")]
fn opened(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives an unnamed file a temporary name; if the file system refuses, copies it to a named file instead.
#[cfg(target_os = "linux")]
fn link(mut file: &File, folder: &Path) -> io::Result<TempPath> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let from = opened(file);
    let linked = builder().make_in(folder, |to| Ok(linkat(CWD, &from, CWD, to, AtFlags::SYMLINK_FOLLOW)?));
    if let Ok(linked) = linked {
        return Ok(linked.into_temp_path());
    }
    let (mut copy, name) = named(folder)?;
    file.rewind()?;
    io::copy(&mut file, &mut copy)?;
    copy.set_permissions(file.metadata()?.permissions())?;
    copy.flush()?;
    copy.sync_all()?;
    Ok(name)
}

#[cfg(not(target_os = "linux"))]
const fn unnamed(_folder: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn link(_file: &File, folder: &Path) -> io::Result<TempPath> {
    unreachable!("{} holds no file without a name", folder.display())
}

/// Creates a file with a temporary name, locked if the file system supports locks.
fn named(folder: &Path) -> io::Result<(File, TempPath)> {
    loop {
        let (file, name) = builder().make_in(folder, |path| as_any_other().create_new(true).open(path))?.into_parts();
        // Another process may have found the file before it was locked, and then deletes it: try again.
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && name.exists() {
            return Ok((file, name));
        }
    }
}

/// Options for opening a file with the usual mode 0o666, from which the umask removes permissions.
fn as_any_other() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
    options
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).rand_bytes(RANDOM);
    builder
}

/// Deletes the temporary files that killed processes left in a folder.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let ours = |name: &str| {
        let random = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
        random.is_some_and(|r| r.len() == RANDOM && r.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !entry.file_name().to_str().is_some_and(ours) {
            continue;
        }
        // Deleted while locked: a process that has just created the file sees the lock and creates another.
        if let Ok(file) = File::options().read(true).write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn files_of_killed_processes_are_swept_and_those_of_running_ones_and_of_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (running, name) = named(folder.path()).unwrap();
        for other in [".gmm-aB3xYz.tmp", ".gmm-short.tmp", ".gmm-a-cdef.tmp", "x.tmp", ".gmm-abcdef.json"] {
            fs::write(folder.path().join(other), "x").unwrap();
        }
        sweep(folder.path());
        let mut left = vec![
            ".gmm-a-cdef.tmp".to_owned(),
            ".gmm-abcdef.json".to_owned(),
            ".gmm-short.tmp".to_owned(),
            "x.tmp".to_owned(),
            name.file_name().unwrap().to_str().unwrap().to_owned(),
        ];
        left.sort();
        assert_eq!(names(folder.path()), left);
        // As if the process had ended without running destructors.
        let path = name.keep().unwrap();
        drop(running);
        sweep(folder.path());
        assert!(!path.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_cannot_be_linked_is_copied() {
        // A deleted file cannot be linked, which simulates a file system that has unnamed files but cannot link them.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"whole").unwrap();
        fs::remove_file(&path).unwrap();
        let name = link(&file, folder.path()).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"whole");
    }

    #[test]
    fn an_error_names_no_temporary_file() {
        let text = named(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(!text.contains(".tmp") && text.contains("os error 2"), "{text}");
    }
}
