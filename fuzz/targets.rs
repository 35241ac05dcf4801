//! The bodies of the fuzz targets. `crates/gmm-data/tests/regressions.rs` includes this file and replays `seeds/` and
//! `regressions/` on a stable compiler.
//!
//! Nothing may panic; an error is one line that names the input; and a value that was read can be written and read
//! again as the same bits.

#![allow(dead_code, reason = "each target uses its own function")]

use gmm_data::{
    Decimal, ExchangeFormat, FileError, Format, ReadOptions, Table, model_and_state, model_to_exchange, model_to_json,
    model_to_safetensors, read_mixtures, read_model_bytes, read_stream, write_csv,
};
use gmm_model::{Matrix, Mixture, Statistics};

const NAME: &str = "input";

fn check(error: &FileError) {
    let text = error.to_string();
    assert!(text.starts_with(NAME) && !text.contains('\n') && text.len() < 4000, "{text}");
}

fn options(format: Format) -> ReadOptions {
    ReadOptions { format: Some(format), ..ReadOptions::default() }
}

fn bits(matrix: &Matrix) -> Vec<u64> {
    // NaN has many bit patterns, and text preserves only one of them.
    matrix.to_f64().iter().map(|v| if v.is_nan() { 0 } else { v.to_bits() }).collect()
}

/// Text tables in every dialect, compressed or not, with the options that select the dialect.
pub(crate) fn csv(bytes: &[u8]) {
    let separators = ["tab", ";", ",", "blank", ":"];
    if let Some(separator) = bytes.last().map(|&b| separators[usize::from(b) % 5]) {
        let columns = ["0..", "!0", "\"a\"", "..1,!b"][bytes.len() % 4];
        let given = ReadOptions {
            separator: separator.parse().ok(),
            decimal: [None, Some(Decimal::Comma), Some(Decimal::Point)][bytes.len() % 3],
            header: [None, Some(true), Some(false)][bytes.first().map_or(0, |&b| usize::from(b % 3))],
            ..options(Format::Txt).with_columns(columns.split(','))
        };
        if let Err(error) = read_stream(bytes, NAME, &given) {
            check(&error);
        }
    }
    // Without a format it is detected from the first bytes, which also reaches the decompressors.
    match read_stream(bytes, NAME, &ReadOptions::default()) {
        Ok(table) => table.warnings.iter().for_each(|warning| {
            let text = warning.to_string();
            assert!(text.starts_with(NAME) && !text.contains('\n') && text.len() < 4000, "{text}");
        }),
        Err(error) => check(&error),
    }
    for format in [Format::Csv, Format::Tsv, Format::Txt] {
        match read_stream(bytes, NAME, &options(format)) {
            Ok(table) => same_as_csv(&table),
            Err(error) => check(&error),
        }
        let first = ReadOptions { header: Some(bytes.len().is_multiple_of(2)), ..options(format).with_columns(["0"]) };
        if let Err(error) = read_stream(bytes, NAME, &first) {
            check(&error);
        }
    }
}

fn same_as_csv(table: &Table) {
    let mut out = Vec::new();
    write_csv(&mut out, table).expect("memory does not fail");
    let header = ReadOptions { header: Some(table.names.is_some()), ..options(Format::Csv) };
    let again = read_stream(&out[..], NAME, &header).expect("what was written is read");
    assert_eq!(again.matrix.dim(), table.matrix.dim());
    assert_eq!(bits(&again.matrix), bits(&table.matrix));
    assert_eq!(again.names, table.names);
}

/// NumPy's arrays and archives.
pub(crate) fn npy(bytes: &[u8]) {
    for format in [Format::Npy, Format::Npz] {
        match read_stream(bytes, NAME, &options(format)) {
            Ok(table) => {
                let (n, d) = table.matrix.dim();
                assert_eq!(n * d, table.matrix.to_f64().len());
            }
            Err(error) => check(&error),
        }
    }
}

/// Parquet files.
pub(crate) fn parquet(bytes: &[u8]) {
    columns(bytes, Format::Parquet);
}

/// Arrow IPC, file and stream form.
pub(crate) fn arrow(bytes: &[u8]) {
    columns(bytes, Format::Arrow);
}

fn columns(bytes: &[u8], format: Format) {
    let first = options(format).with_columns(["0"]);
    for options in [options(format), first] {
        match read_stream(bytes, NAME, &options) {
            Ok(table) => assert_eq!(table.names.expect("columns have names").len(), table.matrix.dim().1),
            Err(error) => check(&error),
        }
    }
}

/// Model files in every form, with and without the state of a fit.
pub(crate) fn model(bytes: &[u8]) {
    match model_and_state(bytes, NAME) {
        Ok((model, _)) => assert!(read_model_bytes(bytes, NAME).is_ok_and(|again| again.mixture == model.mixture)),
        Err(error) => check(&error),
    }
    match read_model_bytes(bytes, NAME) {
        Ok(model) => {
            let json = model_to_json(&model).expect("names were checked");
            let again = read_model_bytes(json.as_bytes(), NAME).expect("what was written is read");
            assert_eq!(model_to_json(&again).expect("names were checked"), json);
            let tensors = model_to_safetensors(&model).expect("names were checked");
            let again = read_model_bytes(&tensors, NAME).expect("what was written is read");
            assert_eq!(model_to_json(&again).expect("names were checked"), json);
            for format in [ExchangeFormat::KaldiDiag, ExchangeFormat::KaldiFull, ExchangeFormat::Mclust] {
                let Ok(text) = model_to_exchange(&model, format) else { continue };
                // An inverse of an inverse may be singular by rounding.
                if let Err(error) = read_model_bytes(text.as_bytes(), NAME) {
                    check(&error);
                }
            }
        }
        Err(error) => check(&error),
    }
}

/// Parameter sets and draws in npz archives, which can only be read from files.
pub(crate) fn mixtures(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("gmm-fuzz-{}.npz", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file can be written");
    match read_mixtures(&path, None) {
        Ok(all) => {
            let shape = |mixture: &Mixture| (mixture.covariance_type(), mixture.means().dim());
            assert!(all.iter().all(|mixture| shape(mixture) == shape(&all[0])));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(&*path.to_string_lossy()) && !text.contains('\n') && text.len() < 4000, "{text}");
        }
    }
    std::fs::remove_file(&path).expect("it was written");
}

/// The byte form of statistics, as given and with its checksum corrected, so that the code behind the checksum is
/// reached.
pub(crate) fn statistics(bytes: &[u8]) {
    let mut signed = bytes.to_vec();
    if let Some(body) = signed.len().checked_sub(8) {
        let sum = signed[..body]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        signed[body..].copy_from_slice(&sum.to_le_bytes());
    }
    for bytes in [bytes, &signed] {
        if let Ok(statistics) = Statistics::from_bytes(bytes) {
            assert_eq!(statistics.to_bytes(), bytes);
            let mut sum = statistics.clone();
            let _ = sum.add(&statistics);
            let _ = (statistics.is_finite(), statistics.mean_log_likelihood(), statistics.first_not_finite_component());
        }
    }
}
