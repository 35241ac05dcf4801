//! Reads Arrow IPC, file and stream form, message by message. The lengths that a message claims are checked against the
//! file's length and the free memory before it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{Block, MetadataVersion, root_as_footer};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;

use super::batch::Plan;
use super::gather::Receive;
use super::message::{
    CONTINUATION, Contents, Decoder, arrow, batch_bytes, body_len, check_memory, corrupt, message, to_schema, too_short,
};
use super::read::contained;
use crate::error::{Fault, first_line};
use crate::input::Input;
use crate::{Problem, ReadOptions, Table, memory};

/// Messages of a file from so many bytes on are mapped into memory in place of being read.
const LARGE: u64 = 1 << 20;

/// Reads Arrow IPC: the file form if the magic word is present, else the stream form.
pub(super) fn read(input: &Input, options: &ReadOptions) -> Result<Table, Fault> {
    // The position of the last read, which is the byte offset to report if reading fails.
    let place = AtomicU64::new(0);
    let read = || {
        let ipc = Ipc::open(input, &place)?;
        let plan = Plan::new(&ipc.schema, options)?;
        ipc.read(&plan)
    };
    read().map_err(|fault| match fault.problem {
        Problem::Corrupt(_) if fault.place.offset.is_none() => fault.offset(place.load(Ordering::Relaxed)),
        _ => fault,
    })
}

struct Ipc<'a> {
    input: &'a Input,
    len: u64,
    place: &'a AtomicU64,
    schema: SchemaRef,
    version: MetadataVersion,
    messages: Vec<Block>,
}

impl<'a> Ipc<'a> {
    fn open(input: &'a Input, place: &'a AtomicU64) -> Result<Self, Fault> {
        let mut magic = [0; 6];
        let read = input.read_at(0, &mut magic)?;
        let magic = &magic[..read];
        if magic.starts_with(b"FEA1") {
            let why = "feather version 1 is not supported: rewrite the file with pyarrow, \
                       pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new), or save it as parquet";
            return Err(Problem::Text(why.to_owned()).into());
        }
        let schema = Arc::new(Schema::empty());
        let (len, version) = (input.len(), MetadataVersion::V5);
        let mut ipc = Self { input, len, place, schema, version, messages: Vec::new() };
        if magic == b"ARROW1" {
            ipc.open_file()?
        } else {
            ipc.open_stream()?
        }
        Ok(ipc)
    }

    fn open_file(&mut self) -> Result<(), Fault> {
        self.at(self.len);
        let end = self.len.checked_sub(10).ok_or_else(|| corrupt("the file ends before its footer"))?;
        let tail = self.bytes(end, 10)?;
        let footer_len = read_footer_length(tail.try_into().expect("ten bytes")).map_err(arrow)? as u64;
        let start = end.checked_sub(footer_len).ok_or_else(|| corrupt("the footer is longer than the file"))?;
        let footer = self.bytes(start, footer_len)?;
        let footer = root_as_footer(&footer).map_err(|e| corrupt(&format!("the footer: {}", first_line(e))))?;
        let schema = footer.schema().ok_or_else(|| corrupt("the footer has no schema"))?;
        self.schema = to_schema(schema)?;
        self.version = footer.version();
        let blocks = footer.recordBatches().ok_or_else(|| corrupt("the footer has no list of record batches"))?;
        self.messages = footer.dictionaries().into_iter().flatten().chain(blocks).copied().collect();
        Ok(())
    }

    fn open_stream(&mut self) -> Result<(), Fault> {
        let (mut at, mut first) = (0, true);
        while let Some(block) = self.next_message(at)? {
            let metadata = self.metadata(&block)?;
            let message = message(&metadata)?;
            let body = body_len(&message)?;
            let end = at + block.metaDataLength() as u64;
            let next = end.checked_add(body).filter(|&next| next <= self.len);
            let next = next.ok_or_else(|| too_short(body, self.len - end))?;
            if first {
                let schema = message.header_as_schema().ok_or_else(|| corrupt("the stream begins with no schema"))?;
                self.schema = to_schema(schema)?;
                self.version = message.version();
                first = false;
            } else {
                self.messages.push(Block::new(at as i64, block.metaDataLength(), body as i64));
            }
            at = next;
        }
        if first { Err(corrupt("the stream has no schema")) } else { Ok(()) }
    }

    /// Locates the metadata of the message at byte `at`; `None` at the end.
    fn next_message(&self, at: u64) -> Result<Option<Block>, Fault> {
        self.at(at);
        if at + 4 > self.len {
            return Ok(None);
        }
        let mut word: [u8; 4] = self.bytes(at, 4)?.try_into().expect("four bytes");
        let mut start = at + 4;
        if word == CONTINUATION {
            word = self.bytes(start, 4)?.try_into().expect("four bytes");
            start += 4;
        }
        let len = i32::from_le_bytes(word);
        if len == 0 {
            return Ok(None);
        }
        let len = u64::try_from(len).map_err(|_| corrupt(&format!("a message of {len} bytes")))?;
        let total = i32::try_from(start - at + len).map_err(|_| corrupt("a message is too long"))?;
        Ok(Some(Block::new(at as i64, total, 0)))
    }

    fn at(&self, place: u64) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Reads `len` bytes of the file from `start`. Errors if the file is too short.
    fn bytes(&self, start: u64, len: u64) -> Result<Vec<u8>, Fault> {
        self.at(start);
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(corrupt(&format!("{len} bytes are expected, the file has {}", self.len.saturating_sub(start))));
        }
        let mut bytes = Vec::new();
        memory::reserve(&mut bytes, len as usize, "a part of the file")?;
        bytes.resize(len as usize, 0);
        let read = self.input.read_at(start, &mut bytes)?;
        if read as u64 == len { Ok(bytes) } else { Err(corrupt("the file became shorter while it was read")) }
    }

    /// Reads the metadata of a message, including the length in front of it.
    fn metadata(&self, block: &Block) -> Result<Vec<u8>, Fault> {
        let (start, len) = (u64::try_from(block.offset()).ok(), u64::try_from(block.metaDataLength()).ok());
        let (Some(start), Some(len @ 12..)) = (start, len) else {
            return Err(corrupt("a block with a negative offset or length"));
        };
        self.bytes(start, len)
    }

    fn read(&self, plan: &Plan) -> Result<Table, Fault> {
        let mut decoder = Decoder::new(self.schema.clone(), self.version, plan.projection());
        let (mut rows, mut blocks) = (0u64, Vec::new());
        for block in &self.messages {
            let metadata = self.metadata(block)?;
            let message = message(&metadata)?;
            let body = u64::try_from(block.bodyLength()).map_err(|_| corrupt("a negative length"))?;
            let start = block.offset() as u64 + block.metaDataLength() as u64;
            if start.checked_add(body).is_none_or(|end| end > self.len) {
                return Err(corrupt(&format!("a message claims {body} bytes, the file has {}", self.len - start)));
            }
            if let Some(contents) = decoder.check(&message, (None, body))? {
                rows = rows.checked_add(contents.rows).ok_or_else(|| corrupt("the number of rows overflows"))?;
                blocks.push((block, contents));
            }
        }
        let expected = usize::try_from(rows).map_err(|_| corrupt("the number of rows overflows"))?;
        if let Some(table) = self.read_parallel(plan, &blocks) {
            return Ok(table);
        }
        let batches = blocks.into_iter().filter_map(|(block, contents)| {
            let mut next = || {
                let bytes = self.body(block, &contents)?;
                if contents.is_dictionary {
                    return decoder.add_dictionary(block, bytes).map(|()| None);
                }
                decoder.decode(block, bytes)
            };
            next().transpose()
        });
        plan.collect(batches, expected)
    }

    /// Reads record batches on all cores; `None` if they must be read in order. That also finds the error, if any.
    fn read_parallel(&self, plan: &Plan, blocks: &[(&Block, Contents)]) -> Option<Table> {
        let mut decoder = Decoder::new(self.schema.clone(), self.version, plan.projection());
        let first = blocks.iter().position(|(_, contents)| !contents.is_dictionary)?;
        let (dictionaries, batches) = blocks.split_at(first);
        // A stream may replace a dictionary between two batches.
        if batches.iter().any(|(_, contents)| contents.is_dictionary) {
            return None;
        }
        for (block, contents) in dictionaries {
            decoder.add_dictionary(block, self.body(block, contents).ok()?).ok()?;
        }
        let rows: Option<Vec<usize>> = batches.iter().map(|(_, contents)| contents.rows.try_into().ok()).collect();
        let largest = batches.iter().map(|(block, contents)| batch_bytes(block, contents)).max()?;
        plan.collect_parts(&rows?, largest, |part, receive: &mut Receive<'_>| {
            let (block, contents) = &batches[part];
            contained(|| match decoder.decode(block, self.body(block, contents)?)? {
                Some(batch) => receive(&batch),
                None => Ok(()),
            })
        })
    }

    /// Reads a message and its body, if memory for it and its numbers is available.
    fn body(&self, block: &Block, contents: &Contents) -> Result<Bytes, Fault> {
        let (start, len) = (block.offset() as u64, block.metaDataLength() as u64 + block.bodyLength() as u64);
        // A large message would take as much memory as its part of the matrix.
        if len >= LARGE
            && let Some(mapped) = self.input.map(start, len)
        {
            return Ok(mapped);
        }
        check_memory(block, contents)?;
        Ok(self.bytes(start, len)?.into())
    }
}
