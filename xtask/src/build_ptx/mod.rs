//! `cargo xtask build-ptx`: compiles the kernels to PTX files, which are committed, and checks that they are up to
//! date.
//!
//! ```text
//! cargo xtask build-ptx [--check] [--rustc PATH] [--ptxas PATH|auto]
//! ```
//! Without options it compiles, if sources or compiler have changed, all kernels as one module for Hopper, and writes a
//! file per [`family`] of kernels to `crates/gmm-kernels/ptx/<oldest target>/`; `gmm_kernels::module` translates them for
//! older targets. It also writes `ptx/SOURCES`, a list of the files with their checksums, the checksum of the sources
//! and the compiler. If there is a `ptxas` (given, in the path, or in `target/ptxas`, where `auto` installs one with
//! pip), each family is assembled for several architectures, register spills and stack frames are errors, and
//! [`machine_code`] is written. With `--check` the command writes nothing, and fails if the committed files differ.

mod codegen;
mod committed;
mod compiler;
mod family;
mod machine_code;
mod ptxas;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};

use codegen::Codegen;
use committed::{Files, List};

/// Newest PTX version that the oldest driver of CUDA 13 supports.
const NEWEST_PTX: (u32, u32) = (9, 0);

/// Folder of the PTX files, relative to the repository's root.
const FOLDER: &str = "crates/gmm-kernels/ptx";

struct Options {
    check: bool,
    rustc: Option<PathBuf>,
    ptxas: Option<String>,
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { check: false, rustc: None, ptxas: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--check" => options.check = true,
            "--rustc" => options.rustc = Some(value()?.into()),
            "--ptxas" => options.ptxas = Some(value()?.clone()),
            _ => bail!("unknown option '{arg}': build-ptx [--check] [--rustc PATH] [--ptxas PATH|auto]"),
        }
    }
    Ok(options)
}

/// Runs the command.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let root = root();
    let folder = root.join(FOLDER);
    let sources = source::hash(&root)?;
    let list = fs::read_to_string(folder.join(committed::LIST)).ok().and_then(|text| List::read(&text));
    let old = committed::read(&folder)?;
    let stale = check_list(list.as_ref(), &old, &sources);
    if options.check {
        fresh(stale.clone())?;
    }
    let made_by = list.map(|list| list.compiler);
    let compiler = compiler::find(options.rustc.as_deref(), made_by.as_deref())?;
    println!("compiler: {}", compiler.version);
    let codegen = codegen::Rustc { root: root.clone(), compiler };

    let new = if !options.check && stale.is_empty() && made_by.as_deref() == Some(codegen.name().as_str()) {
        println!("the PTX is up to date");
        old.clone()
    } else {
        compiled(&codegen)?
    };
    if options.check {
        fresh(check_files(made_by.as_deref(), &old, &new, &codegen.name()))?;
    } else {
        committed::write(&folder, &old, &new, &List::of(&new, &codegen.name(), &sources))?;
    }

    let ptxas = ptxas::find(&root, options.ptxas.as_deref())?;
    if ptxas.is_none() {
        println!("no ptxas: not assembled, no machine code (--ptxas auto installs one under target/)");
    }
    if options.check {
        return fresh(machine_code::check(&folder, &old, ptxas.as_deref())?);
    }
    machine_code::make(&folder, &new, ptxas.as_deref())
}

/// Compiles the kernels.
fn compiled(codegen: &impl Codegen) -> Result<Files> {
    let ptx = source::with_bounds(&source::clean(&codegen.compile()?)?)?;
    let version = ptx.lines().find_map(|line| line.strip_prefix(".version ")).context("no .version in the PTX")?;
    let number = version.trim().split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    ensure!(number.is_some_and(|n| n <= NEWEST_PTX), "PTX {version} is newer than drivers support");
    family::split(&ptx, &gmm_kernels::signatures())
}

/// Fails if the list of stale files is not empty.
fn fresh(stale: Vec<String>) -> Result<()> {
    ensure!(stale.is_empty(), "stale PTX; run `cargo xtask build-ptx` and commit the result:\n{}", stale.join("\n"));
    Ok(())
}

/// Runs all jobs in parallel on all cores; results are in the order of the jobs.
fn side_by_side<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let one = || {
        let turns = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        turns.take_while(|&at| at < jobs.len()).map(|at| (at, work(&jobs[at]))).collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a job panicked")).collect()
    });
    all.sort_by_key(|&(at, _)| at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Returns what is stale, as far as that can be determined without compiling.
fn check_list(list: Option<&List>, committed: &Files, sources: &str) -> Vec<String> {
    match list {
        None => vec![format!("{FOLDER}/{} is missing or cannot be read", committed::LIST)],
        Some(list) if list.sources != sources => vec!["made from other sources".to_owned()],
        Some(list) => committed::differences(&List::of(committed, "", "").files, &list.files),
    }
}

/// Returns which committed files differ from the compiler's output.
fn check_files(made_by: Option<&str>, committed: &Files, new: &Files, compiler: &str) -> Vec<String> {
    match made_by {
        // Another compiler writes other bytes; that the sources are the same has been checked by their checksum.
        Some(other) if other != compiler => {
            println!("note: the files were made by another compiler, '{other}': only checksums were compared");
            Vec::new()
        }
        _ => committed::differences(committed, new),
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Files {
        Files::from([("sm_75/tile.ptx".to_owned(), text.to_owned())])
    }

    #[test]
    fn other_sources_or_other_bytes_are_stale() {
        let old = files("ret;");
        let list = List::of(&old, "rustc 1", "abc");
        assert_eq!(check_list(Some(&list), &old, "abc"), [] as [String; 0]);
        assert_eq!(check_list(Some(&list), &old, "def"), ["made from other sources"]);
        assert_eq!(check_list(Some(&list), &files("exit;"), "abc"), ["sm_75/tile.ptx: differs"]);
        assert_eq!(check_list(Some(&list), &Files::new(), "abc"), ["sm_75/tile.ptx: is missing"]);
        assert_eq!(check_list(None, &old, "abc").len(), 1);
        assert_eq!(check_files(Some("rustc 1"), &old, &files("exit;"), "rustc 1"), ["sm_75/tile.ptx: differs"]);
    }

    #[test]
    fn another_compiler_writes_other_bytes_of_the_same_sources() {
        assert_eq!(check_files(Some("rustc 1"), &files("ret;"), &files("exit;"), "rustc 2"), [] as [String; 0]);
    }

    #[test]
    fn jobs_side_by_side_keep_their_order() {
        let jobs: Vec<usize> = (0..50).collect();
        assert_eq!(side_by_side(&jobs, |&job| 2 * job), (0..50).map(|job| 2 * job).collect::<Vec<_>>());
        assert!(side_by_side(&[] as &[usize], |&job| job).is_empty());
    }

    #[test]
    fn options_are_told_from_mistakes() {
        let parse = |words: &[&str]| parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert!(parse(&["--check", "--ptxas", "auto"]).is_ok_and(|o| o.check && o.ptxas.as_deref() == Some("auto")));
        assert!(parse(&["--rustc"]).is_err());
        assert!(parse(&["--cheque"]).is_err());
    }
}
