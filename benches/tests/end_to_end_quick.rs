//! Runs the end-to-end benchmark with tables of 2000 rows, without other programs, and makes a page of its record.

use std::path::Path;
use std::process::{Command, Output};

fn benches(arguments: &[&str], last: (&str, &Path)) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    program.args(arguments).arg(last.0).arg(last.1).arg("--program").arg(gmm_tests::program()).output().unwrap()
}

const QUICK: [&str; 8] = ["end-to-end", "--quick", "--runs", "2", "--commit", "abc", "--note", "a note"];

#[test]
fn the_quick_run_leaves_a_record_of_every_format_that_the_page_shows() {
    let root = tempfile::tempdir().unwrap();
    let folder = |name: &str| root.path().join(name);
    let data = folder("data").display().to_string();
    let arguments: Vec<&str> = QUICK.into_iter().chain(["--folder", &data]).collect();
    let done = benches(&arguments, ("--out", &folder("benches/record")));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(std::fs::read_dir(folder("data")).unwrap().count(), 0, "files are left");

    let only = |folder: &Path| std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(only(&only(&folder("benches/record")))).unwrap();
    assert!(text.contains("# commit: abc") && text.contains("# note: a note"), "{text}");
    let mut rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect::<Vec<_>>());
    let columns = rows.next().unwrap();
    let rows: Vec<_> = rows.collect();
    let field = |row: &[&str], name: &str| row[columns.iter().position(|column| *column == name).unwrap()].to_owned();
    let names: Vec<String> = rows.iter().map(|row| field(row, "workload")).collect();
    let floats =
        ["fit arrow", "fit npy", "fit npz", "fit parquet", "read arrow", "read npy", "read npz", "read parquet"];
    let doubles = ["fit csv", "fit npy", "read csv", "read npy"];
    let wanted = floats.map(|name| format!("{name} f32: gmm cpu")).into_iter();
    let wanted: Vec<String> = wanted.chain(doubles.map(|name| format!("{name} f64: gmm cpu"))).collect();
    assert_eq!(names, wanted);
    for row in &rows {
        let ms = |name: &str| field(row, name).parse::<f64>().unwrap();
        assert!(["ok", "disturbed"].contains(&field(row, "status").as_str()) && field(row, "runs") == "2", "{row:?}");
        assert!(ms("best_ms") <= ms("ms") && ms("fit_ms") < ms("ms") && ms("read_ms") < ms("ms"), "{row:?}");
        assert!(!cfg!(target_os = "linux") || ms("memory_of_matrix") > 0.0, "{row:?}");
    }

    std::fs::create_dir_all(folder("docs")).unwrap();
    std::fs::create_dir_all(folder("benches/published")).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    assert!(report.args(["report", "--root"]).arg(root.path()).status().unwrap().success());
    let page = std::fs::read_to_string(folder("docs/BENCHMARKS.md")).unwrap();
    assert!(page.contains("| read csv f64: gmm cpu | ") && page.contains("memory_of_matrix"), "{page}");
}

#[test]
fn a_missing_program_is_named_in_the_error_and_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    program.args(QUICK).args(["--program", "no-such-program", "--folder"]).arg(folder.path().join("data"));
    let done = program.arg("--out").arg(folder.path().join("record")).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && stderr.contains("no-such-program"), "{stderr}");
    assert_eq!(std::fs::read_dir(folder.path().join("data")).unwrap().count(), 0, "files are left");
}

#[cfg(unix)]
#[test]
fn a_format_with_a_different_model_is_wrong_and_not_timed() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    // Fits of csv files get another seed.
    let program = folder.path().join("gmm.sh");
    let script = format!(
        "#!/bin/sh\ncase \"$1 $2\" in fit*.csv) set -- \"$@\" --seed 1;; esac\nexec '{}' \"$@\"\n",
        gmm_tests::program().display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.path().join("record.csv");
    let mut run = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    run.args(QUICK).arg("--program").arg(program).arg("--folder").arg(folder.path().join("data"));
    let done = run.arg("--out").arg(&out).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && stderr.contains("1 answers were wrong"), "{stderr}");
    let text = std::fs::read_to_string(out).unwrap();
    let line = text.lines().find(|line| line.starts_with("fit csv f64: gmm cpu,")).unwrap();
    assert!(line.contains(",wrong,,,,,") && line.ends_with("the model differs from that of npy"), "{line}");
}
