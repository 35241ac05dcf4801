//! The numbered examples of the library crates: each runs, and each is listed in the table of gmm-host's README.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gmm_tests::root;

/// The crate and the path of each example, in the order of their numbers.
fn examples() -> Vec<(String, PathBuf)> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect()
    };
    let mut all: Vec<_> = list(&root().join("crates"))
        .into_iter()
        .flat_map(|of| {
            let name = of.file_name().expect("a name").to_string_lossy().into_owned();
            list(&of.join("examples")).into_iter().map(move |path| (name.clone(), path))
        })
        .filter(|(_, path)| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    all.sort_by_key(|(_, path)| name(path));
    all
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// The folder of cargo's example binaries for this test's profile. `cargo test --workspace` has built them; if one is
/// missing or older than its source, they are built here with the same features.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let folder = profile.join("examples");
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let is_new =
        |(_, path): &(String, PathBuf)| modified(&program(&folder, path)).is_some_and(|at| Some(at) > modified(path));
    if !examples().iter().all(is_new) {
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(root()).args(["build", "--quiet", "--workspace", "--examples", "--target-dir"]);
        build.arg(profile.parent().expect("target/PROFILE"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo starts").success(), "examples do not build");
    }
    folder
}

fn program(folder: &Path, path: &Path) -> PathBuf {
    folder.join(format!("{}{}", name(path), std::env::consts::EXE_SUFFIX))
}

#[test]
fn every_example_runs_and_finds_its_own_answer_right() {
    let folder = built();
    for (_, path) in examples() {
        let output = Command::new(program(&folder, &path)).output().expect("an example starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", path.display());
        assert!(!output.stdout.is_empty(), "{} prints nothing", path.display());
    }
}

#[test]
fn examples_are_numbered_and_say_how_to_run_them() {
    let table = fs::read_to_string(root().join("crates/gmm-host/README.md")).expect("gmm-host's front page");
    let all = examples();
    assert!(all.len() >= 7, "{all:?}");
    for (i, (of, path)) in all.iter().enumerate() {
        let name = name(path);
        assert!(name.starts_with(&format!("{:02}_", i + 1)), "{name} is number {}", i + 1);
        let command = format!("cargo run --release -p {of} --example {name}");
        let text = fs::read_to_string(path).expect("an example");
        assert!(text.starts_with("//! ") && text.contains(&command), "{name} does not say `{command}`");
        assert!(table.contains(&format!("{name}.rs")), "{name} is not in the table of crates/gmm-host/README.md");
    }
}
