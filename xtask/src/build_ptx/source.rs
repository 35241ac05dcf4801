//! The hash of the kernels' sources, and post-processing of the compiler's output.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gmm_kernels::module::ONLY;
use sha2::{Digest, Sha256};

/// SHA-256 of the names and contents of `crates/gmm-kernels/Cargo.toml` and `src/**`, sorted by name.
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

/// Removes comments and blank lines from the compiler's output.
///
/// Errors if the PTX has a call: device functions must be inlined, and a call to a panic would contain names and paths
/// of the machine.
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

/// Launch bounds of a kernel: maximum threads per block, and minimum blocks per multiprocessor (`__launch_bounds__` in
/// CUDA). Rust has no attribute for them.
struct Bounds {
    /// The only target to which they apply; `None` for all.
    target: Option<&'static str>,
    kernel: &'static str,
    threads: u32,
    blocks: u32,
}

/// Kernels that run faster with launch bounds and do not spill registers; and kernels with more than 256 threads per
/// block, which could otherwise need too many registers to be launched.
const BOUNDS: [Bounds; 64] = [
    Bounds { target: Some("sm_90a"), kernel: "chunked_fp16_densities_full_8_narrow", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_fp16_densities_full_8_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_fp16_densities_linear_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_fp16_moments_full_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_fp16_moments_linear_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_densities_full_4_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_densities_full_4_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_densities_full_8_few", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_densities_full_8_narrow", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_densities_full_8_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_moments_full_deep", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_moments_full_narrow", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_moments_full_wide", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "chunked_split_fp16_moments_linear_wide", threads: 128, blocks: 2 },
    Bounds { target: Some("sm_90a"), kernel: "fused_full_and_one_1_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "fused_full_and_one_3_1_f32", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "fused_full_and_one_3_1_f64", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "fused_linear_1_4", threads: 128, blocks: 4 },
    Bounds { target: Some("sm_90a"), kernel: "fused_linear_2_2", threads: 128, blocks: 4 },
    Bounds { target: Some("sm_90a"), kernel: "fused_linear_2_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_90a"), kernel: "fused_squares_1_1_f32", threads: 128, blocks: 5 },
    Bounds { target: Some("sm_90a"), kernel: "fused_squares_1_1_f64", threads: 128, blocks: 5 },
    Bounds { target: Some("sm_90a"), kernel: "fused_squares_1_4", threads: 128, blocks: 3 },
    Bounds { target: Some("sm_80"), kernel: "fused_squares_2_2", threads: 128, blocks: 4 },
    Bounds { target: None, kernel: "single_mixture_4", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "single_mixture_8", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "single_mixture_12", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "single_mixture_13", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "single_mixture_16", threads: 640, blocks: 1 },
    Bounds { target: None, kernel: "fixed_point_1", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "fixed_point_2", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "fixed_point_4", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "fixed_point_8", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "wgmma_fixed_point_1", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "wgmma_fixed_point_2", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "wgmma_fixed_point_4", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "wgmma_fixed_point_8", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "log_likelihood_squares_7_one_f32", threads: 128, blocks: 6 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_96", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_128", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_halves_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_halves_96", threads: 384, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_halves_128", threads: 384, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_joint_halves_192", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_moments_full", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_moments_halves", threads: 256, blocks: 1 },
    Bounds { target: None, kernel: "lloyd_end", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "small_d_1", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "small_d_2_7", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "small_d_2_8", threads: 512, blocks: 1 },
    Bounds { target: None, kernel: "small_d_3", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_64", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_96", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_128", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_160", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_192", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_logs_256", threads: 512, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_64", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_96", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_128", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_160", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_192", threads: 256, blocks: 1 },
    Bounds { target: Some("sm_90a"), kernel: "wgmma_sums_256", threads: 256, blocks: 1 },
];

/// Adds the directives of [`BOUNDS`] to the module.
pub(super) fn with_bounds(ptx: &str) -> Result<String> {
    let mut out = ptx.to_owned();
    for Bounds { target, kernel, threads, blocks } in &BOUNDS {
        let entry = out.find(&format!(".visible .entry {kernel}(")).with_context(|| format!("no {kernel}"))?;
        let body = entry + out[entry..].find("\n{").with_context(|| format!("{kernel} has no body"))? + 1;
        let only = target.map_or(String::new(), |target| format!("{ONLY}{target}"));
        out.insert_str(body, &format!(".maxntid {threads}, 1, 1{only}\n.minnctapersm {blocks}{only}\n"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gmm_kernels::module::MODULES;

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
        let text = with_bounds(&names.into_iter().map(one).collect::<String>()).unwrap();
        let directive = |threads, blocks| format!("\n.maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n");
        let count = |target, threads, blocks| {
            let module = MODULES.iter().find(|module| module.target == target).unwrap();
            module.translated(&text).matches(&directive(threads, blocks)).count()
        };
        assert_eq!((count("sm_90a", 128, 3), count("sm_90a", 512, 1)), (12, 23));
        assert_eq!((count("sm_80", 128, 3), count("sm_80", 512, 1)), (0, 13));
        assert!(with_bounds("nothing").is_err());
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
