//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::error::Fault;

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
    let temporary = builder().tempfile_in(&folder).map_err(here)?;
    let (file, name) = temporary.into_parts();
    let mut out = BufWriter::with_capacity(1 << 16, file);
    fill(&mut out).map_err(Into::into)?;
    let file = out.into_inner().map_err(|e| here(e.into_error()))?;
    if let Some(old) = old {
        file.set_permissions(old.permissions()).map_err(here)?;
    }
    file.sync_all().map_err(here)?;
    name.persist(&target).map_err(|e| here(e.error))?;
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
