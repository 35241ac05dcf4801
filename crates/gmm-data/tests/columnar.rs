//! Parquet and Arrow IPC.

use std::io::Read;
use std::sync::Arc;

use crate::common::{self, check, golden, read, rows};
use arrow_array::{Float64Array, Int32Array, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema};
use gmm_data::{Column, Format, ReadOptions, read_stream, read_table, table_of_batches, write_column, write_table};
use gmm_model::Precision;

const FRAMES: [&str; 3] = ["pandas.parquet", "pandas_zstd.parquet", "pandas.feather"];

fn with(columns: &[&str]) -> ReadOptions {
    ReadOptions::default().with_columns(columns.iter().copied())
}

#[test]
fn row_11_a_text_column_is_named_and_selection_reads_past_it() {
    for name in FRAMES {
        check(read(name), &[name, "column 1 ('text')", "select columns that do: a,b,c"]);
        let table = read_table(golden(name), &with(&["c", "a", "b"])).unwrap();
        assert_eq!(rows(&table)[4], [10.0 / 8.0, 1.0, 9.0], "{name}");
        assert_eq!(table.names.unwrap(), ["c", "a", "b"]);
        assert_eq!(table.matrix.precision(), Precision::F64);
    }
}

#[test]
fn row_14_and_15_types_become_f32_or_f64() {
    for name in ["single.parquet", "single.arrows"] {
        let table = read(name).unwrap();
        assert_eq!(table.matrix.precision(), Precision::F32, "{name}");
        assert_eq!(rows(&table), [[0.5, 2.5], [1.5, 3.5]]);
    }
    let ints = read("ints.parquet").unwrap();
    assert_eq!(rows(&ints), [[1.0; 9], [0.0; 9], [1.0; 9]]);
}

#[test]
fn row_9_a_null_names_column_and_row() {
    for name in ["nulls.parquet", "nulls.feather"] {
        check(read(name), &[name, "row 1, column 1 ('b'): missing value"]);
        assert_eq!(read_table(golden(name), &with(&["a"])).unwrap().n_rows(), 3);
    }
}

#[test]
fn row_50_columns_not_there_list_the_names() {
    for name in FRAMES {
        check(read_table(golden(name), &with(&["z"])), &["no column 'z': there are a, text, b, c"]);
        check(read_table(golden(name), &with(&["a", "a"])), &["'a' is selected twice"]);
    }
}

#[test]
fn row_51_truncated_parquet_or_arrow_is_an_error_with_a_place() {
    for (name, format) in
        [("single.parquet", Format::Parquet), ("single.arrows", Format::Arrow), ("nulls.feather", Format::Arrow)]
    {
        let whole = std::fs::read(golden(name)).unwrap();
        let options = ReadOptions { format: Some(format), ..with(&["0"]) };
        assert!(read_stream(&whole[..], "stream", &options).is_ok(), "{name}");
        let mut short = 0;
        for len in 0..whole.len() {
            match read_stream(&whole[..len], "stream", &options) {
                // A stream may lack its end-of-stream marker.
                Ok(_) => short += 1,
                Err(error) => {
                    let text = common::message(error);
                    assert!(text.contains("byte ") || text.contains("column "), "{text}");
                }
            }
        }
        assert!(short <= 8, "{name}: {short} truncated files were read");
    }
}

#[test]
fn row_51_an_arrow_file_that_is_cut_off_or_has_no_message_is_an_error_through_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    write_table(&path, &read("f8.npy").unwrap()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for len in 0..whole.len() {
        let error = read_stream(&whole[..len], "stream", &ReadOptions::default()).map(drop).unwrap_err();
        assert!(common::message(error).starts_with("stream"), "{len}");
    }
    // Zeros without end.
    let endless = (&b"ARROW1"[..]).chain(std::io::repeat(0));
    check(read_stream(endless, "stream", &ReadOptions::default()), &["no message follows the magic word"]);
}

#[test]
fn row_51_corrupt_parquet_or_arrow_never_panics() {
    for (name, format) in
        [("single.parquet", Format::Parquet), ("single.arrows", Format::Arrow), ("nulls.feather", Format::Arrow)]
    {
        let whole = std::fs::read(golden(name)).unwrap();
        let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            if let Err(error) = read_stream(&bytes[..], "stream", &options) {
                common::message(error);
            }
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for source in ["single.parquet", "f8.npy", "ints.parquet"] {
        let table = read(source).unwrap();
        for name in ["a.parquet", "a.arrow", "a.feather", "a.csv", "a.tsv"] {
            let path = folder.path().join(name);
            write_table(&path, &table).unwrap();
            let again = read_table(&path, &ReadOptions::default()).unwrap();
            assert_eq!(rows(&again), rows(&table), "{source} as {name}");
            let bytes = std::fs::read(&path).unwrap();
            let piped = read_stream(&bytes[..], "stream", &ReadOptions::default()).unwrap();
            assert_eq!(rows(&piped), rows(&table), "{source} as {name} through a pipe");
            if table.names.is_some() {
                assert_eq!(again.names, table.names, "{source} as {name}");
            }
        }
    }
    for name in ["l.parquet", "l.arrow", "l.csv"] {
        let path = folder.path().join(name);
        write_column(&path, "label", Column::Labels(&[2, 0, 1])).unwrap();
        let table = read_table(&path, &ReadOptions::default()).unwrap();
        assert_eq!((rows(&table), table.names.unwrap()), (vec![vec![2.0], vec![0.0], vec![1.0]], vec!["label".into()]));
    }
}

/// Batches of these sizes; column `a` is the row index and `b` is ten times that.
fn batches(sizes: &[usize], null_at: Option<usize>) -> impl RecordBatchReader + use<> {
    let fields = [("a", DataType::Int32), ("b", DataType::Float64)];
    let schema = Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec()));
    let mut first = 0;
    let of_size = |&size: &usize| {
        let rows = first..first + size;
        first = rows.end;
        let a = Int32Array::from_iter_values(rows.clone().map(|row| row as i32));
        let b = Float64Array::from_iter(rows.map(|row| (Some(row) != null_at).then_some(10.0 * row as f64)));
        RecordBatch::try_new(schema.clone(), vec![Arc::new(a), Arc::new(b)]).unwrap()
    };
    let all: Vec<_> = sizes.iter().map(of_size).map(Ok).collect();
    RecordBatchIterator::new(all, schema.clone())
}

#[test]
fn batches_in_memory_become_rows_whatever_their_sizes() {
    for sizes in [&[1500][..], &[1, 0, 511, 513, 475], &[512, 988], &[]] {
        let table = table_of_batches(batches(sizes, None), "X").unwrap();
        let n: usize = sizes.iter().sum();
        assert_eq!(rows(&table), (0..n).map(|row| [row as f64, 10.0 * row as f64]).collect::<Vec<_>>(), "{sizes:?}");
        assert_eq!(table.names.unwrap(), ["a", "b"]);
    }
}

#[test]
fn row_9_a_null_in_memory_names_column_and_row() {
    check(table_of_batches(batches(&[600, 700], Some(1299)), "X"), &["X: row 1299, column 1 ('b'): missing value"]);
}
