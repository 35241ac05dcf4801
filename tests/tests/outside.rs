//! A crate outside this workspace can use gmm-host by its path, with the default features and with the two lines for
//! the GPU.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use gmm_tests::root;

/// Runs cargo on a copy of `tests/outside`, with the workspace's lock file so that nothing is downloaded.
fn outside(which: &str, arguments: &[&str]) -> Output {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let here = folder.join(which);
    fs::create_dir_all(&here).expect("a folder below target");
    let from = root().join("tests/outside");
    fs::copy(from.join("main.rs"), folder.join("main.rs")).expect("the source");
    let manifest = fs::read_to_string(from.join(which).join("Cargo.toml")).expect("a manifest");
    let crates = format!("{}/crates", root().display());
    fs::write(here.join("Cargo.toml"), manifest.replace("../../../crates", &crates)).expect("a manifest");
    fs::copy(root().join("Cargo.lock"), here.join("Cargo.lock")).expect("the lock file");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&here).args(arguments).args(["--offline", "--quiet", "--target-dir"]).arg(folder.join("target"));
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{which}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_crate_outside_fits_on_the_cpu_and_adds_the_gpu_by_two_lines() {
    // One after the other, because they share the build folder.
    let printed = String::from_utf8(outside("cpu", &["run"]).stdout).expect("text");
    assert!(
        printed.contains("engine: cpu (no GPU can be used: gmm-host was built without its feature `cuda`"),
        "{printed}"
    );
    assert!(printed.contains("weights: [0.6") || printed.contains("weights: [0.4"), "{printed}");
    assert!(printed.contains("cuda: gmm-host was built without its feature `cuda`"), "{printed}");
    outside("gpu", &["check"]);
}
