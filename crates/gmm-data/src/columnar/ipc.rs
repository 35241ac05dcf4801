//! Reads Arrow IPC, file and stream form, message by message. The lengths that a message claims are checked against the
//! file's length and the free memory before it is read.

use std::cell::Cell;
use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, MetadataVersion, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::batch::{Plan, is_number};
use super::bounds::check_batch;
use crate::error::{Fault, first_line};
use crate::{Problem, ReadOptions, Table, memory};

/// The marker before a message's length.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Reads Arrow IPC: the file form if the magic word is present, else the stream form.
pub(super) fn read(reader: impl Read + Seek, options: &ReadOptions) -> Result<Table, Fault> {
    // The reader's position, which is the byte offset to report if reading fails.
    let place = Rc::new(Cell::new(0));
    let read = || {
        let mut ipc = Ipc::open(reader, place.clone())?;
        let plan = Plan::new(&ipc.schema, options)?;
        ipc.read(&plan)
    };
    read().map_err(|fault| match fault.problem {
        Problem::Corrupt(_) if fault.place.offset.is_none() => fault.offset(place.get()),
        _ => fault,
    })
}

struct Ipc<R> {
    reader: R,
    len: u64,
    place: Rc<Cell<u64>>,
    schema: SchemaRef,
    version: MetadataVersion,
    messages: Vec<Block>,
}

impl<R: Read + Seek> Ipc<R> {
    fn open(mut reader: R, place: Rc<Cell<u64>>) -> Result<Self, Fault> {
        let len = reader.seek(SeekFrom::End(0))?;
        reader.seek(SeekFrom::Start(0))?;
        let mut magic = Vec::new();
        reader.by_ref().take(6).read_to_end(&mut magic)?;
        if magic.starts_with(b"FEA1") {
            let why = "feather version 1 is not supported: rewrite the file with pyarrow, \
                       pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new), or save it as parquet";
            return Err(Problem::Text(why.to_owned()).into());
        }
        let schema = Arc::new(Schema::empty());
        let mut ipc = Self { reader, len, place, schema, version: MetadataVersion::V5, messages: Vec::new() };
        if magic == *b"ARROW1" {
            ipc.open_file()?
        } else {
            ipc.open_stream()?
        }
        Ok(ipc)
    }

    fn open_file(&mut self) -> Result<(), Fault> {
        self.place.set(self.len);
        let end = self.len.checked_sub(10).ok_or_else(|| corrupt("the file ends before its footer"))?;
        let tail = self.bytes(end, 10)?;
        let footer_len = read_footer_length(tail.try_into().expect("ten bytes")).map_err(arrow)? as u64;
        let start = end.checked_sub(footer_len).ok_or_else(|| corrupt("the footer is longer than the file"))?;
        let footer = self.bytes(start, footer_len)?;
        let footer = root_as_footer(&footer).map_err(|e| corrupt(&format!("the footer: {}", first_line(e))))?;
        let schema = footer.schema().ok_or_else(|| corrupt("the footer has no schema"))?;
        self.set_schema(schema)?;
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
            let body = u64::try_from(message.bodyLength()).map_err(|_| corrupt("a negative length"))?;
            let end = at + block.metaDataLength() as u64;
            let next = end.checked_add(body).filter(|&next| next <= self.len).ok_or_else(|| {
                corrupt(&format!("a message claims {body} bytes, the file has {} more", self.len - end))
            })?;
            if first {
                let schema = message.header_as_schema().ok_or_else(|| corrupt("the stream begins with no schema"))?;
                self.set_schema(schema)?;
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
    fn next_message(&mut self, at: u64) -> Result<Option<Block>, Fault> {
        self.place.set(at);
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

    fn set_schema(&mut self, schema: arrow_ipc::Schema<'_>) -> Result<(), Fault> {
        if !schema.endianness().equals_to_target_endianness() {
            let why = "Arrow data in the other byte order is not supported: write it on a little-endian machine";
            return Err(Problem::Text(why.to_owned()).into());
        }
        self.schema = Arc::new(try_fb_to_schema(schema).map_err(arrow)?);
        Ok(())
    }

    /// Reads `len` bytes of the file from `start`. Errors if the file is too short.
    fn bytes(&mut self, start: u64, len: u64) -> Result<Vec<u8>, Fault> {
        self.place.set(start);
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(corrupt(&format!("{len} bytes are expected, the file has {}", self.len.saturating_sub(start))));
        }
        let mut bytes = Vec::new();
        memory::reserve(&mut bytes, len as usize, "a part of the file")?;
        self.reader.seek(SeekFrom::Start(start))?;
        self.reader.by_ref().take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(corrupt("the file became shorter while it was read")) }
    }

    /// Reads the metadata of a message, including the length in front of it.
    fn metadata(&mut self, block: &Block) -> Result<Vec<u8>, Fault> {
        let (start, len) = (u64::try_from(block.offset()).ok(), u64::try_from(block.metaDataLength()).ok());
        let (Some(start), Some(len @ 12..)) = (start, len) else {
            return Err(corrupt("a block with a negative offset or length"));
        };
        self.bytes(start, len)
    }

    fn read(&mut self, plan: &Plan) -> Result<Table, Fault> {
        let projection = plan.projection();
        let (mut rows, mut blocks) = (0u64, Vec::new());
        for block in std::mem::take(&mut self.messages) {
            let metadata = self.metadata(&block)?;
            let message = message(&metadata)?;
            let body = u64::try_from(block.bodyLength()).map_err(|_| corrupt("a negative length"))?;
            let start = block.offset() as u64 + block.metaDataLength() as u64;
            if start.checked_add(body).is_none_or(|end| end > self.len) {
                return Err(corrupt(&format!("a message claims {body} bytes, the file has {}", self.len - start)));
            }
            if let Some((bytes, more)) = self.check(&message, &projection, (None, body))? {
                rows = rows.checked_add(more).ok_or_else(|| corrupt("the number of rows overflows"))?;
                blocks.push((block, bytes));
            }
        }
        let expected = usize::try_from(rows).map_err(|_| corrupt("the number of rows overflows"))?;
        let mut decoder = FileDecoder::new(self.schema.clone(), self.version).with_projection(projection.clone());
        let batches = blocks
            .into_iter()
            .filter_map(|(block, bytes)| self.decode(&mut decoder, &block, bytes, &projection).transpose());
        plan.collect(batches, expected)
    }

    /// Checks a message. Returns its uncompressed bytes and its number of rows; `None` for a dictionary that is not
    /// needed.
    fn check(
        &self,
        message: &arrow_ipc::Message<'_>,
        projection: &[usize],
        body: (Option<&[u8]>, u64),
    ) -> Result<Option<(u128, u64)>, Fault> {
        if let Some(batch) = message.header_as_record_batch() {
            let wanted = |i| projection.binary_search(&i).is_ok();
            let fields = self.schema.fields().iter().map(AsRef::as_ref);
            let bytes = check_batch(&batch, fields, wanted, message.version(), body)?;
            return Ok(Some((bytes, batch.length() as u64)));
        }
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            let kind = message.header_type().variant_name().unwrap_or("unknown");
            return Err(corrupt(&format!("a message of kind {kind} in place of rows")));
        };
        #[expect(deprecated, reason = "there is no other way to a dictionary's values by its number")]
        let fields = self.schema.fields_with_dict_id(dictionary.id());
        let values = fields.first().and_then(|field| match field.data_type() {
            DataType::Dictionary(_, values) if is_number(values) => Some(values.as_ref().clone()),
            _ => None,
        });
        let (Some(values), Some(batch)) = (values, dictionary.data()) else { return Ok(None) };
        let field = Field::new("", values, true);
        let bytes = check_batch(&batch, [&field], |_| true, message.version(), body)?;
        Ok(Some((bytes, 0)))
    }

    fn decode(
        &mut self,
        decoder: &mut FileDecoder,
        block: &Block,
        unpacked: u128,
        projection: &[usize],
    ) -> Result<Option<RecordBatch>, Fault> {
        let (head, body) = (block.metaDataLength() as u64, block.bodyLength() as u64);
        memory::check("a record batch", u128::from(head + body) + unpacked)?;
        let bytes = self.bytes(block.offset() as u64, head + body)?;
        let message = message(&bytes[..head as usize])?;
        self.check(&message, projection, (Some(&bytes[head as usize..]), body))?;
        let is_dictionary = message.header_as_dictionary_batch().is_some();
        let buffer = bytes.into();
        if is_dictionary {
            decoder.read_dictionary(block, &buffer).map_err(arrow)?;
            return Ok(None);
        }
        decoder.read_record_batch(block, &buffer).map_err(arrow)
    }
}

/// Parses a message that is preceded by its length.
fn message(bytes: &[u8]) -> Result<arrow_ipc::Message<'_>, Fault> {
    let start = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    root_as_message(&bytes[start..]).map_err(|e| corrupt(&format!("a message: {}", first_line(e))))
}

fn corrupt(why: &str) -> Fault {
    Problem::Corrupt(why.to_owned()).into()
}

fn arrow(e: ArrowError) -> Fault {
    Problem::Corrupt(first_line(e)).into()
}
