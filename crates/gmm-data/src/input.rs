//! A file on disk or in memory, read at given offsets by several threads at once.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::MmapOptions;

use crate::store::Store;

/// A regular file, or bytes in memory. Clones share it, and no read moves a position that another read uses.
#[derive(Clone)]
pub(crate) enum Input {
    /// The file and its length when it was opened.
    Disk(Arc<File>, u64),
    Memory(Bytes),
}

impl Input {
    /// # Errors
    /// If the system does not report the file's length.
    pub(crate) fn of_file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self::Disk(Arc::new(file), len))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Disk(_, len) => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `out` with the bytes from `start`. Returns their number, which is smaller only at the end of the file.
    pub(crate) fn read_at(&self, start: u64, out: &mut [u8]) -> io::Result<usize> {
        let file = match self {
            Self::Disk(file, _) => file,
            Self::Memory(bytes) => {
                let rest = usize::try_from(start).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
                let len = rest.len().min(out.len());
                out[..len].copy_from_slice(&rest[..len]);
                return Ok(len);
            }
        };
        let mut filled = 0;
        while filled < out.len() {
            match read_once(file, start + filled as u64, &mut out[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

impl Input {
    /// Maps a part of a file on disk; `None` for bytes in memory, beyond the end, and if the system cannot map it.
    pub(crate) fn map(&self, start: u64, len: u64) -> Option<Bytes> {
        let Self::Disk(file, end) = self else { return None };
        let len = start.checked_add(len).filter(|last| last <= end).and(usize::try_from(len).ok())?;
        // SAFETY: the map is read-only, and any bytes are valid. Another program that writes to the file or truncates
        // it meanwhile has the effects that `read_table` documents.
        let map = unsafe { MmapOptions::new().offset(start).len(len).map(file.as_ref()) }.ok()?;
        Some(Bytes::from_owner(map))
    }
}

impl From<Store<u8>> for Input {
    fn from(bytes: Store<u8>) -> Self {
        Self::Memory(Bytes::from_owner(bytes))
    }
}

#[cfg(unix)]
fn read_once(file: &File, start: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, start)
}

#[cfg(windows)]
fn read_once(file: &File, start: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, start)
}
