//! Column types of Parquet and Arrow files other than plain numbers, and columns that are not features.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{check, rows};
use arrow_array::builder::{FixedSizeListBuilder, Float64Builder, ListBuilder};
use arrow_array::types::{Decimal256Type, Float32Type, Int8Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray, FixedSizeListArray,
    Float16Array, Float32Array, Float64Array, Int8Array, Int64Array, LargeListArray, ListArray, NullArray,
    PrimitiveArray, RecordBatch, RecordBatchIterator, StringArray, UInt8Array, UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{Field, Schema};
use gmm_data::{FileError, Format, ReadOptions, Table, read_stream, table_of_batches};
use gmm_model::Precision;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel};
use parquet::file::properties::WriterProperties;

fn batch(columns: &[(&str, ArrayRef)], metadata: &[(&str, &str)]) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let metadata: HashMap<String, String> = metadata.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    RecordBatch::try_new(schema, columns.iter().map(|(_, array)| array.clone()).collect()).unwrap()
}

fn as_parquet(batch: &RecordBatch, compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    out
}

/// Reads the same batch from an Arrow file, an Arrow stream, Parquet and memory.
fn read_all(batch: &RecordBatch, columns: Option<&[&str]>) -> Vec<(&'static str, Result<Table, FileError>)> {
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new(&mut file, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    let options = match columns {
        Some(columns) => ReadOptions::default().with_columns(columns.iter().copied()),
        None => ReadOptions::default(),
    };
    let mut all = vec![
        ("file", read_stream(&file[..], "X", &options)),
        ("stream", read_stream(&stream[..], "X", &options)),
        ("parquet", read_stream(&as_parquet(batch, Compression::SNAPPY)[..], "X", &options)),
    ];
    if columns.is_none() {
        let batches = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        all.push(("memory", table_of_batches(batches, "X")));
    }
    all
}

fn same(columns: &[(&str, ArrayRef)], names: &[&str], expected: &[&[f64]]) {
    for (form, table) in read_all(&batch(columns, &[]), None) {
        let table = table.unwrap_or_else(|error| panic!("{form}: {error}"));
        assert_eq!(rows(&table), expected, "{form}");
        assert_eq!(table.names.as_deref().unwrap(), names, "{form}");
    }
}

fn refused(columns: &[(&str, ArrayRef)], parts: &[&str]) {
    for (_, table) in read_all(&batch(columns, &[]), None) {
        check(table, parts);
    }
}

fn of(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

const PANDAS: &str = r#"{"index_columns": ["__index_level_0__", "day"], "columns": []}"#;

#[test]
fn row_86_columns_that_are_the_index_of_a_pandas_frame_are_no_features() {
    let columns = [
        ("a", of(Float64Array::from(vec![1.0, 2.0]))),
        ("day", of(Int64Array::from(vec![7, 8]))),
        ("__index_level_0__", of(Int64Array::from(vec![100, 200]))),
    ];
    let pandas = batch(&columns, &[("pandas", PANDAS)]);
    for (form, table) in read_all(&pandas, None) {
        let table = table.unwrap();
        assert_eq!(rows(&table), [[1.0], [2.0]], "{form}");
        assert_eq!(table.names.unwrap(), ["a"], "{form}");
        // A warning mentions an index with a user-given name, but not one with a name that pandas generated.
        assert_eq!(table.warnings.len(), 1, "{form}");
        assert!(table.warnings[0].to_string().contains("'day'"), "{form}");
    }
    for (form, table) in read_all(&pandas, Some(&["day", "a"])) {
        let table = table.unwrap();
        assert_eq!(rows(&table), [[7.0, 1.0], [8.0, 2.0]], "{form}");
        assert!(table.warnings.is_empty(), "{form}");
    }
    // Row labels 0, 1, .. are described in the metadata and are not a column; metadata that is not JSON is ignored.
    for described in [r#"{"index_columns": [{"kind": "range", "start": 0, "stop": 2, "step": 1}]}"#, "{", "[]"] {
        for (form, table) in read_all(&batch(&columns, &[("pandas", described)]), None) {
            assert_eq!(table.unwrap().n_columns(), 3, "{form}");
        }
    }
}

#[test]
fn row_86_a_pandas_index_of_text_does_not_stop_the_reading() {
    let columns = [("a", of(Float64Array::from(vec![1.0]))), ("__index_level_0__", of(StringArray::from(vec!["x"])))];
    for (form, table) in read_all(&batch(&columns, &[("pandas", PANDAS)]), None) {
        assert_eq!(rows(&table.unwrap()), [[1.0]], "{form}");
    }
}

#[test]
fn row_87_decimals_are_the_nearest_float_to_their_digits() {
    let decimals =
        |values: Vec<i128>, scale| of(Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap());
    let wide: PrimitiveArray<Decimal256Type> = Decimal256Array::from_iter_values(
        ["123456789012345678901234567890123456789012345", "-5"].map(|text| text.parse().unwrap()),
    );
    let columns = [
        ("price", decimals(vec![12_345, -1], 2)),
        ("long", decimals(vec![100_000_000_000_000_000_000_000_000_000_000_001, 3], 30)),
        ("wide", of(wide.with_precision_and_scale(76, 40).unwrap())),
    ];
    same(
        &columns,
        &["price", "long", "wide"],
        &[&[123.45, 100_000.000_000_000_000_000_000_000_001, 12_345.678_901_234_567], &[-0.01, 3e-30, -5e-40]],
    );
}

#[test]
fn row_87_dictionaries_of_numbers_are_looked_up() {
    let keys = Int8Array::from(vec![2, 0, 2]);
    let dictionary = DictionaryArray::<Int8Type>::new(keys, of(Float64Array::from(vec![0.5, 1.5, 2.5])));
    same(&[("k", of(dictionary))], &["k"], &[&[2.5], &[0.5], &[2.5]]);
    let keys = Int8Array::from(vec![Some(0), None]);
    let holed = DictionaryArray::<Int8Type>::new(keys, of(Float64Array::from(vec![0.5])));
    refused(&[("a", of(Int8Array::from(vec![1, 2]))), ("k", of(holed))], &["row 1, column 1 ('k'): missing value"]);
    let text: DictionaryArray<Int8Type> = ["x", "y"].into_iter().collect();
    refused(&[("k", of(text))], &["column 0 ('k')", "Dictionary"]);
}

#[test]
fn row_87_lists_of_one_length_become_columns() {
    let lists = || [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].map(|row| Some(row.map(Some).to_vec()));
    let fixed = || of(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists(), 3));
    let names = ["emb[0]", "emb[1]", "emb[2]"];
    let expected: &[&[f64]] = &[&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]];
    same(&[("emb", fixed())], &names, expected);
    same(&[("emb", of(ListArray::from_iter_primitive::<Float32Type, _, _>(lists())))], &names, expected);
    same(&[("emb", of(LargeListArray::from_iter_primitive::<Float32Type, _, _>(lists())))], &names, expected);
    for (form, table) in read_all(&batch(&[("emb", fixed())], &[]), None) {
        assert_eq!(table.unwrap().matrix.precision(), Precision::F32, "{form}");
    }
    // Beside other columns, in any order, and a single element.
    let columns = [("a", of(Int64Array::from(vec![7, 8]))), ("emb", fixed())];
    same(&columns, &["a", "emb[0]", "emb[1]", "emb[2]"], &[&[7.0, 1.0, 2.0, 3.0], &[8.0, 4.0, 5.0, 6.0]]);
    for (form, table) in read_all(&batch(&columns, &[]), Some(&["emb", "a"])) {
        assert_eq!(rows(&table.unwrap()), [[1.0, 2.0, 3.0, 7.0], [4.0, 5.0, 6.0, 8.0]], "{form}");
    }
    for (form, table) in read_all(&batch(&columns, &[]), Some(&["emb[2]", "a", "emb[0]"])) {
        let table = table.unwrap();
        assert_eq!(rows(&table), [[3.0, 7.0, 1.0], [6.0, 8.0, 4.0]], "{form}");
        assert_eq!(table.names.unwrap(), ["emb[2]", "a", "emb[0]"], "{form}");
    }
}

#[test]
fn row_87_lists_of_several_lengths_or_with_holes_are_an_error_with_row_and_column() {
    let with = |last: Option<Vec<Option<f64>>>| {
        let mut lists = ListBuilder::new(Float64Builder::new());
        lists.append_value([Some(1.0), Some(2.0)]);
        lists.append_option(last);
        [("a", of(Int64Array::from(vec![7, 8]))), ("emb", of(lists.finish()))]
    };
    refused(&with(Some(vec![Some(1.0)])), &["row 1, column 1 ('emb'): a list of 1 numbers", "have 2"]);
    refused(&with(Some(vec![Some(1.0), None])), &["row 1, column 1 ('emb'): missing value"]);
    refused(&with(None), &["row 1, column 1 ('emb'): missing value"]);
    let mut holed = FixedSizeListBuilder::new(Float64Builder::new(), 2);
    for value in [Some(1.0), Some(2.0), Some(3.0), None] {
        holed.values().append_option(value);
    }
    holed.append(true);
    holed.append(true);
    refused(&[("emb", of(holed.finish()))], &["row 1, column 0 ('emb'): missing value"]);
    let text = ListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![]), Some(vec![])]);
    refused(&[("emb", of(text))], &["column 0 ('emb')", "an empty list"]);
}

#[test]
fn row_87_columns_of_nulls_dates_and_text_are_an_error_with_their_name() {
    refused(&[("a", of(Int8Array::from(vec![1]))), ("n", of(NullArray::new(1)))], &["column 1 ('n')", "Null"]);
    refused(&[("d", of(Date32Array::from(vec![1])))], &["column 0 ('d')", "Date32"]);
    refused(&[("s", of(StringArray::from(vec!["x"])))], &["column 0 ('s')", "Utf8"]);
}

#[test]
fn row_87_halves_booleans_and_unsigned_integers_are_read_exactly() {
    let columns = [
        ("h", of(Float16Array::from(vec![half::f16::from_f32(0.5)]))),
        ("b", of(BooleanArray::from(vec![true]))),
        ("u", of(UInt8Array::from(vec![255]))),
        ("w", of(UInt64Array::from(vec![1 << 63]))),
        ("i", of(Int64Array::from(vec![i64::MIN]))),
    ];
    let expected = [0.5, 1.0, 255.0, 9_223_372_036_854_775_808.0, -9_223_372_036_854_775_808.0];
    same(&columns, &["h", "b", "u", "w", "i"], &[&expected]);
    for (form, table) in read_all(&batch(&[("f", of(Float32Array::from(vec![0.1f32])))], &[]), None) {
        assert_eq!(table.unwrap().matrix.precision(), Precision::F32, "{form}");
    }
}

#[test]
fn row_87_an_integer_that_no_float_equals_is_an_error_with_row_and_column() {
    let whole = |v: i64| [("a", of(Int64Array::from(vec![1, v])))];
    same(&whole(1 << 53), &["a"], &[&[1.0], &[9_007_199_254_740_992.0]]);
    refused(&whole((1 << 53) + 1), &["row 1, column 0 ('a'): 9007199254740993 has no exact f64 value"]);
    refused(&whole(i64::MAX), &["row 1, column 0 ('a'): 9223372036854775807"]);
    refused(&[("u", of(UInt64Array::from(vec![u64::MAX])))], &["row 0, column 0 ('u'): 18446744073709551615"]);
}

#[test]
fn row_88_feather_version_1_is_named_and_how_to_rewrite_it() {
    let old = b"FEA1\0\0\0\0 and more bytes of it FEA1";
    for format in [None, Some(Format::Arrow)] {
        let options = ReadOptions { format, ..ReadOptions::default() };
        check(read_stream(&old[..], "old", &options), &["old: feather version 1", "write_feather"]);
    }
}

#[test]
fn parquet_is_read_whatever_its_codec() {
    let batch = batch(&[("a", of(Float64Array::from_iter_values((0..500).map(f64::from))))], &[]);
    for codec in [
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        let table = read_stream(&as_parquet(&batch, codec)[..], "X", &ReadOptions::default()).unwrap();
        assert_eq!(rows(&table)[499], [499.0], "{codec}");
    }
}
