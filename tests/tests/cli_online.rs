//! `gmm fit --online`, and the progress of long work as lines of JSON.

use gmm_tests::{Folder, Run, close, data, numbers};
use serde_json::Value;

/// The lines of progress on standard error; the others are warnings.
fn lines(run: &Run) -> Vec<Value> {
    let (lines, rest): (Vec<_>, Vec<_>) = run.stderr.lines().partition(|line| line.starts_with('{'));
    assert!(rest.iter().all(|line| line.starts_with("warning: ")), "{rest:?}");
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn an_online_fit_finds_what_the_batch_fit_finds() {
    let folder = Folder::new();
    folder.gmm("generate -n 40000 -k 3 -d 2 --seed 4 -o x.npy").ok();
    for engine in ["cpu", "reference"] {
        let fit = format!("fit x.npy -k 3 --device {engine} --json");
        let batch = folder.gmm(&format!("{fit} --tol 1e-7 --max-iter 300 -o batch.json")).ok().json();
        let online = folder.gmm(&format!("{fit} --online --batch 1000 --epochs 4 --tol 1e-9 -o online.json")).ok();
        assert!(online.stderr.contains("not converged after 4 epochs: raise --epochs or --tol"), "{}", online.stderr);
        let online = online.json();
        let below = batch["mean_log_likelihood"].as_f64().unwrap() - online["mean_log_likelihood"].as_f64().unwrap();
        assert!((-1e-6..1e-3).contains(&below), "{below}");
        assert_eq!((&online["iterations"], online["trace"].as_array().unwrap().len()), (&4.into(), 4));
        // The log-likelihood is that of the final model on all rows.
        let score = folder.gmm(&format!("score online.json x.npy --device {engine} --json")).ok().json();
        close(&numbers(&score["log_likelihood"]), &numbers(&online["log_likelihood"]), 1e-12);
    }
}

#[test]
fn an_online_fit_ends_when_epochs_no_longer_differ() {
    let folder = Folder::new();
    folder.gmm("generate -n 20000 -k 2 -d 2 --seed 4 -o x.npy").ok();
    let found = folder.gmm("fit x.npy -k 2 --online --batch 1000 --epochs 50 --json --require-convergence").ok().json();
    assert_eq!(found["converged"], Value::Bool(true));
    assert!(found["iterations"].as_u64().unwrap() < 20);
    let never = "fit x.npy -k 2 --online --epochs 2 --tol 0 --require-convergence";
    folder.gmm(never).failed(7, &["not converged after 2 epochs: raise --epochs or --tol"]);
}

#[test]
fn what_online_em_does_not_have_is_refused_by_its_name() {
    let folder = Folder::new();
    let rows = data("old_faithful.csv");
    for (options, name) in
        [("--covariance diag --truncated 1", "truncated"), ("--prior", "prior"), ("--floor 1", "floor")]
    {
        let why = [&format!("{name} is set"), "left out for online EM"];
        folder.refuses(&format!("fit {rows} -k 2 --online {options}"), 2, &why);
    }
}

#[test]
fn one_batch_with_step_1_is_one_iteration() {
    let folder = Folder::new();
    let rows = data("old_faithful.csv");
    for options in ["", "--covariance tied", "--covariance diag --precision f32", "--covariance spherical"] {
        let fit = format!("fit {rows} -k 3 --device cpu {options}");
        folder.gmm(&format!("{fit} --max-iter 1 -o one.json")).ok();
        folder.gmm(&format!("{fit} --online --epochs 1 -o online.json")).ok();
        assert_eq!(folder.text("one.json"), folder.text("online.json"), "{options}");
    }
}

#[test]
fn options_that_make_no_sense_for_an_online_fit_are_refused() {
    let folder = Folder::with("x.csv", "1\n2\n3\n4\n");
    for option in ["--max-iter 3", "--checkpoint c.json", "--resume c.json", "--autotune"] {
        let run = folder.gmm(&format!("fit x.csv -k 1 --online {option}"));
        assert_eq!(run.code, Some(2), "{option}");
        assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
    }
    let run = folder.gmm("fit x.csv -k 1 --batch 2");
    assert!(run.code == Some(2) && run.stderr.contains("--online"), "{}", run.stderr);
    folder.refuses("fit x.csv -k 1 --online --batch 0", 2, &["--batch", "at least 1"]);
    folder.refuses("fit x.csv -k 1 --online --step 2", 2, &["step is 2", "from 0 to 1"]);
}

#[test]
fn progress_json_is_one_object_per_line() {
    let folder = Folder::new();
    folder.gmm("generate -n 20000 -k 3 -d 2 --seed 4 -o x.npy").ok();
    let run =
        folder.gmm("fit x.npy -k 5 --n-init 2 --tol 0 --max-iter 200 --device cpu --progress json -o m.json").ok();
    let all = lines(&run);
    let (first, last) = (&all[0], all.last().unwrap());
    assert_eq!((&first["phase"], &first["restart"], &first["iteration"]), (&"fit".into(), &0.into(), &1.into()));
    assert_eq!(
        (&first["change"], &first["left_s"], &first["rows_per_second"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(
        (&last["restart"], &last["iteration"], &last["done"], &last["total"]),
        (&1.into(), &200.into(), &400.into(), &400.into())
    );
    assert_eq!(last["left_s"], Value::from(0.0));
    // 20000 rows of 2 float64 columns in each of the run's 200 iterations.
    assert_eq!(last["bytes_read"], Value::from(20_000_u64 * 16 * 200));
    assert!(last["rows_per_second"].as_f64().unwrap() > 1000.0 && last["elapsed_s"].as_f64().unwrap() > 0.0);
    let trace = folder.json("m.json")["fit"]["trace"].clone();
    assert!(numbers(&trace).contains(&first["mean_log_likelihood"].as_f64().unwrap()) || first["restart"] == 0);
    // Half a second between lines, and the last one.
    let elapsed = last["elapsed_s"].as_f64().unwrap();
    assert!(all.len() as f64 <= 2.0 * elapsed + 3.0, "{} lines in {elapsed} s", all.len());
}

#[test]
fn every_long_command_has_progress_lines() {
    let folder = Folder::new();
    let rows = data("old_faithful.csv");
    for (command, phase, field) in [
        ("generate -n 100000 -k 2 -d 2 -o x.npy".to_owned(), "rows", "rows_per_second"),
        (format!("select {rows} -k 1..3"), "fit", "run"),
        (format!("fit {rows} -k 2 --online --epochs 3"), "online", "epoch"),
        (format!("mcmc {rows} -k 1 --sampler rwm --draws 100 --warmup 20 --chains 1 -o d.npz"), "mcmc", "stage"),
    ] {
        let all = lines(&folder.gmm(&format!("{command} --progress json -q")).ok());
        assert!(!all.is_empty(), "{command}");
        for line in &all {
            assert_eq!(line["phase"], phase, "{command}");
            for name in [field, "done", "total", "elapsed_s", "left_s"] {
                assert!(line.get(name).is_some(), "{name} is not in {line}");
            }
        }
    }
}

#[test]
fn progress_off_leaves_the_other_messages() {
    let folder = Folder::new();
    let fit = format!("fit {} -k 2 -v -o m.json", data("old_faithful.csv"));
    let shown = folder.gmm(&fit).ok().stderr;
    let off = folder.gmm(&format!("{fit} --progress off")).ok().stderr;
    assert!(shown.contains("iteration 1 ") && !off.contains("iteration 1 "), "{off}");
    assert!(off.contains("read 272 rows") && off.contains("wrote m.json"), "{off}");
    let run = folder.gmm(&format!("{fit} --progress loud"));
    assert!(run.code == Some(2) && run.stderr.contains("auto, json, off"), "{}", run.stderr);
}
