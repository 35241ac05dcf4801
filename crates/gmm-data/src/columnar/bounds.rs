//! Checks an Arrow message before the `arrow-ipc` crate decodes it. That crate allocates as much as a message claims,
//! and a failed allocation aborts the program.

use std::collections::VecDeque;

use arrow_ipc::{Buffer, FieldNode, MetadataVersion, RecordBatch};
use arrow_schema::{DataType, Field, UnionMode};

use crate::Problem;

/// Upper bound on the compression ratio: lz4 encodes at most 255 bytes in each byte of a long match, and a zstd block
/// (128 KiB) takes at least 3 bytes.
const RATIO: u128 = 1 << 16;

/// Compares the nodes and buffers of a batch with the schema. `wanted(i)` is whether field `i` is decoded. Each buffer
/// of a decoded field must hold at least the bytes that its rows need, and must not claim more than a writer's padding
/// explains. Uncompressed lengths are stored in `body`; without it they are not checked.
///
/// Returns the uncompressed bytes of the wanted fields.
pub(super) fn check_batch<'a>(
    batch: &RecordBatch<'a>,
    fields: impl IntoIterator<Item = &'a Field>,
    wanted: impl Fn(usize) -> bool,
    version: MetadataVersion,
    (body, body_len): (Option<&[u8]>, u64),
) -> Result<u128, Problem> {
    let rows = u64::try_from(batch.length()).map_err(|_| corrupt("a record batch with a negative number of rows"))?;
    let (Some(nodes), Some(buffers)) = (batch.nodes(), batch.buffers()) else {
        return Err(corrupt("a record batch without nodes or buffers"));
    };
    let mut walk = Walk {
        nodes: nodes.iter().collect(),
        buffers: buffers.iter().collect(),
        variadic: batch.variadicBufferCounts().into_iter().flatten().collect(),
        compressed: batch.compression().is_some(),
        version,
        body,
        body_len,
        bytes: 0,
    };
    for (i, field) in fields.into_iter().enumerate() {
        let rows = wanted(i).then_some(rows);
        walk.field(field, rows).map_err(|problem| match problem {
            Problem::Corrupt(why) => Problem::Corrupt(format!("column {i}: {why}")),
            other => other,
        })?;
    }
    Ok(walk.bytes)
}

struct Walk<'a, 'b> {
    nodes: VecDeque<&'a FieldNode>,
    buffers: VecDeque<&'a Buffer>,
    variadic: VecDeque<i64>,
    compressed: bool,
    version: MetadataVersion,
    body: Option<&'b [u8]>,
    body_len: u64,
    bytes: u128,
}

impl Walk<'_, '_> {
    /// Checks one field and its children; `rows` is `None` if the field is not decoded.
    fn field(&mut self, field: &Field, rows: Option<u64>) -> Result<(), Problem> {
        let node = self.nodes.pop_front().ok_or_else(|| corrupt("a record batch lacks columns of the schema"))?;
        let length = u64::try_from(node.length()).map_err(|_| corrupt("a negative length"))?;
        if rows.is_some_and(|rows| rows != length) {
            return Err(corrupt(&format!("{length} values, but the batch has {} rows", rows.unwrap_or(0))));
        }
        if rows.is_some() && !(0..=node.length()).contains(&node.null_count()) {
            return Err(corrupt("more nulls than values"));
        }
        let inner = rows.map(|_| length);
        let validity = Need { bits: u128::from(length), optional: node.null_count() == 0 };
        match field.data_type() {
            DataType::Null => Ok(()),
            DataType::FixedSizeList(child, width) => {
                self.buffer(inner, validity)?;
                let width = u64::try_from(*width).map_err(|_| corrupt("a negative list size"))?;
                let all = length.checked_mul(width).ok_or_else(|| corrupt("a list's length overflows"))?;
                self.field(child, inner.map(|_| all))
            }
            DataType::List(child) | DataType::LargeList(child) => {
                let bits = if matches!(field.data_type(), DataType::List(_)) { 32 } else { 64 };
                self.buffer(inner, validity)?;
                let offsets = Need { bits: (u128::from(length) + 1) * bits, optional: length == 0 };
                self.buffer(inner, offsets)?;
                // The child's node states its length, which is checked against the child's own buffers.
                let child_rows = self.nodes.front().and_then(|node| u64::try_from(node.length()).ok());
                self.field(child, inner.and(child_rows))
            }
            DataType::Dictionary(key, _) => {
                self.buffer(inner, validity)?;
                self.buffer(inner, values(key, length))
            }
            kind if kind.is_primitive() || *kind == DataType::Boolean => {
                self.buffer(inner, validity)?;
                self.buffer(inner, values(kind, length))
            }
            kind => self.skip(kind),
        }
    }

    /// Skips the buffers and children of a type that is not decoded.
    fn skip(&mut self, kind: &DataType) -> Result<(), Problem> {
        use DataType as T;
        let (buffers, children): (usize, Vec<&Field>) = match kind {
            T::Utf8 | T::Binary | T::LargeBinary | T::LargeUtf8 => (3, Vec::new()),
            T::Utf8View | T::BinaryView => {
                let count = self.variadic.pop_front().and_then(|count| usize::try_from(count).ok());
                (count.and_then(|c| c.checked_add(2)).ok_or_else(|| corrupt("a wrong count of buffers"))?, Vec::new())
            }
            T::FixedSizeBinary(_) => (2, Vec::new()),
            T::Map(child, _) => (2, vec![child]),
            T::ListView(child) | T::LargeListView(child) => (3, vec![child]),
            T::Struct(children) => (1, children.iter().map(AsRef::as_ref).collect()),
            T::RunEndEncoded(ends, values) => (0, vec![ends, values]),
            T::Union(children, mode) => {
                let count =
                    1 + usize::from(*mode == UnionMode::Dense) + usize::from(self.version < MetadataVersion::V5);
                (count, children.iter().map(|(_, child)| child.as_ref()).collect())
            }
            other => return Err(corrupt(&format!("a column of type {other}"))),
        };
        if buffers > self.buffers.len() {
            return Err(corrupt("a record batch lacks buffers of the schema"));
        }
        self.buffers.drain(..buffers);
        children.into_iter().try_for_each(|child| self.field(child, None))
    }

    /// Takes the next buffer and checks it against `need`, unless `rows` is `None` (not decoded).
    fn buffer(&mut self, rows: Option<u64>, need: Need) -> Result<(), Problem> {
        let buffer = self.buffers.pop_front().ok_or_else(|| corrupt("a record batch lacks buffers of the schema"))?;
        if rows.is_none() {
            return Ok(());
        }
        let place = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
        let place = place.filter(|(start, len)| start.checked_add(*len).is_some_and(|end| end <= self.body_len));
        let Some((start, len)) = place else {
            return Err(corrupt("a buffer outside the batch's bytes"));
        };
        let bytes = need.bits.div_ceil(8);
        if len == 0 && (need.optional || bytes == 0) {
            return Ok(());
        }
        self.bytes += bytes;
        let short = || corrupt(&format!("a buffer is shorter than the {bytes} bytes that its rows need"));
        let bytes = if need.optional { 0 } else { bytes };
        if !self.compressed {
            return if u128::from(len) < bytes { Err(short()) } else { Ok(()) };
        }
        let Some(data) = len.checked_sub(8) else {
            return Err(corrupt("a compressed buffer without its length"));
        };
        if u128::from(data) * RATIO < bytes {
            return Err(short());
        }
        let Some(body) = self.body else { return Ok(()) };
        let start = start as usize;
        let prefix = body.get(start..start + 8).and_then(|prefix| prefix.try_into().ok()).map(i64::from_le_bytes);
        match prefix {
            // A length of -1 marks a buffer that is not compressed.
            Some(-1) if u128::from(data) >= bytes => Ok(()),
            Some(claimed @ 0..) => {
                let claimed = claimed as u128;
                if claimed < bytes {
                    Err(short())
                } else if claimed > need.most() || claimed > u128::from(data) * RATIO {
                    let most = need.most();
                    Err(corrupt(&format!("a compressed buffer claims {claimed} bytes, its rows have {most} at most")))
                } else {
                    Ok(())
                }
            }
            _ => Err(short()),
        }
    }
}

/// The bits that a buffer must hold.
#[derive(Clone, Copy)]
struct Need {
    bits: u128,
    /// Whether the buffer may be empty.
    optional: bool,
}

impl Need {
    /// Maximum bytes, padding included: some writers write the whole capacity of a growing buffer.
    fn most(self) -> u128 {
        2 * self.bits.div_ceil(8) + 1024
    }
}

fn values(kind: &DataType, rows: u64) -> Need {
    let width = kind.primitive_width().map_or(1, |bytes| 8 * bytes as u128);
    Need { bits: u128::from(rows) * width, optional: rows == 0 }
}

fn corrupt(why: &str) -> Problem {
    Problem::Corrupt(why.to_owned())
}
