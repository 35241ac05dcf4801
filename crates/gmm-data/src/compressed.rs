//! Files in gzip's and Zstandard's form, known by their first bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

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
            Self::Gzip => Box::new(Gzip { member: Some(GzDecoder::new(buffered)) }),
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

/// The members of a gzip file, one after the other. Skips zero padding after the last one, as gzip does (tapes add it).
struct Gzip<R> {
    /// The member that is read; `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            let rest = member.get_mut();
            let mut padded = false;
            let next = loop {
                let bytes = match rest.fill_buf() {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    bytes => bytes?,
                };
                let zeros = bytes.iter().take_while(|&&b| b == 0).count();
                match (bytes.get(zeros), padded || zeros > 0) {
                    (None, _) if bytes.is_empty() => break false,
                    (None, _) => {
                        rest.consume(zeros);
                        padded = true;
                    }
                    (Some(_), false) => break true,
                    (Some(_), true) => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "data after the zero padding at the end of the file",
                        ));
                    }
                }
            };
            let member = self.member.take().filter(|_| next);
            self.member = member.map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

fn zstd<R: BufRead>(buffered: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    zstd::stream::read::Decoder::with_buffer(buffered)
}
