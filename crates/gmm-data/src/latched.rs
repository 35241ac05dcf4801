//! A writer that reports its first failure once, at the end.

use std::io::{self, Seek, SeekFrom, Write};

/// A writer whose writes and seeks succeed even after the inner stream has failed. After the inner stream's first
/// failure, nothing more is written to it, and [`finish`](Self::finish) returns that failure. For writers that, when
/// dropped, would try again and print the error.
pub(crate) struct Latched<W> {
    inner: W,
    failure: Option<io::Error>,
    at: u64,
    end: u64,
}

impl<W: Write + Seek> Latched<W> {
    /// Wraps a stream that is at its beginning.
    pub(crate) const fn new(inner: W) -> Self {
        Self { inner, failure: None, at: 0, end: 0 }
    }

    /// Flushes the inner stream.
    ///
    /// # Errors
    /// The first failure of the inner stream.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.attempt(|inner| inner.flush());
        self.failure.map_or(Ok(()), Err)
    }

    fn attempt(&mut self, what: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.failure.is_none() {
            self.failure = what(&mut self.inner).err();
        }
    }
}

impl<W: Write + Seek> Write for Latched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|inner| inner.write_all(bytes));
        self.at += bytes.len() as u64;
        self.end = self.end.max(self.at);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write + Seek> Seek for Latched<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let beyond = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(beyond)?,
            SeekFrom::End(by) => self.end.checked_add_signed(by).ok_or_else(beyond)?,
        };
        let at = self.at;
        self.attempt(|inner| inner.seek(SeekFrom::Start(at)).map(drop));
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn what_goes_through_is_what_the_stream_below_would_have_got() {
        let mut below = Cursor::new(Vec::new());
        let mut out = Latched::new(&mut below);
        out.write_all(b"abcdef").unwrap();
        assert_eq!(out.seek(SeekFrom::Start(1)).unwrap(), 1);
        out.write_all(b"BC").unwrap();
        assert_eq!(out.seek(SeekFrom::End(0)).unwrap(), 6);
        assert_eq!(out.seek(SeekFrom::Current(-1)).unwrap(), 5);
        out.write_all(b"Fg").unwrap();
        out.finish().unwrap();
        assert_eq!(below.into_inner(), b"aBCdeFg");
    }

    #[test]
    fn a_failure_is_told_once_and_positions_go_on() {
        let mut room = [0u8; 4];
        let mut out = Latched::new(Cursor::new(&mut room[..]));
        out.write_all(b"abcdef").unwrap();
        assert_eq!(out.stream_position().unwrap(), 6);
        assert!(out.seek(SeekFrom::Current(-7)).is_err());
        assert_eq!(out.finish().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
