//! A reader that takes text back.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

/// A reader to which text that was read ahead can be returned, to be read again.
pub(super) struct Unread<R> {
    reader: R,
    /// Text that was returned, in order; no part is empty.
    returned: VecDeque<Vec<u8>>,
    /// Number of bytes of the first part that have been read again.
    at: usize,
    /// An error that occurred while text was read ahead: it is reported after the returned text.
    error: Option<io::Error>,
    /// Whether the reader reached its end. It is not asked again: a terminal would wait for more input.
    ended: bool,
    /// Number of bytes read, less those returned.
    position: u64,
}

impl<R: BufRead> Unread<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self { reader, returned: VecDeque::new(), at: 0, error: None, ended: false, position: 0 }
    }

    /// Number of bytes from the start of the text.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Takes back the last bytes that were read, in parts, and the error that ended reading, if any.
    pub(super) fn take_back(&mut self, parts: impl DoubleEndedIterator<Item = Vec<u8>>, error: Option<io::Error>) {
        if self.at > 0 {
            self.returned[0].drain(..self.at);
            self.at = 0;
        }
        for part in parts.rev().filter(|part| !part.is_empty()) {
            self.position -= part.len() as u64;
            self.returned.push_front(part);
        }
        self.error = self.error.take().or(error);
    }
}

impl<R: BufRead> Read for Unread<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.returned.is_empty() || self.error.is_some() || self.ended || out.is_empty() {
            let available = self.fill_buf()?;
            let n = available.len().min(out.len());
            out[..n].copy_from_slice(&available[..n]);
            self.consume(n);
            return Ok(n);
        }
        // Not through `fill_buf`: a file can be read into `out` without a copy.
        let n = self.reader.read(out)?;
        self.ended = n == 0;
        self.position += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Unread<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(first) = self.returned.front() {
            return Ok(&first[self.at..]);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.ended {
            return Ok(&[]);
        }
        let bytes = self.reader.fill_buf()?;
        self.ended = bytes.is_empty();
        Ok(bytes)
    }

    fn consume(&mut self, n: usize) {
        self.position += n as u64;
        match self.returned.front() {
            None => self.reader.consume(n),
            Some(first) => {
                self.at += n;
                if self.at == first.len() {
                    self.returned.pop_front();
                    self.at = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_text_is_read_again_before_the_rest_and_an_error_after_it() {
        let mut reader = Unread::new(&b"abcdefgh"[..]);
        let mut text = [0; 6];
        reader.read_exact(&mut text).unwrap();
        reader.take_back([b"cd".to_vec(), Vec::new(), b"ef".to_vec()].into_iter(), Some(io::Error::other("late")));
        assert_eq!(reader.position(), 2);
        assert_eq!(reader.read(&mut text[..1]).unwrap(), 1);
        reader.take_back([b"c".to_vec()].into_iter(), None);
        let mut again = [0; 4];
        reader.read_exact(&mut again).unwrap();
        assert_eq!((&again, reader.position()), (b"cdef", 6));
        assert_eq!(reader.read(&mut text).unwrap_err().to_string(), "late");
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!((&*rest, reader.position()), ("gh", 8));
    }
}
