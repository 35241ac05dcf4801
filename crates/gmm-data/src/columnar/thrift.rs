//! A parser of Thrift's compact protocol that allocates nothing. A Parquet file's footer and page headers are encoded
//! in this protocol.
//!
//! The structures are defined in <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>,
//! the encoding in <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

/// Type codes of fields. A boolean's value is encoded in its type.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const I8: u8 = 3;
const I16: u8 = 4;
pub(super) const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
pub(super) const STRUCT: u8 = 12;

/// Maximum nesting of structures; those of Parquet have fewer than ten levels.
const DEEPEST: u8 = 16;

/// A position in encoded bytes. Every method returns `None` at the end of the bytes, and if they are not valid Thrift.
#[derive(Clone)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Thrift<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns the type of the next field and stores its number in `id`; `Some(None)` at the end of the structure.
    pub(super) fn field(&mut self, id: &mut i16) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = match byte >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => id.checked_add(i16::from(delta))?,
        };
        Some(Some(byte & 15))
    }

    /// Returns the type and number of a list's elements. Each element takes at least one byte, so a longer list is
    /// refused.
    pub(super) fn list(&mut self) -> Option<(u8, usize)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let count = usize::try_from(count).ok().filter(|&count| count <= self.bytes.len() - self.at)?;
        Some((head & 15, count))
    }

    pub(super) fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_below(kind, 0)
    }

    fn forward(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(bytes).ok()?).filter(|&at| at <= self.bytes.len())?;
        Some(())
    }

    fn skip_below(&mut self, kind: u8, depth: u8) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            TRUE | FALSE => Some(()),
            I8 => self.forward(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.forward(8),
            BINARY => {
                let len = self.varint()?;
                self.forward(len)
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                // No footer or page header has a list of booleans, and the `parquet` crate computes a different length
                // for one than Thrift specifies.
                if matches!(kind, TRUE | FALSE) && count > 0 {
                    return None;
                }
                (0..count).try_for_each(|_| self.skip_below(kind, depth + 1))
            }
            STRUCT => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip_below(kind, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_longer_than_the_bytes_left_is_refused() {
        assert_eq!(Thrift::new(&[0x25, 2, 4]).list(), Some((I32, 2)));
        assert_eq!(Thrift::new(&[0x25, 2]).list(), None);
        assert_eq!(Thrift::new(&[0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0]).list(), None);
    }

    #[test]
    fn structures_inside_structures_have_an_end() {
        let nested = |levels: usize| [vec![0x1c; levels], vec![0; levels + 1]].concat();
        assert_eq!(Thrift::new(&nested(8)).skip(STRUCT), Some(()));
        assert_eq!(Thrift::new(&nested(1_000_000)).skip(STRUCT), None);
    }
}
