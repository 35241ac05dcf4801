//! `gmm mcmc`: draws of a posterior, their output, and interruptions.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, close, data, numbers, program, stopped};
use serde_json::Value;

fn faithful() -> String {
    data("old_faithful.csv")
}

/// A short run, which is enough for these tests.
const SHORT: &str = "-k 2 --chains 2 --draws 150 --warmup 150 --seed 3";

/// A parameter of a `--json` summary.
fn parameter<'a>(run: &'a Value, name: &str) -> &'a Value {
    let all = run["parameters"].as_array().unwrap();
    all.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {run}"))
}

#[test]
fn a_table_has_a_line_for_each_parameter_and_json_the_same_numbers() {
    let folder = Folder::new();
    let run = folder.gmm(&format!("mcmc {} {SHORT} -o a.npz", faithful())).ok();
    let lines: Vec<Vec<&str>> = run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat"]);
    let names: Vec<&str> = lines[1..14].iter().map(|line| line[0]).collect();
    assert_eq!(names[..4], ["weights[0]", "weights[1]", "means[0,0]", "means[0,1]"]);
    assert_eq!(
        names[7..],
        [
            "covariances[0,1,0]",
            "covariances[0,1,1]",
            "covariances[1,0,0]",
            "covariances[1,1,0]",
            "covariances[1,1,1]",
            "lp"
        ]
    );
    assert!(run.stdout.contains("2 chains of 150 draws, acceptance 0."), "{}", run.stdout);

    let again = folder.gmm(&format!("mcmc {} {SHORT} -o b.npz --json", faithful())).ok().json();
    assert_eq!((&again["sampler"], &again["draws"], &again["divergences"]), (&"nuts".into(), &150.into(), &0.into()));
    // Near the fit's means, within about one posterior deviation.
    for (name, fitted) in [("means[0,0]", 2.036), ("means[0,1]", 54.48), ("means[1,0]", 4.290), ("means[1,1]", 79.97)] {
        let row = parameter(&again, name);
        let (mean, sd) = (row["mean"].as_f64().unwrap(), row["sd"].as_f64().unwrap());
        assert!((mean - fitted).abs() < 2.0 * sd, "{row}, the fit has {fitted}");
        let [low, high] = ["q5", "q95"].map(|q| row[q].as_f64().unwrap());
        assert!(low < mean && mean < high && high - low < 5.0 * sd, "{row}");
    }
    assert!(folder.read("a.npz") == folder.read("b.npz"), "the same seed gives the same bytes");
    assert_eq!(folder.files(), ["a.npz", "b.npz"], "no checkpoint is left");
    let other = SHORT.replace("--seed 3", "--seed 4");
    folder.gmm(&format!("mcmc {} {other} -o c.npz -q", faithful())).ok();
    assert!(folder.read("a.npz") != folder.read("c.npz"));
}

#[test]
fn every_format_holds_the_same_draws() {
    let folder = Folder::new();
    let x = faithful();
    for name in ["a.npz", "a.parquet", "a.arrow"] {
        folder.gmm(&format!("mcmc {x} {SHORT} --covariance tied -q -o {name}")).ok();
        // Tied and diag have the same shape here: an npz states the kind, a table does not.
        let kind = if name == "a.npz" { "" } else { "--covariance tied" };
        folder.gmm(&format!("loglik {x} --batch {name} {kind} -o {name}.csv -q")).ok();
        assert_eq!(folder.text(&format!("{name}.csv")), folder.text("a.npz.csv"));
    }
    assert_eq!(folder.text("a.npz.csv").lines().count(), 301);
    folder.refuses(&format!("loglik {x} --batch a.parquet"), 3, &["a.parquet", "tied or diag"]);
    let table = folder.gmm("convert a.parquet -").ok().stdout;
    let names = table.lines().next().unwrap();
    assert!(names.starts_with("chain,draw,weights[0],weights[1],\"means[0,0]\",\"means[0,1]\","), "{names}");
    assert!(names.ends_with(",lp,acceptance_rate,diverging,n_steps,step_size,tree_depth,energy"), "{names}");
    let first: Vec<&str> = table.lines().nth(151).unwrap().split(',').collect();
    assert_eq!(first[..2], ["1.0", "0.0"], "the second chain follows the first");
    let weights: Vec<f64> = first[2..4].iter().map(|v| v.parse().unwrap()).collect();
    close(&[weights[0] + weights[1]], &[1.0], 1e-12);
}

#[test]
fn a_run_that_is_interrupted_goes_on_to_the_draws_of_one_that_was_not() {
    for (sampler, draws) in [("rwm", 8000), ("nuts", 4000)] {
        let folder = Folder::new();
        let command = format!("mcmc {} -k 2 --sampler {sampler} --draws {draws} --warmup 200 --chains 2", faithful());
        folder.gmm(&format!("{command} -q -o whole.npz")).ok();
        // The first progress line after warm-up comes when a tenth of all steps is done.
        let (code, stderr) = stopped(&folder, &format!("{command} -o a.npz -v"), "INT", "steps, sampling");
        assert_eq!(code, Some(130), "{stderr}");
        assert!(
            stderr.contains("error: interrupted after ") && stderr.contains("the chains are in a.npz.checkpoint"),
            "{stderr}"
        );
        assert_eq!(folder.files(), ["a.npz.checkpoint", "whole.npz"]);
        // A new run would overwrite the checkpoint.
        folder.refuses(
            &format!("{command} -o a.npz"),
            2,
            &["a.npz.checkpoint already exists", "--resume", "--overwrite"],
        );
        folder.refuses(&format!("{command} -o a.npz --resume --seed 5"), 3, &["a.npz.checkpoint", "seed 0, not 5"]);
        let other = command.replace(&faithful(), &data("iris.csv")) + " --columns 0,1";
        folder.refuses(&format!("{other} -o a.npz --resume"), 3, &["a.npz.checkpoint", "other rows"]);
        folder.gmm(&format!("{command} -q -o a.npz --resume")).ok();
        assert!(folder.read("a.npz") == folder.read("whole.npz"), "{sampler}");
        assert_eq!(folder.files(), ["a.npz", "whole.npz"]);
    }
}

#[test]
fn a_checkpoint_that_is_named_stays_and_takes_more_draws() {
    let folder = Folder::new();
    let command = format!("mcmc {} {SHORT} --sampler rwm --checkpoint run.ckpt", faithful());
    folder.gmm(&format!("{command} -q -o a.npz")).ok();
    assert_eq!(folder.files(), ["a.npz", "run.ckpt"]);
    let longer = command.replace("--draws 150", "--draws 400");
    folder.gmm(&format!("{longer} -q -o b.npz --resume")).ok();
    folder.gmm(&format!("{longer} -q -o c.npz --overwrite")).ok();
    assert!(folder.read("b.npz") == folder.read("c.npz"));
    // Existing draws are not overwritten without --overwrite, even when a run is resumed.
    folder.refuses(&format!("{longer} -o a.npz --resume"), 2, &["a.npz already exists", "--overwrite"]);
    folder.gmm(&format!("{longer} -q -o a.npz --resume --overwrite")).ok();
    assert!(folder.read("a.npz") == folder.read("c.npz"));
}

#[test]
fn a_run_that_is_finished_is_not_resumed_and_its_draws_stay() {
    let folder = Folder::new();
    let command = format!("mcmc {} {SHORT} --sampler rwm -o a.npz", faithful());
    folder.gmm(&format!("{command} -q")).ok();
    let draws = folder.read("a.npz");
    for more in ["", " --overwrite"] {
        let parts = [
            "nothing to resume",
            "a.npz exists",
            "no checkpoint",
            "a.npz.checkpoint",
            "A finished run deletes",
            "--checkpoint",
        ];
        folder.refuses(&format!("{command} --resume{more}"), 2, &parts);
        assert!(folder.read("a.npz") == draws);
    }
    // Without a checkpoint there is no run to resume.
    folder.refuses(&format!("{command} --resume").replace("a.npz", "b.npz"), 6, &["there is no checkpoint"]);
}

#[test]
fn fewer_draws_than_a_checkpoint_holds_are_refused_and_lose_none() {
    let folder = Folder::new();
    for sampler in ["rwm", "nuts"] {
        let command = format!("mcmc {} {SHORT} --sampler {sampler} --checkpoint {sampler}.ckpt", faithful());
        folder.gmm(&format!("{command} -q -o {sampler}.npz")).ok();
        let fewer = command.replace("--draws 150", "--draws 149");
        let checkpoint = format!("{sampler}.ckpt");
        let parts = ["--draws 149", &checkpoint, "already holds 150 draws per chain", "--draws 150 or more"];
        folder.refuses(&format!("{fewer} -o b.npz --resume"), 2, &parts);
        folder.refuses(&format!("{fewer} -o {sampler}.npz --resume --overwrite"), 2, &parts);
        // The same number of draws just writes the existing ones.
        folder.gmm(&format!("{command} -q -o again.npz --resume --overwrite")).ok();
        assert!(folder.read("again.npz") == folder.read(&format!("{sampler}.npz")));
    }
    // A run with the default name of the checkpoint, interrupted.
    let folder = Folder::new();
    let command = format!("mcmc {} -k 2 --sampler rwm --draws 1e6 --warmup 20 --chains 2 -o a.npz", faithful());
    let (code, stderr) = stopped(&folder, &format!("{command} -v"), "TERM", "steps, sampling");
    assert_eq!(code, Some(143), "{stderr}");
    let few = command.replace("--draws 1e6", "--draws 10");
    folder.refuses(&format!("{few} --resume"), 2, &["--draws 10", "a.npz.checkpoint already holds ", "or more"]);
    folder.refuses(&format!("{} --resume", command.replace("--warmup 20", "--warmup 30")), 3, &["warmup 20, not 30"]);
    folder.refuses(&format!("{} --resume", command.replace("--chains 2", "--chains 3")), 3, &["chains 2, not 3"]);
    folder.refuses(&format!("{} --resume", command.replace("rwm", "nuts")), 3, &["sampler rwm, not nuts"]);
    assert_eq!(folder.files(), ["a.npz.checkpoint"]);
}

#[cfg(unix)]
#[test]
fn draws_that_cannot_be_written_in_the_end_are_kept_in_the_checkpoint() {
    let folder = Folder::new();
    // Filling a disk would need a separate file system, and a limit on file sizes would stop the checkpoint too:
    // parquet is larger than it only if there are many names. So the output's folder is removed.
    std::fs::create_dir(folder.path("out")).unwrap();
    let command = format!("mcmc {} {SHORT} --sampler rwm --checkpoint run.ckpt", faithful());
    let line = format!("{command} -v -o out/a.npz");
    let mut child = Command::new(program());
    child.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.args(line.split_whitespace()).spawn().unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("read 272 rows") {
        assert!(words.read_line(&mut said).unwrap() > 0, "{said}");
    }
    std::fs::remove_dir(folder.path("out")).unwrap();
    words.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6), "{said}");
    assert!(
        said.contains("cannot be written to out/a.npz; the chains are in run.ckpt: continue with --resume"),
        "{said}"
    );
    folder.gmm(&format!("{command} -q -o a.npz --resume")).ok();
    folder.gmm(&format!("{command} -q -o b.npz --overwrite")).ok();
    assert!(folder.read("a.npz") == folder.read("b.npz"));
}

#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_written_is_told_of_and_costs_no_draw() {
    let folder = Folder::new();
    let command = format!("mcmc {} {SHORT} --sampler rwm", faithful());
    std::os::unix::fs::symlink("nowhere/run.ckpt", folder.path("run.ckpt")).unwrap();
    folder.gmm(&format!("{command} -o a.npz --checkpoint run.ckpt")).failed(6, &["run.ckpt", "nowhere"]);
    // A failure found only later loses no draws.
    std::fs::create_dir(folder.path("nowhere")).unwrap();
    let mut child = Command::new(program());
    child.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = format!("{command} -v -o a.npz --checkpoint run.ckpt");
    let mut child = child.args(line.split_whitespace()).spawn().unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("read 272 rows") {
        assert!(words.read_line(&mut said).unwrap() > 0, "{said}");
    }
    std::fs::remove_dir(folder.path("nowhere")).unwrap();
    words.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("run.ckpt")).collect();
    assert!(matches!(warnings[..], [one] if one.starts_with("warning: the checkpoint cannot be written")), "{said}");
    folder.gmm(&format!("{command} -q -o b.npz")).ok();
    assert!(folder.read("a.npz") == folder.read("b.npz"));
}

#[cfg(unix)]
#[test]
fn draws_and_checkpoint_in_one_file_are_refused_however_it_is_spelled() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("a.npz", folder.path("link.ckpt")).unwrap();
    std::os::unix::fs::symlink(".", folder.path("here")).unwrap();
    for checkpoint in ["a.npz", "./a.npz", "here/a.npz", "link.ckpt"] {
        let run = folder.gmm(&format!("mcmc {} -k 1 -o a.npz --checkpoint {checkpoint}", faithful()));
        run.failed(2, &["the same file", "different names"]);
    }
}

#[test]
fn a_run_goes_on_in_its_own_precision_alone() {
    let folder = Folder::new();
    let command = format!("mcmc {} {SHORT} --sampler rwm --device cpu --checkpoint run.ckpt", faithful());
    folder.gmm(&format!("{command} -q -o a.npz")).ok();
    let more = command.replace("--draws 150", "--draws 160");
    folder.refuses(&format!("{more} -o b.npz --resume --precision f32"), 3, &["run.ckpt", "precision f64, not f32"]);
    // Another engine of the same precision can resume the run, with a warning that it is no longer the same run.
    let other = more.replace("--device cpu", "--device reference");
    let run = folder.gmm(&format!("{other} -o b.npz --resume")).ok();
    assert!(run.stderr.contains("warning: the checkpoint was made by engine cpu, not reference"), "{}", run.stderr);
}

#[test]
fn draws_too_few_to_judge_are_told_of_and_only_advice_that_can_help_is_given() {
    let folder = Folder::new();
    let x = faithful();
    let run = folder.gmm(&format!("mcmc {x} -k 1 --draws 2 --chains 2 --warmup 20 -o a.npz")).ok();
    assert!(
        run.stderr.contains("2 draws per chain are too few") && run.stderr.contains("raise --draws"),
        "{}",
        run.stderr
    );
    assert!(!run.stdout.contains("NaN"), "{}", run.stdout);
    // Chains that start far apart and do not mix.
    let stuck = format!("mcmc {x} -k 1 --sampler rwm --draws 20 --chains 4 --warmup 0 --json");
    let run = folder.gmm(&format!("{stuck} -o b.npz")).ok();
    assert!(run.stderr.contains("r_hat is above") && !run.stderr.contains("--relabel"), "{}", run.stderr);
    let run = folder.gmm(&format!("{} -o c.npz", stuck.replace("-k 1", "-k 2"))).ok();
    assert!(run.stderr.contains("--relabel pivot"), "{}", run.stderr);
    let run = folder.gmm(&format!("{} --relabel pivot -o d.npz", stuck.replace("-k 1", "-k 2"))).ok();
    assert!(run.stderr.contains("r_hat is above") && !run.stderr.contains("--relabel"), "{}", run.stderr);
}

#[test]
fn the_engine_is_named_in_what_is_printed_and_in_json() {
    let folder = Folder::new();
    let command = format!("mcmc {} {SHORT} --sampler rwm --device cpu", faithful());
    let text = folder.gmm(&format!("{command} -o a.npz")).ok().stdout;
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("engine cpu (") && last.ends_with("f64"), "{text}");
    let run = folder.gmm(&format!("{command} -o b.npz --json")).ok().json();
    assert_eq!((&run["engine"], &run["precision"]), (&"cpu".into(), &"f64".into()));
}

#[test]
fn priors_relabelling_and_starts_change_what_they_are_for() {
    let folder = Folder::new();
    let x = faithful();
    let mean = |options: &str| {
        let run = folder.gmm(&format!("mcmc {x} {SHORT} --json -q --overwrite -o a.npz {options}")).ok().json();
        parameter(&run, "means[0,1]")["mean"].as_f64().unwrap()
    };
    // A narrow prior pulls the means towards it.
    folder.write("near.toml", "[means]\nprior = 'normal'\nmean = [3.0, 60.0]\nsd = [10.0, 0.5]\n");
    assert!((mean("--prior near.toml --relabel order") - 60.0).abs() < 2.0);
    close(&[mean("--relabel order:1")], &[54.5], 0.01);
    close(&[mean("--relabel pivot --start each")], &[mean("--relabel pivot --start each")], 0.0);
    // Old Faithful is rounded, so values repeat, which makes the posterior with half-normal priors degenerate.
    folder.write("lkj.toml", "[covariances]\nprior = 'lkj'\neta = 3.0\n");
    let run = folder.gmm(&format!("mcmc {x} {SHORT} --prior lkj.toml --overwrite -o a.npz")).ok();
    assert!(run.stderr.contains("warning: rows ") && run.stderr.contains("half-normal"), "{}", run.stderr);
    // Either the two chains start from fits with components in a different order, or the run is too short: both give a
    // warning.
    let short = folder.gmm(&format!("mcmc {x} -k 3 --chains 2 --draws 20 --warmup 20 -o b.npz")).ok();
    assert!(short.stderr.contains("warning: ") && short.stderr.contains("effective sample size"), "{}", short.stderr);
}

#[test]
fn what_cannot_be_drawn_is_refused_before_anything_is_written() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,4\n5,7\n2,2\n");
    folder.write("text.csv", "a\nb\nc\n");
    folder.write("flat.toml", "[covariances]\nprior = 'flat'\n");
    folder.write("means.toml", "[means]\nprior = 'flat'\n");
    folder.write("key.toml", "[weights]\nprior = 'dirichlet'\nalpha = 1.0\n");
    folder.write("there.npz", "something");
    folder.write("word.toml", "[means]\nprior = 'normal'\nsd = 'x'\n");
    folder.write("range.toml", "[means]\nprior = 'normal'\nsd = -1.0\n");
    folder.write("latin.toml", b"# \xe4\n");
    for (options, code, parts) in [
        ("-k 0 -o d.npz", 2, &["at least 1"][..]),
        ("-k 2 --chains 0 -o d.npz", 2, &["--chains", "at least 1"]),
        ("-k 2 --draws 0 -o d.npz", 2, &["--draws", "at least 1"]),
        ("-k 2 --thin 0 -o d.npz", 2, &["--thin", "at least 1"]),
        ("-k 2 --warmup 3 -o d.npz", 2, &["warmup", "at least 20"]),
        ("-k 2 --target-accept 1 -o d.npz", 2, &["target_accept"]),
        ("-k 2 --sampler gibbs -o d.npz", 2, &["gibbs", "nuts, rwm"]),
        ("-k 2 --relabel sorted -o d.npz", 2, &["sorted", "none, order, order:COLUMN, pivot"]),
        ("-k 2 --relabel order:2 -o d.npz", 2, &["order:2", "2 columns"]),
        ("-k 5 -o d.npz", 3, &["5 components for 4 rows"]),
        ("-k 2 -o there.npz", 2, &["there.npz already exists", "--overwrite"]),
        ("-k 2 -o d.csv", 2, &["csv", "npz, parquet"]),
        ("-k 2 -o -", 2, &["-o draws.npz"]),
        ("-k 2 -o none/d.npz", 6, &["no folder 'none'"]),
        ("-k 2 -o d.npz --resume", 6, &["d.npz.checkpoint", "no checkpoint to resume", "--checkpoint"]),
        ("-k 2 --seed abc -o d.npz", 2, &["abc", "--seed", "whole number from 0"]),
        ("-k 2 --prior word.toml -o d.npz", 3, &["word.toml", "line 3", "means: sd", "one number, or a list"]),
        ("-k 2 --prior range.toml -o d.npz", 3, &["range.toml", "means: sd is -1"]),
        ("-k 2 --prior latin.toml -o d.npz", 3, &["latin.toml", "byte 2", "UTF-8"]),
        ("-k 2 -o there.npz --checkpoint there.npz", 2, &["different names"]),
        ("-k 2 --prior none.toml -o d.npz", 6, &["none.toml"]),
        ("-k 2 --prior flat.toml -o d.npz", 3, &["prior", "covariances", "improper"]),
        ("-k 2 --prior means.toml -o d.npz", 3, &["prior", "means", "improper"]),
        ("-k 2 --prior key.toml -o d.npz", 3, &["key.toml", "alpha", "line 3"]),
        ("-k 2 --weights c -o d.npz", 3, &["x.csv", "'c'"]),
        ("-k 2 --device cuda:9 -o d.npz", 5, &["cuda"]),
        ("-k 2 --draws 1e11 -o d.npz", 5, &["the draws need", "bytes", "fewer draws or chains"]),
    ] {
        folder.refuses(&format!("mcmc x.csv {options}"), code, parts);
    }
    folder.refuses("mcmc text.csv -k 1 -o d.npz", 3, &["text.csv"]);
    folder.write("constant.csv", "a,b\n1,2\n3,2\n5,2\n");
    folder.refuses("mcmc constant.csv -k 1 -o d.npz", 3, &["prior", "column 1 ('b')", "constant"]);
    folder.write("d.npz.checkpoint", "no checkpoint at all");
    folder.refuses("mcmc x.csv -k 2 -o d.npz --resume", 3, &["d.npz.checkpoint", "truncated, corrupt"]);
}

#[test]
fn a_signal_in_the_warm_up_of_nuts_leaves_nothing() {
    let folder = Folder::new();
    let command = format!("mcmc {} -k 2 --warmup 1e7 -o a.npz -v", faithful());
    // Builds the program if it must, which is not part of the time.
    program();
    let started = Instant::now();
    let (code, stderr) = stopped(&folder, &command, "TERM", "4 chains, ");
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(code, Some(143), "{stderr}");
    assert!(stderr.ends_with("error: interrupted after 0 of 4000 draws\n"), "{stderr}");
    assert!(folder.files().is_empty());
}

#[test]
fn row_weights_count_rows_as_often() {
    let folder = Folder::new();
    let rows = [(1.0, 0), (2.0, 2), (1.5, 1), (7.0, 2), (8.0, 1), (7.3, 3), (2.2, 1)];
    let weighted: String = rows.iter().map(|(x, w)| format!("{x},{w}\n")).collect();
    let repeated: String = rows.iter().flat_map(|(x, w)| std::iter::repeat_n(format!("{x}\n"), *w)).collect();
    folder.write("w.csv", format!("x,w\n{weighted}"));
    folder.write("r.csv", format!("x\n{repeated}"));
    let means = |command: &str, out: &str| {
        let options = "-k 1 --chains 2 --draws 4000 --warmup 500 --sampler rwm --json -q";
        let run = folder.gmm(&format!("mcmc {command} {options} -o {out}")).ok().json();
        let row = parameter(&run, "means[0,0]").clone();
        let number = |key: &str| numbers(&row[key])[0];
        (number("mean"), number("sd"), number("sd") / number("ess_bulk").sqrt())
    };
    let (a, b) = (means("w.csv --weights w", "w.npz"), means("r.csv", "r.npz"));
    assert!((a.0 - b.0).abs() < 5.0 * a.2.hypot(b.2), "{a:?} and {b:?}");
    assert!((a.1 / b.1).ln().abs() < 0.15, "{a:?} and {b:?}");
}
