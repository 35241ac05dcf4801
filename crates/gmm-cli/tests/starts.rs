//! Tests that the program starts. Because this integration test exists, `cargo test --workspace` builds the program that
//! the end-to-end tests in `tests/` run.

use std::process::Command;

#[test]
fn the_program_starts_and_knows_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_gmm")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("gmm {}\n", env!("CARGO_PKG_VERSION")));
}
