//! Compiles the crate to PTX text; the only module to replace for another code generator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::compiler::Compiler;

/// A code generator for `crates/gmm-kernels`.
///
/// The only implementation uses rustc's NVPTX target. `rustc_codegen_nvvm` with `cuda_builder` would be another one; it
/// needs other entry points and features, which are confined to `kernel.rs` and `device/ptx.rs`.
pub(super) trait Codegen {
    /// One line that identifies the generator and its version: generators with the same name produce the same bytes.
    fn name(&self) -> String;

    /// Compiles the module, without post-processing.
    fn compile(&self) -> Result<String>;
}

/// rustc with LLVM's NVPTX target, and `core` built from source.
pub(super) struct Rustc {
    pub(super) root: PathBuf,
    pub(super) compiler: Compiler,
}

/// The target with all instructions that kernels use; `gmm_kernels::module` translates for others.
const TARGET: &str = "sm_90a";

/// Environment variables that would change the output or the compiler.
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

    fn compile(&self) -> Result<String> {
        // A folder of its own: the programs for the host are not built anew after the kernels.
        let folder = self.root.join("target/ptx");
        fs::create_dir_all(&folder)?;
        let asm = folder.join("kernels.s");
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .current_dir(&self.root)
            .env("RUSTC", &self.compiler.rustc)
            // Kernels need unstable features: the kernel calling convention and inline PTX.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "fat")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
            .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .args(["rustc", "--quiet", "--locked", "--package", "gmm-kernels", "--lib", "--release"])
            // Without the default feature that packs the PTX files made here.
            .arg("--no-default-features")
            .args(["--crate-type", "cdylib", "-Zbuild-std=core", "--target", "nvptx64-nvidia-cuda"])
            .arg("--target-dir")
            .arg(&folder);
        // No linking: the assembly is the result.
        command.args(["--", "-Clinker=true", "-Zlocation-detail=none"]);
        // A closure that is not inlined passes its captures through memory, which turns registers into a stack frame.
        command.arg("-Cllvm-args=-inline-threshold=1000000");
        command.arg(format!("-Ctarget-cpu={TARGET}"));
        command.arg(format!("--emit=asm={}", asm.display()));
        let status = command.status().context("cannot run cargo")?;
        ensure!(status.success(), "the kernels do not compile for the device");
        fs::read_to_string(&asm).with_context(|| format!("the compiler did not write {}", asm.display()))
    }
}
