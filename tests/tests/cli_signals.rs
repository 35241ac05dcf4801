//! Signals not covered by `cli_process.rs`: a closed terminal, and signals that `nohup` ignores. Row 56 of bad input.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data, program};

fn spawn(folder: &Folder, program: &std::path::Path, arguments: &str) -> Child {
    let mut command = Command::new(program);
    command.current_dir(folder.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(arguments.split_whitespace()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn row_56_a_terminal_that_goes_away_ends_rows_that_are_drawn_and_leaves_no_file() {
    for command in ["generate -n 2e8 -k 2 -d 1 -o x.npy --truth t.json", "sample m.json -n 2e8 -o x.csv"] {
        let folder = Folder::new();
        folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
        let child = spawn(&folder, program(), command);
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, "HUP");
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(129), b"error: interrupted\n".to_vec()));
        assert_eq!(folder.files(), ["m.json"]);
    }
}

#[test]
fn row_56_a_terminal_that_goes_away_leaves_checkpoints() {
    let folder = Folder::new();
    let child = spawn(&folder, program(), &{
        folder.gmm("generate -n 20000 -k 5 -d 4 -o x.npy").ok();
        "fit x.npy -k 8 --tol 0 --max-iter 10000000 -o m.json --checkpoint run.json".to_owned()
    });
    wait_for("checkpoint", || folder.path("run.json").exists());
    signal(&child, "HUP");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(129), "{stderr}");
    assert!(stderr.ends_with("iterations; --resume run.json continues\n"), "{stderr}");

    let folder = Folder::new();
    let command = format!("mcmc {} -k 2 --sampler rwm --draws 1e6 --warmup 20 --chains 2", data("old_faithful.csv"));
    let mut child = spawn(&folder, program(), &format!("{command} -o a.npz -v"));
    let mut words = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("2 chains") {
        assert!(words.read_line(&mut said).unwrap() > 0, "{said}");
    }
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "HUP");
    words.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(129), "{said}");
    assert!(said.contains("the chains are in a.npz.checkpoint"), "{said}");
    assert_eq!(folder.files(), ["a.npz.checkpoint"]);
}

#[test]
fn row_56_what_nohup_ignores_stays_ignored_and_the_other_signals_still_end() {
    let folder = Folder::new();
    folder.gmm("generate -n 20000 -k 5 -d 4 -o x.npy").ok();
    let fit = "fit x.npy -k 8 --tol 0 --max-iter 10000000 --checkpoint run.json";
    let mut child = spawn(&folder, "nohup".as_ref(), &format!("{} {fit}", program().display()));
    wait_for("checkpoint", || folder.path("run.json").exists());
    for _ in 0..2 {
        signal(&child, "HUP");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(child.try_wait().unwrap().is_none(), "a fit under nohup goes on");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
