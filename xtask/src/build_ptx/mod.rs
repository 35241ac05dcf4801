//! `cargo xtask build-ptx`: the kernels as PTX, committed, and the proof that what is committed is fresh.
//!
//! ```text
//! cargo xtask build-ptx [--check] [--rustc PATH] [--ptxas PATH|auto]
//! ```
//! Without options it compiles one module per [`Target`] into `crates/gmm-kernels/ptx/`. With `--check` it writes
//! nothing and fails where a committed module differs. Where there is a `ptxas` (given, in the path, or in
//! `target/ptxas`, where `auto` puts one by pip) each module is assembled for its architectures, and a spill or a stack
//! frame is a failure.

mod codegen;
mod compiler;
mod ptxas;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};

use codegen::Codegen;

/// A module: what it is compiled for, and where it must run.
struct Target {
    name: &'static str,
    /// Cargo feature that lets the crate use the target's words.
    feature: Option<&'static str>,
    /// Architectures that it is assembled for.
    assemble: &'static [&'static str],
}

const TARGETS: [Target; 3] = [
    // The oldest that ptxas 13 assembles.
    Target { name: "sm_75", feature: None, assemble: &["sm_75", "sm_90", "sm_120"] },
    Target { name: "sm_80", feature: Some("sm_80"), assemble: &["sm_80", "sm_86", "sm_90", "sm_120"] },
    Target { name: "sm_90a", feature: Some("sm_90a"), assemble: &["sm_90a"] },
];

/// PTX versions up to this are taken by the oldest driver of CUDA 13.
const NEWEST_PTX: (u32, u32) = (9, 0);

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
    let hash = source::hash(&root)?;
    let committed = |target: &Target| root.join(format!("crates/gmm-kernels/ptx/{}.ptx", target.name));
    let made_by = fs::read_to_string(committed(&TARGETS[0])).ok().and_then(|text| field(&text, "compiler"));
    let compiler = compiler::find(options.rustc.as_deref(), made_by.as_deref())?;
    println!("compiler: {}", compiler.version);
    let codegen = codegen::Rustc { root: root.clone(), compiler };

    let mut stale = Vec::new();
    for (target, text) in TARGETS.iter().zip(side_by_side(&TARGETS, |target| module(&codegen, target, &hash))) {
        let (path, text) = (committed(target), text?);
        if !options.check {
            fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}: {} kB", path.strip_prefix(&root)?.display(), text.len() / 1024);
            continue;
        }
        let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(why) = staleness(&old, &text, &codegen.name(), &hash) {
            stale.push(format!("{}: {why}", path.strip_prefix(&root)?.display()));
        }
    }
    ensure!(stale.is_empty(), "stale PTX; run `cargo xtask build-ptx` and commit the result:\n{}", stale.join("\n"));

    match ptxas::find(&root, options.ptxas.as_deref())? {
        Some(ptxas) => {
            let modules = TARGETS.map(|target| (committed(&target), target.assemble));
            ptxas::assemble(&ptxas, &modules)
        }
        None => {
            println!("no ptxas: not assembled (--ptxas auto installs one under target/)");
            Ok(())
        }
    }
}

/// Does all jobs, as many at a time as there are cores; the results in the jobs' order.
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

/// The committed form: header and text.
fn module(codegen: &impl Codegen, target: &Target, hash: &str) -> Result<String> {
    let ptx = source::with_bounds(&source::clean(&codegen.compile(target)?)?, target.name, target.feature.is_some())?;
    let version = ptx
        .lines()
        .find_map(|line| line.strip_prefix(".version "))
        .with_context(|| format!("{}: no .version in the PTX", target.name))?;
    let number = version.trim().split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    ensure!(number.is_some_and(|n| n <= NEWEST_PTX), "{}: PTX {version} is newer than drivers take", target.name);
    Ok(format!(
        "// Kernels of gmm-kernels. Made by `cargo xtask build-ptx`; do not edit.\n\
         // compiler: {}\n// target: {}, PTX {version}\n// sources: sha256 {hash}\n{ptx}",
        codegen.name(),
        target.name,
    ))
}

/// Why a committed module is stale, if it is.
fn staleness(old: &str, new: &str, compiler: &str, hash: &str) -> Option<String> {
    if old == new {
        return None;
    }
    if field(old, "sources").is_none_or(|line| !line.ends_with(hash)) {
        return Some("made from other sources".to_owned());
    }
    match field(old, "compiler") {
        // Two compilers differ in what they write; the hash says that the sources are these.
        Some(other) if other != compiler => {
            println!("note: committed by '{other}', which is not this compiler: only the sources' hash was compared");
            None
        }
        _ => Some("differs from what its compiler makes of these sources".to_owned()),
    }
}

/// A line of a module's header.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().take(5).find_map(|line| Some(line.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": ")?.into()))
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(compiler: &str, hash: &str, body: &str) -> String {
        format!("// Kernels\n// compiler: {compiler}\n// target: sm_75\n// sources: sha256 {hash}\n{body}")
    }

    #[test]
    fn other_sources_or_other_bytes_are_stale() {
        let old = text("rustc 1", "abc", "ret;");
        assert_eq!(staleness(&old, &old, "rustc 1", "abc"), None);
        let other_sources = staleness(&old, &text("rustc 1", "def", "ret;"), "rustc 1", "def");
        assert_eq!(other_sources.as_deref(), Some("made from other sources"));
        assert!(staleness(&old, &text("rustc 1", "abc", "exit;"), "rustc 1", "abc").is_some());
        assert!(staleness("", &old, "rustc 1", "abc").is_some());
    }

    #[test]
    fn another_compiler_writes_other_bytes_of_the_same_sources() {
        let old = text("rustc 1", "abc", "ret;");
        assert_eq!(staleness(&old, &text("rustc 2", "abc", "exit;"), "rustc 2", "abc"), None);
        assert!(staleness(&old, &text("rustc 2", "def", "exit;"), "rustc 2", "def").is_some());
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
