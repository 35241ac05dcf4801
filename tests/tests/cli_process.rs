//! The program as a process: exit codes, streams, colours, signals. Row 56 of bad input is here.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data, program};

const MODEL: &str = r#"{"format":"gmm-model","version":1,"covariance_type":"diag","n_components":2,"n_features":1,
    "feature_names":null,"weights":[0.5,0.5],"means":[[2.0],[4.0]],"covariances":[[1.0],[1.0]]}"#;

#[test]
fn every_exit_code_has_its_cause() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n1,2\n3,2\n");
    std::fs::create_dir(folder.path("empty")).unwrap();
    for (code, command) in [
        (0, "fit x.csv -k 1"),
        (0, "--help"),
        (2, "fit x.csv"),
        (2, "fit"),
        (2, ""),
        (2, "fit x.csv -k 1 --unknown"),
        (2, "fit x.csv -k 1 -q -v"),
        (2, "frobnicate"),
        (3, "fit x.csv -k 9"),
        (4, "fit x.csv -k 1 --reg-covar 0"),
        (5, "fit x.csv -k 1 --device cuda:1"),
        (6, "fit y.csv -k 1"),
        (6, "fit empty -k 1"),
        (7, "fit x.csv -k 1 --max-iter 0 --require-convergence"),
    ] {
        let run = folder.gmm(command);
        assert_eq!(run.code, Some(code), "{command}: {:?} {}", run.code, run.stderr);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    }
    // 130 and 143: `row_56_..` below.
}

#[test]
fn rows_and_models_come_from_and_go_to_pipes() {
    let folder = Folder::new();
    let rows = std::fs::read(data("old_faithful.csv")).unwrap();
    let fit = folder.piped("fit - -k 2 -o -", rows.clone()).ok();
    assert_eq!(fit.stderr, "");
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    assert_eq!(fit.stdout, folder.text("m.json"));
    let labels = folder.piped("predict m.json -", rows.clone()).ok().stdout;
    assert_eq!(labels.lines().count(), 273);
    folder.gmm(&format!("convert {} x.npy", data("old_faithful.csv"))).ok();
    assert_eq!(folder.piped("predict m.json -", folder.read("x.npy")).ok().stdout, labels);
    assert_eq!(folder.piped("show -", fit.stdout.clone()).ok().stdout, folder.gmm("show m.json").ok().stdout);
    assert_eq!(folder.piped("sample - -n 3", fit.stdout).ok().stdout, folder.gmm("sample m.json -n 3").ok().stdout);
    folder.piped("score - -", rows).failed(2, &["both", "standard input"]);
    folder.piped("fit - -k 2", "").failed(3, &["<stdin>", "no data rows"]);
    folder.piped("fit - -k 2 -o - --json", "1\n2\n3\n").failed(2, &["--json", "-o -"]);
}

#[test]
fn there_are_no_colours_in_a_pipe_and_none_at_all_where_they_are_not_wanted() {
    let folder = Folder::new();
    let command = format!("fit {} -k 2 --max-iter 1", data("old_faithful.csv"));
    let run = folder.gmm(&command).ok();
    assert!(!run.stdout.contains('\x1b') && !run.stderr.contains('\x1b'));
    // `script` gives the program a terminal; if it is not installed, the test is skipped.
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let on_terminal = |prefix: &str| {
        let line = format!("{prefix} $GMM {command} --tol 0");
        folder.bash(&format!("TERM=xterm script -qec '{line}' /dev/null < /dev/null")).ok().stdout
    };
    assert!(on_terminal("env -u NO_COLOR").contains("\x1b[1m"));
    let plain = on_terminal("env NO_COLOR=1");
    assert!(!plain.contains("\x1b[1m") && !plain.contains("\x1b[1;33m"), "{plain:?}");
}

#[test]
fn quiet_leaves_standard_error_empty_and_prints_results_only() {
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    let run = folder.gmm(&format!("-q fit {x} -k 2 --max-iter 1 -o m.json")).ok();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    let run = folder.gmm(&format!("fit {x} -k 2 --max-iter 1 -q")).ok();
    assert!(run.stdout.contains("weight") && run.stderr.is_empty());
    let run = folder.gmm(&format!("fit {x} -k 2 --max-iter 1 -o m.json")).ok();
    assert!(run.stderr.starts_with("warning: not converged"));
    folder.gmm("fit nothing.csv -k 2 -q").failed(6, &["nothing.csv"]);
}

#[test]
fn verbose_tells_what_is_done() {
    let folder = Folder::new();
    let run = folder.gmm(&format!("fit {} -k 2 -v -o m.json", data("old_faithful.csv"))).ok();
    for part in ["read 272 rows × 2 columns (f64)", "engine cpu", "iteration 1", "wrote m.json"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

#[test]
fn it_starts_in_milliseconds() {
    let folder = Folder::new();
    folder.gmm("--version").ok();
    let fastest = (0..5).map(|_| {
        let started = Instant::now();
        folder.gmm("--version").ok();
        started.elapsed()
    });
    assert!(fastest.min().unwrap() < Duration::from_millis(100));
}

/// Starts a fit that runs for minutes unless it is stopped.
fn long_fit(folder: &Folder, options: &str) -> Child {
    folder.gmm("generate -n 20000 -k 5 -d 4 -o x.npy").ok();
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args("fit x.npy -k 8 --tol 0 --max-iter 10000000 -o m.json".split(' '));
    command.args(options.split_whitespace()).spawn().unwrap()
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn row_56_signals_leave_the_last_checkpoint_and_their_exit_codes() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let folder = Folder::new();
        let child = long_fit(&folder, "--checkpoint run.json");
        wait_for("checkpoint", || folder.path("run.json").exists());
        let first = folder.read("run.json");
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.starts_with("error: interrupted after "), "{stderr}");
        assert!(stderr.ends_with("iterations; --resume run.json continues\n"), "{stderr}");
        assert!(output.stdout.is_empty());
        assert_eq!(folder.files(), ["run.json", "x.npy"], "no model, no temporary file");
        assert!(folder.read("run.json") != first, "the signal wrote the latest mixture");
        folder.gmm("fit x.npy --init run.json --max-iter 3 -o m.json").ok();
        folder.gmm("fit x.npy --resume run.json --max-iter 3 -o m.json").ok();
    }
}

#[test]
fn row_56_a_signal_without_a_checkpoint_leaves_nothing() {
    let folder = Folder::new();
    let child = long_fit(&folder, "");
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(130), 1), "{stderr}");
    assert_eq!(folder.files(), ["x.npy"]);
}

#[test]
fn row_56_a_signal_while_reading_ends_at_once() {
    let folder = Folder::new();
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.args(["fit", "-", "-k", "2", "-o", "m.json"]).spawn().unwrap();
    // Kept open, so that the program waits for rows.
    let input = child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "TERM");
    let started = Instant::now();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!((output.status.code(), output.stderr), (Some(143), b"error: interrupted\n".to_vec()));
    assert!(folder.files().is_empty());
}

/// Whether the process has a non-empty file in the folder open that has no name yet.
fn is_writing(child: &Child, folder: &Folder) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
    let unnamed = |path: &std::path::Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        path.starts_with(folder.path("").canonicalize().unwrap())
            && (name.ends_with("(deleted)") || name.starts_with(".gmm-"))
    };
    let files = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| unnamed(&to)));
    files.into_iter().any(|fd| fd.path().metadata().is_ok_and(|m| m.len() > 0))
}

/// Starts the program and waits until it is writing a file in the folder.
fn writing(folder: &Folder, arguments: &str) -> Child {
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.args(arguments.split(' ')).spawn().unwrap();
    wait_for("file under way", || is_writing(&child, folder));
    child
}

#[test]
fn row_56_a_second_signal_during_a_write_leaves_no_temporary_file() {
    let folder = Folder::new();
    folder.gmm("generate -n 2e6 -k 2 -d 2 -o x.npy").ok();
    let mut child = writing(&folder, "convert x.npy y.csv");
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(50));
    assert!(child.try_wait().unwrap().is_none(), "the first signal waits until the file is whole");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(130), b"error: interrupted\n".to_vec()));
    assert_eq!(folder.files(), ["x.npy"]);
}

#[test]
fn row_56_a_signal_ends_rows_that_are_drawn_and_leaves_no_file() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let folder = Folder::new();
        // Enough rows to write for several seconds.
        let child = writing(&folder, "generate -n 2e8 -k 2 -d 1 -o x.npy --truth t.json");
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(code), b"error: interrupted\n".to_vec()));
        assert!(folder.files().is_empty(), "{:?}", folder.files());
    }
}

#[test]
fn a_standard_output_that_is_full_is_named() {
    let folder = Folder::with("m.json", MODEL);
    folder.write("x.csv", "1\n2\n4\n");
    for command in [
        "fit x.csv -k 1 --json",
        "fit x.csv -k 1 -o -",
        "sample m.json -n 3",
        "sample m.json -n 300000",
        "predict m.json x.csv",
        "score m.json x.csv --json",
        "show m.json",
        "convert x.csv -",
        "doctor",
    ] {
        folder.bash(&format!("exec $GMM {command} > /dev/full")).failed(6, &["<stdout>", "No space left"]);
    }
}
