//! The committed PTX modules, made by `cargo xtask build-ptx`.
//!
//! `build.rs` compresses each kernel separately: a program carries 5 MB instead of 34, and decompresses only the few
//! kernels that it runs, each in a fraction of a millisecond.

use std::collections::BTreeSet;

/// The kernels of one target.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The target they were compiled for.
    pub target: &'static str,
    /// Compute capability that the kernels need: 10 times the major version plus the minor.
    pub capability: u32,
    /// Whether the kernels run only on that capability, and not on later ones.
    pub exact: bool,
    /// Text in front of a kernel: PTX version, target, and the tables and shared memory that kernels refer to.
    pub head: &'static str,
    /// The module's own kernels, sorted by name.
    pub packed: &'static [Packed],
    /// The module of an older target, which provides the kernels that are the same for both.
    pub base: Option<&'static Module>,
}

/// A compressed kernel.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    name: &'static str,
    /// The kernel's text as a Zstandard frame.
    frame: &'static [u8],
    /// Length of the text in bytes.
    bytes: usize,
}

impl Module {
    /// Whether a device of this compute capability (90 for 9.0) can load the module.
    pub const fn runs_on(&self, capability: u32) -> bool {
        if self.exact { capability == self.capability } else { capability >= self.capability }
    }

    /// Returns the names of the module's kernels and of those inherited from its bases, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        let names = |module: &Self| module.packed.iter().map(|kernel| kernel.name);
        let of_bases = std::iter::successors(self.base, |module| module.base).flat_map(names);
        names(self).chain(of_bases).collect::<BTreeSet<_>>().into_iter()
    }

    /// Whether the module has a kernel of this name. Decompresses nothing.
    pub fn has(&self, kernel: &str) -> bool {
        self.find(kernel).is_some()
    }

    /// Returns the PTX text of a module with only this kernel, for the driver to compile, or `None` if there is no such
    /// kernel. Kernels call nothing, so each one stands on its own, and the driver is ready many times sooner than with
    /// the whole module.
    pub fn alone(&self, kernel: &str) -> Option<String> {
        let (module, packed) = self.find(kernel)?;
        let text = zstd::bulk::decompress(packed.frame, packed.bytes).expect("the build compressed it");
        Some(module.head.to_owned() + str::from_utf8(&text).expect("the build read it as text"))
    }

    /// Finds a kernel and the module that holds it: this one or the nearest base.
    fn find(&self, kernel: &str) -> Option<(&Self, &'static Packed)> {
        match self.packed.binary_search_by(|packed| packed.name.cmp(kernel)) {
            Ok(at) => Some((self, &self.packed[at])),
            Err(_) => self.base?.find(kernel),
        }
    }
}

/// Returns `all[start..start + length]`; slicing is not `const`.
const fn part(all: &'static [u8], start: usize, length: usize) -> &'static [u8] {
    all.split_at(start).1.split_at(length).0
}

/// The file that `build.rs` writes: `SOURCES`, `FRAMES`, and the head and kernels of each target.
mod built {
    use super::{Packed, part};

    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// SHA-256 of the sources from which the kernels were compiled, in hexadecimal.
pub const SOURCES: &str = built::SOURCES;

/// Turing and later; no tensor-core instructions.
static SM_75: Module = Module {
    target: "sm_75",
    capability: 75,
    exact: false,
    head: built::SM_75_HEAD,
    packed: &built::SM_75,
    base: None,
};

/// Ampere and later; `mma.sync` for TF32, BF16 and f64.
static SM_80: Module = Module {
    target: "sm_80",
    capability: 80,
    exact: false,
    head: built::SM_80_HEAD,
    packed: &built::SM_80,
    base: Some(&SM_75),
};

/// Hopper only.
static SM_90A: Module = Module {
    target: "sm_90a",
    capability: 90,
    exact: true,
    head: built::SM_90A_HEAD,
    packed: &built::SM_90A,
    base: Some(&SM_80),
};

/// All modules, the best first.
pub static MODULES: [Module; 3] = [SM_90A, SM_80, SM_75];

/// Returns the best module for a device of this compute capability (90 for 9.0), or `None` below 7.5.
pub fn best(capability: u32) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.runs_on(capability))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = ".visible .entry ";

    #[test]
    fn each_kernel_is_unpacked_as_it_was_and_stands_alone() {
        for module in &MODULES {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx").join(module.target);
            let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()));
            let files: Vec<String> = files.collect::<Result<_, _>>().unwrap();
            let committed: BTreeSet<&str> = files.iter().flat_map(|file| file.split(ENTRY).skip(1)).collect();
            let own = || module.packed.iter().map(|kernel| kernel.name);
            assert!(own().eq(committed.iter().map(|text| text.split('(').next().unwrap())));
            for kernel in own() {
                let text = module.alone(kernel).unwrap();
                let entry = text.strip_prefix(module.head).and_then(|text| text.strip_prefix(ENTRY));
                assert!(entry.is_some_and(|entry| committed.contains(entry)), "{}: {kernel}", module.target);
            }
        }
    }

    #[test]
    fn a_kernel_is_found_by_its_whole_name() {
        let [hopper, _, turing] = &MODULES;
        assert!(hopper.has("update") && hopper.has("update_wide") && !hopper.has("updat") && !hopper.has(""));
        assert!(!turing.has("update") && turing.alone("update").is_none());
    }

    #[test]
    fn a_kernel_that_is_the_same_for_several_targets_is_that_of_the_oldest() {
        let [hopper, ampere, turing] = &MODULES;
        let text = turing.alone("e_step_full_f32");
        assert!(text.is_some() && hopper.alone("e_step_full_f32") == text && ampere.alone("e_step_full_f32") == text);
        assert!(hopper.alone("update").unwrap().contains(".target sm_90a"));
        for module in &MODULES {
            let base: BTreeSet<&str> = module.base.into_iter().flat_map(Module::kernels).collect();
            assert!(base.is_subset(&module.kernels().collect()), "{}", module.target);
        }
    }

    #[test]
    fn a_module_s_head_states_version_and_target_first() {
        for module in &MODULES {
            let mut lines = module.head.lines();
            assert!(lines.next().is_some_and(|line| line.starts_with(".version ")), "{}", module.head);
            assert_eq!(lines.next(), Some(format!(".target {}", module.target).as_str()));
        }
    }
}
