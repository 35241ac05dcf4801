//! Files that appear whole or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempPath;

use crate::FileError;
use crate::error::Fault;

/// The temporary files of all writes that are under way in this process: no destructor runs where a signal ends it.
static UNDER_WAY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn under_way() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes given up, see [`abandon`]. While it lives no write begins or ends.
pub struct Abandoned(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, BTreeSet<PathBuf>>);

/// Deletes the temporary files of all writes under way, for a process that is about to end without its destructors.
/// A write that is past its rename is whole; the others fail if the process lives on.
#[must_use = "hold it until the process ends: a write could begin again"]
pub fn abandon() -> Abandoned {
    let files = under_way();
    for file in files.iter() {
        // What cannot be deleted stays; there is nobody to tell.
        let _ = fs::remove_file(file);
    }
    Abandoned(files)
}

/// A temporary file; deleted when it is dropped, unless it was given its name.
struct Temporary {
    path: Option<TempPath>,
    /// As it is listed.
    listed: PathBuf,
}

impl Temporary {
    fn new(folder: &Path) -> io::Result<(File, Self)> {
        // Created under the lock, so that none escapes between its creation and its place in the list.
        let mut files = under_way();
        let (file, path) = builder().tempfile_in(folder)?.into_parts();
        let listed = path.to_path_buf();
        files.insert(listed.clone());
        Ok((file, Self { path: Some(path), listed }))
    }

    fn persist(mut self, target: &Path) -> io::Result<()> {
        let _files = under_way();
        match self.path.take() {
            Some(path) => path.persist(target).map_err(|e| e.error),
            None => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut files = under_way();
        // The path deletes its file.
        drop(self.path.take());
        files.remove(&self.listed);
    }
}

/// Writes a file by `fill`: into a temporary file in the same folder, flushed to the disk, then renamed.
///
/// Where anything fails, an older file of that name is intact and no temporary file is left. A new file gets the
/// permissions that the umask allows, a replaced one keeps its own. Links are followed. What is no regular file
/// (a pipe, `/dev/null`) is written to directly, since it cannot be replaced.
///
/// # Errors
/// [`FileError`] from the system, or what `fill` returns.
pub fn write<E: Into<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), FileError> {
    let here = |e: io::Error| Fault::from(e).in_file(path);
    let target = if path.is_symlink() { fs::canonicalize(path).map_err(here)? } else { path.to_owned() };
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(here(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if old.as_ref().is_some_and(|m| !m.is_file()) {
        let mut out = BufWriter::new(File::options().write(true).open(&target).map_err(here)?);
        fill(&mut out).map_err(Into::into)?;
        return out.flush().map_err(here);
    }
    let folder = folder_of(&target);
    // Dropped on every early return, and on a panic in `fill`; dropping deletes the file.
    let (file, name) = Temporary::new(&folder).map_err(here)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    fill(&mut out).map_err(Into::into)?;
    let file = out.into_inner().map_err(|e| here(e.into_error()))?;
    if let Some(old) = old {
        file.set_permissions(old.permissions()).map_err(here)?;
    }
    file.sync_all().map_err(here)?;
    name.persist(&target).map_err(here)?;
    // The rename itself must reach the disk too; a file system that cannot sync a folder has no such promise to give.
    if let Ok(folder) = File::open(&folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// As [`write()`], for text or bytes that are already there.
///
/// # Errors
/// [`FileError`] from the system.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write(path, |out| out.write_all(bytes).map_err(|e| Fault::from(e).in_file(path)))
}

/// Refuses a file of at least `least` bytes where the disk of its folder has not as many free. Where the system does not say,
/// and for what is no regular file (a pipe, `/dev/null`), nothing is refused.
///
/// # Errors
/// [`FileError`] with the bytes needed and free, as of a full disk.
pub fn check_room(path: &Path, least: u128) -> Result<(), FileError> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|m| !m.is_file()) {
        return Ok(());
    }
    match free(&folder_of(&target)) {
        Some(free) if least > free => {
            let why = format!("no room: at least {least} bytes are needed, {free} are free on this disk");
            Err(Fault::from(io::Error::new(io::ErrorKind::StorageFull, why)).in_file(path))
        }
        _ => Ok(()),
    }
}

/// Bytes that a user may still write on a folder's disk.
#[cfg(unix)]
fn free(folder: &Path) -> Option<u128> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(u128::from(disk.f_bavail) * u128::from(disk.f_frsize))
}

#[cfg(not(unix))]
const fn free(_folder: &Path) -> Option<u128> {
    None
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gmm-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As an ordinary file is created: the umask takes away what it should.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}
