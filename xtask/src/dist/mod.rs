//! `cargo xtask dist`: builds the release files in `target/dist`: an archive with the program, the wheel, and checksums.

mod archive;
mod licences;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{shell, wheel};
use archive::Entry;

/// The version of every crate of the workspace, this one included.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Cargo profile. `--target` makes cargo build in `target/TRIPLE/dist`, so that `target/dist` contains only results.
const PROFILE: &str = "dist";

/// Names of the shells in `gmm completions`, and of the completion files that they load.
const COMPLETIONS: [(&str, &str); 4] =
    [("bash", "gmm.bash"), ("fish", "gmm.fish"), ("zsh", "_gmm"), ("powershell", "gmm.ps1")];

/// Files of the repository that the archive contains.
const PAGES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

const CHECKSUMS: &str = "SHA256SUMS";

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Target platform; its programs must run on this machine [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Do not build the Python package
    #[arg(long)]
    no_wheel: bool,
}

/// Builds the program and the wheel, packs them, and tests the packed files.
///
/// # Errors
/// Errors if a build fails or a packed program does not run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = options.target.clone().map_or_else(host, Ok)?;
    let folder = shell::target().join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    wheel::clear(&folder, &[".tar.gz", ".whl", CHECKSUMS])?;

    let program = build(&target)?;
    let name = format!("gmm-{VERSION}-{target}");
    let packed = folder.join(format!("{name}.tar.gz"));
    archive::pack(&packed, &name, &contents(&program, &target)?)?;
    trial::run(&packed, &Path::new(&name).join(file_name(&target)))?;

    let mut files = vec![packed];
    if !options.no_wheel {
        files.push(wheel::build(&wheel::Options::for_target(PROFILE, &target))?);
    }
    fs::write(folder.join(CHECKSUMS), checksums(&files)?).with_context(|| format!("cannot write {CHECKSUMS}"))?;
    for file in [&program].into_iter().chain(&files) {
        println!("{:6.1} MB  {}", fs::metadata(file)?.len() as f64 / 1e6, file.display());
    }
    Ok(())
}

/// The host platform of cargo.
fn host() -> Result<String> {
    let said = shell::output(&mut shell::cargo(&["--version", "--verbose"]))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("cargo does not say what machine this is: name one, --target TRIPLE")
}

/// Builds the program and returns its path.
fn build(target: &str) -> Result<PathBuf> {
    let arguments = ["build", "--locked", "--package", "gmm-cli", "--profile", PROFILE, "--target", target];
    shell::run(&mut shell::cargo(&arguments))?;
    Ok(shell::target().join(target).join(PROFILE).join(file_name(target)))
}

fn file_name(target: &str) -> &'static str {
    if target.contains("windows") { "gmm.exe" } else { "gmm" }
}

/// All files of the archive.
fn contents(program: &Path, target: &str) -> Result<Vec<Entry>> {
    let mut entries = vec![Entry { executable: true, ..Entry::of_file(program, file_name(target))? }];
    for page in PAGES {
        entries.push(Entry::of_file(&shell::root().join(page), page)?);
    }
    let licences = licences::page(target).context("cannot collect the licences of the dependencies")?;
    entries.push(Entry::new("THIRD-PARTY-LICENSES.md", licences));
    for (shell, name) in COMPLETIONS {
        let text = shell::output(shell::program(program).args(["completions", shell]))
            .context("completions and manual are the program's own: it must run on this machine")?;
        entries.push(Entry::new(format!("completions/{name}"), text));
    }
    entries.extend(manual(program)?);
    Ok(entries)
}

/// The manual pages, sorted by name.
fn manual(program: &Path) -> Result<Vec<Entry>> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    shell::output(shell::program(program).arg("man").arg(folder.path()))?;
    let mut pages = fs::read_dir(folder.path())?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    pages.sort();
    let named = pages.iter().map(|page| {
        let name = page.file_name().context("a page has a name")?;
        Entry::of_file(page, &format!("man/{}", name.to_string_lossy()))
    });
    named.collect()
}

/// One line per file, in the format of `sha256sum --check`.
fn checksums(files: &[PathBuf]) -> Result<String> {
    let lines = files.iter().map(|file| {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_name().context("a file has a name")?.to_string_lossy();
        Ok(format!("{:x}  {name}\n", Sha256::digest(content)))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        fs::write(&file, "abc").unwrap();
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksums(&[file]).unwrap(), format!("{of_abc}  a.txt\n"));
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(host().unwrap().contains(std::env::consts::ARCH));
    }
}
