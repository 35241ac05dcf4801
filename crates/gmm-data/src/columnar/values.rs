//! Converts Arrow arrays to numbers.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait};
use arrow_schema::DataType;
use arrow_select::take::take;

use crate::Problem;
use crate::error::first_line;
use crate::store::Cell;

/// A problem with a column, and the index of the offending value (for [`flatten`], of the row) if there is one.
pub(super) type Wrong = (Option<usize>, Problem);

/// Returns the numbers of a column and their number per row. Dictionaries are decoded and lists concatenated. All lists
/// must have the same length, which is `width` if that is known. With `missing`, numbers may be null, but lists may not.
///
/// # Errors
/// If there are nulls, or lists of different lengths or of length 0.
pub(super) fn flatten(array: &ArrayRef, width: Option<usize>, missing: bool) -> Result<(ArrayRef, usize), Wrong> {
    let is_list = matches!(array.data_type(), DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_));
    if !missing || is_list {
        present(array, 1)?;
    }
    let rows = array.len();
    let (values, width) = match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = take(dictionary.values(), dictionary.keys(), None);
            (values.map_err(|e| (None, Problem::Corrupt(first_line(e))))?, 1)
        }
        DataType::FixedSizeList(_, width) => {
            let width = *width as usize;
            (array.as_fixed_size_list().values().slice(0, rows * width), width)
        }
        DataType::List(_) => list(array.as_list::<i32>(), width)?,
        DataType::LargeList(_) => list(array.as_list::<i64>(), width)?,
        _ => (array.clone(), 1),
    };
    if width == 0 {
        return Err((Some(0), Problem::Text("an empty list: lists need at least one number".to_owned())));
    }
    if !missing {
        present(&values, width)?;
    }
    Ok((values, width))
}

/// Errors if there are nulls, with the first row that has one.
fn present(array: &ArrayRef, width: usize) -> Result<(), Wrong> {
    if array.null_count() == 0 {
        return Ok(());
    }
    let first = (0..array.len()).find(|&i| array.is_null(i)).unwrap_or(0);
    Err((Some(first / width), Problem::Missing))
}

fn list<O: OffsetSizeTrait>(list: &GenericListArray<O>, width: Option<usize>) -> Result<(ArrayRef, usize), Wrong> {
    let offsets = list.value_offsets();
    let lengths = || offsets.windows(2).map(|pair| pair[1].as_usize() - pair[0].as_usize());
    let width = width.unwrap_or_else(|| lengths().next().unwrap_or(0));
    if let Some((row, found)) = lengths().enumerate().find(|&(_, length)| length != width) {
        let why = format!("a list of {found} numbers, but the rows before have {width}: all need the same length");
        return Err((Some(row), Problem::Text(why)));
    }
    let start = offsets.first().map_or(0, |offset| offset.as_usize());
    Ok((list.values().slice(start, list.len() * width), width))
}

/// A type that columns are converted to.
pub(super) trait Value: Cell {
    /// Writes the values of a numeric array to the slots, NaN for nulls.
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Wrong>
    where
        Self: 'a;
}

/// Converts the values one by one with `to`.
fn fill<'a, A: ArrowPrimitiveType, T: From<f32> + 'a>(
    array: &ArrayRef,
    slots: impl Iterator<Item = &'a mut T>,
    to: impl Fn(A::Native) -> T,
) -> Result<(), Wrong> {
    if array.null_count() > 0 {
        return try_fill::<A, T>(array, slots, |value| Ok(to(value)));
    }
    for (slot, &value) in slots.zip(array.as_primitive::<A>().values()) {
        *slot = to(value);
    }
    Ok(())
}

/// As [`fill`], for conversions that can fail.
fn try_fill<'a, A: ArrowPrimitiveType, T: From<f32> + 'a>(
    array: &ArrayRef,
    slots: impl Iterator<Item = &'a mut T>,
    to: impl Fn(A::Native) -> Result<T, Problem>,
) -> Result<(), Wrong> {
    for (i, (slot, &value)) in slots.zip(array.as_primitive::<A>().values()).enumerate() {
        // The value of a null is unspecified.
        *slot = if array.is_null(i) { f32::NAN.into() } else { to(value).map_err(|problem| (Some(i), problem))? };
    }
    Ok(())
}

fn other(array: &ArrayRef) -> Wrong {
    (None, Problem::Corrupt(format!("a record batch holds {}, which is not the schema's type", array.data_type())))
}

impl Value for f32 {
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Wrong> {
        match array.data_type() {
            DataType::Float16 => fill::<Float16Type, _>(array, slots, Self::from),
            DataType::Float32 => fill::<Float32Type, _>(array, slots, |v| v),
            _ => Err(other(array)),
        }
    }
}

impl Value for f64 {
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Wrong> {
        match *array.data_type() {
            DataType::Float16 => fill::<Float16Type, _>(array, slots, Self::from),
            DataType::Float32 => fill::<Float32Type, _>(array, slots, Self::from),
            DataType::Float64 => fill::<Float64Type, _>(array, slots, |v| v),
            DataType::Int8 => fill::<Int8Type, _>(array, slots, Self::from),
            DataType::Int16 => fill::<Int16Type, _>(array, slots, Self::from),
            DataType::Int32 => fill::<Int32Type, _>(array, slots, Self::from),
            DataType::Int64 => try_fill::<Int64Type, _>(array, slots, |v| exact(i128::from(v))),
            DataType::UInt8 => fill::<UInt8Type, _>(array, slots, Self::from),
            DataType::UInt16 => fill::<UInt16Type, _>(array, slots, Self::from),
            DataType::UInt32 => fill::<UInt32Type, _>(array, slots, Self::from),
            DataType::UInt64 => try_fill::<UInt64Type, _>(array, slots, |v| exact(i128::from(v))),
            DataType::Decimal32(_, scale) => fill::<Decimal32Type, _>(array, slots, |v| decimal(v.into(), scale)),
            DataType::Decimal64(_, scale) => fill::<Decimal64Type, _>(array, slots, |v| decimal(v.into(), scale)),
            DataType::Decimal128(_, scale) => fill::<Decimal128Type, _>(array, slots, |v| decimal(v, scale)),
            DataType::Decimal256(_, scale) => fill::<Decimal256Type, _>(array, slots, |v| match v.to_i128() {
                Some(v) => decimal(v, scale),
                None => nearest(&v, scale),
            }),
            DataType::Boolean => {
                for (i, (slot, value)) in slots.zip(array.as_boolean().values()).enumerate() {
                    *slot = if array.is_null(i) { Self::NAN } else { Self::from(u8::from(value)) };
                }
                Ok(())
            }
            _ => Err(other(array)),
        }
    }
}

/// Every integer up to this magnitude has an exact `f64` value.
const EXACT: u128 = 1 << 53;

/// Converts an integer to `f64`. Errors if the conversion is not exact.
fn exact(v: i128) -> Result<f64, Problem> {
    let value = v as f64;
    if v.unsigned_abs() <= EXACT || value as i128 == v {
        return Ok(value);
    }
    Err(Problem::Inexact { value: v.to_string() })
}

/// Returns `v / 10^scale`, correctly rounded.
fn decimal(v: i128, scale: i8) -> f64 {
    // The powers of ten that are exact in f64: the quotient of two exact numbers is rounded only once.
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    ];
    match usize::try_from(scale).ok().and_then(|scale| POWERS.get(scale)) {
        Some(power) if v.unsigned_abs() <= EXACT => v as f64 / power,
        _ => nearest(&v, scale),
    }
}

fn nearest(v: &impl std::fmt::Display, scale: i8) -> f64 {
    format!("{v}e{}", -i32::from(scale)).parse().expect("digits and an exponent")
}
