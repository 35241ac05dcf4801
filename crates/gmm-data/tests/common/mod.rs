//! Helpers shared by the tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use gmm_data::{FileError, ReadOptions, Table, read_stream, read_table};
use gmm_model::Matrix;

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

pub(crate) fn read(name: &str) -> Result<Table, FileError> {
    read_table(golden(name), &ReadOptions::default())
}

pub(crate) fn text(content: &str) -> Result<Table, FileError> {
    read_stream(content.as_bytes(), "input", &ReadOptions::default())
}

pub(crate) fn rows(table: &Table) -> Vec<Vec<f64>> {
    table.matrix.to_f64().outer_iter().map(|row| row.to_vec()).collect()
}

/// The error message, checked to be one line that starts with the file's name.
pub(crate) fn message(error: FileError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    assert!(text.starts_with(&error.path), "{text}");
    text
}

/// Checks that the error message contains every piece.
pub(crate) fn check(result: Result<Table, FileError>, pieces: &[&str]) {
    let text = message(result.expect_err("an error"));
    for piece in pieces {
        assert!(text.contains(piece), "'{piece}' is not in: {text}");
    }
}

pub(crate) fn bits(matrix: &Matrix) -> Vec<u64> {
    match matrix {
        Matrix::F32(a) => a.iter().map(|v| u64::from(v.to_bits())).collect(),
        Matrix::F64(a) => a.iter().map(|v| v.to_bits()).collect(),
    }
}
