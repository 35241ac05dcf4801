//! Assembles kernels with ptxas and reports the registers of each; needs no GPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The pip package of ptxas, from CUDA 13.0, whose drivers the modules are made for.
const PACKAGE: &str = "nvidia-cuda-nvcc==13.0.*";

/// What ptxas makes of a file.
pub(super) struct Assembled {
    /// Machine code.
    pub(super) code: Vec<u8>,
    kernels: Vec<Usage>,
}

/// Resources of a kernel on one architecture.
struct Usage {
    kernel: String,
    registers: u32,
    stack: u32,
    spills: u32,
}

/// The given ptxas; else one in the path; else one under `target/`, where `auto` installs it; else `None`.
pub(super) fn find(root: &Path, given: Option<&str>) -> Result<Option<PathBuf>> {
    let folder = root.join("target/ptxas");
    match given {
        Some("auto") => installed(&folder).map_or_else(|| install(&folder), Ok).map(Some),
        Some(path) => Ok(Some(path.into())),
        None if Command::new("ptxas").arg("--version").output().is_ok_and(|o| o.status.success()) => {
            Ok(Some("ptxas".into()))
        }
        None => Ok(installed(&folder)),
    }
}

fn install(folder: &Path) -> Result<PathBuf> {
    println!("installing {PACKAGE} under {}", folder.display());
    let run = |program: &Path, args: &[&str]| -> Result<()> {
        let status = Command::new(program).args(args).status();
        let done = status.with_context(|| format!("cannot run {}", program.display()))?.success();
        ensure!(done, "{} {} failed", program.display(), args.join(" "));
        Ok(())
    };
    run(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()])?;
    run(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", PACKAGE])?;
    installed(folder).context("the package does not contain ptxas")
}

/// Finds `lib/pythonX.Y/site-packages/nvidia/cuNN/bin/ptxas` for any X, Y and NN.
fn installed(folder: &Path) -> Option<PathBuf> {
    let children = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    children(&folder.join("lib"))
        .flat_map(|python| children(&python.join("site-packages/nvidia")).collect::<Vec<_>>())
        .map(|package| package.join("bin/ptxas"))
        .find(|path| path.exists())
}

/// Release and build of a ptxas.
pub(super) fn version(ptxas: &Path) -> Result<String> {
    let out = Command::new(ptxas).arg("--version").output();
    let out = out.with_context(|| format!("cannot run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let release = text.lines().find_map(|line| line.split_once("release ")).map(|(_, release)| release.to_owned());
    release.with_context(|| format!("{} --version prints no release", ptxas.display()))
}

/// Assembles a PTX text, called `name` in messages, for an architecture.
pub(super) fn assemble(ptxas: &Path, architecture: &str, name: &str, text: &str) -> Result<Assembled> {
    let folder = tempfile::tempdir()?;
    // ptxas writes the name of its input into the output.
    fs::write(folder.path().join("kernels.ptx"), text)?;
    let out = Command::new(ptxas)
        .current_dir(folder.path())
        .args(["-v", "-arch", architecture, "-o", "kernels.cubin", "kernels.ptx"])
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "ptxas cannot assemble {name}:\n{text}");
    let kernels = usages(&text);
    ensure!(!kernels.is_empty(), "ptxas reported no kernels in {name}");
    Ok(Assembled { code: fs::read(folder.path().join("kernels.cubin"))?, kernels })
}

/// The resources of each kernel in the output of ptxas.
fn usages(text: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Usage { kernel, registers: 0, stack: 0, spills: 0 });
        }
        let Some(usage) = all.last_mut() else { continue };
        let before = |what: &str| {
            let words: Vec<&str> = line.split(what).next()?.split_whitespace().collect();
            if line.contains(what) { words.last()?.parse::<u32>().ok() } else { None }
        };
        usage.stack = usage.stack.max(before(" bytes stack frame").unwrap_or(0));
        usage.spills += before(" bytes spill stores").unwrap_or(0) + before(" bytes spill loads").unwrap_or(0);
        usage.registers = usage.registers.max(before(" registers").unwrap_or(0));
    }
    all
}

/// Prints the registers of each kernel on each architecture. Errors if a kernel has register spills or a stack frame.
pub(super) fn report(all: &[(&str, &Assembled)]) -> Result<()> {
    let mut table: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (architecture, assembled) in all {
        for Usage { kernel, registers, stack, spills } in &assembled.kernels {
            if *spills > 0 || *stack > 0 {
                wrong.push(format!("{kernel} on {architecture}: {spills} bytes spilled, {stack} bytes of stack"));
            }
            table.entry(kernel).or_default().insert(architecture, *registers);
        }
    }
    println!("registers per thread");
    for (kernel, registers) in &table {
        println!("  {kernel:42}{}", registers.iter().map(|(on, r)| format!("  {on} {r:>3}")).collect::<String>());
    }
    ensure!(wrong.is_empty(), "kernels with register spills or stack frames:\n{}", wrong.join("\n"));
    println!("  no spills, no stack frames");
    Ok(())
}
