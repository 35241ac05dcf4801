//! Runs the benchmark program from the command line, on a machine without a GPU.

use std::process::Command;

#[test]
fn the_quick_run_on_the_cpu_engine_leaves_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_gmm-benches"));
    program.args(["gpu", "--engine", "cpu", "--quick", "--repeats", "1", "--seconds", "0", "--commit", "abc"]);
    let done = program.arg("--out").arg(folder.path()).args(["W1", "fit-272"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let machine = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let record = std::fs::read_dir(machine).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(record).unwrap();
    assert!(text.contains("# commit: abc"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let names: Vec<&str> = rows.iter().skip(1).map(|row| row.split(',').nth(1).unwrap()).collect();
    assert_eq!(names, ["fit-272-given", "fit-272-kmeans", "W1-full-f32", "W1-init", "W1-full-f64", "W1-diag-f32"]);
}
