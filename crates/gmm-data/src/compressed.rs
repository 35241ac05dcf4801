//! Files in gzip's and Zstandard's form, known by their first bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::Problem;
use crate::error::Fault;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes, four of them.
    pub(crate) fn of_bytes(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// A path without the extension that says how its file is compressed; `None` where it has none.
    pub(crate) fn inner_path(path: &Path) -> Option<PathBuf> {
        let extension = path.extension()?.to_str()?.to_lowercase();
        matches!(&*extension, "gz" | "gzip" | "zst" | "zstd").then(|| path.with_extension(""))
    }

    /// The bytes as they were before.
    pub(crate) fn reader<'a>(self, compressed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let buffered = BufReader::with_capacity(1 << 16, compressed);
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(buffered)),
            Self::Zstd => Box::new(zstd(buffered)?),
        })
    }

    /// Says of a failure that did not come from the system that the bytes are no such stream.
    pub(crate) fn explained(self, mut fault: Fault) -> Fault {
        if let Problem::Io(e) = &fault.problem
            && e.raw_os_error().is_none()
        {
            let name = if self == Self::Gzip { "gzip" } else { "zstd" };
            fault.problem = Problem::Corrupt(format!("{name}: {e}"));
        }
        fault
    }
}

fn zstd<R: BufRead>(buffered: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    zstd::stream::read::Decoder::with_buffer(buffered)
}
