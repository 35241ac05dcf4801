//! Damaged files of every binary format, under a memory limit: each gives an error or is read, and none aborts the
//! program.
//!
//! A failed allocation cannot be caught, so each test runs itself again in a child process under `ulimit -v`.

use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{Field, Schema};
use gmm_data::{FileError, Format, Problem, ReadOptions, Table, read_model, read_stream, read_table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Runs the test of this name again in a child process limited to 1 GiB of address space. Returns whether the current
/// process is that child.
fn limited(name: &str) -> bool {
    if std::env::var_os("GMM_LIMITED").is_some() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let script = "ulimit -v 1048576; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(exe).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env("GMM_LIMITED", "1").output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {}", output.status, &text[text.len().saturating_sub(3000)..]);
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// A batch with every supported type of column, and a text column.
fn batch(rows: usize) -> RecordBatch {
    let list = |i: usize| Some(vec![Some(i as f32), Some(0.5)]);
    let fixed =
        FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>((0..rows).map(list), 2);
    let variable = ListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>((0..rows).map(list));
    let keys = arrow_array::Int8Array::from_iter_values((0..rows).map(|i| (i % 3) as i8));
    let dictionary = DictionaryArray::<Int8Type>::new(keys, Arc::new(Int64Array::from(vec![10, 20, 30])));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Float64Array::from_iter_values((0..rows).map(|i| (i % 4) as f64)))),
        ("t", Arc::new(StringArray::from_iter_values((0..rows).map(|i| format!("text {i}"))))),
        ("b", Arc::new(Int32Array::from_iter_values((0..rows).map(|i| i as i32)))),
        ("c", Arc::new(BooleanArray::from_iter((0..rows).map(|i| Some(i % 2 == 0))))),
        ("f", Arc::new(Float32Array::from_iter_values((0..rows).map(|_| 1.5)))),
        ("e", Arc::new(fixed)),
        ("v", Arc::new(variable)),
        ("k", Arc::new(dictionary)),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

fn options(format: Format) -> ReadOptions {
    let mut options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    if matches!(format, Format::Arrow | Format::Parquet) {
        options = options.with_columns(["a", "b", "c", "f", "e", "v", "k"]);
    }
    options
}

fn arrow(batch: &RecordBatch, stream: bool, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    if stream {
        let mut writer = StreamWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }
    out
}

fn parquet(batch: &RecordBatch, compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    out
}

fn check(what: &str, bytes: &[u8], format: Format) -> Result<Table, FileError> {
    let start = Instant::now();
    let result = read_stream(bytes, "damaged", &options(format));
    assert!(start.elapsed() < Duration::from_secs(5), "{what}: {:?}", start.elapsed());
    if let Err(error) = &result {
        let text = error.to_string();
        assert!(text.starts_with("damaged: ") && !text.contains('\n') && text.len() < 4000, "{what}: {text}");
    }
    result
}

/// Reads the file with every single bit flipped, and truncated at every byte.
fn damage(what: &str, whole: &[u8], format: Format) {
    let table = check(what, whole, format).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut errors = 0;
    let start = Instant::now();
    for bit in 0..8 * whole.len() {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        errors += usize::from(check(&format!("{what}, bit {bit}"), &bytes, format).is_err());
    }
    eprintln!("{what}: {} bytes, {errors} errors, {:?}", whole.len(), start.elapsed());
    for len in 0..whole.len() {
        if let Ok(short) = check(&format!("{what}, {len} bytes"), &whole[..len], format) {
            // A stream may lack its last messages without an error.
            assert!(short.n_rows() == 0 || short == table, "{what}, {len} bytes");
        }
    }
    assert!(errors > 0, "{what}");
}

#[test]
fn row_51_every_flipped_bit_of_arrow_is_an_error_or_read_whatever_the_compression() {
    if !limited("row_51_every_flipped_bit_of_arrow_is_an_error_or_read_whatever_the_compression") {
        return;
    }
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        for stream in [false, true] {
            // A batch of few rows is stored uncompressed.
            let whole = arrow(&batch(40), stream, compression);
            damage(&format!("stream {stream}, {compression:?}"), &whole, Format::Arrow);
        }
    }
}

#[test]
fn row_51_every_flipped_bit_of_parquet_is_an_error_or_read_whatever_the_codec() {
    if !limited("row_51_every_flipped_bit_of_parquet_is_an_error_or_read_whatever_the_codec") {
        return;
    }
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
    ] {
        damage(&format!("{compression}"), &parquet(&batch(12), compression), Format::Parquet);
    }
}

#[test]
fn row_51_every_flipped_bit_of_npy_and_npz_is_an_error_or_read() {
    if !limited("row_51_every_flipped_bit_of_npy_and_npz_is_an_error_or_read") {
        return;
    }
    let golden = |name: &str| std::fs::read(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    damage("npy", &golden("f8.npy"), Format::Npy);
    damage("npy, Fortran order", &golden("f4_fortran.npy"), Format::Npy);
    damage("npz", &golden("one.npz"), Format::Npz);
    damage("npz, deflated", &golden("several.npz"), Format::Npz);
}

/// Checks that the error states the memory needed and free, and what to try.
fn too_large<T: std::fmt::Debug>(what: &str, result: Result<T, FileError>) {
    let error = result.expect_err(what);
    assert!(matches!(error.problem, Problem::Memory { .. }), "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains(" bytes of memory, ") && text.contains(" are free: "), "{what}: {text}");
}

#[test]
fn files_larger_than_memory_are_refused_before_they_are_read() {
    if !limited("files_larger_than_memory_are_refused_before_they_are_read") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sparse = |name: &str, head: &[u8], len: u64| {
        let path = folder.path().join(name);
        std::fs::write(&path, head).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        path
    };
    for (order, kind) in [("False", "<f8"), ("True", "<f8"), ("False", "|b1"), ("True", ">f4")] {
        let text = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': (2500000000, 1), }}");
        let mut head = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        head.extend_from_slice(format!("{text:<117}\n").as_bytes());
        let size: u64 = kind[2..].parse().unwrap();
        let path = sparse("large.npy", &head, 128 + size * 2_500_000_000);
        let start = Instant::now();
        too_large(kind, read_table(&path, &ReadOptions::default()));
        too_large(kind, read_stream((&head[..]).chain(std::io::repeat(0)), "pipe", &ReadOptions::default()));
        assert!(start.elapsed() < Duration::from_secs(1), "{kind}: it was read");
    }
    too_large("model", read_model(sparse("model.json", b"{", 20_000_000_000)));
    for format in [Format::Npz, Format::Arrow, Format::Parquet] {
        too_large("endless", read_stream(std::io::repeat(7), "pipe", &options(format)));
    }
}

#[test]
fn small_files_of_many_rows_are_refused_where_the_table_has_no_room() {
    if !limited("small_files_of_many_rows_are_refused_where_the_table_has_no_room") {
        return;
    }
    // 150 million values of one bit each, which become 8 bytes each.
    let bits: ArrayRef = Arc::new(BooleanArray::from(vec![true; 1_000_000]));
    let fields: Vec<Field> =
        (0..150).map(|i| Field::new(i.to_string(), arrow_schema::DataType::Boolean, false)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![bits; 150]).unwrap();
    let read = |bytes: &[u8], format| {
        read_stream(bytes, "bomb", &ReadOptions { format: Some(format), ..ReadOptions::default() })
    };
    too_large("parquet", read(&parquet(&batch, Compression::SNAPPY), Format::Parquet));
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        for stream in [false, true] {
            too_large("arrow", read(&arrow(&batch, stream, compression), Format::Arrow));
        }
    }
}

#[test]
fn a_page_that_claims_gigabytes_is_an_error_before_they_are_taken() {
    if !limited("a_page_that_claims_gigabytes_is_an_error_before_they_are_taken") {
        return;
    }
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values((0..3000).map(f64::from)));
    let schema = Arc::new(Schema::new(vec![Field::new("a", arrow_schema::DataType::Float64, false)]));
    let whole = parquet(&RecordBatch::try_new(schema, vec![values]).unwrap(), Compression::SNAPPY);
    // The dictionary page's header comes first: its type, 2, and its uncompressed size, 24,000 bytes.
    let place = whole.windows(6).position(|w| w == [0x15, 0x04, 0x15, 0x80, 0xf7, 0x02]).expect("a header");
    let mut bytes = whole.clone();
    bytes.splice(place + 3..place + 6, [0xfe, 0xff, 0xff, 0xff, 0x0f]);
    let read = read_stream(&bytes[..], "bomb", &ReadOptions::default());
    let text = read.unwrap_err().to_string();
    assert!(text.contains("column 0 ('a')") && text.contains("claims 2147483647 bytes"), "{text}");
}

#[test]
#[ignore = "writes the seeds of the fuzz targets again"]
fn the_seeds_of_parquet_and_arrow_are_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    let write = |name: &str, bytes: &[u8]| std::fs::write(format!("{folder}/{name}"), bytes).unwrap();
    std::fs::create_dir_all(format!("{folder}/arrow")).unwrap();
    std::fs::create_dir_all(format!("{folder}/parquet")).unwrap();
    let all = batch(12);
    // Without the text column, so that all columns are read.
    let batch = all.project(&[0, 2, 3, 4, 5, 6, 7]).unwrap();
    let kinds = [("plain", None), ("lz4", Some(CompressionType::LZ4_FRAME)), ("zstd", Some(CompressionType::ZSTD))];
    for (name, compression) in kinds {
        write(&format!("arrow/{name}.arrow"), &arrow(&batch, false, compression));
        write(&format!("arrow/{name}.arrows"), &arrow(&batch, true, compression));
    }
    for (name, compression) in [
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(ZstdLevel::default())),
        ("gzip", Compression::GZIP(GzipLevel::default())),
        ("lz4", Compression::LZ4_RAW),
    ] {
        write(&format!("parquet/{name}.parquet"), &parquet(&batch, compression));
    }
}
