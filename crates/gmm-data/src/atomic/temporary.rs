//! The file that a write fills before it gets its name.
//!
//! Where the file system allows it, the file has no name until it is whole (`O_TMPFILE`): whatever ends the process, nothing
//! is left. Elsewhere it is a hidden file in the same folder. Its process holds a lock on it, so that the next write in that
//! folder can tell a file of a running process from one that a killed process left behind, and deletes the latter.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempPath;

const PREFIX: &str = ".gmm-";
const SUFFIX: &str = ".tmp";
/// Random letters and digits between the two.
const RANDOM: usize = 6;

/// All writes that are under way in this process: no destructor runs where a signal ends it.
struct UnderWay {
    /// Temporary files that have a name.
    named: BTreeSet<PathBuf>,
    /// How often all writes were given up.
    given_up: u64,
    /// Folders in which no file of a killed process is left.
    swept: BTreeSet<PathBuf>,
}

static UNDER_WAY: Mutex<UnderWay> =
    Mutex::new(UnderWay { named: BTreeSet::new(), given_up: 0, swept: BTreeSet::new() });

fn under_way() -> MutexGuard<'static, UnderWay> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes given up, see [`abandon`]. While it lives no write begins or ends.
pub struct Abandoned(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, UnderWay>);

/// Deletes the temporary files of all writes under way, for a process that is about to end without its destructors.
/// A write that is past its rename is whole; the others fail if the process lives on.
#[must_use = "hold it until the process ends: a write could begin again"]
pub fn abandon() -> Abandoned {
    let mut state = under_way();
    state.given_up += 1;
    for file in &state.named {
        // What cannot be deleted stays; there is nobody to tell.
        let _ = fs::remove_file(file);
    }
    Abandoned(state)
}

/// A temporary file; gone when it is dropped, unless it was given its name.
pub(super) struct Temporary {
    folder: PathBuf,
    /// None where the file has no name.
    name: Option<TempPath>,
    /// The count of [`UnderWay::given_up`] when it was created.
    since: u64,
}

impl Temporary {
    /// A new file in a folder, open for writing.
    pub(super) fn new(folder: &Path) -> io::Result<(File, Self)> {
        // Created under the lock, so that none escapes between its creation and its place in the list.
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

    /// Gives the file its name; one of that name is replaced.
    pub(super) fn persist(mut self, file: &File, target: &Path) -> io::Result<()> {
        let mut state = under_way();
        if state.given_up != self.since {
            return Err(io::Error::other("the write was given up"));
        }
        let name = match self.name.take() {
            Some(name) => {
                state.named.remove(&name.to_path_buf());
                name
            }
            // Only a rename replaces a file, and only what has a name can be renamed.
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
        // The path deletes its file, under the lock.
        drop(name);
    }
}

/// A file without a name; none where the system has no such files, or could not name it later.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    let file = as_any_other().custom_flags(flags).open(folder).ok()?;
    fs::symlink_metadata(opened(&file)).ok()?;
    // Locked before it has a name, so that no other process takes it for one that was left behind. Where the file system
    // has no locks, nothing is ever taken for that.
    let _ = file.try_lock();
    Some(file)
}

#[cfg(target_os = "linux")]
fn opened(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives an unnamed file a temporary name. A file system that refuses it after all gets a copy.
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

/// A file with a temporary name, locked where there are locks.
fn named(folder: &Path) -> io::Result<(File, TempPath)> {
    loop {
        let (file, name) = builder().make_in(folder, |path| as_any_other().create_new(true).open(path))?.into_parts();
        // Another process may have found the file before it was locked. It then deletes it.
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && name.exists() {
            return Ok((file, name));
        }
    }
}

/// How a file is opened: as any other, so that the umask takes away what it should.
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
        // Deleted under its lock: who has just created it sees that, and creates another.
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
        // Its process ends without a destructor.
        let path = name.keep().unwrap();
        drop(running);
        sweep(folder.path());
        assert!(!path.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_cannot_be_linked_is_copied() {
        // A file that is deleted already cannot be linked: as on a file system that has unnamed files and no links to them.
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
