//! Packs the committed PTX: compresses each family of kernels, and writes a Rust index of them and of the machine code,
//! which `src/ptx.rs` includes.

fn main() {
    println!("cargo:rerun-if-changed=ptx");
    #[cfg(feature = "ptx")]
    packing::run();
}

#[cfg(feature = "ptx")]
mod packing {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Folders of the PTX, by the oldest target of their kernels, and its compute capability.
    const FOLDERS: [(&str, u32); 3] = [("sm_75", 75), ("sm_80", 80), ("sm_90a", 90)];

    /// Architectures with machine code.
    const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90a"];

    /// Zstandard level, the lowest that finds the matches of one kernel with another: 15 gives a fifth more, 19 a few
    /// percent less in twice the time.
    const LEVEL: i32 = 16;

    /// Marks the start of a kernel; includes the end of the preceding line.
    const ENTRY: &str = "\n.visible .entry ";

    /// Contained in the text of a kernel that waits for the preceding grids itself.
    const WAITS: &str = "griddepcontrol.wait;";

    /// The kernels of all targets.
    #[derive(Default)]
    struct Kernels {
        /// Lines in front of the kernels that declare what they refer to.
        declarations: BTreeSet<String>,
        /// The texts of a family's kernels, one after another.
        families: BTreeMap<String, String>,
        /// The fields of each kernel in the index.
        index: BTreeMap<String, String>,
    }

    pub(crate) fn run() {
        let mut kernels = Kernels::default();
        for (folder, capability) in FOLDERS {
            for path in files(&Path::new("ptx").join(folder)) {
                kernels.add(&path, capability);
            }
        }
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
        fs::write(out.join("ptx.rs"), kernels.index(&out)).expect("the build's folder can be written");
    }

    impl Kernels {
        /// Adds the kernels of a file.
        fn add(&mut self, path: &Path, capability: u32) {
            let family = path.file_stem().and_then(|name| name.to_str()).expect("a name in ASCII");
            let text = read(path);
            let mut parts = text.split(ENTRY);
            // After the lines with version, target and size of addresses.
            let declared = parts.next().unwrap_or_default().lines().filter(|line| line.ends_with(';'));
            self.declarations.extend(declared.map(|line| format!("{line}\n")));
            let all = self.families.entry(family.to_owned()).or_default();
            for part in parts {
                let start = all.len();
                all.extend([&ENTRY[1..], part.trim_end(), "\n"]);
                let (end, waits) = (all.len(), part.contains(WAITS));
                let fields = format!("start: {start}, end: {end}, capability: {capability}, waits: {waits}");
                let name = part.split('(').next().unwrap_or_default().to_owned();
                let twice = self.index.insert(name, format!("family: {family:?}, {fields}"));
                assert!(twice.is_none(), "{}: a kernel that another file has too", path.display());
            }
        }

        /// Compresses the families into files of `out`, and returns the source of the index.
        fn index(&self, out: &Path) -> String {
            let mut index = format!("pub(super) const SOURCES: &str = {:?};\n", sources());
            let declarations: String = self.declarations.iter().map(String::as_str).collect();
            writeln!(index, "pub(super) const DECLARATIONS: &str = {declarations:?};").unwrap();
            writeln!(index, "pub(super) static KERNELS: [Packed; {}] = [", self.index.len()).unwrap();
            for (name, fields) in &self.index {
                writeln!(index, "    Packed {{ name: {name:?}, {fields} }},").unwrap();
            }
            writeln!(index, "];\npub(super) static FAMILIES: [Family; {}] = [", self.families.len()).unwrap();
            for (name, text) in &self.families {
                let path = out.join(format!("{name}.ptx.zst"));
                let frame = zstd::bulk::compress(text.as_bytes(), LEVEL).expect("memory for a family");
                fs::write(&path, frame).expect("the build's folder can be written");
                let (frame, bytes, images) = (include(&path), text.len(), images(name));
                writeln!(index, "    Family {{ name: {name:?}, frame: {frame}, bytes: {bytes}, images: {images} }},")
                    .unwrap();
            }
            index + "];\n"
        }
    }

    /// The array of a family's machine code.
    fn images(family: &str) -> String {
        let image = |architecture| {
            let path = Path::new("ptx/machine_code").join(architecture).join(format!("{family}.cubin.zst"));
            let there = path.exists();
            there.then(|| format!("Image {{ architecture: {architecture:?}, frame: {} }}, ", include(&path)))
        };
        format!("&[{}]", ARCHITECTURES.into_iter().filter_map(image).collect::<String>())
    }

    fn include(path: &Path) -> String {
        format!("include_bytes!({:?})", std::path::absolute(path).expect("a folder"))
    }

    /// Returns the checksum of the kernels' sources, which `cargo xtask build-ptx` records in `ptx/SOURCES`.
    fn sources() -> String {
        let text = read(Path::new("ptx/SOURCES"));
        let found = text.lines().find_map(|line| line.strip_prefix("sources: sha256 "));
        found.expect("ptx/SOURCES has a line `sources: sha256 ..`").to_owned()
    }

    /// The PTX files of a folder, sorted.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("a folder that can be listed").path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
        files.sort();
        files
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
