//! Files that appear whole or not at all.

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

/// Writes a file by `fill`: into a temporary file in the same folder, flushed to the disk, then renamed.
///
/// Where anything fails, an older file of that name is intact and no temporary file is left. A new file gets the
/// permissions that the umask allows, a replaced one keeps its own. Links are followed. What is no regular file
/// (a pipe, `/dev/null`) is written to directly, since it cannot be replaced.
///
/// Where a process is killed in between, the file system deletes what it wrote, if it has files without names (Linux: ext4,
/// xfs, btrfs, tmpfs); else the next write in the folder does.
///
/// # Errors
/// [`FileError`] from the system, or what `fill` returns.
pub fn write<E: Into<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), FileError> {
    stage(path, fill)?.publish()
}

/// A file that is whole, and that nobody sees before it is [published](Staged::publish). Dropped, it leaves nothing.
#[must_use = "nobody sees the file before it is published"]
pub struct Staged {
    path: PathBuf,
    /// None for what was written directly.
    file: Option<(File, Temporary, PathBuf)>,
}

/// The first half of [`write()`]: all but the file's name. Several files can so appear together, or none.
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
    // Dropped on every early return, and on a panic in `fill`; dropping deletes the file.
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
    /// Gives the file its name; an older file is replaced.
    ///
    /// # Errors
    /// [`FileError`] from the system.
    pub fn publish(self) -> Result<(), FileError> {
        let Some((file, name, target)) = self.file else { return Ok(()) };
        name.persist(&file, &target).map_err(|e| Fault::from(e).in_file(&self.path))?;
        // The rename itself must reach the disk too; a file system that cannot sync a folder has no such promise to give.
        if let Ok(folder) = File::open(folder_of(&target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// Refuses a path that could not be written, before any work is done for it: a folder, a path whose folder takes no new
/// file, a device that may not be written to. Nothing is left behind.
///
/// A named pipe is opened here, and stays open for the [`write()`] to come: its reader then waits for that. While no process
/// reads the pipe this waits, as a shell's `>` does, and calls `waits` before.
///
/// # Errors
/// [`FileError`] from the system, by the path as it is given.
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

/// Pipes that [`check`] opened, by their targets.
static PIPES: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

fn pipes() -> MutexGuard<'static, BTreeMap<PathBuf, File>> {
    PIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is a named pipe.
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
            // Opened without waiting; what is written waits for the reader.
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

/// A temporary file in a target's folder; an error says which folder takes none.
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

/// Where a file of this path is, or will be: behind the links that it leads through.
///
/// # Errors
/// The system's, for links in a circle.
pub fn target_of(path: &Path) -> io::Result<PathBuf> {
    /// Links behind each other that are followed; systems follow 40.
    const LINKS: usize = 40;
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // Written to as it is: links to what a process has open (`/dev/stdout`) lead to no path.
        return Ok(path.to_owned());
    }
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        // A link that leads to nothing yet is where a file will be.
        let Ok(to) = target.read_link() else { return Ok(target) };
        target = target.parent().map_or_else(|| to.clone(), |folder| folder.join(&to));
    }
    fs::canonicalize(path)
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
