//! The hash of what kernels are made from, and the compiler's text made fit.

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
    Ok(hexadecimal(sha))
}

/// SHA-256 of a file's content.
pub(super) fn sha256(content: &[u8]) -> String {
    hexadecimal(Sha256::new_with_prefix(content))
}

fn hexadecimal(sha: Sha256) -> String {
    sha.finalize().iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes all");
        out
    })
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

/// What the assembler is told of a kernel: threads of its blocks at most, and how many blocks shall have room on a
/// multiprocessor. Rust has no attribute for it.
struct Bounds {
    /// The only module that is told, if not all are.
    target: Option<&'static str>,
    kernel: &'static str,
    threads: u32,
    blocks: u32,
}

/// Kernels that gain by it and lose no register to memory, and those whose blocks have more than 256 threads, which could not
/// be launched with more registers.
const BOUNDS: [Bounds; 60] = [
    Bounds { target: Some("sm_90a"), kernel: "heads_densities_full_8_narrow", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "heads_densities_full_8_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "heads_densities_linear_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "heads_moments_full_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "heads_moments_linear_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "halves_densities_full_4_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "halves_densities_full_4_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "halves_densities_full_8_few", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "halves_densities_full_8_narrow", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "halves_densities_full_8_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "halves_moments_full_deep", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "halves_moments_full_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "halves_moments_full_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "halves_moments_linear_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_80"), kernel: "pass_full_1_2", threads: 128, blocks: 7 },
    Bounds { target: Some("sm_90a"), kernel: "pass_full_and_one_1_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "pass_full_and_one_3_1", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_80"), kernel: "pass_linear_1_2", threads: 128, blocks: 7 },
    Bounds { target: Some("sm_90a"), kernel: "pass_linear_1_4", threads: 128, blocks: 4 },
    Bounds { target: Some("sm_90a"), kernel: "pass_linear_2_2", threads: 128, blocks: 4 },
    Bounds { target: Some("sm_90a"), kernel: "pass_linear_2_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "pass_squares_1_1", threads: 128, blocks: 5 },
    Bounds { target: Some("sm_90a"), kernel: "pass_squares_1_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_80"), kernel: "pass_squares_2_2", threads: 128, blocks: 4 },
    Bounds { target: None, kernel: "scores_alone_4", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "scores_alone_8", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "scores_alone_12", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "scores_alone_13", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "scores_alone_16", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "scores_slices_1", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "scores_slices_2", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "scores_slices_4", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "scores_slices_8", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "scores_squares_7_one_f32", threads: 128, blocks: 6 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_96", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_128", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_halves_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_halves_96", threads: 384, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_halves_128", threads: 384, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_joint_halves_192", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_moments_full", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_moments_halves", threads: 256, blocks: 1 },
    Bounds { target: None, kernel: "lloyd_end", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "narrow_1", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "narrow_2_7", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "narrow_2_8", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "narrow_3", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_96", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_128", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_160", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_192", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_logs_256", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_64", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_96", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_128", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_160", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_192", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "warpgroups_sums_256", threads: 256, blocks: 1 },
];

/// The text of a target's module with those directives. The module without tensor cores has none of these kernels.
pub(super) fn with_bounds(ptx: &str, target: &str, tensor_cores: bool) -> Result<String> {
    let mut out = ptx.to_owned();
    let told = BOUNDS.iter().filter(|bounds| tensor_cores && bounds.target.is_none_or(|of| of == target));
    for Bounds { kernel, threads, blocks, .. } in told {
        let entry = out.find(&format!(".visible .entry {kernel}(")).with_context(|| format!("no {kernel}"))?;
        let body = entry + out[entry..].find("\n{").with_context(|| format!("{kernel} has no body"))? + 1;
        out.insert_str(body, &format!(".maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_compiler_s_own_comments_go_and_a_call_fails() {
        let text = "//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 8.0\n\tret;  // end\n";
        assert_eq!(clean(text).unwrap(), ".version 8.0\n\tret;\n");
        assert!(clean(".func panic\n").is_err());
        assert!(clean("\tcall.uni panic, ();\n").is_err());
    }

    #[test]
    fn the_assembler_is_told_how_many_blocks_there_should_be() {
        let one = |name: &str| format!(".visible .entry {name}(\n\t.param .u64 a\n)\n{{\n\tret;\n}}\n");
        let names: BTreeSet<&str> = BOUNDS.iter().map(|bounds| bounds.kernel).collect();
        let text: String = names.into_iter().map(one).collect();
        let directive = |threads, blocks| format!(")\n.maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n{{\n\tret;");
        let count = |target, threads, blocks| {
            with_bounds(&text, target, true).unwrap().matches(&directive(threads, blocks)).count()
        };
        assert_eq!((count("sm_90a", 128, 3), count("sm_90a", 512, 1)), (11, 19));
        assert_eq!((count("sm_80", 128, 3), count("sm_80", 512, 1)), (0, 9));
        assert_eq!(with_bounds(&text, "sm_75", false).unwrap(), text);
        assert!(with_bounds("nothing", "sm_90a", true).is_err());
    }

    #[test]
    fn the_hash_names_every_file() {
        let folder = std::env::temp_dir().join(format!("build-ptx-hash-{}", std::process::id()));
        let source = folder.join("crates/gmm-kernels/src/deep");
        fs::create_dir_all(&source).unwrap();
        fs::write(folder.join("crates/gmm-kernels/Cargo.toml"), "[package]").unwrap();
        fs::write(source.join("a.rs"), "fn a() {}").unwrap();
        let first = hash(&folder).unwrap();
        assert_eq!(first, hash(&folder).unwrap());
        fs::rename(source.join("a.rs"), source.join("b.rs")).unwrap();
        let renamed = hash(&folder).unwrap();
        fs::write(source.join("b.rs"), "fn b() {}").unwrap();
        assert!(first != renamed && renamed != hash(&folder).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
