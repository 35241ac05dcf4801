//! `gmm mcmc --prior-on-k dp`: partitions of rows, their output, and interruptions.

use gmm_tests::{Folder, data, stopped};

fn faithful() -> String {
    data("old_faithful.csv")
}

#[test]
fn a_dirichlet_process_needs_no_number_of_components() {
    let folder = Folder::new();
    let options = "--prior-on-k dp --chains 2 --draws 100 --warmup 50 --device cpu --seed 1";
    let command = |name: &str, more: &str| format!("mcmc {} {options} -o {name} {more}", faithful());
    let run = folder.gmm(&command("a.csv", "--labels l.csv --label-draws all.npy --json")).ok().json();
    let shares = run["clusters"].as_array().unwrap();
    let total: f64 = shares.iter().map(|k| k["probability"].as_f64().unwrap()).sum();
    assert!((total - 1.0).abs() < 1e-12 && run["best"]["clusters"].as_u64().unwrap() >= 2, "{run}");
    let labels = String::from_utf8(folder.read("l.csv")).unwrap();
    assert_eq!(labels.lines().count(), 273, "a label per row below the heading");
    let distinct: std::collections::BTreeSet<&str> = labels.lines().skip(1).collect();
    assert_eq!(distinct.len() as u64, run["best"]["clusters"].as_u64().unwrap());
    let table = String::from_utf8(folder.read("a.csv")).unwrap();
    assert_eq!(table.lines().next(), Some("chain,draw,clusters,concentration,log_joint"));
    assert_eq!(table.lines().count(), 201);
    // The same bits for another number of threads of the host.
    folder.gmm(&command("b.csv", "--threads 1")).ok();
    assert!(folder.read("a.csv") == folder.read("b.csv"));
    for (more, what) in [
        ("--covariance tied", "tied"),
        ("--concentration 0", "positive"),
        ("-k 2", "cannot be used"),
        ("--concentration gamma:1", "SHAPE,RATE"),
        ("--labels c.csv", "different names"),
    ] {
        let refused = folder.gmm(&command("c.csv", more));
        assert!(refused.stderr.contains(what) && !folder.path("c.csv").exists(), "{more}: {}", refused.stderr);
    }
    std::fs::write(folder.path("p.toml"), "[means]\nprior = 'normal'\nsd = 2.0").unwrap();
    let refused = folder.gmm(&command("c.csv", "--prior p.toml"));
    assert!(refused.stderr.contains("p.toml: prior: means: sd") && refused.stderr.contains("--mean-precision"));
}

#[test]
fn a_dirichlet_process_goes_on_from_its_checkpoint_with_the_same_draws() {
    let folder = Folder::new();
    let options = "--prior-on-k dp --chains 2 --warmup 20 --device cpu --concentration gamma:1,1 --start-clusters 5";
    let command = |draws: &str, more: &str| format!("mcmc {} {options} --draws {draws} -q {more}", faithful());
    folder.gmm(&command("30", "-o whole.csv --labels whole.npy")).ok();
    folder.gmm(&command("10", "-o a.csv --checkpoint run.ckpt")).ok();
    folder.gmm(&command("30", "-o b.csv --labels b.npy --checkpoint run.ckpt --resume")).ok();
    assert!(folder.read("b.csv") == folder.read("whole.csv") && folder.read("b.npy") == folder.read("whole.npy"));
    let refuses = |command: String, code: i32, parts: &[&str]| folder.refuses(&command, code, parts);
    refuses(command("10", "-o c.csv --checkpoint run.ckpt --resume"), 3, &["run.ckpt", "30 draws", "never discarded"]);
    refuses(command("30", "-o c.csv --checkpoint run.ckpt --resume --seed 2"), 3, &["seed 0, not 2"]);
    refuses(command("30", "-o c.csv --resume"), 6, &["no checkpoint to resume"]);
    refuses(command("30", "-o c.csv --weights waiting"), 2, &["--weights", "one cluster", "repeat rows"]);
    folder
        .gmm(&format!(
            "mcmc {} -k 2 --chains 2 --draws 150 --warmup 150 --sampler rwm -q -o d.npz --checkpoint rwm.ckpt",
            faithful()
        ))
        .ok();
    refuses(command("30", "-o c.csv --checkpoint rwm.ckpt --resume"), 3, &["rwm.ckpt", "of another kind"]);
    refuses(format!("mcmc {} -k 2 --draws 150 -o c.npz --checkpoint run.ckpt --resume", faithful()), 3, &["run.ckpt"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_dirichlet_process_keeps_its_chains() {
    let folder = Folder::new();
    let options = "--prior-on-k dp --chains 1 --warmup 20 --device cpu -o a.csv";
    let command = |draws: &str| format!("mcmc {} {options} --draws {draws}", faithful());
    let (code, stderr) = stopped(&folder, &format!("{} -v", command("3000")), "TERM", "of 3020 sweeps");
    assert_eq!(code, Some(143), "{stderr}");
    assert!(stderr.contains("a.csv.checkpoint: continue with --resume"), "{stderr}");
    assert_eq!(folder.files(), ["a.csv.checkpoint"]);
    folder.refuses(&command("3000"), 2, &["a.csv.checkpoint already exists", "--resume"]);
    folder.refuses(
        &format!("{} --resume --warmup 30", command("3000").replace("--warmup 20 ", "")),
        3,
        &["warmup 20, not 30"],
    );
}
