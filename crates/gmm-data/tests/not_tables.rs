//! Files that are packed, damaged, or no tables at all: what their errors say.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};

use common::{check, rows};
use gmm_data::{Format, ReadOptions, read_model_bytes, read_stream, read_table, write_table};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 0).unwrap()
}

/// Checks what is said of these bytes in a file of this name.
#[track_caller]
fn refused(name: &str, bytes: &[u8], pieces: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    check(read_table(&path, &ReadOptions::default()), pieces);
}

/// Checks what is said of these bytes through a pipe.
#[track_caller]
fn piped(bytes: &[u8], pieces: &[&str]) {
    check(read_stream(bytes, "input", &ReadOptions::default()), pieces);
}

const ROWS: &[u8] = b"a,b\n1,2\n3,4\n";

#[test]
fn data_after_a_compressed_stream_is_named_alike_by_extension_by_first_bytes_and_through_a_pipe() {
    let npy = std::fs::read(common::golden("f8.npy")).unwrap();
    for (pack, name, extension) in [(gzip as fn(&[u8]) -> Vec<u8>, "gzip", "gz"), (zstd, "zstd", "zst")] {
        for rubbish in [&b"x"[..], b"xy", b"TRAILING", b"\n1,2\n", b"PK\x03\x04", &[0x1f], &[b'z'; 100_000]] {
            // The first of the magic word alone is a stream that was cut.
            if (name, rubbish) == ("gzip", &[0x1f]) {
                continue;
            }
            let pieces = &["truncated or corrupt", name, "data after the end of the compressed stream: remove it"];
            let bytes = [&pack(ROWS)[..], rubbish].concat();
            refused(&format!("x.csv.{extension}"), &bytes, pieces);
            refused(&format!("x.{extension}"), &bytes, pieces);
            refused("x.csv", &bytes, pieces);
            piped(&bytes, pieces);
            refused(&format!("x.npy.{extension}"), &[&pack(&npy)[..], rubbish].concat(), pieces);
        }
        // Several streams are one, also empty ones.
        let bytes = [pack(b"a,b\n1,2\n"), pack(b""), pack(b"3,4\n")].concat();
        let table = read_stream(&bytes[..], "input", &ReadOptions::default()).unwrap();
        assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]]);
        piped(&bytes[..bytes.len() - 2], &["truncated or corrupt"]);
    }
    // Zstandard's frames that are to be skipped.
    let skip = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let bytes = [&skip[..], &zstd(ROWS), &skip].concat();
    assert_eq!(rows(&read_stream(&bytes[..], "input", &ReadOptions::default()).unwrap()), [[1.0, 2.0], [3.0, 4.0]]);
}

#[test]
fn what_is_compressed_twice_is_to_be_decompressed_once() {
    let twice = gzip(&gzip(ROWS));
    for name in ["x.csv.gz.gz", "x.csv.gz", "x.gz", "x.csv"] {
        refused(name, &twice, &["compressed twice: decompress it once (gzip -d)"]);
    }
    piped(&twice, &["compressed twice: decompress it once (gzip -d)"]);
    refused("x.csv.gz.zst", &zstd(&gzip(ROWS)), &["compressed twice: decompress it once (zstd -d)"]);
    refused("x.npy.gz", &twice, &["compressed twice"]);
}
