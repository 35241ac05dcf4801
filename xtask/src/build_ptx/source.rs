//! The hash of what kernels are made from, and the text that is committed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// SHA-256 over names and contents of `crates/gmm-kernels/Cargo.toml` and `src/**`, in the order of their names.
pub(super) fn hash(root: &Path) -> Result<String> {
    let folder = root.join("crates/gmm-kernels");
    let mut files = vec![folder.join("Cargo.toml")];
    collect(&folder.join("src"), &mut files)?;
    let mut named: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|file| Ok((file.strip_prefix(&folder)?.to_string_lossy().replace('\\', "/"), file)))
        .collect::<Result<_>>()?;
    named.sort();
    let mut sha = Sha256::new();
    for (name, file) in named {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        sha.update(format!("{name}\0{}\0", content.len()));
        sha.update(content);
    }
    Ok(sha.finalize().iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes all");
        out
    }))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// The compiler's text without its own header, comments and blank lines.
///
/// A call fails: device functions are inlined, and a call to a panic would carry names and paths of the machine.
pub(super) fn clean(ptx: &str) -> Result<String> {
    let mut out = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        if line.is_empty() {
            continue;
        }
        if line.starts_with(".func") || line.trim_start().starts_with("call") {
            bail!("the PTX has a call, perhaps to a panic (a division, an index): '{}'", line.trim());
        }
        out.push_str(line);
        out.push('\n');
    }
    Ok(out)
}
