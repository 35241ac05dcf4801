//! Writes and unpacks the release archive. The same files give the same bytes.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Modification time of every file, 2026-01-01, so that the same sources give the same archive. GNU tar warns about 1970.
const TIME: u64 = 1_767_225_600;

/// A file in the archive.
pub(super) struct Entry {
    /// Path below the archive's folder, separated by `/`.
    pub(super) path: String,
    pub(super) content: Vec<u8>,
    pub(super) executable: bool,
}

impl Entry {
    pub(super) fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into(), executable: false }
    }

    /// A file of this machine, at `path` in the archive.
    pub(super) fn of_file(file: &Path, path: &str) -> Result<Self> {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self::new(path, content))
    }
}

/// Writes a compressed archive with all files in `folder`.
pub(super) fn pack(archive: &Path, folder: &str, entries: &[Entry]) -> Result<()> {
    write(archive, folder, entries).with_context(|| format!("cannot write {}", archive.display()))
}

fn write(archive: &Path, folder: &str, entries: &[Entry]) -> Result<()> {
    let mut tar = tar::Builder::new(GzEncoder::new(File::create(archive)?, Compression::best()));
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.content.len() as u64);
        header.set_mode(if entry.executable { 0o755 } else { 0o644 });
        header.set_mtime(TIME);
        tar.append_data(&mut header, format!("{folder}/{}", entry.path), entry.content.as_slice())?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    Ok(())
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(archive: &Path, into: &Path) -> Result<()> {
    let file = File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
    let unpacked = tar::Archive::new(GzDecoder::new(file)).unpack(into);
    unpacked.with_context(|| format!("cannot unpack {} into {}", archive.display(), into.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_twice_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("1.tar.gz"), folder.path().join("2.tar.gz"));
        let program = Entry { executable: true, ..Entry::new("gmm", "#!") };
        let entries = [program, Entry::new("man/gmm.1", "page")];
        pack(&one, "gmm-1", &entries).unwrap();
        pack(&two, "gmm-1", &entries).unwrap();
        assert!(fs::read(&one).unwrap() == fs::read(two).unwrap());
        unpack(&one, folder.path()).unwrap();
        let root = folder.path().join("gmm-1");
        assert_eq!(fs::read_to_string(root.join("man/gmm.1")).unwrap(), "page");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode("gmm") & 0o700, mode("man/gmm.1") & 0o700), (0o700, 0o600));
        }
    }
}
