//! npy files that are mapped into memory, or read on all cores: the result is the same as that of a stream.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{bits, message};
use gmm_data::{ReadOptions, Table, read_stream, read_table};
use gmm_model::{Dataset, Matrix};
use proptest::prelude::*;
use tempfile::TempDir;

const KINDS: [&str; 14] =
    ["<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", ">f4", ">f8"];

/// An npy file whose values start at byte `offset`.
fn npy(kind: &str, fortran: bool, (n, d): (usize, usize), offset: usize) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': ({n}, {d}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&((offset - 10) as u16).to_le_bytes());
    bytes.extend_from_slice(format!("{text:<width$}\n", width = offset - 11).as_bytes());
    let size: usize = kind[2..].parse().unwrap();
    // Bytes without a pattern, below 64 so that no float is NaN, whose bits conversions may change.
    let mut state = 1u64;
    bytes.extend((0..n * d * size).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 58) as u8
    }));
    bytes
}

struct File {
    _folder: TempDir,
    path: PathBuf,
}

fn file(name: &str, bytes: &[u8]) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    File { _folder: folder, path }
}

fn read(path: &Path) -> Table {
    read_table(path, &ReadOptions::default()).unwrap()
}

fn is_mapped(table: &Table) -> bool {
    match &table.matrix {
        Matrix::F32(a) => a.is_shared(),
        Matrix::F64(a) => a.is_shared(),
    }
}

fn npz(bytes: &[u8], compression: zip::CompressionMethod) -> Vec<u8> {
    use std::io::Write;
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file("x.npy", zip::write::SimpleFileOptions::default().compression_method(compression)).unwrap();
    archive.write_all(bytes).unwrap();
    archive.finish().unwrap().into_inner()
}

/// Reads the same bytes from a file, from a stream and from archives, and compares.
fn same_everywhere(bytes: &[u8], options: &ReadOptions) {
    let streamed = read_stream(bytes, "stream", options).unwrap();
    let plain = file("x.npy", bytes);
    let table = read_table(&plain.path, options).unwrap();
    assert_eq!(table.matrix.dim(), streamed.matrix.dim());
    assert!(bits(&table.matrix) == bits(&streamed.matrix), "the file differs from the stream");
    for compression in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let archive = file("x.npz", &npz(bytes, compression));
        let table = read_table(&archive.path, options).unwrap();
        assert!(bits(&table.matrix) == bits(&streamed.matrix), "{compression} differs from the stream");
    }
}

/// `(n, d)` of tables below and above the sizes from which files are mapped, and read by several threads.
fn shape() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![
        (1..40usize, 1..40usize),
        (20_000..60_000usize, 1..30usize),
        (1..30usize, 20_000..60_000usize),
        Just((600_000, 1)),
        Just((1, 600_000)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_file_a_stream_and_an_archive_give_the_same_bits(
        kind in prop::sample::select(&KINDS[..]),
        fortran in any::<bool>(),
        (n, d) in shape(),
        offset in prop_oneof![Just(128usize), Just(96), Just(127)],
        chosen in prop::option::of(prop::collection::vec(any::<prop::sample::Index>(), 1..5)),
    ) {
        let bytes = npy(kind, fortran, (n, d), offset);
        let mut options = ReadOptions::default();
        if let Some(chosen) = chosen {
            let mut columns = Vec::new();
            for column in chosen.iter().map(|index| index.index(d).to_string()) {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
            options = options.with_columns(columns);
        }
        same_everywhere(&bytes, &options);
    }
}

#[test]
fn all_columns_in_another_order_and_a_last_column_are_selected_while_reading() {
    for fortran in [false, true] {
        let bytes = npy("<f4", fortran, (70_000, 5), 128);
        let whole = read_stream(&bytes[..], "stream", &ReadOptions::default()).unwrap();
        for (options, columns) in [
            (ReadOptions::default().with_columns(["4..4", "0..3"]), vec![4, 0, 1, 2, 3]),
            (ReadOptions::default().with_columns(["!1"]), vec![0, 2, 3, 4]),
            (ReadOptions { last: Some("0".to_owned()), ..ReadOptions::default() }, vec![1, 2, 3, 4, 0]),
            (ReadOptions { last: Some("4".to_owned()), ..ReadOptions::default() }, vec![0, 1, 2, 3, 4]),
        ] {
            same_everywhere(&bytes, &options);
            let table = read_table(&file("x.npy", &bytes).path, &options).unwrap();
            assert!(bits(&table.matrix) == bits(&whole.matrix.select_columns(&columns)), "{columns:?}");
        }
    }
}

#[test]
fn only_aligned_native_floats_in_c_order_are_mapped() {
    let n = 40_000;
    let mapped = |bytes: &[u8]| is_mapped(&read(&file("x.npy", bytes).path));
    let native = |size: u8| format!("{}f{size}", if cfg!(target_endian = "little") { '<' } else { '>' });
    let other = |size: u8| format!("{}f{size}", if cfg!(target_endian = "little") { '>' } else { '<' });
    assert!(mapped(&npy(&native(4), false, (n, 8), 128)));
    assert!(mapped(&npy(&native(8), false, (n, 8), 80)), "aligned to 16, as old NumPy does");
    assert!(mapped(&npy(&native(8), true, (8 * n, 1), 128)), "one column has one order");
    for (what, bytes) in [
        ("small", npy(&native(4), false, (100, 8), 128)),
        ("unaligned", npy(&native(4), false, (n, 8), 127)),
        ("aligned for f4", npy(&native(8), false, (n, 8), 124)),
        ("Fortran order", npy(&native(8), true, (n, 8), 128)),
        ("other byte order", npy(&other(8), false, (n, 8), 128)),
        ("half precision", npy("<f2", false, (n, 20), 128)),
        ("integers", npy("<i8", false, (n, 8), 128)),
    ] {
        assert!(!mapped(&bytes), "{what}");
    }
    let options = ReadOptions::default().with_columns(["1", "0"]);
    let some = read_table(&file("x.npy", &npy(&native(4), false, (n, 8), 128)).path, &options).unwrap();
    assert!(!is_mapped(&some), "selected columns are copied");
}

#[test]
#[cfg(unix)]
fn a_mapped_matrix_stays_valid_after_its_file_and_its_table_are_gone() {
    let bytes = npy("<f8", false, (40_000, 8), 128);
    let expected = bits(&read_stream(&bytes[..], "stream", &ReadOptions::default()).unwrap().matrix);
    let file = file("x.npy", &bytes);
    let table = read(&file.path);
    assert!(is_mapped(&table));
    let clone = table.matrix.clone();
    let data = Dataset::new(table.matrix.clone()).unwrap();
    let Matrix::F64(array) = table.matrix else { panic!("f8 in") };
    let moved = file.path.with_file_name("moved.npy");
    fs::rename(&file.path, &moved).unwrap();
    fs::write(&file.path, npy("<f8", false, (1, 1), 128)).unwrap();
    assert!(bits(&clone) == expected);
    fs::remove_file(&moved).unwrap();
    drop(clone);
    assert!(bits(data.rows()) == expected);
    drop(data);
    let last = array.clone();
    drop(array);
    assert!(bits(&Matrix::F64(last.clone())) == expected);
    assert_eq!(last.into_owned().dim(), (40_000, 8));
}

#[test]
fn row_51_large_files_of_a_wrong_length_are_errors_before_anything_is_mapped() {
    let whole = npy("<f4", false, (100_000, 8), 128);
    for (len, parts) in [
        (
            whole.len() - 1,
            "byte 3200127: truncated or corrupt: the header promises 3200000 bytes of values, the file has 3199999",
        ),
        (
            1_200_000,
            "byte 1200000: truncated or corrupt: the header promises 3200000 bytes of values, the file has 1199872",
        ),
        (100, "byte 100: truncated or corrupt: the file ends inside the npy header"),
    ] {
        let file = file("x.npy", &whole[..len]);
        let text = message(read_table(&file.path, &ReadOptions::default()).unwrap_err());
        assert!(text.ends_with(&format!("x.npy: {parts}")), "{text}");
    }
    let file = file("x.npy", &[&whole[..], b"12"].concat());
    let text = message(read_table(&file.path, &ReadOptions::default()).unwrap_err());
    assert!(text.ends_with("x.npy: byte 3200128: truncated or corrupt: 2 bytes after the last value"), "{text}");
}

#[test]
fn row_50_a_column_that_a_large_file_lacks_is_an_error() {
    let file = file("x.npy", &npy("<f4", false, (100_000, 8), 128));
    let text = message(read_table(&file.path, &ReadOptions::default().with_columns(["8"])).unwrap_err());
    assert!(text.contains("no column '8'") && text.contains("8 columns without names"), "{text}");
}

#[test]
fn row_9_a_nan_in_a_mapped_file_is_found_with_row_and_column() {
    let mut bytes = npy("<f4", false, (300_000, 8), 128);
    for value in [2_000_001, 1_999_999] {
        bytes[128 + 4 * value..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let text = read(&file("x.npy", &bytes).path).into_dataset().unwrap_err().to_string();
    assert!(text.contains("row 249999, column 7"), "{text}");
}

#[test]
#[cfg(unix)]
fn a_pipe_is_read_as_a_stream_whatever_its_format() {
    let table = Table::new(
        read_stream(&npy("<f4", false, (40_000, 8), 128)[..], "stream", &ReadOptions::default()).unwrap().matrix,
    );
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.npy", "x.parquet", "x.arrow"] {
        let path = folder.path().join(name);
        gmm_data::write_table(&path, &table).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let to = path.clone();
        let writer = std::thread::spawn(move || fs::write(to, bytes).unwrap());
        let again = read(&path);
        writer.join().unwrap();
        assert!(bits(&again.matrix) == bits(&table.matrix), "{name}");
    }
}
