//! Reads Arrow IPC as it arrives: no more than one record batch is in memory beside the matrix. The file form is the stream form
//! between a magic word and a footer.

use std::io::{self, BufRead, Read};

use arrow_array::RecordBatch;
use arrow_ipc::Block;

use super::batch::Plan;
use super::message::{CONTINUATION, Decoder, body_len, check_memory, corrupt, message, to_schema, too_short};
use crate::error::Fault;
use crate::{Problem, ReadOptions, Table, memory};

/// The first and the last bytes of a file.
const MAGIC: &[u8; 6] = b"ARROW1";

/// Far more than the alignments that writers use.
const MOST_PADDING: usize = 1 << 16;

/// Whether the first bytes are those of a file in which each message begins with the marker. Zeros fill the space to the first
/// message.
pub(super) fn is_file(start: &[u8]) -> bool {
    let Some(rest) = start.strip_prefix(MAGIC) else { return false };
    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
    rest[zeros..].iter().zip(&CONTINUATION).all(|(a, b)| a == b)
}

/// Reads a stream in which each message begins with the marker, as all writers have done since 2019.
pub(super) fn read(reader: impl Read, options: &ReadOptions) -> Result<Table, Fault> {
    read_from(reader, 0, options, |reader| {
        // A decompressor checks its sum at the end of the stream.
        io::copy(reader, &mut io::sink())?;
        Ok(())
    })
}

/// Reads a [file](is_file) as it arrives. Its footer, which repeats where the messages are, only has to be there: a file that was
/// cut off lacks it.
pub(super) fn read_file(mut reader: impl BufRead, options: &ReadOptions) -> Result<Table, Fault> {
    reader.read_exact(&mut [0; MAGIC.len()])?;
    let mut start = MAGIC.len();
    loop {
        let some = reader.fill_buf()?;
        let (len, zeros) = (some.len(), some.iter().take_while(|byte| **byte == 0).count());
        reader.consume(zeros);
        start += zeros;
        if zeros < len || len == 0 {
            break;
        }
        if start > MOST_PADDING {
            return Err(corrupt("no message follows the magic word"));
        }
    }
    read_from(reader, start as u64, options, |reader| {
        let mut footer = Vec::new();
        memory::append(reader, &mut footer, u64::MAX, "the footer")?;
        let Some(rest) = footer.strip_suffix(MAGIC) else { return Err(corrupt("the file ends before its footer")) };
        let Some((rest, len)) = rest.split_last_chunk() else { return Err(corrupt("the file has no footer")) };
        let padding = rest.len() as i64 - i64::from(i32::from_le_bytes(*len));
        if (0..64).contains(&padding) {
            Ok(())
        } else {
            Err(corrupt("the end of the messages is not that of the file"))
        }
    })
}

/// Reads messages from byte `start` on, then what follows them with `end`.
fn read_from<R: Read>(
    reader: R,
    start: u64,
    options: &ReadOptions,
    end: impl FnOnce(&mut R) -> Result<(), Fault>,
) -> Result<Table, Fault> {
    let mut stream = Stream { reader, at: start, next: start };
    let result = stream.read(options).and_then(|table| end(&mut stream.reader).map(|()| table));
    // The offset to report is that of the message being read.
    result.map_err(|fault| match fault.problem {
        Problem::Corrupt(_) if fault.place.offset.is_none() => fault.offset(stream.at),
        _ => fault,
    })
}

struct Stream<R> {
    reader: R,
    /// Offset of the message being read.
    at: u64,
    /// Offset of the message after it.
    next: u64,
}

impl<R: Read> Stream<R> {
    fn read(&mut self, options: &ReadOptions) -> Result<Table, Fault> {
        let Some((block, bytes)) = self.next_message()? else { return Err(corrupt("the stream has no schema")) };
        let first = message(&bytes[..block.metaDataLength() as usize])?;
        let schema = first.header_as_schema().ok_or_else(|| corrupt("the stream begins with no schema"))?;
        let schema = to_schema(schema)?;
        let plan = Plan::new(&schema, options)?;
        let mut decoder = Decoder::new(schema, first.version(), plan.projection());
        let mut is_over = false;
        let batches = std::iter::from_fn(|| {
            let next = if is_over { None } else { self.next_batch(&mut decoder).transpose() };
            is_over = !matches!(next, Some(Ok(_)));
            next
        });
        plan.collect_stream(batches)
    }

    /// The next record batch; `None` at the end.
    fn next_batch(&mut self, decoder: &mut Decoder) -> Result<Option<RecordBatch>, Fault> {
        while let Some((block, bytes)) = self.next_message()? {
            let head = message(&bytes[..block.metaDataLength() as usize])?;
            let Some(contents) = decoder.check(&head, (None, block.bodyLength() as u64))? else { continue };
            check_memory(&block, &contents)?;
            if contents.is_dictionary {
                decoder.add_dictionary(&block, bytes.into())?;
            } else if let Some(batch) = decoder.decode(&block, bytes.into())? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Reads a message and its body; `None` at the end. Memory is reserved for the bytes that arrive, never for the
    /// lengths that a message claims.
    fn next_message(&mut self) -> Result<Option<(Block, Vec<u8>)>, Fault> {
        self.at = self.next;
        let mut bytes = Vec::new();
        if self.append(&mut bytes, 4)? < 4 {
            return Ok(None);
        }
        let mut word: [u8; 4] = bytes[..].try_into().expect("four bytes");
        if word == CONTINUATION {
            let found = self.append(&mut bytes, 4)?;
            if found < 4 {
                return Err(lacks(4, found).offset(self.at + 4));
            }
            word = bytes[4..].try_into().expect("four bytes");
        }
        let len = i32::from_le_bytes(word);
        if len == 0 {
            return Ok(None);
        }
        let len = u64::try_from(len).map_err(|_| corrupt(&format!("a message of {len} bytes")))?;
        let start = bytes.len() as u64;
        let total = i32::try_from(start + len).map_err(|_| corrupt("a message is too long"))?;
        let found = self.append(&mut bytes, len)?;
        if found < len {
            return Err(lacks(total as u64, start + found));
        }
        if total < 12 {
            return Err(corrupt("a block with a negative offset or length"));
        }
        let body = body_len(&message(&bytes)?)?;
        let found = self.append(&mut bytes, body)?;
        if found < body {
            return Err(too_short(body, found));
        }
        self.next += bytes.len() as u64;
        Ok(Some((Block::new(self.at as i64, total, body as i64), bytes)))
    }

    /// Appends up to `len` bytes of the stream; returns how many there were.
    fn append(&mut self, bytes: &mut Vec<u8>, len: u64) -> Result<u64, Problem> {
        let before = bytes.len();
        memory::append(&mut self.reader, bytes, len, "a record batch")?;
        Ok((bytes.len() - before) as u64)
    }
}

fn lacks(len: u64, found: u64) -> Fault {
    corrupt(&format!("{len} bytes are expected, the file has {found}"))
}
