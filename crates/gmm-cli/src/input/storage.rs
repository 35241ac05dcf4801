//! Where rows are: in memory or in a file, and how many of their values there are.

use gmm_data::{FileError, RowGatherer, Storage};
use gmm_model::{Dataset, Matrix, Precision};

use crate::size;

/// Copies rows to memory, or to a temporary file if there is no room.
pub(super) fn gather(rows: impl Iterator<Item = Matrix>, memory: Option<u64>) -> Result<Matrix, FileError> {
    let in_copy = |problem| FileError { path: "rows of positive weight".to_owned(), place: Box::default(), problem };
    let mut copy = RowGatherer::new(memory);
    for block in rows {
        copy.push(block).map_err(in_copy)?;
    }
    copy.finish().map_err(in_copy)
}

/// How many values are missing, in one line.
pub(super) fn holes(data: &Dataset) -> String {
    let (missing, all) = (data.n_missing(), data.n_rows() * data.n_features());
    format!("{missing} of {all} values are missing ({:.1} %)", 100.0 * missing as f64 / all as f64)
}

/// Bytes of the rows.
pub(super) fn bytes_of(data: &Dataset) -> u128 {
    let (n, d) = data.rows().dim();
    n as u128 * d as u128 * if data.rows().precision() == Precision::F32 { 4 } else { 8 }
}

/// Where the rows are and why, in one line. `limit` is the memory that they may take, and that which the user gave.
pub(super) fn plan(data: &Dataset, storage: Storage, (limit, given): (Option<u64>, Option<u64>)) -> String {
    let bytes = bytes_of(data);
    let place = match storage {
        Storage::Memory => "in memory".to_owned(),
        Storage::MappedFile => "mapped from the file, so they take no memory of their own".to_owned(),
        Storage::TemporaryFile => format!("in a temporary file in {}", gmm_data::temporary_folder().display()),
    };
    let why = match (limit, given) {
        (Some(limit), Some(given)) if limit < given => {
            format!("{} are free of --memory {}", size::shown(limit.into()), size::shown(given.into()))
        }
        (Some(limit), Some(_)) => format!("--memory {}", size::shown(limit.into())),
        (Some(limit), None) => format!("{}, half of the free memory", size::shown(limit.into())),
        (None, _) => "none".to_owned(),
    };
    format!("rows: {bytes} bytes ({}), {place}; limit: {why}", size::shown(bytes))
}
