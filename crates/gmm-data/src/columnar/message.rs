//! Messages of Arrow IPC: what is checked before one is decoded, and the decoder.

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, Message, MetadataVersion, root_as_message};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use bytes::Bytes;

use super::batch::is_number;
use super::bounds::check_batch;
use crate::error::{Fault, first_line};
use crate::{Problem, memory};

/// The marker before a message's length.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];

/// What a checked message holds, and what decoding it takes.
pub(super) struct Contents {
    pub(super) is_dictionary: bool,
    pub(super) rows: u64,
    /// Bytes of the numbers, uncompressed.
    unpacked: u128,
}

/// Decodes the fields of a projection.
pub(super) struct Decoder {
    schema: SchemaRef,
    projection: Vec<usize>,
    arrow: FileDecoder,
}

impl Decoder {
    pub(super) fn new(schema: SchemaRef, version: MetadataVersion, projection: Vec<usize>) -> Self {
        let arrow = FileDecoder::new(schema.clone(), version).with_projection(projection.clone());
        Self { schema, projection, arrow }
    }

    /// Checks a message with a body of the given length, and the body itself if it is known. `None` for a dictionary
    /// that is not needed.
    pub(super) fn check(&self, message: &Message<'_>, body: (Option<&[u8]>, u64)) -> Result<Option<Contents>, Fault> {
        if let Some(batch) = message.header_as_record_batch() {
            let wanted = |i| self.projection.binary_search(&i).is_ok();
            let fields = self.schema.fields().iter().map(AsRef::as_ref);
            let unpacked = check_batch(&batch, fields, wanted, message.version(), body)?;
            return Ok(Some(Contents { is_dictionary: false, rows: batch.length() as u64, unpacked }));
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
        let unpacked = check_batch(&batch, [&field], |_| true, message.version(), body)?;
        Ok(Some(Contents { is_dictionary: true, rows: 0, unpacked }))
    }

    /// Adds a dictionary, from the bytes of its message and body.
    pub(super) fn add_dictionary(&mut self, block: &Block, bytes: Bytes) -> Result<(), Fault> {
        self.check_body(block, &bytes)?;
        self.arrow.read_dictionary(block, &bytes.into()).map_err(arrow)
    }

    /// Decodes a record batch from the bytes of its message and body.
    pub(super) fn decode(&self, block: &Block, bytes: Bytes) -> Result<Option<RecordBatch>, Fault> {
        self.check_body(block, &bytes)?;
        self.arrow.read_record_batch(block, &bytes.into()).map_err(arrow)
    }

    fn check_body(&self, block: &Block, bytes: &[u8]) -> Result<(), Fault> {
        let (head, body) = bytes.split_at(block.metaDataLength() as usize);
        self.check(&message(head)?, (Some(body), body.len() as u64)).map(drop)
    }
}

/// Checks that memory for a message and its numbers is available.
pub(super) fn check_memory(block: &Block, contents: &Contents) -> Result<(), Problem> {
    memory::check("a record batch", batch_bytes(block, contents))
}

/// Bytes of memory for a message with its body, and for its numbers if they are compressed.
pub(super) fn batch_bytes(block: &Block, contents: &Contents) -> u128 {
    let bytes = block.metaDataLength() as u64 + block.bodyLength() as u64;
    u128::from(bytes) + contents.unpacked
}

/// Parses a message that is preceded by its length.
pub(super) fn message(bytes: &[u8]) -> Result<Message<'_>, Fault> {
    let start = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    root_as_message(&bytes[start..]).map_err(|e| corrupt(&format!("a message: {}", first_line(e))))
}

/// The length that a message claims for its body.
pub(super) fn body_len(message: &Message<'_>) -> Result<u64, Fault> {
    u64::try_from(message.bodyLength()).map_err(|_| corrupt("a negative length"))
}

/// The problem of a body of `body` bytes where the file has only `left`.
pub(super) fn too_short(body: u64, left: u64) -> Fault {
    corrupt(&format!("a message claims {body} bytes, the file has {left} more"))
}

/// Converts the schema, whose byte order must be this machine's.
pub(super) fn to_schema(schema: arrow_ipc::Schema<'_>) -> Result<SchemaRef, Fault> {
    if !schema.endianness().equals_to_target_endianness() {
        let why = "Arrow data in the other byte order is not supported: write it on a little-endian machine";
        return Err(Problem::Text(why.to_owned()).into());
    }
    Ok(arrow_ipc::convert::try_fb_to_schema(schema).map_err(arrow)?.into())
}

pub(super) fn corrupt(why: &str) -> Fault {
    Problem::Corrupt(why.to_owned()).into()
}

pub(super) fn arrow(e: ArrowError) -> Fault {
    Problem::Corrupt(first_line(e)).into()
}
