//! The book's reference of the command line is what `gmm COMMAND --help` prints. `GMM_UPDATE_REFERENCE=1` rewrites it.

use std::fmt::Write as _;
use std::fs;

use gmm_tests::{Folder, root};
use regex_lite::Regex;

const HEAD: &str = "# Command line reference

The help of every command, as `gmm COMMAND --help` prints it. This page is generated: see `tests/tests/reference.rs`.
";

#[test]
fn the_reference_is_the_help_of_every_command() {
    let page = root().join("docs/src/reference.md");
    let mut expected = HEAD.to_owned();
    let commands = write(&Folder::new(), "", &mut expected);
    assert!(commands > 15, "{commands} commands");
    if std::env::var_os("GMM_UPDATE_REFERENCE").is_some() {
        fs::write(&page, &expected).expect("the page can be written");
    }
    let found = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        found == expected,
        "docs/src/reference.md is stale: GMM_UPDATE_REFERENCE=1 cargo test -p gmm-tests --test reference"
    );
}

/// Appends the help of a command, ` plot` or the program itself for an empty name, and of all below it. Returns how many there are.
fn write(folder: &Folder, command: &str, page: &mut String) -> usize {
    let help = folder.bash(&format!("unset COLUMNS; \"$GMM\"{command} --help")).ok().stdout;
    write!(page, "\n## gmm{command}\n\n```text\n{}\n```\n", help.trim_end()).expect("a string takes all");
    let below = Regex::new(r"(?m)^  ([a-z]+)  ").expect("a pattern");
    let list = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    let names = below.captures_iter(list).map(|found| found[1].to_owned()).filter(|name| name != "help");
    1 + names.map(|name| write(folder, &format!("{command} {name}"), page)).sum::<usize>()
}
