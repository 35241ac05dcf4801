//! From the crate to PTX text: the one place that another code generator would replace.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Target;
use super::compiler::Compiler;

/// What makes PTX of `crates/gmm-kernels`.
///
/// Today that is rustc's own NVPTX target. `rustc_codegen_nvvm`, driven by `cuda_builder`, would be a second
/// implementation; its device crate differs in entry points and features, which `kernel.rs` and `device/ptx.rs` hold.
pub(super) trait Codegen: Sync {
    /// One line that identifies it, version included: two runs of the same name make the same bytes.
    fn name(&self) -> String;

    /// The module for a target, as it comes.
    fn compile(&self, target: &Target) -> Result<String>;
}

/// rustc with LLVM's NVPTX target, and `core` built from source.
pub(super) struct Rustc {
    pub(super) root: PathBuf,
    pub(super) compiler: Compiler,
}

/// Variables that would change what is built, or by whom.
const FOREIGN: [&str; 8] = [
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
];

impl Codegen for Rustc {
    fn name(&self) -> String {
        self.compiler.version.clone()
    }

    fn compile(&self, target: &Target) -> Result<String> {
        // A folder for each target: cargo locks the one that it builds in, and targets are compiled side by side.
        let folder = self.root.join("target/ptx").join(target.name);
        fs::create_dir_all(&folder)?;
        let asm = folder.join(format!("{}.s", target.name));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .current_dir(&self.root)
            .env("RUSTC", &self.compiler.rustc)
            // Kernels need features that are not stable: the kernel calling convention and inline PTX.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "fat")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
            .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .args(["rustc", "--quiet", "--locked", "--package", "gmm-kernels", "--lib", "--release"])
            // Without what packs the modules that this makes.
            .arg("--no-default-features")
            .args(["--crate-type", "cdylib", "-Zbuild-std=core", "--target", "nvptx64-nvidia-cuda"])
            .arg("--target-dir")
            .arg(&folder);
        if let Some(feature) = target.feature {
            command.args(["--features", feature]);
        }
        // There is nothing to link: the assembly is the product.
        command.args(["--", "-Clinker=true", "-Zlocation-detail=none"]);
        // A closure that is not inlined takes what it captures through memory, and registers become a stack.
        command.arg("-Cllvm-args=-inline-threshold=1000000");
        command.arg(format!("-Ctarget-cpu={}", target.name));
        command.arg(format!("--emit=asm={}", asm.display()));
        let status = command.status().context("cannot run cargo")?;
        ensure!(status.success(), "{}: the kernels do not compile for the device", target.name);
        fs::read_to_string(&asm).with_context(|| format!("the compiler left no {}", asm.display()))
    }
}
