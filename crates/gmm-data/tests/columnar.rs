//! Parquet and Arrow IPC.

mod common;

use common::{check, golden, read, rows};
use gmm_data::{Column, Format, ReadOptions, read_stream, read_table, write_column, write_table};
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
        check(read_table(golden(name), &with(&["a", "a"])), &["'a' is asked for twice"]);
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
                // A stream may lack its end mark.
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
