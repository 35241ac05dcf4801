//! Checks the pages of a Parquet file before the `parquet` crate reads them: the crate allocates as much as a page
//! header claims.

use parquet::arrow::ProjectionMask;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::ChunkReader;

use super::thrift::{I32, STRUCT, Thrift};
use crate::error::Fault;
use crate::{Problem, memory};

/// Pages up to this many bytes are not checked against free memory.
const SMALL: u64 = 1 << 20;

/// Checks every page that will be read against its column chunk, the file's length and the free memory.
///
/// # Errors
/// If a page claims too much, with the column and the page's byte offset.
pub(super) fn check_pages(
    input: &impl ChunkReader,
    metadata: &ParquetMetaData,
    mask: &ProjectionMask,
) -> Result<(), Fault> {
    for group in metadata.row_groups() {
        for (leaf, chunk) in group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)) {
            let flat = chunk.column_descr().max_rep_level() == 0;
            let checked = if flat && chunk.num_values() != group.num_rows() {
                let why = format!("{} values for {} rows", chunk.num_values(), group.num_rows());
                Err(Problem::Corrupt(why).into())
            } else {
                check_chunk(input, chunk)
            };
            checked.map_err(|mut fault| {
                let root = metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
                fault.place.column = Some(root);
                fault.place.name = chunk.column_path().parts().first().cloned();
                fault
            })?;
        }
    }
    Ok(())
}

fn check_chunk(input: &impl ChunkReader, chunk: &ColumnChunkMetaData) -> Result<(), Fault> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = place.and_then(|(start, len)| start.checked_add(len)).filter(|&end| end <= input.len());
    let (Some((mut at, _)), Some(end)) = (place, end) else {
        return Err(Problem::Corrupt("its bytes are not inside the file".to_owned()).into());
    };
    let mut values = 0;
    while at < end && values < chunk.num_values() {
        let (page, header) = page(input, at, end)?;
        let body = at + header;
        let sizes = u64::try_from(page.packed).ok().zip(u64::try_from(page.unpacked).ok());
        let Some((packed, unpacked)) = sizes.filter(|(packed, _)| *packed <= end - body) else {
            return Err(Fault::corrupt(at, format!("a page claims {} bytes", page.packed)));
        };
        if unpacked > SMALL
            && let Err(full) = memory::check("a page", u128::from(unpacked) + u128::from(packed))
        {
            let lie = i128::from(unpacked) > i128::from(chunk.uncompressed_size());
            let claim = || format!("a page claims {unpacked} bytes, all of its column {}", chunk.uncompressed_size());
            return Err(if lie { Fault::corrupt(at, claim()) } else { Fault::from(full).offset(at) });
        }
        match page.kind {
            DICTIONARY if i128::from(page.values) * width(chunk) > i128::from(unpacked) || page.values < 0 => {
                let why = format!("{} values in a dictionary of {unpacked} bytes", page.values);
                return Err(Fault::corrupt(at, why));
            }
            DATA | DATA_V2 if !(0..=chunk.num_values() - values).contains(&page.values) => {
                let why = format!("a page claims {} values, its column has {}", page.values, chunk.num_values());
                return Err(Fault::corrupt(at, why));
            }
            DATA | DATA_V2 => values += page.values,
            _ => {}
        }
        at = body + packed;
    }
    Ok(())
}

/// Minimum bytes of a value in a dictionary page.
fn width(chunk: &ColumnChunkMetaData) -> i128 {
    match chunk.column_type() {
        Type::BOOLEAN => 0,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => i128::from(chunk.column_descr().type_length().max(1)),
    }
}

const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// The fields of a page header that are checked; sizes in bytes.
#[derive(Debug, Default, PartialEq)]
struct Page {
    kind: i64,
    unpacked: i64,
    packed: i64,
    values: i64,
}

/// Reads the header of the page at `at`; returns it with its length in bytes.
fn page(input: &impl ChunkReader, at: u64, end: u64) -> Result<(Page, u64), Fault> {
    // Usually enough; a header with statistics of long strings is longer, so the window grows.
    let mut window = 256;
    loop {
        let len = window.min(end - at);
        let bytes = input.get_bytes(at, len as usize).map_err(|e| Fault::corrupt(at, e.to_string()))?;
        let mut thrift = Thrift::new(&bytes);
        if let Some(page) = page_header(&mut thrift) {
            return Ok((page, thrift.at as u64));
        }
        if len == end - at || len > SMALL {
            return Err(Fault::corrupt(at, "not the header of a page"));
        }
        window *= 16;
    }
}

fn page_header(thrift: &mut Thrift<'_>) -> Option<Page> {
    let mut page = Page::default();
    let mut id = 0;
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (1, I32) => page.kind = thrift.zigzag()?,
            (2, I32) => page.unpacked = thrift.zigzag()?,
            (3, I32) => page.packed = thrift.zigzag()?,
            // The headers of data and dictionary pages begin with the number of values.
            (5 | 7 | 8, STRUCT) => {
                let mut inner = 0;
                while let Some(kind) = thrift.field(&mut inner)? {
                    if (inner, kind) == (1, I32) { page.values = thrift.zigzag()? } else { thrift.skip(kind)? }
                }
            }
            _ => thrift.skip(kind)?,
        }
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header_is_read_with_the_fields_that_are_skipped() {
        // type 0, unpacked 300, packed 20, crc, data_page_header { 7 values, encoding, statistics { max: 2 bytes } }.
        let bytes = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x15, 0x02, 0x1c, 0x15, 0x0e, 0x15, 0x00, 0x3c, 0x18, 0x02, 1, 2,
            0, 0, 0,
        ];
        let mut thrift = Thrift::new(&bytes);
        assert_eq!(page_header(&mut thrift), Some(Page { kind: 0, unpacked: 300, packed: 20, values: 7 }));
        assert_eq!(thrift.at, bytes.len());
        for len in 0..bytes.len() {
            assert_eq!(page_header(&mut Thrift::new(&bytes[..len])), None, "{len} bytes");
        }
    }
}
