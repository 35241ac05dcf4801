//! The committed PTX modules and machine code, made by `cargo xtask build-ptx`.
//!
//! `build.rs` compresses each kernel separately: a program carries 5 MB instead of 34, and decompresses only the few
//! kernels that it runs, each in a fraction of a millisecond.
//!
//! Devices of compute capability 8.x and 9.0 load machine code, one [`Image`] per family of kernels. Others compile the
//! PTX, which takes a driver up to two seconds for the kernels of a fit the first time.

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
    /// Whether the kernel waits for the preceding grids itself.
    waits: bool,
    /// Indices of its machine code in the table of all images.
    images: &'static [usize],
}

/// The machine code of a family of kernels for one architecture.
#[derive(Debug)]
pub struct Image {
    /// `sm_80` for compute capability 8.x, `sm_90a` for 9.0.
    architecture: &'static str,
    /// A Zstandard frame.
    frame: &'static [u8],
}

impl Image {
    /// Whether a device of this compute capability (90 for 9.0) can load the code: one of the same major version and at
    /// least the same minor version. For an architecture with an `a`, the minor version must be the same too.
    pub fn runs_on(&self, capability: u32) -> bool {
        let name = self.architecture.trim_start_matches("sm_");
        let made_for: u32 = name.trim_end_matches('a').parse().unwrap_or(u32::MAX);
        if name.ends_with('a') {
            capability == made_for
        } else {
            capability / 10 == made_for / 10 && capability >= made_for
        }
    }

    /// The code, an ELF file of the kind that CUDA calls cubin.
    ///
    /// # Panics
    /// Never: the frame is checked by a test.
    pub fn code(&self) -> Vec<u8> {
        zstd::stream::decode_all(self.frame).expect("`cargo xtask build-ptx` compressed it")
    }
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

    /// Whether a kernel waits for the preceding grids itself, by `griddepcontrol.wait`. `None` if there is no such kernel.
    pub fn waits(&self, kernel: &str) -> Option<bool> {
        self.find(kernel).map(|(_, packed)| packed.waits)
    }

    /// Returns the machine code that contains a kernel, for a device of this compute capability (90 for 9.0). `None` if
    /// there is none: then the device's driver must compile [`alone`](Self::alone).
    pub fn machine_code(&self, kernel: &str, capability: u32) -> Option<&'static Image> {
        let (_, packed) = self.find(kernel)?;
        packed.images.iter().map(|&at| &built::IMAGES[at]).find(|image| image.runs_on(capability))
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

/// The file that `build.rs` writes: `SOURCES`, `FRAMES`, `IMAGES`, and the head and kernels of each target.
mod built {
    use super::{Image, Packed, part};

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

/// The oldest driver that accepts the machine code, as `cuDriverGetVersion` encodes it: that of the CUDA version whose
/// ptxas made it.
pub const MACHINE_CODE_DRIVER: u32 = 13_000;

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
    fn machine_code_runs_on_the_devices_that_it_was_made_for() {
        let image = |architecture| Image { architecture, frame: &[] };
        let on =
            |architecture| [75, 80, 86, 89, 90, 100, 120].map(|capability| image(architecture).runs_on(capability));
        assert_eq!(on("sm_80"), [false, true, true, true, false, false, false]);
        assert_eq!(on("sm_86"), [false, false, true, true, false, false, false]);
        assert_eq!(on("sm_90a"), [false, false, false, false, true, false, false]);
    }

    #[test]
    fn ampere_and_hopper_have_machine_code_for_every_kernel() {
        for (module, capability) in [(&MODULES[0], 90), (&MODULES[1], 80), (&MODULES[1], 89)] {
            for kernel in module.kernels() {
                let image = module.machine_code(kernel, capability);
                assert!(image.is_some(), "{kernel} for {capability}");
            }
        }
        assert!(MODULES[1].machine_code("update", 120).is_none() && MODULES[2].machine_code("tile_f32", 75).is_none());
        let elf = |image: &Image| image.code().starts_with(b"\x7fELF");
        assert!(built::IMAGES.iter().all(elf));
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
