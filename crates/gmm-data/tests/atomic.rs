//! Files appear whole or not at all.

use std::fs;
use std::io::{self, Write};

use gmm_data::{FileError, Place, Problem, Table, atomic, write_table};
use ndarray::array;

fn disk_full() -> FileError {
    let problem = Problem::Io(io::Error::from(io::ErrorKind::StorageFull));
    FileError { path: "out".to_owned(), place: Box::new(Place::default()), problem }
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn row_55_a_writer_that_fails_midway_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    for old in [None, Some("old")] {
        if let Some(old) = old {
            fs::write(&path, old).unwrap();
        }
        let error = atomic::write(&path, |out| {
            out.write_all(&[b'x'; 1 << 20]).unwrap();
            out.flush().unwrap();
            Err::<(), _>(disk_full())
        })
        .unwrap_err();
        assert!(error.is_io());
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), old);
        assert_eq!(names(folder.path()).len(), usize::from(old.is_some()));
    }
}

#[test]
fn row_55_a_writer_that_panics_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, "old").unwrap();
    let panicked = std::panic::catch_unwind(|| atomic::write(&path, |_| -> Result<(), FileError> { panic!("midway") }));
    assert!(panicked.is_err());
    assert_eq!((fs::read_to_string(&path).unwrap(), names(folder.path())), ("old".to_owned(), vec!["out".to_owned()]));
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    fs::write(&path, "a much longer text than what comes after it").unwrap();
    write_table(&path, &Table::new(array![[1.0]])).unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap(), names(folder.path()).len()), ("1.0\n".to_owned(), 1));
}

#[cfg(unix)]
#[test]
fn links_are_followed_permissions_kept_and_devices_written_to() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("real.csv"), folder.path().join("link.csv"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write_table(&link, &Table::new(array![[2.0]])).unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), "2.0\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

    let null = std::path::Path::new("/dev/null");
    atomic::write_bytes(null, b"gone").unwrap();
    assert!(!fs::metadata(null).unwrap().is_file());
}

#[test]
fn a_folder_that_is_not_there_and_an_unknown_extension_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::new(array![[1.0]]);
    assert!(write_table(folder.path().join("no/such.csv"), &table).unwrap_err().is_io());
    let text = write_table(folder.path().join("out.xlsx"), &table).unwrap_err().to_string();
    assert!(text.contains("unknown file type 'xlsx'"), "{text}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn row_56_a_write_that_is_abandoned_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, "old").unwrap();
    let error = atomic::write(&path, |out| {
        out.write_all(b"new").unwrap();
        assert_eq!(names(folder.path()).len(), 2, "the temporary file is beside the old one");
        // As a signal's thread does it; here the process lives on.
        std::thread::scope(|scope| scope.spawn(|| drop(atomic::abandon())).join()).unwrap();
        assert_eq!(names(folder.path()), ["out"]);
        Ok::<(), FileError>(())
    })
    .unwrap_err();
    assert!(error.is_io(), "what was given up is not reported as written: {error}");
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 1));
    atomic::write_bytes(&path, b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new", "the next write is as any other");
}
