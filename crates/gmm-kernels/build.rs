//! Packs the committed PTX: compresses each kernel separately, and writes a Rust index of them and of the machine code,
//! which `src/ptx.rs` includes.

fn main() {
    println!("cargo:rerun-if-changed=ptx");
    #[cfg(feature = "ptx")]
    packing::run();
}

#[cfg(feature = "ptx")]
mod packing {
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Target names, which are also the names of their folders under `ptx`.
    const TARGETS: [&str; 3] = ["sm_75", "sm_80", "sm_90a"];

    /// Zstandard level: 9 gives 4.8 MB. Level 19 gives 4.4 MB in fifteen times the time.
    const LEVEL: i32 = 9;

    /// Marks the start of a kernel; includes the end of the preceding line.
    const ENTRY: &str = "\n.visible .entry ";

    /// Contained in the PTX of a kernel that waits for the preceding grids itself.
    const WAITS: &str = "griddepcontrol.wait;";

    /// The kernels of a target.
    struct Packed {
        /// Distinct lines, other than comments, in front of the first kernel of any of the target's files.
        head: Vec<String>,
        kernels: BTreeMap<String, Text>,
    }

    /// The text of a kernel.
    struct Text {
        /// Length in bytes.
        bytes: usize,
        frame: Vec<u8>,
        waits: bool,
    }

    pub(crate) fn run() {
        let packed = std::thread::scope(|scope| {
            let running = TARGETS.map(|target| scope.spawn(move || pack(&Path::new("ptx").join(target))));
            running.map(|thread| thread.join().expect("a folder of kernels that can be packed"))
        });
        let (mut index, mut frames) = (String::new(), Vec::new());
        let images = images();
        writeln!(index, "pub(super) const SOURCES: &str = {:?};", sources()).unwrap();
        for (target, packed) in TARGETS.iter().zip(packed) {
            let (name, count) = (target.to_uppercase(), packed.kernels.len());
            writeln!(index, "pub(super) const {name}_HEAD: &str = {:?};", packed.head.concat()).unwrap();
            writeln!(index, "pub(super) static {name}: [Packed; {count}] = [").unwrap();
            for (kernel, Text { bytes, frame, waits }) in packed.kernels {
                let frame_at = format!("part(&FRAMES, {}, {})", frames.len(), frame.len());
                let of_kernel = |image: &&Image| image.target == *target && image.kernels.contains(&kernel);
                let code: Vec<usize> = images.iter().filter(of_kernel).map(|image| image.number).collect();
                let fields = format!("name: {kernel:?}, frame: {frame_at}, bytes: {bytes}, waits: {waits}");
                writeln!(index, "    Packed {{ {fields}, images: &{code:?} }},").unwrap();
                frames.extend(frame);
            }
            index.push_str("];\n");
        }
        writeln!(index, "pub(super) static IMAGES: [Image; {}] = [", images.len()).unwrap();
        for Image { architecture, path, .. } in &images {
            let content = format!("include_bytes!({:?})", std::path::absolute(path).expect("a folder"));
            writeln!(index, "    Image {{ architecture: {architecture:?}, frame: {content} }},").unwrap();
        }
        index.push_str("];\n");
        let bytes = frames.len();
        let include = "include_bytes!(concat!(env!(\"OUT_DIR\"), \"/ptx.zst\"))";
        writeln!(index, "static FRAMES: [u8; {bytes}] = *{include};").unwrap();
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
        fs::write(out.join("ptx.zst"), frames).expect("the build's folder can be written");
        fs::write(out.join("ptx.rs"), index).expect("the build's folder can be written");
    }

    /// A file of machine code.
    struct Image {
        number: usize,
        architecture: String,
        /// Target of the PTX from which it was made.
        target: String,
        path: PathBuf,
        kernels: Vec<String>,
    }

    /// The files that the list of machine code names, which `cargo xtask build-ptx` writes.
    fn images() -> Vec<Image> {
        let folder = Path::new("ptx/machine_code");
        let text = read(&folder.join("LIST"));
        let image = |(number, line): (usize, &str)| {
            let mut words = line.split(' ').skip(1);
            let path = words.next().expect("a line with a path");
            let (architecture, name) = path.split_once('/').expect("a path with a folder");
            let (target, _) = name.split_once('-').expect("a name that starts with a target");
            Image {
                number,
                architecture: architecture.to_owned(),
                target: target.to_owned(),
                path: folder.join(format!("{path}.cubin.zst")),
                kernels: words.map(str::to_owned).collect(),
            }
        };
        // Two lines say what the list is, and who made it.
        text.lines().skip(2).enumerate().map(image).collect()
    }

    /// Returns the checksum of the kernels' sources, which `cargo xtask build-ptx` records in `ptx/SOURCES`.
    fn sources() -> String {
        let text = read(Path::new("ptx/SOURCES"));
        let found = text.lines().find_map(|line| line.strip_prefix("sources: sha256 "));
        found.expect("ptx/SOURCES has a line `sources: sha256 ..`").to_owned()
    }

    /// Compresses each kernel of a folder's files.
    fn pack(folder: &Path) -> Packed {
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("a folder that can be listed").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
            .collect();
        files.sort();
        let mut compressor = zstd::bulk::Compressor::new(LEVEL).expect("a level that Zstandard has");
        let mut packed = Packed { head: Vec::new(), kernels: BTreeMap::new() };
        for file in files {
            let text = read(&file);
            let mut parts = text.split(ENTRY);
            let head = parts.next().unwrap_or_default().lines().filter(|line| !line.starts_with("//"));
            for line in head.map(|line| format!("{line}\n")) {
                if !packed.head.contains(&line) {
                    packed.head.push(line);
                }
            }
            for part in parts {
                let name = part.split('(').next().unwrap_or_default().to_owned();
                let entry = [&ENTRY[1..], part.trim_end(), "\n"].concat();
                let frame = compressor.compress(entry.as_bytes()).expect("memory for a kernel");
                let text = Text { bytes: entry.len(), frame, waits: entry.contains(WAITS) };
                let twice = packed.kernels.insert(name, text);
                assert!(twice.is_none(), "{}: a kernel that another file has too", file.display());
            }
        }
        packed
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
