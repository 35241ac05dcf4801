//! Atomic file writes: a file appears whole or not at all.

mod temporary;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::FileError;
use crate::error::Fault;

use temporary::Temporary;
pub use temporary::{Abandoned, abandon};

/// Writes a file atomically: `fill` writes a temporary file in the same folder, which is synced to disk, then renamed.
///
/// On failure an older file of that name is intact and no temporary file is left. A new file gets the permissions that
/// the umask allows; a replaced file keeps its permissions. Symbolic links are followed. A path that is not a regular
/// file (a pipe, `/dev/null`) is written to directly, because it cannot be replaced.
///
/// If the process is killed during the write, the file system deletes the temporary file if it supports unnamed files
/// (Linux: ext4, xfs, btrfs, tmpfs). Elsewhere the next process that writes in the folder deletes it.
///
/// # Errors
/// [`FileError`] from the system, or the error that `fill` returns.
pub fn write<E: Into<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), FileError> {
    stage(path, fill)?.publish()
}

/// A completely written file that is not visible under its name until it is [published](Staged::publish). Dropping it
/// deletes it.
#[must_use = "the file is not visible before it is published"]
pub struct Staged {
    path: PathBuf,
    /// `None` if the target was written to directly.
    file: Option<(File, Temporary, PathBuf)>,
}

/// The first half of [`write()`]: everything except the rename. Stage several files before publishing them, so that
/// either all of them appear or none.
///
/// # Errors
/// As [`write()`].
pub fn stage<E: Into<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<Staged, FileError> {
    let here = |e: io::Error| Fault::from(e).in_file(path);
    let target = target_of(path).map_err(here)?;
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(here(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if old.as_ref().is_some_and(|m| !m.is_file()) {
        let pipe = pipes().remove(&target);
        let file = pipe.map_or_else(|| File::options().write(true).open(&target), Ok).map_err(here)?;
        let mut out = BufWriter::new(file);
        fill(&mut out).map_err(Into::into)?;
        out.flush().map_err(here)?;
        return Ok(Staged { path: path.to_owned(), file: None });
    }
    // `name` is dropped on every early return and on a panic in `fill`; dropping it deletes the file.
    let (file, name) = create(&target).map_err(here)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    fill(&mut out).map_err(Into::into)?;
    let file = out.into_inner().map_err(|e| here(e.into_error()))?;
    if let Some(old) = old {
        file.set_permissions(old.permissions()).map_err(here)?;
    }
    file.sync_all().map_err(here)?;
    Ok(Staged { path: path.to_owned(), file: Some((file, name, target)) })
}

impl Staged {
    /// Renames the file to its final name, replacing an older file.
    ///
    /// # Errors
    /// [`FileError`] from the system.
    pub fn publish(self) -> Result<(), FileError> {
        let Some((file, name, target)) = self.file else { return Ok(()) };
        name.persist(&file, &target).map_err(|e| Fault::from(e).in_file(&self.path))?;
        // The rename itself must reach the disk too. Errors are ignored: some file systems cannot sync a folder.
        if let Ok(folder) = File::open(folder_of(&target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// Checks that a path can be written to, so that a program can fail before it does any work. Leaves no file behind.
///
/// A named pipe is opened here and stays open for the later [`write()`], so that its reader waits for that write. If no
/// process reads the pipe yet, calls `waits` and then blocks until one does, as a shell's `>` does.
///
/// # Errors
/// [`FileError`] if the path is a folder, no file can be created in its folder, or the device is not writable. The
/// error names the path as given.
pub fn check(path: &Path, waits: impl FnOnce()) -> Result<(), FileError> {
    let here = |e: io::Error| Fault::from(e).in_file(path);
    let target = target_of(path).map_err(here)?;
    match fs::metadata(&target) {
        Ok(old) if old.is_dir() => Err(here(io::Error::from(io::ErrorKind::IsADirectory))),
        Ok(old) if is_pipe(&old) => {
            let file = open_pipe(&target, waits).map_err(here)?;
            pipes().insert(target, file);
            Ok(())
        }
        Ok(old) if !old.is_file() => File::options().write(true).open(&target).map(drop).map_err(here),
        _ => create(&target).map(drop).map_err(here),
    }
}

/// Pipes that [`check`] opened, by resolved path.
static PIPES: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

fn pipes() -> MutexGuard<'static, BTreeMap<PathBuf, File>> {
    PIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is the metadata of a named pipe.
fn is_pipe(file: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        file.file_type().is_fifo()
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}

#[cfg(unix)]
fn open_pipe(path: &Path, waits: impl FnOnce()) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true);
    match options.clone().custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path) {
        Ok(file) => {
            // The pipe was opened without blocking; clear the flag so that writes block until the reader catches up.
            fcntl_setfl(&file, OFlags::empty())?;
            Ok(file)
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            waits();
            options.open(path)
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn open_pipe(path: &Path, _waits: impl FnOnce()) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// Creates a temporary file in the target's folder; an error names that folder.
fn create(target: &Path) -> io::Result<(File, Temporary)> {
    let folder = folder_of(target);
    Temporary::new(&folder).map_err(|error| {
        let name = if folder == Path::new(".") {
            "the current folder".to_owned()
        } else {
            format!("folder '{}'", folder.display())
        };
        io::Error::new(error.kind(), format!("no file can be created in {name}: {error}"))
    })
}

/// Follows symbolic links and returns the path at which this file is, or will be created.
///
/// # Errors
/// The system's error for a cycle of links.
pub fn target_of(path: &Path) -> io::Result<PathBuf> {
    /// Longest chain of links that is followed; Linux follows 40.
    const LINKS: usize = 40;
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // Not a regular file, so written to directly; a link to an open file descriptor (`/dev/stdout`) has no path
        // behind it.
        return Ok(path.to_owned());
    }
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        // The target of a dangling link is where the file will be created.
        let Ok(to) = target.read_link() else { return Ok(target) };
        target = target.parent().map_or_else(|| to.clone(), |folder| folder.join(&to));
    }
    fs::canonicalize(path)
}

/// As [`write()`], for text or bytes that are already in memory.
///
/// # Errors
/// [`FileError`] from the system.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write(path, |out| out.write_all(bytes).map_err(|e| Fault::from(e).in_file(path)))
}

/// Checks that the disk of the path's folder has at least `least` bytes free. Passes if the system does not report the
/// free space, and if the path is not a regular file (a pipe, `/dev/null`).
///
/// # Errors
/// [`FileError`] of kind `StorageFull`, with the bytes needed and free.
pub fn check_room(path: &Path, least: u128) -> Result<(), FileError> {
    let target = target_of(path).unwrap_or_else(|_| path.to_owned());
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

/// Free bytes, available to an unprivileged user, on the folder's disk.
#[cfg(unix)]
pub(crate) fn free(folder: &Path) -> Option<u128> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(u128::from(disk.f_bavail) * u128::from(disk.f_frsize))
}

#[cfg(not(unix))]
pub(crate) const fn free(_folder: &Path) -> Option<u128> {
    None
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
