//! The committed kernels, as PTX and as machine code, made by `cargo xtask build-ptx`.
//!
//! `build.rs` compresses each family of kernels: a program carries 2 MB instead of 18, and decompresses only what it
//! runs, each family in a few milliseconds.
//!
//! Devices of compute capability 8.x and 9.0 load machine code, one [`Image`] per family of kernels. Others compile the
//! PTX, which takes a driver up to two seconds for the kernels of a fit the first time.

pub use crate::module::{MODULES, Module, best};

/// A kernel's place in the text of its family.
#[derive(Debug)]
struct Packed {
    name: &'static str,
    family: &'static str,
    start: usize,
    end: usize,
    /// Compute capability of its oldest target.
    capability: u32,
    /// Whether it waits for the preceding grids itself, on devices that can.
    waits: bool,
}

/// A family of kernels.
#[derive(Debug)]
struct Family {
    name: &'static str,
    /// Their texts, as the compiler wrote them, as a Zstandard frame.
    frame: &'static [u8],
    /// Length of the texts in bytes.
    bytes: usize,
    /// Their machine code, for some architectures.
    images: &'static [Image],
}

/// The machine code of a family of kernels for one architecture.
#[derive(Debug)]
pub struct Image {
    /// `sm_80` for compute capability 8.x, `sm_90a` for 9.0.
    architecture: &'static str,
    /// A Zstandard frame.
    frame: &'static [u8],
}

/// The file that `build.rs` writes: `SOURCES`, `DECLARATIONS`, and `KERNELS` and `FAMILIES`, sorted by name.
mod built {
    use super::{Family, Image, Packed};

    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// SHA-256 of the sources from which the kernels were compiled, in hexadecimal.
pub const SOURCES: &str = built::SOURCES;

/// The oldest driver that accepts the machine code, as `cuDriverGetVersion` encodes it: that of the CUDA version whose
/// ptxas made it.
pub const MACHINE_CODE_DRIVER: u32 = 13_000;

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
    /// Returns the names of the module's kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        let capability = self.capability;
        built::KERNELS.iter().filter(move |kernel| kernel.capability <= capability).map(|kernel| kernel.name)
    }

    /// Whether the module has a kernel of this name. Decompresses nothing.
    pub fn has(&self, kernel: &str) -> bool {
        self.find(kernel).is_some()
    }

    /// Returns the PTX text of a module with only this kernel, for the driver to compile, or `None` if there is no such
    /// kernel. Kernels call nothing, so each one stands on its own, and the driver is ready many times sooner than with
    /// the whole module.
    pub fn alone(&self, kernel: &str) -> Option<String> {
        let Packed { family, start, end, .. } = *self.find(kernel)?;
        let Family { frame, bytes, .. } = *self::family(family);
        let all = zstd::bulk::decompress(frame, bytes).expect("the build compressed it");
        let text = str::from_utf8(&all[start..end]).expect("the build read it as text");
        Some([&self.directives(), built::DECLARATIONS, &self.translated(text)].concat())
    }

    /// Whether a kernel waits for the preceding grids itself, by `griddepcontrol.wait`. `None` if there is no such kernel.
    pub fn waits(&self, kernel: &str) -> Option<bool> {
        self.find(kernel).map(|kernel| kernel.waits && self.capability >= 90)
    }

    /// Returns the machine code that contains a kernel, for a device of this compute capability (90 for 9.0). `None` if
    /// there is none: then the device's driver must compile [`alone`](Self::alone).
    pub fn machine_code(&self, kernel: &str, capability: u32) -> Option<&'static Image> {
        family(self.find(kernel)?.family).images.iter().find(|image| image.runs_on(capability))
    }

    fn find(&self, kernel: &str) -> Option<&'static Packed> {
        let at = built::KERNELS.binary_search_by(|packed| packed.name.cmp(kernel)).ok()?;
        Some(&built::KERNELS[at]).filter(|kernel| kernel.capability <= self.capability)
    }
}

/// The family of this name.
fn family(name: &str) -> &'static Family {
    let at = built::FAMILIES.binary_search_by(|family| family.name.cmp(name));
    &built::FAMILIES[at.expect("the build listed each kernel's family")]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ENTRY: &str = ".visible .entry ";

    #[test]
    fn each_kernel_is_unpacked_as_it_was_and_stands_alone() {
        for oldest in &MODULES {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx").join(oldest.target);
            let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()));
            let files: Vec<String> = files.collect::<Result<_, _>>().unwrap();
            let committed: BTreeSet<&str> = files.iter().flat_map(|file| file.split(ENTRY).skip(1)).collect();
            let own = || built::KERNELS.iter().filter(|kernel| kernel.capability == oldest.capability);
            assert!(own().map(|kernel| kernel.name).eq(committed.iter().map(|text| text.split('(').next().unwrap())));
            for (kernel, committed) in own().zip(&committed) {
                for module in MODULES.iter().filter(|module| module.capability >= oldest.capability) {
                    let text = module.alone(kernel.name).unwrap();
                    let (head, entry) = text.split_once(ENTRY).unwrap();
                    assert!(head.starts_with(&module.directives()), "{}: {}", module.target, kernel.name);
                    assert_eq!(entry, module.translated(committed), "{}: {}", module.target, kernel.name);
                }
            }
        }
    }

    #[test]
    fn a_kernel_is_found_by_its_whole_name() {
        let [hopper, _, turing] = &MODULES;
        assert!(hopper.has("update") && hopper.has("update_wide") && !hopper.has("updat") && !hopper.has(""));
        assert!(!turing.has("update") && turing.alone("update").is_none());
        assert!(turing.has("e_step_full_f32") && !turing.has("wgmma_encode") && hopper.has("wgmma_encode"));
    }

    #[test]
    fn no_text_for_older_devices_has_an_instruction_of_hopper() {
        for module in MODULES.iter().filter(|module| module.target != "sm_90a") {
            for kernel in module.kernels() {
                let text = module.alone(kernel).unwrap();
                let found = ["griddepcontrol", "wgmma", "m16n8k16.row.col.f64", "createpolicy", "cache_hint", "{_"];
                assert_eq!(found.map(|word| text.contains(word)), [false; 6], "{}: {kernel}", module.target);
            }
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
        assert!(built::FAMILIES.iter().flat_map(|family| family.images).all(elf));
    }
}
