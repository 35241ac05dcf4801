//! Error messages for files that are compressed, damaged, or not tables.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{self, check, rows};
use gmm_data::{Format, ReadOptions, read_model_bytes, read_stream, read_table, write_table};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 0).unwrap()
}

/// Checks the error message for these bytes in a file of this name.
#[track_caller]
fn refused(name: &str, bytes: &[u8], pieces: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    check(read_table(&path, &ReadOptions::default()), pieces);
}

/// Checks the error message for these bytes read from a stream.
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
            // Only the first bytes of the magic word: a truncated stream.
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
        // Several concatenated streams are read as one, empty ones included.
        let bytes = [pack(b"a,b\n1,2\n"), pack(b""), pack(b"3,4\n")].concat();
        let table = read_stream(&bytes[..], "input", &ReadOptions::default()).unwrap();
        assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]]);
        piped(&bytes[..bytes.len() - 2], &["truncated or corrupt"]);
    }
    // Zstandard's skippable frames.
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

#[test]
fn binary_files_are_named_where_they_are_known_and_called_no_text_elsewhere() {
    let long = |start: &[u8]| [start, &[7, 0xff, 0x80, b'\n', 200].repeat(100)].concat();
    for (start, word) in [
        (&b"\xff\xd8\xff\xe0\x00\x10JFIF\0"[..], "a JPEG picture"),
        (b"\xff\xd8\xff\xdb", "a JPEG picture"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture"),
        (b"%PDF-1.7\n", "a PDF file"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "a MATLAB file"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94", "a Python pickle, which is never loaded"),
        (b"\x80\x02}q\x00.", "a Python pickle"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
    ] {
        refused("x.csv", &long(start), &["not a text table, but ", word]);
        refused("x.csv.gz", &gzip(&long(start)), &["not a text table, but ", word]);
        if !start.starts_with(b"PK") {
            piped(&long(start), &["not a text table, but ", word]);
        }
    }
    let mut tar = vec![b'x'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    piped(&gzip(&tar), &["not a text table, but a tar archive"]);
    // Arbitrary bytes: with and without a line end, and with control characters inside quotes.
    for bytes in
        [&b"\xc3\x28\x01\x9c\xe1\x05"[..], b"\xb7\x13\n\xa1,\x02\n\xff\n", b"\"\xe9\0\x03,\xff\n", b"\xe9\x7f,\"\x81\n"]
    {
        refused("x.csv", bytes, &["not text, since it has bytes such as 0x", "save the table as csv"]);
        piped(bytes, &["not text, since it has bytes such as 0x"]);
    }
    // Text in another encoding does not count as binary, nor does UTF-8 text with a control character.
    check(read_stream(&b"gr\xf6\xdfe\n"[..], "input", &ReadOptions::default()), &["no data rows"]);
    check(read_stream("größe\u{1}\n".as_bytes(), "input", &ReadOptions::default()), &["no data rows"]);
}

#[test]
fn an_npz_without_arrays_says_so_and_what_it_holds() {
    let archive = |names: &[&str]| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in names {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(b"x").unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    for (names, pieces) in [
        (&[][..], &["it holds no arrays"][..]),
        (&["a/b.csv", "c"], &["it holds no arrays (npy), but 'a/b.csv': unpack it first"]),
        (&["[Content_Types].xml", "xl/workbook.xml"], &["an Excel workbook: save the sheet as csv"]),
    ] {
        refused("x.npz", &archive(names), pieces);
        piped(&archive(names), pieces);
    }
}

#[test]
fn an_html_page_that_is_called_an_array_is_named_compressed_or_not() {
    let page = b"<!DOCTYPE html>\n<html><body>404</body></html>\n";
    for (name, what) in [("x.npy", "a NumPy array"), ("x.npz", "an npz archive"), ("x.parquet", "a parquet file")] {
        let pieces = &["not ", what, "but an HTML page"];
        refused(name, page, pieces);
        refused(&format!("{name}.gz"), &gzip(page), pieces);
        let format = Format::of_path(Path::new(name)).ok();
        check(read_stream(&page[..], "input", &ReadOptions { format, ..ReadOptions::default() }), pieces);
    }
}

#[test]
fn types_that_are_only_read_are_told_from_unknown_ones() {
    let table = read_stream(ROWS, "input", &ReadOptions::default()).unwrap();
    let said = |name: &str| write_table(PathBuf::from(name), &table).unwrap_err().to_string();
    for (name, pieces) in [
        ("y.txt", &["'txt' files, only read: use csv, tsv, npy"][..]),
        ("y.npz", &["'npz' files, only read: use csv, tsv, npy"]),
        ("y.csv.gz", &["'gz' files, only read", "pipe it through gzip or zstd"]),
        ("y.npy.zst", &["'zst' files, only read", "and compress that"]),
        ("y.xyz", &["unknown file type 'xyz': use csv, tsv, npy"]),
    ] {
        for piece in pieces {
            assert!(said(name).contains(piece), "'{piece}' is not in: {}", said(name));
        }
    }
}

#[test]
fn a_damaged_arrow_schema_in_a_parquet_file_is_one_short_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write_table(&path, &read_stream(ROWS, "input", &ReadOptions::default()).unwrap()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let key = whole.windows(12).position(|w| w == b"ARROW:schema").expect("the writer keeps the schema") + 12;
    for at in 4..60 {
        let mut bytes = whole.clone();
        // One letter of the base64 text replaced by another.
        let byte = &mut bytes[key + at];
        *byte = if *byte == b'B' { b'8' } else { b'B' };
        std::fs::write(&path, bytes).unwrap();
        if let Err(error) = read_table(&path, &ReadOptions::default()) {
            let text = error.to_string();
            assert!(text.len() < path.display().to_string().len() + 250, "{text}");
            assert!(!text.contains("verifying"), "{text}");
        }
    }
    let mut bytes = whole.clone();
    bytes[key + 10..key + 40].fill(b'/');
    refused("x.parquet", &bytes, &["truncated or corrupt: the Arrow schema in the file's metadata (ARROW:schema)"]);
}

#[test]
fn a_compressed_model_is_to_be_decompressed() {
    let model = br#"{"format": "gmm-model"}"#;
    for (bytes, word) in [(gzip(model), "gzip"), (zstd(model), "zstd")] {
        let text = read_model_bytes(&bytes, "m.json").unwrap_err().to_string();
        assert!(text.contains(&format!("it is compressed by {word}: decompress it first ({word} -d)")), "{text}");
    }
    let text = read_model_bytes(b"<html>404</html>", "m.json").unwrap_err().to_string();
    assert!(text.contains("it is an HTML page"), "{text}");
}
