//! The committed modules, as `cargo xtask build-ptx` made them.

/// One PTX module.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The target it was compiled for.
    pub target: &'static str,
    /// Compute capability that it needs: 10 times the major version and the minor.
    pub capability: u32,
    /// Whether it runs on that capability alone, and not on later ones.
    pub exact: bool,
    /// The text, which the driver compiles.
    pub text: &'static str,
}

impl Module {
    /// Whether a device of this compute capability (90 for 9.0) takes the module.
    pub const fn runs_on(&self, capability: u32) -> bool {
        if self.exact { capability == self.capability } else { capability >= self.capability }
    }

    /// The module with one of its kernels alone: kernels call nothing, so each stands by itself, and a driver that
    /// compiles what is needed is ready many times sooner.
    pub fn alone(&self, kernel: &str) -> Option<String> {
        const ENTRY: &str = "\n.visible .entry ";
        const END: &str = "\n}\n";
        let head = self.text.find(ENTRY)? + 1;
        let start = self.text.find(&format!("{ENTRY}{kernel}("))? + 1;
        let end = start + self.text[start..].find(END)? + END.len();
        Some([&self.text[..head], &self.text[start..end]].concat())
    }
}

/// Turing and everything since; no tensor-core words.
pub const PTX_SM75: &str = include_str!("../ptx/sm_75.ptx");
/// Ampere and everything since; `mma.sync` for TF32, BF16 and f64.
pub const PTX_SM80: &str = include_str!("../ptx/sm_80.ptx");
/// Hopper alone.
pub const PTX_SM90A: &str = include_str!("../ptx/sm_90a.ptx");

/// All modules, the best first.
pub static MODULES: [Module; 3] = [
    Module { target: "sm_90a", capability: 90, exact: true, text: PTX_SM90A },
    Module { target: "sm_80", capability: 80, exact: false, text: PTX_SM80 },
    Module { target: "sm_75", capability: 75, exact: false, text: PTX_SM75 },
];

/// The best module for a device of this compute capability (90 for 9.0); none below 7.5.
pub fn best(capability: u32) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.runs_on(capability))
}
