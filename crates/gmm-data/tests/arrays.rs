//! npy and npz: types, byte and memory orders, and rejected files.

use crate::common::{bits, check, golden, read, rows};
use gmm_data::{
    Column, ReadOptions, Table, read_npz, read_npz_array, read_stream, read_table, write_column, write_table,
};
use gmm_model::Precision;
use std::path::Path;

/// Value (i, j) of the golden array of a type, as `golden/make.py` computes it.
fn expected(kind: &str) -> Vec<Vec<f64>> {
    let value = |v: i32| match kind.as_bytes()[0] {
        b'f' => f64::from(v - 4) / 8.0,
        b'i' => f64::from(v - 4),
        b'u' => f64::from(v + 1),
        _ => f64::from(v % 2),
    };
    (0..5).map(|i| (0..3).map(|j| value(i * 3 + j)).collect()).collect()
}

const KINDS: [&str; 12] = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"];

#[test]
fn row_14_and_15_every_numeric_type_in_either_byte_order() {
    for kind in KINDS {
        for name in [format!("{kind}.npy"), format!("{kind}_be.npy")] {
            let table = read(&name).unwrap();
            assert_eq!(rows(&table), expected(kind), "{name}");
            let single = matches!(kind, "f2" | "f4");
            assert_eq!(table.matrix.precision(), if single { Precision::F32 } else { Precision::F64 }, "{name}");
        }
    }
}

#[test]
fn row_16_fortran_order_and_strides_give_the_same_matrix() {
    for kind in KINDS {
        assert_eq!(rows(&read(&format!("{kind}_fortran.npy")).unwrap()), expected(kind));
        let bytes = std::fs::read(golden(&format!("{kind}_fortran.npy"))).unwrap();
        let streamed = read_stream(&bytes[..], "stream", &ReadOptions::default()).unwrap();
        assert_eq!(rows(&streamed), expected(kind));
    }
    assert_eq!(rows(&read("strided.npy").unwrap()), expected("f8"));
}

#[test]
fn row_1_and_2_an_array_without_rows_or_columns_is_no_data_set() {
    for (name, shape) in [("zero_rows.npy", "(0, 3)"), ("zero_columns.npy", "(3, 0)")] {
        let text = read(name).unwrap().into_dataset().unwrap_err().to_string();
        assert!(text.contains(shape), "{text}");
    }
}

#[test]
fn row_3_one_dimension_says_how_to_reshape() {
    check(read("one_dimensional.npy"), &["one-dimensional array of shape (4,)", "reshape(-1, 1)"]);
}

#[test]
fn row_4_three_dimensions_are_refused() {
    check(read("three_dimensional.npy"), &["[2, 2, 2]", "3 dimensions"]);
}

#[test]
fn row_12_complex_is_refused_by_name() {
    check(read("complex.npy"), &["'<c16'", "complex"]);
}

#[test]
fn row_53_objects_are_refused_and_no_pickle_is_loaded() {
    check(read("object.npy"), &["'|O'", "pickle"]);
}

#[test]
fn row_11_text_records_dates_and_long_doubles_are_refused_by_name() {
    check(read("text.npy"), &["'<U1'", "text"]);
    check(read("record.npy"), &["record"]);
    check(read("date.npy"), &["M8[s]", "date"]);
    check(read("long_double.npy"), &["f16'", "float64"]);
}

#[test]
fn row_51_truncated_npy_names_file_and_offset() {
    let whole = std::fs::read(golden("f8.npy")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.npy");
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        check(read_table(&path, &ReadOptions::default()), &["cut.npy: ", &format!("byte {len}: truncated or corrupt")]);
        // A stream too short to be recognised as npy is read as text; both give an error.
        assert!(read_stream(&whole[..len], "stream", &ReadOptions::default()).is_err());
    }
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    check(read_table(&path, &ReadOptions::default()), &["byte 248", "1 bytes after the last value"]);
}

#[test]
fn row_51_a_header_that_promises_too_much_allocates_nothing() {
    for shape in ["(1000000000000, 1000)", "(9223372036854775807, 9223372036854775807)", "(99999999999999999999, 1)"] {
        for order in ["False", "True"] {
            let text = format!("{{'descr': '<f8', 'fortran_order': {order}, 'shape': {shape}, }}\n");
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&[0; 64]);
            check(
                read_stream(&bytes[..], "stream", &ReadOptions::default()),
                &["stream: byte", "truncated or corrupt"],
            );
            let file = tempfile::Builder::new().suffix(".npy").tempfile().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            check(read_table(file.path(), &ReadOptions::default()), &[".npy: byte", "truncated or corrupt"]);
        }
    }
}

#[test]
fn columns_of_an_npy_are_selected_by_index() {
    let options = ReadOptions::default().with_columns(["2", "0"]);
    let table = read_table(golden("f8.npy"), &options).unwrap();
    assert_eq!(rows(&table)[1], [1.0 / 8.0, -1.0 / 8.0]);
    let options = ReadOptions::default().with_columns(["3"]);
    check(read_table(golden("f8.npy"), &options), &["no column '3'", "3 columns without names"]);
}

#[test]
fn an_npz_gives_its_only_array_the_usual_one_or_the_one_named() {
    assert_eq!(rows(&read("one.npz").unwrap()), expected("f8"));
    assert_eq!(rows(&read("several.npz").unwrap()), expected("f8"));
    assert_eq!(rows(&read("several.npz:x").unwrap()), expected("f8"));
    check(read("several.npz:weights"), &["several.npz: 'weights'", "one-dimensional"]);
    check(read("several.npz:z"), &["no array 'z'", "weights"]);
    check(read("ambiguous.npz"), &["among a, b", "FILE.npz:NAME"]);
    let bytes = std::fs::read(golden("several.npz")).unwrap();
    assert_eq!(rows(&read_stream(&bytes[..], "stream", &ReadOptions::default()).unwrap()), expected("f8"));
}

#[test]
fn a_file_that_is_not_what_its_name_says_is_named_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let npz = std::fs::read(golden("several.npz")).unwrap();
    let npy = std::fs::read(golden("f8.npy")).unwrap();
    for (name, bytes, words) in [
        ("x.npy", &npz[..], "not a NumPy array, but a zip archive: --format npz"),
        ("x.npz", &npy, "not an npz archive, but a NumPy array: --format npy reads it"),
        ("x.parquet", &npy, "not a parquet file, but a NumPy array"),
        ("x.arrow", b"a,b\n1,2\n3,4\n", "not an Arrow file, but text: --format csv"),
        ("y.npy", b"<!DOCTYPE html><html>", "not a NumPy array, but an HTML page"),
        ("z.npy", b"\x1f\x8b\x08\0\0\0\0\0\0\0", "not a NumPy array, but compressed by gzip"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        check(read_table(&path, &ReadOptions::default()), &[name, words]);
    }
    let options = ReadOptions { format: Some(gmm_data::Format::Npy), ..ReadOptions::default() };
    check(read_stream(&npz[..], "stream", &options), &["stream: not a NumPy array, but a zip archive"]);
}

#[test]
fn every_array_of_an_npz_is_read_whatever_its_dimensions() {
    let arrays = read_npz(golden("several.npz")).unwrap();
    let shapes: Vec<_> = arrays.iter().map(|(name, a)| (&name[..], a.shape().to_vec())).collect();
    assert_eq!(shapes, [("x", vec![5, 3]), ("weights", vec![5]), ("covariances", vec![2, 3, 3])]);
    let array = read_npz_array(golden("several.npz"), "covariances").unwrap();
    assert_eq!(array.to_f64()[[1, 2, 0]], 15.0);
}

#[test]
fn row_51_truncated_or_corrupt_npz_is_an_error() {
    for name in ["several.npz", "one.npz"] {
        let whole = std::fs::read(golden(name)).unwrap();
        let read = |bytes: &[u8]| {
            let options = ReadOptions { format: Some(gmm_data::Format::Npz), ..ReadOptions::default() };
            read_stream(bytes, "stream", &options)
        };
        for len in 0..whole.len() {
            check(read(&whole[..len]), &["stream: "]);
        }
        let good = rows(&read(&whole).unwrap());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            // The checksum protects the array's bytes; others (times, other members) may not matter.
            if let Ok(table) = read(&bytes) {
                assert_eq!(rows(&table), good, "byte {at}");
            }
        }
    }
}

#[test]
fn what_is_written_is_read_back_and_a_column_is_one_dimensional() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["f4.npy", "f8.npy"] {
        let table = read(name).unwrap();
        let path = folder.path().join(name);
        write_table(&path, &table).unwrap();
        let again = read_table(&path, &ReadOptions::default()).unwrap();
        assert_eq!(bits(&again.matrix), bits(&table.matrix));
        // Byte for byte what NumPy writes.
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(golden(name)).unwrap());
    }
    let path = folder.path().join("labels.npy");
    write_column(&path, "label", Column::Labels(&[2, 0, 1])).unwrap();
    check(read_table(&path, &ReadOptions::default()), &["one-dimensional array of shape (3,)"]);
    let header = std::fs::read(&path).unwrap();
    assert!(String::from_utf8_lossy(&header).contains("'descr': '<i8'"));
    assert_eq!(header.len(), 128 + 3 * 8);
}

#[test]
fn a_table_without_names_gives_npy_and_csv_without_header() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::new(ndarray::array![[1.0, -0.0], [f64::MIN_POSITIVE / 8.0, 1e300]]);
    let path = folder.path().join("a.csv");
    write_table(&path, &table).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().next(), Some("1.0,-0.0"));
    assert_eq!(bits(&read_table(&path, &ReadOptions::default()).unwrap().matrix), bits(&table.matrix));
}

/// An npz of one array that is not compressed, as `numpy.savez` writes it; its values begin at no multiple of their size.
fn stored(name: &str, values: &ndarray::Array2<f32>, folder: &Path) -> (std::path::PathBuf, usize) {
    let npy = folder.join("array.npy");
    write_table(&npy, &Table::new(values.clone())).unwrap();
    let bytes = std::fs::read(&npy).unwrap();
    let path = folder.join("stored.npz");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file(format!("{name}.npy"), options).unwrap();
    std::io::Write::write_all(&mut zip, &bytes).unwrap();
    zip.finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let at = whole.windows(64).position(|part| part == &bytes[128..192]).unwrap();
    (path, at)
}

#[test]
fn a_large_array_of_an_npz_that_is_not_compressed_is_read_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let values = ndarray::Array2::from_shape_fn((70_001, 5), |(i, j)| (i * 7 + j) as f32 * 0.5);
    // Names of some length put the values at each distance from a multiple of four.
    for name in ["x", "xy", "xyz", "xyza"] {
        let (path, at) = stored(name, &values, folder.path());
        let table = read_table(&path, &ReadOptions::default()).unwrap();
        assert_eq!(table.matrix.to_f64(), values.mapv(f64::from), "{name} at {at}");
        let some = ReadOptions { columns: Some(vec!["3".into(), "0".into()]), ..ReadOptions::default() };
        let table = read_table(&path, &some).unwrap();
        let want = ndarray::Array2::from_shape_fn((70_001, 2), |(i, j)| f64::from(values[[i, [3, 0][j]]]));
        assert_eq!(table.matrix.to_f64(), want, "{name}: two columns");
        // A changed value is seen, unless the array is mapped into memory.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at + 4 * 100_000] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        match read_table(&path, &ReadOptions::default()) {
            Ok(table) => {
                assert!(at.is_multiple_of(4) && table.storage == gmm_data::Storage::MappedFile, "{name} at {at}")
            }
            error => check(error, &["stored.npz", name, "its checksum is not that in the archive"]),
        }
    }
}
