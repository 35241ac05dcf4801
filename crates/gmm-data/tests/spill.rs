//! A table beyond its memory limit goes to a temporary file; its values have the same bits as in memory.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::common::{bits, message};
use gmm_data::{
    Column, FileError, Format, ReadOptions, Storage, Table, find_inputs, read_stream, read_table, read_tables,
    write_column, write_table,
};
use gmm_model::Matrix;
use ndarray::Array2;
use tempfile::TempDir;

/// Odd shapes: one row, one column, more than a block of text or a batch.
const SHAPES: [(usize, usize); 5] = [(1, 1), (7, 3), (1, 1031), (70_001, 1), (20_011, 5)];

fn with(memory: u64) -> ReadOptions {
    ReadOptions { memory: Some(memory), ..ReadOptions::default() }
}

/// Values without a pattern, exact in `f32`.
fn matrix((n, d): (usize, usize), single: bool) -> Matrix {
    let mut state = 1u64;
    let rows = Array2::from_shape_simple_fn((n, d), || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        f64::from((state >> 40) as u32) / 64.0 - 9000.0
    });
    if single { rows.mapv(|v| v as f32).into() } else { rows.into() }
}

/// Reads a file and its bytes as a stream, with limits around the size of the matrix.
fn check(path: &Path, format: Format, mapped: bool) {
    let whole = read_table(path, &with(u64::MAX)).unwrap();
    let (n, d) = whole.matrix.dim();
    let size = (n * d) as u64 * if matches!(whole.matrix, Matrix::F32(_)) { 4 } else { 8 };
    let bytes = fs::read(path).unwrap();
    // The size of text is estimated, and room is made for a few blocks at a time.
    let enough = if format.is_text() { 2 * size + (8 << 20) } else { size };
    for limit in [0, 1, size / 3, size - 1, enough, 2 * enough] {
        let from_file = read_table(path, &with(limit)).unwrap();
        let options = ReadOptions { format: Some(format), ..with(limit) };
        // In small pieces, as a pipe may give them.
        let from_stream = read_stream(Slow(&bytes), "pipe", &options).unwrap();
        let expected = if size > limit { Storage::TemporaryFile } else { Storage::Memory };
        for (table, expected) in
            [(from_file, if mapped { Storage::MappedFile } else { expected }), (from_stream, expected)]
        {
            assert_eq!(bits(&table.matrix), bits(&whole.matrix), "{path:?} {limit}");
            assert_eq!((table.matrix.dim(), &table.names), ((n, d), &whole.names));
            assert_eq!(table.storage, expected, "{path:?} {limit} of {size}");
        }
    }
}

struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(4099);
        self.0.read(&mut out[..len])
    }
}

#[test]
fn tables_of_every_format_have_the_same_bits_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for shape in SHAPES {
        for single in [false, true] {
            let table = Table::new(matrix(shape, single));
            for (extension, format) in [
                ("csv", Format::Csv),
                ("tsv", Format::Tsv),
                ("npy", Format::Npy),
                ("parquet", Format::Parquet),
                ("arrow", Format::Arrow),
            ] {
                let path = folder.path().join(format!("x.{extension}"));
                write_table(&path, &table).unwrap();
                let bytes = shape.0 * shape.1 * if single { 4 } else { 8 };
                check(&path, format, format == Format::Npy && bytes >= 1 << 20);
            }
        }
    }
}

#[test]
fn npy_in_fortran_order_and_of_integers_and_npz_have_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for shape in SHAPES {
        for (name, array) in [
            ("i4", npy("<i4", shape, false)),
            ("big", npy(">f8", shape, false)),
            ("fortran", npy("<f8", shape, true)),
            ("fortran_f4", npy("<f4", shape, true)),
        ] {
            let path = folder.path().join(format!("{name}.npy"));
            fs::write(&path, &array).unwrap();
            check(&path, Format::Npy, false);
            for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
                let path = folder.path().join("x.npz");
                let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
                archive
                    .start_file("x.npy", zip::write::SimpleFileOptions::default().compression_method(method))
                    .unwrap();
                archive.write_all(&array).unwrap();
                archive.finish().unwrap();
                check(&path, Format::Npz, false);
            }
        }
    }
}

/// An npy file of small whole numbers.
fn npy(kind: &str, (n, d): (usize, usize), fortran: bool) -> Vec<u8> {
    let rows = Array2::from_shape_fn((n, d), |(i, j)| ((7 * i + 3 * j) % 1000) as f64);
    let stored: Vec<f64> = if fortran { rows.t().iter().copied().collect() } else { rows.iter().copied().collect() };
    let text = format!("{{'descr': '{kind}', 'fortran_order': {}, 'shape': ({n}, {d}), }}", python(fortran));
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend_from_slice(format!("{text:<117}\n").as_bytes());
    for v in stored {
        match kind {
            "<i4" => bytes.extend((v as i32).to_le_bytes()),
            "<f4" => bytes.extend((v as f32).to_le_bytes()),
            ">f8" => bytes.extend(v.to_be_bytes()),
            _ => bytes.extend(v.to_le_bytes()),
        }
    }
    bytes
}

const fn python(flag: bool) -> &'static str {
    if flag { "True" } else { "False" }
}

#[test]
fn compressed_text_and_single_columns_have_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv");
    write_table(&path, &Table::new(matrix((30_011, 3), false))).unwrap();
    let text = fs::read(&path).unwrap();
    let gz = folder.path().join("x.csv.gz");
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(&text).unwrap();
    fs::write(&gz, out.finish().unwrap()).unwrap();
    check(&gz, Format::Csv, false);
    let zst = folder.path().join("x.csv.zst");
    fs::write(&zst, zstd::encode_all(&text[..], 1).unwrap()).unwrap();
    check(&zst, Format::Csv, false);
}

#[test]
fn chosen_columns_and_weights_have_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "w"].map(str::to_owned).to_vec();
    let all = matrix((5003, 4), false);
    for extension in ["csv", "parquet", "arrow", "npy"] {
        let path = folder.path().join(format!("x.{extension}"));
        let table = Table::with_names(all.clone(), names.clone()).unwrap();
        write_table(&path, &table).unwrap();
        let words = if extension == "npy" { ["2", "0"] } else { ["c", "a"] };
        let last = if extension == "npy" { "3" } else { "w" };
        for memory in [0, 8 * 3 * 5003, 1 << 30] {
            let options = ReadOptions { last: Some(last.to_owned()), ..with(memory).with_columns(words) };
            let (rows, weights) = read_table(&path, &options).unwrap().split_last(Some(memory)).unwrap();
            assert_eq!(rows.storage == Storage::Memory, memory > 0, "{extension} {memory}");
            assert_eq!(rows.matrix.to_f64(), all.to_f64().select(ndarray::Axis(1), &[2, 0]));
            assert_eq!(weights, all.to_f64().column(3).to_vec());
            assert_eq!(rows.names.is_some(), extension != "npy");
        }
    }
}

/// Writes parts of a table to files of several formats, with the columns of each in an order of its own.
fn parts(folder: &TempDir, all: &Array2<f64>, single: &[bool]) -> Vec<PathBuf> {
    let orders = [[0, 1, 2], [2, 0, 1], [1, 2, 0]];
    let starts = [0, 1003, 1004, 3000];
    let extensions = ["parquet", "csv", "arrow"];
    (0..3)
        .map(|part| {
            let rows =
                all.slice(ndarray::s![starts[part]..starts[part + 1], ..]).select(ndarray::Axis(1), &orders[part]);
            let rows: Matrix = if single[part] { rows.mapv(|v| v as f32).into() } else { rows.into() };
            let names = orders[part].map(|i| ["a", "b", "c"][i].to_owned()).to_vec();
            let path = folder.path().join(format!("part-{part}.{}", extensions[part]));
            write_table(&path, &Table::with_names(rows, names).unwrap()).unwrap();
            path
        })
        .collect()
}

#[test]
fn files_are_joined_in_order_with_columns_matched_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let all = matrix((3000, 3), true).to_f64();
    for single in [[false; 3], [true, false, true]] {
        let paths = parts(&folder, &all, &single);
        for memory in [Some(0), Some(1000), Some(8 * 3 * 3000), None] {
            let joined = read_tables(&paths, &ReadOptions { memory, ..ReadOptions::default() }).unwrap();
            assert_eq!(joined.table.matrix, all.clone().into(), "{memory:?}");
            assert_eq!(joined.table.names.as_deref().unwrap(), ["a", "b", "c"]);
            assert_eq!(joined.later_parts(), [1003, 1004]);
            let on_disk = memory.is_some_and(|memory| memory < 8 * 3 * 3000);
            assert_eq!(joined.table.storage == Storage::TemporaryFile, on_disk, "{memory:?}");
        }
    }
    let single = parts(&folder, &all, &[true, false, true]);
    let joined = read_tables(&[&single[0], &single[2]], &ReadOptions::default()).unwrap();
    assert!(matches!(joined.table.matrix, Matrix::F32(_)));
}

fn fails(paths: &[PathBuf], pieces: &[&str]) {
    let text = message(read_tables(paths, &ReadOptions::default()).unwrap_err());
    for piece in pieces {
        assert!(text.contains(piece), "'{piece}' is not in: {text}");
    }
}

#[test]
fn columns_that_differ_between_files_are_errors_with_file_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let first = write("1.csv", "a,b\n1,2\n3,4\n");
    fails(&[first.clone(), write("2.csv", "a,c\n1,2\n")], &["2.csv: no column 'b', which", "1.csv has"]);
    fails(&[first.clone(), write("3.csv", "a,b,c\n1,2,3\n")], &["3.csv: column 'c' is not in", "1.csv"]);
    fails(&[first.clone(), write("4.csv", "1,2,3\n4,5,6\n")], &["4.csv: 3 columns, but", "1.csv has 2"]);
    fails(&[first.clone(), write("5.csv", "a,b\n1,x\n")], &["5.csv: line 2, column 1 ('b')", "'x'"]);
    let chosen = ReadOptions::default().with_columns(["b", "a"]);
    let joined = read_tables(&[first.clone(), write("6.csv", "c,b,a\n0,6,5\n")], &chosen).unwrap();
    assert_eq!(joined.table.matrix.to_f64(), ndarray::array![[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]);
    let unnamed = read_tables(&[first, write("7.csv", "5,6\n")], &ReadOptions::default()).unwrap();
    assert_eq!(unnamed.table.n_rows(), 3);
}

#[test]
fn folders_and_patterns_give_their_files_in_order_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["part-10.csv", "part-2.csv", "part-B.csv.gz", "part-a.npy", ".part-0.csv", "notes.md", "[x].csv"] {
        fs::write(folder.path().join(name), "1\n").unwrap();
    }
    fs::create_dir(folder.path().join("part-0.csv")).unwrap();
    let names = |input: &str| -> Result<Vec<String>, FileError> {
        let files = find_inputs(&[folder.path().join(input)])?;
        Ok(files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    };
    assert_eq!(names("").unwrap(), ["[x].csv", "part-10.csv", "part-2.csv", "part-B.csv.gz", "part-a.npy"]);
    assert_eq!(names("part-*.csv").unwrap(), ["part-10.csv", "part-2.csv"]);
    assert_eq!(names("part-?.*").unwrap(), ["part-2.csv", "part-B.csv.gz", "part-a.npy"]);
    assert_eq!(names("[x].csv").unwrap(), ["[x].csv"]);
    assert_eq!(names("absent.csv").unwrap(), ["absent.csv"]);
    for (input, why) in [("no-*.csv", "no file matches this pattern"), ("part-0.csv", "no file in this folder")] {
        let text = message(names(input).unwrap_err());
        assert!(text.contains(why) && text.contains(input), "{text}");
    }
    assert_eq!(find_inputs(&["-"]).unwrap(), [PathBuf::from("-")]);
}

#[test]
fn a_column_of_labels_beyond_the_limit_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let labels: Vec<u32> = (0..40_000).map(|i| i % 11).collect();
    write_column(&path, "label", Column::Labels(&labels)).unwrap();
    check(&path, Format::Parquet, false);
}
