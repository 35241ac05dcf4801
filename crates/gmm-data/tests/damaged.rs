//! Damaged files of every binary format, under a limit of memory: each is an error, or read, and nothing ends the program.
//!
//! An allocation that fails cannot be caught, so the work is done by this program started again under `ulimit -v`.

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
use gmm_data::{FileError, Format, ReadOptions, Table, read_stream};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Starts the test of this name again under a limit of 1 GiB of address space; whether this is the one so started.
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

/// A batch with every kind of column that is read, and text.
fn batch(rows: usize) -> RecordBatch {
    let list = |i: usize| Some(vec![Some(i as f32), Some(0.5)]);
    let fixed = FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>((0..rows).map(list), 2);
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

/// Every bit of the file flipped, and the file cut at every byte.
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
            // A stream may lack its last messages.
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
            // Few rows stay uncompressed.
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
