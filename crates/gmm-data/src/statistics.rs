//! Files of sufficient statistics: the byte form of [`Statistics`], and nothing else.

use std::path::Path;

use gmm_model::{Statistics, StatisticsError};

use crate::error::Fault;
use crate::{FileError, Problem, atomic, content, read_bytes};

/// Reads statistics; `-` is standard input. Every number comes back with the same bits.
///
/// # Errors
/// [`FileError`] with the byte, for another format or version, a shape that does not agree with the length, or a
/// checksum that differs.
pub fn read_statistics(path: impl AsRef<Path>) -> Result<Statistics, FileError> {
    let path = path.as_ref();
    let bytes = read_bytes(path)?;
    Statistics::from_bytes(&bytes).map_err(|error| {
        let name = if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() };
        fault(&bytes, error).in_named(&name)
    })
}

fn fault(bytes: &[u8], error: StatisticsError) -> Fault {
    match error {
        _ if bytes.is_empty() => Problem::Text("the file is empty, not statistics".to_owned()).into(),
        StatisticsError::Bytes { offset: 0, .. } => {
            let what = content::of_bytes(bytes).map_or_else(String::new, |(_, what)| format!(": it is {what}"));
            Problem::Text(format!("not statistics as gmm pass writes them{what}")).into()
        }
        StatisticsError::Bytes { why, offset } => Fault::corrupt(offset as u64, why),
        other => Problem::Text(other.to_string()).into(),
    }
}

/// Writes the byte form of statistics. The extension of the file does not matter.
///
/// # Errors
/// [`FileError`] from the system; the file appears whole or not at all.
///
/// ```
/// use gmm_data::{read_statistics, write_statistics};
/// use gmm_model::{CovarianceType, Statistics};
/// use ndarray::array;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("part-0.stats");
/// let statistics = Statistics::zero(CovarianceType::Diag, array![[0.0, 1.0]]);
/// write_statistics(&path, &statistics)?;
/// assert_eq!(read_statistics(&path)?, statistics);
///
/// std::fs::write(&path, &statistics.to_bytes()[..90])?;
/// let error = read_statistics(&path).unwrap_err().to_string();
/// assert!(error.ends_with("byte 10: truncated or corrupt: shape does not agree with the length"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_statistics(path: impl AsRef<Path>, statistics: &Statistics) -> Result<(), FileError> {
    atomic::write_bytes(path.as_ref(), &statistics.to_bytes())
}
