//! Parquet row groups and Arrow record batches: read on all cores, in order, or as they arrive, the table is the same.

use std::fs;
use std::sync::Arc;

use crate::common::{bits, message};
use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array,
    Int64Array, ListArray, RecordBatch,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{Field, Schema};
use gmm_data::{FileError, Format, ReadOptions, Table, read_stream, read_table};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

/// More values than are converted by one thread, in columns of several types.
const ROWS: usize = 30_000;

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let list = |i: usize| Some(vec![Some(i as f32), Some(0.5), Some(-1.0)]);
    let keys = Int8Array::from_iter_values((0..rows).map(|i| (i % 3) as i8));
    vec![
        ("a", Arc::new(Float64Array::from_iter_values((0..rows).map(|i| (i as f64).sqrt())))),
        ("i", Arc::new(Int64Array::from_iter_values((0..rows).map(|i| i as i64 - 7)))),
        ("b", Arc::new(BooleanArray::from_iter((0..rows).map(|i| Some(i % 5 == 0))))),
        ("f", Arc::new(Float32Array::from_iter_values((0..rows).map(|i| 1.0 / (i + 1) as f32)))),
        ("l", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..rows).map(list), 3))),
        ("k", Arc::new(DictionaryArray::new(keys, Arc::new(Int64Array::from(vec![10, 20, 30]))))),
    ]
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.iter().map(|(_, a)| a.clone()).collect()).unwrap()
}

fn split(batch: &RecordBatch, rows: usize) -> Vec<RecordBatch> {
    let n = batch.num_rows();
    (0..n).step_by(rows).map(|start| batch.slice(start, rows.min(n - start))).collect()
}

fn parquet(batch: &RecordBatch, rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows)).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    out
}

fn arrow_file(batch: &RecordBatch, rows: usize, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
    split(batch, rows).iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    out
}

fn arrow_stream(batch: &RecordBatch, rows: usize, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
    split(batch, rows).iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    out
}

/// Reads the bytes as a file and as a stream.
fn both(name: &str, bytes: &[u8], options: &ReadOptions) -> [Result<Table, FileError>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let format = Some(if name.ends_with("parquet") { Format::Parquet } else { Format::Arrow });
    [read_table(&path, options), read_stream(bytes, name, &ReadOptions { format, ..options.clone() })]
}

fn forms(batch: &RecordBatch, rows: usize) -> [(&'static str, Vec<u8>); 3] {
    [
        ("x.parquet", parquet(batch, rows)),
        ("x.arrow", arrow_file(batch, rows, None)),
        ("x.arrows", arrow_stream(batch, rows, None)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn many_parts_are_read_as_one_is(
        rows in 1000..ROWS,
        chosen in prop::sample::subsequence(vec!["a", "i", "b", "f", "l", "k"], 1..=6).prop_shuffle(),
    ) {
        let batch = batch(&columns(ROWS));
        let options = ReadOptions::default().with_columns(chosen);
        for ((name, one), (_, many)) in forms(&batch, ROWS).into_iter().zip(forms(&batch, rows)) {
            let expected = read_stream(&one[..], "one", &options).unwrap();
            for table in both(name, &many, &options) {
                let table = table.unwrap();
                prop_assert_eq!(&table.names, &expected.names);
                prop_assert!(bits(&table.matrix) == bits(&expected.matrix), "{}", name);
            }
        }
    }
}

#[test]
fn compressed_batches_are_read_on_all_cores_too() {
    let batch = batch(&columns(ROWS));
    let expected = read_stream(&arrow_file(&batch, ROWS, None)[..], "one", &ReadOptions::default()).unwrap();
    for compression in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        for (name, bytes) in [
            ("x.arrow", arrow_file(&batch, 4000, Some(compression))),
            ("x.arrows", arrow_stream(&batch, 4000, Some(compression))),
        ] {
            for table in both(name, &bytes, &ReadOptions::default()) {
                assert!(bits(&table.unwrap().matrix) == bits(&expected.matrix), "{name}, {compression:?}");
            }
        }
    }
}

#[test]
fn lists_whose_length_the_schema_does_not_state_are_read_in_order() {
    let list = |i: usize| Some(vec![Some(i as f32), Some(0.5)]);
    let lists = ListArray::from_iter_primitive::<Float32Type, _, _>((0..100_000).map(list));
    let batch = batch(&[("l", Arc::new(lists))]);
    for (name, bytes) in forms(&batch, 10_000) {
        for table in both(name, &bytes, &ReadOptions::default()) {
            let table = table.unwrap();
            assert_eq!(table.matrix.dim(), (100_000, 2), "{name}");
            assert_eq!(table.matrix.at(99_999, 0), 99_999.0);
        }
    }
}

#[test]
fn a_stream_may_replace_a_dictionary_between_batches() {
    let part = |values: [i64; 2]| {
        let keys = Int8Array::from_iter_values((0..80_000).map(|i| (i % 2) as i8));
        batch(&[("k", Arc::new(DictionaryArray::new(keys, Arc::new(Int64Array::from(values.to_vec())))))])
    };
    let parts = [part([1, 2]), part([3, 4])];
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &parts[0].schema()).unwrap();
    parts.iter().for_each(|part| writer.write(part).unwrap());
    writer.finish().unwrap();
    for table in both("x.arrows", &bytes, &ReadOptions::default()) {
        let matrix = table.unwrap().matrix;
        assert_eq!([0, 1, 80_000, 159_999].map(|row| matrix.at(row, 0)), [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn row_9_a_null_deep_in_a_file_names_its_row_and_the_first_one_wins() {
    let numbers = |nulls: &[usize]| -> ArrayRef {
        Arc::new(Float64Array::from_iter((0..200_000).map(|i| (!nulls.contains(&i)).then_some(i as f64))))
    };
    for nulls in [&[34_567][..], &[34_567, 51_000, 199_999]] {
        let batch = batch(&[("a", numbers(&[])), ("b", numbers(nulls))]);
        for (name, bytes) in forms(&batch, 10_000) {
            for table in both(name, &bytes, &ReadOptions::default()) {
                let text = message(table.unwrap_err());
                assert!(
                    text.ends_with("row 34567, column 1 ('b'): missing value; drop or fill such rows first"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn row_87_an_inexact_integer_deep_in_a_file_names_its_row() {
    let ids =
        Int64Array::from_iter_values((0..200_000).map(|i| if i == 34_567 || i == 190_000 { i64::MAX } else { i }));
    let batch = batch(&[("id", Arc::new(ids))]);
    for (name, bytes) in forms(&batch, 10_000) {
        for table in both(name, &bytes, &ReadOptions::default()) {
            let text = message(table.unwrap_err());
            assert!(text.contains("row 34567, column 0 ('id'): 9223372036854775807"), "{text}");
        }
    }
}

#[test]
fn row_51_corrupt_bytes_deep_in_a_file_are_the_same_error_in_a_file_and_in_memory() {
    let batch = batch(&columns(ROWS)[..2]);
    let whole = parquet(&batch, 5000);
    for at in [whole.len() / 3, whole.len() / 2, whole.len() * 2 / 3] {
        let mut bytes = whole.clone();
        bytes[at..at + 64].fill(0xff);
        let [file, memory] = both("x.parquet", &bytes, &ReadOptions::default());
        match (file, memory) {
            (Ok(file), Ok(memory)) => assert!(bits(&file.matrix) == bits(&memory.matrix)),
            (Err(file), Err(memory)) => {
                let (file, memory) = (message(file), message(memory));
                assert!(file.ends_with(&memory["x.parquet: ".len()..]), "{file}\n{memory}");
            }
            _ => panic!("only one of them was read"),
        }
    }
}

#[test]
fn row_51_a_truncated_arrow_stream_is_the_same_error_in_a_pipe_and_in_a_file() {
    let whole = arrow_stream(&batch(&columns(40)), 10, None);
    let mut errors = 0;
    for len in 4..whole.len() {
        match both("x.arrows", &whole[..len], &ReadOptions::default()) {
            [Ok(file), Ok(pipe)] => assert!(bits(&file.matrix) == bits(&pipe.matrix), "{len} bytes"),
            [Err(file), Err(pipe)] => {
                let (file, pipe) = (message(file), message(pipe));
                assert!(file.ends_with(&pipe["x.arrows: ".len()..]), "{len} bytes: {file}\n{pipe}");
                errors += 1;
            }
            [file, pipe] => panic!("{len} bytes: {:?}, {:?}", file.err(), pipe.err()),
        }
    }
    assert!(errors > 1000, "{errors}");
}
