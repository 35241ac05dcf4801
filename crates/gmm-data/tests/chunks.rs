//! Tables written chunk by chunk are identical to those written at once.

use gmm_data::{FileError, Table, TableHead, atomic, rows_at_a_time, write_table, write_table_chunks};
use gmm_model::{Matrix, Precision};
use ndarray::{Array2, s};

/// Numbers that need all their digits.
fn rows(n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| ((i * d + j) as f64 + 0.5).sqrt())
}

fn head(n: usize, d: usize, precision: Precision) -> TableHead {
    TableHead { n, d, precision, names: Some((0..d).map(|j| format!("x{j}")).collect()) }
}

#[test]
fn a_file_of_pieces_is_byte_for_byte_the_file_written_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // Less than one chunk, whole chunks, and chunks with a remainder.
    for (n, d) in [(3, 2), (2 * rows_at_a_time(70_000), 70_000), (rows_at_a_time(3) + 5, 3)] {
        let all = rows(n, d);
        for precision in [Precision::F64, Precision::F32] {
            let matrix = |a: Array2<f64>| match precision {
                Precision::F64 => Matrix::from(a),
                Precision::F32 => Matrix::from(a.mapv(|v| v as f32)),
            };
            let head = head(n, d, precision);
            for extension in ["npy", "parquet", "arrow", "csv", "tsv"] {
                let [once, pieces] = ["once", "pieces"].map(|name| folder.path().join(name).with_extension(extension));
                write_table(&once, &Table { names: head.names.clone(), ..Table::new(matrix(all.clone())) }).unwrap();
                let mut asked = Vec::new();
                write_table_chunks(&pieces, &head, |first, rows| {
                    asked.push(rows);
                    Ok::<_, FileError>(matrix(all.slice(s![first..first + rows, ..]).to_owned()))
                })
                .unwrap();
                assert!(std::fs::read(&once).unwrap() == std::fs::read(&pieces).unwrap(), "{n}×{d} {extension}");
                assert!(asked.iter().all(|rows| *rows <= rows_at_a_time(d)) && asked.iter().sum::<usize>() == n);
            }
        }
    }
}

#[test]
fn a_piece_has_a_bounded_number_of_values_whatever_the_rows() {
    for d in [1, 2, 13, 64, 1000, 1 << 20, 1 << 24] {
        let rows = rows_at_a_time(d);
        assert!((1..=1 << 16).contains(&rows) && (rows == 1 || rows * d <= 1 << 20), "{d}: {rows}");
    }
}

#[test]
fn what_the_source_of_the_rows_says_is_the_error_and_no_file_is_left() {
    #[derive(Debug)]
    enum Why {
        Source,
        File(FileError),
    }
    impl From<FileError> for Why {
        fn from(error: FileError) -> Self {
            Self::File(error)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    for extension in ["npy", "parquet", "arrow", "csv"] {
        let path = folder.path().join("x").with_extension(extension);
        let step = rows_at_a_time(2);
        let error = write_table_chunks(&path, &head(2 * step, 2, Precision::F64), |first, n| match first {
            0 => Ok(rows(n, 2).into()),
            _ => Err(Why::Source),
        });
        assert!(matches!(error, Err(Why::Source)));
        let error = write_table_chunks(folder.path().join("no/x.npy"), &head(1, 2, Precision::F64), |_, _| {
            Ok::<_, Why>(rows(1, 2).into())
        });
        assert!(matches!(error, Err(Why::File(why)) if why.is_io()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[cfg(unix)]
#[test]
fn rows_that_the_disk_has_no_room_for_are_refused_before_any_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for extension in ["npy", "parquet", "arrow", "csv"] {
        let path = folder.path().join("x").with_extension(extension);
        let error =
            write_table_chunks(&path, &head(1 << 52, 20, Precision::F64), |_, _| -> Result<Matrix, FileError> {
                panic!("asked for rows")
            });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("no room: at least") && text.contains("bytes are needed"), "{text}");
    }
    atomic::check_room(&folder.path().join("small"), 1).unwrap();
    atomic::check_room("/dev/null".as_ref(), u128::MAX).unwrap();
}
