//! Atomic writes: files appear whole or not at all.

use std::fs;
use std::io::{self, Write};

use gmm_data::{FileError, Location, Problem, Table, atomic, write_table};
use ndarray::array;

fn disk_full() -> FileError {
    let problem = Problem::Io(io::Error::from(io::ErrorKind::StorageFull));
    FileError { path: "out".to_owned(), place: Box::new(Location::default()), problem }
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
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "the new file is not seen yet");
        // As the signal-handling thread does, except that here the process continues.
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

#[test]
fn a_link_that_leads_to_nothing_yet_is_where_a_file_will_be() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("there")).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("there/file", &link).unwrap();
    atomic::check(&link, || ()).unwrap();
    assert!(names(&folder.path().join("there")).is_empty(), "a check leaves nothing");
    atomic::write_bytes(&link, b"new").unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("there/file")).unwrap(), "new");
    std::os::unix::fs::symlink("circle", folder.path().join("circle")).unwrap();
    assert!(atomic::check(&folder.path().join("circle"), || ()).unwrap_err().is_io());
}

#[test]
fn a_path_that_cannot_be_written_is_refused_by_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "old").unwrap();
    for path in [
        folder.path().join("file/x.json"),
        folder.path().join("none/x.json"),
        "/proc/1/x.json".into(),
        folder.path().into(),
    ] {
        let error = atomic::check(&path, || ()).unwrap_err();
        assert!(error.is_io() && error.path == path.display().to_string(), "{error}");
        assert!(!error.to_string().contains(".gmm-"), "{error}");
        assert_eq!(atomic::write_bytes(&path, b"new").unwrap_err().to_string(), error.to_string());
    }
    assert_eq!(names(folder.path()), ["file"]);
    atomic::check(&folder.path().join("file"), || ()).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "old");
}

#[test]
fn a_staged_file_is_seen_once_it_is_published_and_never_where_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let stage = |text: &[u8]| atomic::stage(&path, |out| out.write_all(text).map_err(|_| disk_full())).unwrap();
    drop(stage(b"dropped"));
    assert!(names(folder.path()).is_empty());
    let staged = stage(b"whole");
    assert!(!path.exists());
    staged.publish().unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("whole", 1));
}

#[cfg(unix)]
#[test]
fn a_pipe_stays_open_between_check_and_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    atomic::check(&path, || ()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!reader.is_finished(), "the reader waits for what is written");
    atomic::write_bytes(&path, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), "through");
}
