//! The committed page of all records is up to date with the records.

use std::path::Path;
use std::process::{Command, Output};

fn report(root: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    program.arg("report").args(arguments).arg("--root").arg(root).output().unwrap()
}

#[test]
fn the_committed_page_is_what_the_records_make() {
    let done = report(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &["--check"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_stale_page_fails_the_check_and_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for place in ["docs", "benches/record/machine", "benches/published"] {
        std::fs::create_dir_all(root.join(place)).unwrap();
    }
    let record = root.join("benches/record/machine/2026-01-31-cpu.csv");
    std::fs::write(&record, "# what: times\nprecision,n,ms\nf64,10,1.5\n").unwrap();
    assert!(!report(root, &["--check"]).status.success(), "there is no page");
    assert!(report(root, &[]).status.success());
    assert!(report(root, &["--check"]).status.success());
    std::fs::write(record, "# what: times\nprecision,n,ms\nf64,10,2.5\n").unwrap();
    let stale = report(root, &["--check"]);
    assert!(!stale.status.success() && String::from_utf8_lossy(&stale.stderr).contains("bench report"));
}
