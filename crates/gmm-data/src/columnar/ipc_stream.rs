//! Reads the stream form of Arrow IPC as it arrives: no more than one record batch is in memory beside the matrix.

use std::io::{self, Read};

use arrow_array::RecordBatch;
use arrow_ipc::Block;

use super::batch::Plan;
use super::message::{CONTINUATION, Decoder, body_len, check_memory, corrupt, message, to_schema, too_short};
use crate::error::Fault;
use crate::{Problem, ReadOptions, Table, memory};

/// Reads a stream in which each message begins with the marker, as all writers have done since 2019.
pub(super) fn read(reader: impl Read, options: &ReadOptions) -> Result<Table, Fault> {
    let mut stream = Stream { reader, at: 0, next: 0 };
    // The offset to report is that of the message being read.
    let result = stream.read(options);
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
        let table = plan.collect_stream(batches)?;
        // A decompressor checks its sum at the end of the stream.
        io::copy(&mut self.reader, &mut io::sink())?;
        Ok(table)
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
