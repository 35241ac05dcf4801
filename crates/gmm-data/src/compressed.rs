//! Files compressed by gzip or Zstandard, recognised by their first bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::Problem;
use crate::error::Fault;

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Recognises the format by the first four bytes.
    pub(crate) fn of_bytes(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Removes the extension of a compressed file from its path; `None` if the path has no such extension.
    pub(crate) fn inner_path(path: &Path) -> Option<PathBuf> {
        let extension = path.extension()?.to_str()?.to_lowercase();
        matches!(&*extension, "gz" | "gzip" | "zst" | "zstd").then(|| path.with_extension(""))
    }

    /// Returns a reader of the decompressed bytes.
    pub(crate) fn reader<'a>(self, compressed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let buffered = BufReader::with_capacity(1 << 16, compressed);
        Ok(Box::new(Members { compression: self, member: Some(Member::new(self, buffered)?) }))
    }

    /// Turns an I/O error that did not come from the operating system into [`Problem::Corrupt`]: the decompressor
    /// reports corrupt bytes as I/O errors.
    pub(crate) fn explained(self, mut fault: Fault) -> Fault {
        if let Problem::Io(e) = &fault.problem
            && e.raw_os_error().is_none()
        {
            fault.problem = Problem::Corrupt(format!("{}: {e}", self.name()));
        }
        fault
    }

    /// The problem of a stream that was compressed twice: the reader decompresses only once.
    pub(crate) fn twice(self) -> Problem {
        let name = self.name();
        Problem::Text(format!("compressed twice: decompress it once ({name} -d), and read the result"))
    }

    /// The name of the program that compresses and decompresses it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Whether these bytes could begin another stream. They may be fewer than the magic number has.
    fn may_begin(self, bytes: &[u8]) -> bool {
        let begins = |magic: &[u8]| bytes.iter().zip(magic).all(|(a, b)| a == b);
        match self {
            Self::Gzip => begins(b"\x1f\x8b"),
            // A zstd frame, or a skippable frame.
            Self::Zstd => {
                begins(b"\x28\xb5\x2f\xfd")
                    || (matches!(bytes, [0x50..=0x5f, ..]) && begins(&[bytes[0], 0x2a, 0x4d, 0x18]))
            }
        }
    }
}

/// The decoder of one compressed stream; a file may contain several, one after the other.
enum Member<R: BufRead> {
    Gzip(Box<GzDecoder<R>>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

impl<R: BufRead> Member<R> {
    fn new(compression: Compression, reader: R) -> io::Result<Self> {
        Ok(match compression {
            Compression::Gzip => Self::Gzip(Box::new(GzDecoder::new(reader))),
            Compression::Zstd => Self::Zstd(zstd::stream::read::Decoder::with_buffer(reader)?.single_frame()),
        })
    }

    fn into_inner(self) -> R {
        match self {
            Self::Gzip(member) => member.into_inner(),
            Self::Zstd(member) => member.finish(),
        }
    }
}

impl<R: BufRead> Read for Member<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(member) => member.read(out),
            Self::Zstd(member) => member.read(out),
        }
    }
}

/// The members of a gzip file, or the frames of a zstd file, one after the other.
struct Members<R: BufRead> {
    compression: Compression,
    /// The member being read; `None` at the end.
    member: Option<Member<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            let mut rest = self.member.take().expect("it was read").into_inner();
            if self.is_followed(&mut rest)? {
                self.member = Some(Member::new(self.compression, rest)?);
            }
        }
        Ok(0)
    }
}

impl<R: BufRead> Members<R> {
    /// Whether another member follows. Skips zero padding after the last gzip member, as gzip does (tapes add it).
    ///
    /// # Errors
    /// If something else follows.
    fn is_followed(&self, rest: &mut R) -> io::Result<bool> {
        let mut padded = false;
        loop {
            let bytes = match rest.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let zeros = match self.compression {
                Compression::Gzip => bytes.iter().take_while(|&&b| b == 0).count(),
                Compression::Zstd => 0,
            };
            padded |= zeros > 0;
            match &bytes[zeros..] {
                [] if zeros == 0 => return Ok(false),
                [] => rest.consume(zeros),
                next if !padded && self.compression.may_begin(next) => return Ok(true),
                _ => {
                    let why = "data after the end of the compressed stream: remove it, or compress the file again";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            }
        }
    }
}
