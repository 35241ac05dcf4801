//! Reads one column of text, such as the names of groups.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::footer::check_footer;
use super::pages::check_pages;
use super::read::contained;
use super::values::{Wrong, flatten};
use crate::error::{Fault, first_line};
use crate::input::Input;
use crate::labels::Words;
use crate::table::find_columns;
use crate::{Location, Problem};

/// Reads the column of a Parquet file; `None` if its type is not text, unless `even_numbers` is set.
pub(crate) fn parquet_words(input: &Input, column: &str, even_numbers: bool) -> Result<Option<Words>, Fault> {
    contained(|| parquet(input, column, even_numbers))
}

fn parquet(input: &Input, column: &str, even_numbers: bool) -> Result<Option<Words>, Fault> {
    let corrupt = |e: parquet::errors::ParquetError| Fault::from(Problem::Corrupt(first_line(e)));
    check_footer(input)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(input.clone()).map_err(corrupt)?;
    let all: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let index = find_columns(&[column], Some(&all), all.len()).map_err(Problem::from)?[0];
    let kind = builder.schema().field(index).data_type().clone();
    let at = |row: Option<usize>, problem| {
        let (row, name) = (row.map(|row| row as u64), Some(all[index].clone()));
        let place = Location { row, column: Some(index), name, ..Location::default() };
        Fault { place: Box::new(place), problem }
    };
    if !is_text(&kind) {
        let why = || Problem::Text(format!("the column is text in another file, and {kind} here"));
        return if even_numbers { Err(at(None, why())) } else { Ok(None) };
    }
    let mask = ProjectionMask::roots(builder.parquet_schema(), [index]);
    check_pages(input, builder.metadata(), &mask)?;
    let mut values: Vec<String> = Vec::new();
    for batch in builder.with_projection(mask).build().map_err(corrupt)? {
        let batch = batch.map_err(|e| Problem::Corrupt(first_line(e)))?;
        let before = values.len();
        append(batch.column(0), &mut values).map_err(|(row, problem)| at(row.map(|row| before + row), problem))?;
    }
    Ok(Some(Words { values, name: Some(all[index].clone()), index }))
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text(values),
        kind => matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

fn append(array: &ArrayRef, values: &mut Vec<String>) -> Result<(), Wrong> {
    let (array, _) = flatten(array, Some(1), false)?;
    let text: Box<dyn Iterator<Item = Option<&str>>> = match array.data_type() {
        DataType::Utf8 => Box::new(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => Box::new(array.as_string::<i64>().iter()),
        _ => Box::new(array.as_string_view().iter()),
    };
    for (row, word) in text.enumerate() {
        match word.map(str::trim).filter(|word| !word.is_empty()) {
            Some(word) => values.push(word.to_owned()),
            None => return Err((Some(row), Problem::Missing)),
        }
    }
    Ok(())
}
