//! Checks a Parquet footer before the `parquet` crate parses it. That crate allocates as many children as a schema
//! element claims, and recurses into them.

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

use super::thrift::{BINARY, FALSE, I8, I32, LIST, STRUCT, TRUE, Thrift};
use crate::error::Fault;
use crate::{Problem, memory};

/// Maximum nesting of groups in a schema: the crate recurses into them, and deep recursion would overflow the stack.
const DEEPEST: usize = 64;

/// Checks the lengths that the footer's schema and lists claim against the footer's length.
///
/// A file without a footer passes: the `parquet` crate reports what is missing.
///
/// # Errors
/// If the footer contradicts itself, with the byte offset.
pub(super) fn check_footer(input: &impl ChunkReader) -> Result<(), Fault> {
    let len = input.len();
    let bytes_at =
        |start: u64, len: u64| input.get_bytes(start, len as usize).map_err(|e| Fault::corrupt(start, e.to_string()));
    let Some(end) = len.checked_sub(8) else { return Ok(()) };
    let tail = bytes_at(end, 8)?;
    let Some(footer_len) = tail.strip_suffix(b"PAR1").and_then(|len| len.try_into().ok()).map(u32::from_le_bytes)
    else {
        return Ok(());
    };
    let Some(start) = end.checked_sub(u64::from(footer_len)) else { return Ok(()) };
    memory::check("the footer", u128::from(footer_len))?;
    let footer = bytes_at(start, u64::from(footer_len))?;
    let mut thrift = Thrift::new(&footer);
    check_file_metadata(&mut thrift).map_err(|fault| fault.offset(start + thrift.at as u64))
}

/// The known fields of a Thrift structure: field number, type, and the layout of a nested structure. The crate reads a
/// known field by its number without checking its type, so a field of another type would make it read unchecked bytes.
struct Layout(&'static [(i16, u8, Layout)]);

const PLAIN: Layout = Layout(&[]);

/// <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>, `SchemaElement`.
const ELEMENT: Layout = Layout(&[
    (1, I32, PLAIN),
    (2, I32, PLAIN),
    (3, I32, PLAIN),
    (4, BINARY, PLAIN),
    (CHILDREN, I32, PLAIN),
    (6, I32, PLAIN),
    (7, I32, PLAIN),
    (8, I32, PLAIN),
    (9, I32, PLAIN),
    (10, STRUCT, LOGICAL_TYPE),
]);

/// Thrift field number of `num_children`.
const CHILDREN: i16 = 5;

const LOGICAL_TYPE: Layout = Layout(&[
    (1, STRUCT, PLAIN),
    (2, STRUCT, PLAIN),
    (3, STRUCT, PLAIN),
    (4, STRUCT, PLAIN),
    // Decimal: scale and precision.
    (5, STRUCT, Layout(&[(1, I32, PLAIN), (2, I32, PLAIN)])),
    (6, STRUCT, PLAIN),
    (7, STRUCT, TIME),
    (8, STRUCT, TIME),
    // Integer: bit width and signedness.
    (10, STRUCT, Layout(&[(1, I8, PLAIN), (2, TRUE, PLAIN)])),
    (11, STRUCT, PLAIN),
    (12, STRUCT, PLAIN),
    (13, STRUCT, PLAIN),
    (14, STRUCT, PLAIN),
    (15, STRUCT, PLAIN),
    (16, STRUCT, Layout(&[(1, I8, PLAIN)])),
    (17, STRUCT, Layout(&[(1, BINARY, PLAIN)])),
    (18, STRUCT, Layout(&[(1, BINARY, PLAIN), (2, I32, PLAIN)])),
    (19, STRUCT, PLAIN),
]);

/// Time and timestamp: whether in UTC, and the unit, a union of empty structures.
const TIME: Layout =
    Layout(&[(1, TRUE, PLAIN), (2, STRUCT, Layout(&[(1, STRUCT, PLAIN), (2, STRUCT, PLAIN), (3, STRUCT, PLAIN)]))]);

/// Walks a structure; its known fields must have the types of `layout`. Returns the last value of field `wanted`, or 0
/// if it is absent; `None` if a type is wrong or the bytes are not valid Thrift.
fn walk(thrift: &mut Thrift<'_>, layout: &Layout, wanted: Option<i16>) -> Option<i64> {
    let (mut id, mut value) = (0, 0);
    while let Some(kind) = thrift.field(&mut id)? {
        let known = layout.0.iter().find(|field| field.0 == id);
        let boolean = |kind| matches!(kind, TRUE | FALSE);
        match known {
            Some((_, type_, _)) if *type_ != kind && !(boolean(*type_) && boolean(kind)) => return None,
            Some((_, I32, _)) if wanted == Some(id) => {
                // If the field occurs several times, the crate also takes the last.
                value = thrift.zigzag()?;
            }
            Some((_, STRUCT, inner)) => walk(thrift, inner, None).map(drop)?,
            _ => thrift.skip(kind)?,
        }
    }
    Some(value)
}

fn check_file_metadata(thrift: &mut Thrift<'_>) -> Result<(), Fault> {
    let broken = || corrupt("the footer is truncated, is not valid Thrift, or has a field of the wrong type");
    let (mut id, mut before, mut leaves) = (0, 0, 0);
    while let Some(kind) = thrift.field(&mut id).ok_or_else(broken)? {
        // All writers write fields in order, and in this order only the version number precedes the schema.
        if id <= before {
            return Err(corrupt("the footer's fields are out of order"));
        }
        before = id;
        match (id, kind) {
            (1, I32) => thrift.skip(kind).ok_or_else(broken)?,
            (2, LIST) => leaves = check_schema(thrift, broken)?,
            (4, LIST) => {
                let (_, count) = thrift.clone().list().ok_or_else(broken)?;
                // The crate allocates a group's columns before it parses them, one group at a time.
                let groups = count as u128 * size_of::<RowGroupMetaData>() as u128;
                memory::check("the footer", groups + leaves as u128 * size_of::<ColumnChunkMetaData>() as u128)?;
                thrift.skip(kind).ok_or_else(broken)?;
            }
            (1 | 2 | 4, _) => return Err(broken()),
            _ => thrift.skip(kind).ok_or_else(broken)?,
        }
    }
    Ok(())
}

/// Walks the list of schema elements, a tree in depth-first order. Returns the number of elements.
fn check_schema(thrift: &mut Thrift<'_>, broken: impl Fn() -> Fault) -> Result<usize, Fault> {
    let (kind, count) = thrift.list().ok_or_else(&broken)?;
    if kind != STRUCT && count > 0 {
        return Err(broken());
    }
    memory::check("the footer", count as u128 * size_of::<ColumnChunkMetaData>() as u128)?;
    // For each open group, the number of its children not yet seen.
    let mut open: Vec<usize> = Vec::new();
    for i in 0..count {
        if i > 0 && open.is_empty() {
            return Err(corrupt("the schema has more than one root"));
        }
        let children = walk(thrift, &ELEMENT, Some(CHILDREN)).ok_or_else(&broken)?;
        if let Some(last) = open.last_mut() {
            *last -= 1;
        }
        let left = count - i - 1 - open.iter().sum::<usize>();
        let Some(children) = usize::try_from(children).ok().filter(|&children| children <= left) else {
            let why = format!("element {i} of the schema claims {children} children, {left} elements are left");
            return Err(corrupt(&why));
        };
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > DEEPEST {
            return Err(corrupt(&format!("the schema has more than {DEEPEST} levels")));
        }
    }
    Ok(count)
}

fn corrupt(why: &str) -> Fault {
    Problem::Corrupt(why.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a footer whose schema has one element for each entry, with that many children.
    fn check(children: &[i32]) -> Result<(), String> {
        let varint = |bytes: &mut Vec<u8>, mut value: u64| {
            while value > 0x7f {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
        };
        let mut bytes = vec![0x15, 2, 0x19, 0xf0 | STRUCT];
        varint(&mut bytes, children.len() as u64);
        for &children in children {
            // The element's name, then its number of children.
            bytes.extend([0x48, 1, b'a', 0x15]);
            varint(&mut bytes, u64::from((children << 1 ^ children >> 31) as u32));
            bytes.push(0);
        }
        bytes.push(0);
        check_file_metadata(&mut Thrift::new(&bytes)).map_err(|fault| fault.problem.to_string())
    }

    #[test]
    fn children_that_the_schema_does_not_have_are_refused() {
        assert_eq!(check(&[2, 0, 0]), Ok(()));
        assert_eq!(check(&[2, 2, 0, 0, 1, 0]), Ok(()));
        for children in [&[3, 0, 0][..], &[i32::MAX, 0], &[-1, 0], &[2, 2, 0, 0]] {
            let text = check(children).unwrap_err();
            assert!(text.contains("of the schema claims"), "{children:?}: {text}");
        }
        assert!(check(&[1, 0, 0]).unwrap_err().contains("more than one root"));
    }

    #[test]
    fn groups_inside_groups_have_an_end() {
        let nested = |levels| [vec![1; levels], vec![0]].concat();
        assert_eq!(check(&nested(DEEPEST)), Ok(()));
        assert!(check(&nested(1_000_000)).unwrap_err().contains("more than 64 levels"));
    }

    #[test]
    fn a_known_field_of_another_type_is_refused() {
        // The number of children as an i64, which the crate would accept.
        let bytes = [0x15, 2, 0x19, 0x1c, 0x48, 1, b'a', 0x16, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(check_file_metadata(&mut Thrift::new(&bytes)).is_err());
    }
}
