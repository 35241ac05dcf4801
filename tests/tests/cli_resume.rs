//! `gmm fit --checkpoint` and `--resume`: an interrupted fit ends with the bits of an undisturbed one. Row 58 of bad
//! input.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data, program};
use serde_json::Value;

/// A folder with rows in which 6 components do not converge for a long time.
fn rows() -> Folder {
    let folder = Folder::new();
    folder.gmm("generate -n 2000 -k 4 -d 3 --seed 5 -o x.csv").ok();
    let text = folder.text("x.csv");
    let weight = |i: usize| if i == 0 { "w".to_owned() } else { (i % 3 + 1).to_string() };
    let weighed: Vec<_> = text.lines().enumerate().map(|(i, line)| format!("{line},{}", weight(i))).collect();
    folder.write("w.csv", weighed.join("\n"));
    folder
}

fn spawn(folder: &Folder, arguments: &str) -> Child {
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(arguments.split_whitespace()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a fit by a signal `after` its first checkpoint and resumes it, until it ends; returns the number of signals.
fn survive(folder: &Folder, fit: &str, name: &str, after: &[Duration]) -> usize {
    let mut stopped = 0;
    for &after in after {
        let resume = if folder.path("run.json").exists() { "--resume" } else { "--checkpoint" };
        let before = folder.path("run.json").exists().then(|| folder.read("run.json"));
        let mut child = spawn(folder, &format!("{fit} -o part.json {resume} run.json"));
        let is_new = || folder.path("run.json").exists() && before != Some(folder.read("run.json"));
        wait_for("checkpoint", is_new);
        std::thread::sleep(after);
        if child.try_wait().unwrap().is_none() {
            signal(&child, name);
            stopped += usize::from(!child.wait().unwrap().success());
        }
    }
    folder.gmm(&format!("{fit} -o part.json --resume run.json")).ok();
    stopped
}

/// Asserts that a fit that is killed twice gives the model file of an undisturbed fit.
#[track_caller]
fn survives(folder: &Folder, options: &str, name: &str) {
    let fit = format!("fit {options} -k 6 --device cpu --threads 2 --tol 0");
    folder.gmm(&format!("{fit} -o whole.json")).ok();
    let stopped = survive(folder, &fit, name, &[Duration::from_millis(30), Duration::from_millis(250)]);
    assert!(stopped > 0, "the fit was too short to be stopped: {options}");
    assert!(folder.read("whole.json") == folder.read("part.json"), "{options}");
    std::fs::remove_file(folder.path("run.json")).unwrap();
}

#[test]
fn a_fit_that_is_killed_and_resumed_ends_with_the_bits_of_an_undisturbed_fit() {
    let folder = rows();
    for options in [
        "x.csv --max-iter 600",
        "x.csv --max-iter 200 --n-init 4 --seed 9",
        "x.csv --max-iter 700 --init random --covariance tied",
        "x.csv --max-iter 700 --init random-rows --covariance diag --n-init 2",
        "x.csv --max-iter 1500 --init stride --covariance spherical --precision f32",
        "w.csv --max-iter 400 --init kmeans++ --n-init 2 --reg-covar 1e-3 --weights w",
    ] {
        survives(&folder, options, "KILL");
    }
}

#[test]
fn a_fit_that_ctrl_c_interrupts_is_resumed_to_the_same_bits() {
    survives(&rows(), "x.csv --max-iter 300 --n-init 3", "INT");
}

/// A folder with a fit of 20 iterations in `run.json`, and in `run.safetensors`.
fn stopped_at_20() -> Folder {
    let folder = Folder::new();
    for form in ["json", "safetensors"] {
        let fit = format!("fit {} -k 3 --tol 0 --max-iter 20 --device cpu --threads 1", data("old_faithful.csv"));
        folder.gmm(&format!("{fit} --checkpoint run.{form} -o m.json")).ok();
    }
    folder
}

#[test]
fn more_iterations_extend_a_finished_fit() {
    let folder = stopped_at_20();
    let rows = data("old_faithful.csv");
    for form in ["json", "safetensors"] {
        folder.gmm(&format!("fit {rows} --resume run.{form} --max-iter 50 -o longer.json")).ok();
        folder.gmm(&format!("fit {rows} -k 3 --tol 0 --max-iter 50 --device cpu --threads 1 -o whole.json")).ok();
        assert_eq!(folder.text("longer.json"), folder.text("whole.json"));
        // All options are in the checkpoint, which is up to date.
        folder.gmm(&format!("fit {rows} --resume run.{form} -o again.json")).ok();
        assert_eq!(folder.text("again.json"), folder.text("whole.json"));
    }
}

#[test]
fn more_restarts_extend_a_finished_fit() {
    let folder = Folder::new();
    let fit = format!("fit {} -k 4 --device cpu --threads 1 --init random-rows --seed 3", data("old_faithful.csv"));
    folder.gmm(&format!("{fit} --n-init 2 --checkpoint run.json -o two.json")).ok();
    folder.gmm(&format!("{fit} --n-init 5 --resume run.json -o part.json")).ok();
    folder.gmm(&format!("{fit} --n-init 5 -o whole.json")).ok();
    assert_eq!(folder.text("part.json"), folder.text("whole.json"));
    folder.refuses(&format!("{fit} --n-init 2 --resume run.json -o part.json"), 2, &["--n-init 2", "has begun 5"]);
}

#[test]
fn a_checkpoint_is_a_model_file() {
    let folder = stopped_at_20();
    for form in ["json", "safetensors"] {
        let shown = folder.gmm(&format!("show run.{form}")).ok().stdout;
        assert!(shown.contains("3 components"), "{shown}");
        folder.gmm(&format!("fit {} --init run.{form} -o on.json", data("old_faithful.csv"))).ok();
    }
    assert_eq!(folder.json("run.json")["means"], folder.json("m.json")["means"]);
}

#[test]
fn an_option_that_would_change_the_result_is_refused() {
    let folder = stopped_at_20();
    for (option, parts) in [
        ("-k 4", ["-k 3", "not 4"]),
        ("--seed 1", ["--seed 0", "not 1"]),
        ("--covariance diag", ["--covariance full", "not diag"]),
        ("--init random", ["--init kmeans", "not random"]),
        ("--init-rows 50", ["--init-rows the default", "not 50"]),
        ("--reg-covar 0.5", ["--reg-covar 0.000001", "not 0.5"]),
        ("--precision f32", ["--precision that of the data", "not f32"]),
        ("--autotune", ["--autotune false", "not true"]),
        ("--device reference", ["--device cpu", "not reference"]),
        ("--threads 2", ["--threads 1", "not 2"]),
    ] {
        let parts = [&parts[..], &["run.json was made with", "begin a new fit without --resume"]].concat();
        folder.refuses(&format!("fit {} --resume run.json {option}", data("old_faithful.csv")), 2, &parts);
    }
}

#[test]
fn options_that_do_not_change_the_result_may_differ() {
    let folder = stopped_at_20();
    let again =
        "--resume run.json -k 3 --seed 0 --device auto --threads 0 --json -q --plot p.svg --require-convergence";
    folder.gmm(&format!("fit {} {again}", data("old_faithful.csv"))).failed(7, &["not converged"]);
    let again = again.replace("--require-convergence", "--tol 1e6");
    let summary = folder.gmm(&format!("fit {} {again}", data("old_faithful.csv"))).ok().json();
    assert_eq!((&summary["converged"], &summary["iterations"]), (&Value::Bool(true), &20.into()));
}

#[test]
fn row_58_other_data_are_refused() {
    let folder = stopped_at_20();
    let text = std::fs::read_to_string(data("old_faithful.csv")).unwrap();
    folder.write("other.csv", text.replacen("3.6", "3.7", 1));
    folder.write("shorter.csv", text.trim_end().rsplit_once('\n').unwrap().0);
    let fingerprints = ["run.json was made from other rows, weights, labels or files", "fingerprint", "--weights"];
    folder.refuses("fit other.csv --resume run.json", 3, &fingerprints);
    folder.refuses("fit shorter.csv --resume run.json", 3, &["272 × 2 (f64) values, not 271 × 2 (f64)"]);
    folder.refuses(&format!("fit {} --columns 0 --resume run.json", data("old_faithful.csv")), 3, &["not 272 × 1"]);
}

#[test]
fn another_machine_is_refused() {
    let folder = stopped_at_20();
    // Signed again, as a checkpoint from elsewhere is.
    let mut head = folder.text("run.json");
    let at = head.find("1 thread, ").unwrap() + "1 thread, ".len();
    head.replace_range(at..at, "old ");
    let covered = &head[..head.rfind(",\n  \"checksum\"").unwrap()];
    folder.write("covered", covered);
    let sum = folder.bash("sha256sum covered | cut -c1-64 | tr -d '\\n'").ok().stdout;
    folder.write("run.json", format!("{covered},\n  \"checksum\": \"{sum}\"\n}}\n"));
    let parts = ["was made on cpu (1 thread, old ", "rounds differently", "--init run.json"];
    folder.refuses(&format!("fit {} --resume run.json", data("old_faithful.csv")), 5, &parts);
}

#[test]
fn a_model_without_a_state_is_not_resumed() {
    let folder = stopped_at_20();
    folder.refuses(&format!("fit {} --resume m.json", data("old_faithful.csv")), 3, &["m.json", "not a checkpoint"]);
    folder.refuses(&format!("fit {} --resume none.json", data("old_faithful.csv")), 6, &["none.json"]);
}

#[test]
fn a_truncated_garbled_or_flipped_checkpoint_is_an_error() {
    let folder = stopped_at_20();
    for form in ["json", "safetensors"] {
        let whole = folder.read(&format!("run.{form}"));
        let fit = format!("fit {} --resume bad.{form} -o on.json", data("old_faithful.csv"));
        let refused = |bytes: &[u8], what: &str| {
            folder.write(&format!("bad.{form}"), bytes);
            let run = folder.gmm(&fit);
            let error = run.stderr.lines().last().unwrap_or_default();
            assert!(run.code == Some(3) && error.starts_with("error: bad."), "{form} {what}: {} {error}", run.stdout);
        };
        for length in [0, 1, 9, whole.len() / 3, whole.len() / 2, whole.len() - 3] {
            refused(&whole[..length], &format!("of {length} bytes"));
        }
        refused(&[&whole[..whole.len() / 2], &b"\xff\x00{}"[..], &whole[whole.len() / 2..]].concat(), "garbled");
        // Every 97th byte, a prime, so that all parts of the file have their turn.
        for at in (10..whole.len() - 2).step_by(97) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&bytes, &format!("flipped at {at}"));
        }
    }
}

#[test]
fn a_model_is_written_even_if_its_last_checkpoint_cannot_be() {
    let folder = rows();
    std::fs::create_dir(folder.path("gone")).unwrap();
    // The folder vanishes after the first save.
    let fit = "$GMM fit x.csv -k 6 --tol 0 --max-iter 3000 --device cpu --checkpoint gone/run.json -q -o m.json";
    let script = format!("({fit}) & while [ ! -e gone/run.json ]; do sleep 0.01; done; rm -rf gone; wait $!");
    let run = folder.bash(&script);
    assert_eq!(run.code, Some(6), "{}", run.stderr);
    assert_eq!(folder.json("m.json")["fit"]["iterations"], 3000);
}

#[test]
fn a_checkpoint_of_an_unfinished_fit_is_not_replaced_without_a_word() {
    let folder = rows();
    let mut child = spawn(&folder, "fit x.csv -k 6 --tol 0 --max-iter 10000000 --device cpu --checkpoint run.json");
    wait_for("a checkpoint", || folder.path("run.json").exists());
    signal(&child, "KILL");
    child.wait().unwrap();
    let again = folder.gmm("fit x.csv -k 6 --max-iter 2 --device cpu --checkpoint run.json").ok();
    assert!(
        again.stderr.contains("run.json holds an unfinished fit") && again.stderr.contains("--resume"),
        "{}",
        again.stderr
    );
}
