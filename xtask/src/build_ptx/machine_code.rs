//! Machine code: what ptxas makes of the PTX for the devices that most users have.
//!
//! A driver compiles PTX on a kernel's first use, one kernel at a time, and needs seconds for those of a fit. Devices
//! of the architectures in [`ARCHITECTURES`] load machine code instead. All others, and drivers that do not accept it,
//! compile the PTX.
//!
//! `crates/gmm-kernels/ptx/machine_code/<architecture>/<family>.cubin.zst` has the machine code of all kernels of a
//! family that run on the architecture. `LIST`, beside the folders, has the checksums of the PTX from which they were
//! made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gmm_kernels::module::{MODULES, Module};

use super::committed::{self, Files};
use super::family;
use super::ptxas::{self, Assembled};
use super::side_by_side;
use super::source::sha256;

/// An architecture for which kernels are assembled.
struct Architecture {
    name: &'static str,
    /// Target of the module that its devices load.
    target: &'static str,
    /// Whether the machine code is kept. Otherwise it is only checked for register spills.
    kept: bool,
}

/// Code for `sm_80` runs on every device of compute capability 8.x, that for `sm_90a` on 9.0 only.
const ARCHITECTURES: [Architecture; 5] = [
    // The oldest that ptxas 13 assembles.
    Architecture { name: "sm_75", target: "sm_75", kept: false },
    Architecture { name: "sm_80", target: "sm_80", kept: true },
    Architecture { name: "sm_86", target: "sm_80", kept: false },
    Architecture { name: "sm_90a", target: "sm_90a", kept: true },
    Architecture { name: "sm_120", target: "sm_80", kept: false },
];

/// Folder below that of the PTX, and the name of its list.
const FOLDER: &str = "machine_code";
const LIST: &str = "LIST";

/// Zstandard level: the files are committed, so their size counts more than the seconds that it takes.
const LEVEL: i32 = 19;

/// What one file is made from.
struct Source {
    /// Path below the folder, without extensions: `sm_90a/products`.
    path: String,
    architecture: &'static Architecture,
    ptx: String,
}

impl Source {
    /// The list's line of its file.
    fn line(&self) -> String {
        format!("{} {}", sha256(self.ptx.as_bytes()), self.path)
    }
}

/// All kernels of an architecture, family by family, in the order of their paths.
fn sources(ptx: &Files) -> Vec<Source> {
    let mut all: BTreeMap<String, Source> = BTreeMap::new();
    for architecture in &ARCHITECTURES {
        let module = |target: &str| MODULES.iter().find(|module| module.target == target);
        let capability = |target| module(target).map(|module| module.capability);
        let loaded: &Module = module(architecture.target).expect("a module's target");
        let mut families: BTreeMap<&str, (BTreeSet<&str>, String)> = BTreeMap::new();
        for (path, text) in ptx {
            let Some((target, name)) = path.trim_end_matches(".ptx").split_once('/') else { continue };
            if capability(target).is_some_and(|oldest| oldest <= loaded.capability) {
                let (declarations, kernels) = family::parts(text);
                let family = families.entry(name).or_default();
                family.0.extend(declarations);
                family.1.push_str(&loaded.translated(kernels));
            }
        }
        for (name, (declarations, kernels)) in families {
            let declarations: String = declarations.iter().map(|line| format!("{line}\n")).collect();
            let path = format!("{}/{name}", architecture.name);
            let ptx = [loaded.directives(), declarations, kernels].concat();
            all.insert(path.clone(), Source { path, architecture, ptx });
        }
    }
    all.into_values().collect()
}

fn list_text(assembler: &str, lines: &[String]) -> String {
    let mut text = format!(
        "Machine code of the kernels. Made by `cargo xtask build-ptx` from the PTX; do not edit.\nptxas: {assembler}\n"
    );
    lines.iter().for_each(|line| writeln!(text, "{line}").expect("a string takes all"));
    text
}

/// The committed list: who made it, and its lines.
fn read_list(folder: &Path) -> Option<(String, Vec<String>)> {
    let text = fs::read_to_string(folder.join(LIST)).ok()?;
    let assembler = text.lines().find_map(|line| line.strip_prefix("ptxas: "))?.to_owned();
    Some((assembler, text.lines().skip(2).map(str::to_owned).collect()))
}

fn file(folder: &Path, path: &str) -> PathBuf {
    folder.join(format!("{path}.cubin.zst"))
}

/// All machine code below `folder`, as paths without extensions.
fn present(folder: &Path) -> Vec<String> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = below(folder).filter(|path| path.is_dir()).flat_map(|path| below(&path).collect::<Vec<_>>());
    let name = |path: PathBuf| {
        let name = path.strip_prefix(folder).ok()?.to_string_lossy().replace('\\', "/");
        name.strip_suffix(".cubin.zst").map(str::to_owned)
    };
    files.filter_map(name).collect()
}

/// Assembles everything, for the report and to find register spills.
fn assembled<'a>(ptxas: &Path, all: &'a [Source]) -> Result<Vec<(&'a Source, Assembled)>> {
    let assemble = |source: &Source| ptxas::assemble(ptxas, source.architecture.name, &source.path, &source.ptx);
    let made: Vec<Assembled> = side_by_side(all, assemble).into_iter().collect::<Result<_>>()?;
    let made: Vec<_> = all.iter().zip(made).collect();
    ptxas::report(&made.iter().map(|(source, made)| (source.architecture.name, made)).collect::<Vec<_>>())?;
    Ok(made)
}

/// Makes the machine code. Without an assembler it only removes what was made from other PTX: drivers then compile the
/// PTX.
pub(super) fn make(ptx_folder: &Path, ptx: &Files, ptxas: Option<&Path>) -> Result<()> {
    let folder = ptx_folder.join(FOLDER);
    let (made_by, old) = read_list(&folder).unwrap_or_default();
    let wanted = sources(ptx);
    let assembler = match ptxas {
        Some(ptxas) => {
            for (source, Assembled { code, .. }) in assembled(ptxas, &wanted)? {
                if source.architecture.kept {
                    let to = file(&folder, &source.path);
                    fs::create_dir_all(to.parent().unwrap_or(&folder))?;
                    fs::write(&to, zstd::bulk::compress(&code, LEVEL)?)
                        .with_context(|| format!("cannot write {}", to.display()))?;
                }
            }
            ptxas::version(ptxas)?
        }
        None => made_by,
    };
    let current = |source: &&Source| source.architecture.kept && (ptxas.is_some() || old.contains(&source.line()));
    let kept: Vec<&Source> = wanted.iter().filter(current).collect();
    for path in present(&folder).iter().filter(|path| kept.iter().all(|source| source.path != **path)) {
        fs::remove_file(file(&folder, path))?;
    }
    let lines: Vec<String> = kept.iter().map(|source| source.line()).collect();
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(LIST), list_text(&assembler, &lines))?;
    let changed = lines.iter().filter(|line| !old.contains(line)).count();
    println!("machine code: {} files, {changed} of them from other PTX than before", lines.len());
    Ok(())
}

/// Returns what is stale: files made from other PTX, missing or superfluous ones, and, given the same assembler as made
/// them, those with other content.
pub(super) fn check(ptx_folder: &Path, ptx: &Files, ptxas: Option<&Path>) -> Result<Vec<String>> {
    let folder = ptx_folder.join(FOLDER);
    let Some((made_by, lines)) = read_list(&folder) else {
        return Ok(vec![format!("{FOLDER}/{LIST} is missing or cannot be read")]);
    };
    let wanted = sources(ptx);
    let by_path = |lines: &[String]| -> BTreeMap<String, String> {
        let path = |line: &String| line.split(' ').nth(1).map(|path| (path.to_owned(), line.clone()));
        lines.iter().filter_map(path).collect()
    };
    let kept: Vec<String> = wanted.iter().filter(|source| source.architecture.kept).map(Source::line).collect();
    let mut stale = committed::differences(&by_path(&lines), &by_path(&kept));
    let files: BTreeSet<String> = present(&folder).into_iter().collect();
    let listed: BTreeSet<String> = by_path(&lines).into_keys().collect();
    stale.extend(files.symmetric_difference(&listed).map(|path| format!("{path}: in the folder or the list only")));
    let Some(ptxas) = ptxas.filter(|_| stale.is_empty()) else { return Ok(stale) };
    let made = assembled(ptxas, &wanted)?;
    if ptxas::version(ptxas)? != made_by {
        println!("note: the machine code was made by another ptxas, {made_by}: only checksums were compared");
        return Ok(stale);
    }
    for (source, Assembled { code, .. }) in made.into_iter().filter(|(source, _)| source.architecture.kept) {
        if zstd::stream::decode_all(fs::File::open(file(&folder, &source.path))?)? != code {
            stale.push(format!("{}: differs from what ptxas makes", source.path));
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> String {
        format!(".visible .entry {name}(\n)\n{{\n\tgriddepcontrol.wait;\n\tret;\n}}\n")
    }

    fn file_of(kernels: &[&str]) -> String {
        let head = "// A comment.\n.version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .b8 all[];\n";
        head.to_owned() + &kernels.iter().map(|name| kernel(name)).collect::<String>()
    }

    fn ptx() -> Files {
        Files::from([
            ("sm_75/tile.ptx".to_owned(), file_of(&["tile_a"])),
            ("sm_80/tile.ptx".to_owned(), file_of(&["tile_b"])),
            ("sm_90a/wgmma.ptx".to_owned(), file_of(&["wgmma"])),
        ])
    }

    #[test]
    fn an_architecture_has_the_kernels_of_its_target_and_of_older_ones() {
        let all = sources(&ptx());
        let names = |source: &Source| ["tile_a", "tile_b", "wgmma"].map(|name| source.ptx.contains(name));
        let all: Vec<_> = all.iter().map(|source| (source.path.as_str(), names(source))).collect();
        assert_eq!(
            all,
            [
                ("sm_120/tile", [true, true, false]),
                ("sm_75/tile", [true, false, false]),
                ("sm_80/tile", [true, true, false]),
                ("sm_86/tile", [true, true, false]),
                ("sm_90a/tile", [true, true, false]),
                ("sm_90a/wgmma", [false, false, true]),
            ]
        );
    }

    #[test]
    fn the_kernels_are_translated_for_the_architecture() {
        let all = sources(&ptx());
        let text = |path: &str| all.iter().find(|source| source.path == path).unwrap().ptx.as_str();
        let head = |target| format!("{target}\n.address_size 64\n.extern .shared .b8 all[];\n.visible .entry tile_a(");
        assert!(text("sm_80/tile").starts_with(&head(".version 7.0\n.target sm_80")));
        assert!(text("sm_90a/tile").starts_with(&head(".version 8.0\n.target sm_90a")));
        let waits = |path| text(path).matches("griddepcontrol.wait").count();
        assert_eq!((waits("sm_80/tile"), waits("sm_90a/tile")), (0, 2));
    }

    #[test]
    fn without_an_assembler_what_changed_is_removed_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let code = folder.path().join(FOLDER);
        let all = sources(&ptx());
        let kept: Vec<&Source> = all.iter().filter(|source| source.architecture.kept).collect();
        for source in &kept {
            fs::create_dir_all(file(&code, &source.path).parent().unwrap()).unwrap();
            fs::write(file(&code, &source.path), "code").unwrap();
        }
        let lines: Vec<String> = kept.iter().map(|source| source.line()).collect();
        fs::write(code.join(LIST), list_text("release 13.0", &lines)).unwrap();
        assert_eq!(check(folder.path(), &ptx(), None).unwrap(), [] as [String; 0]);
        let mut other = ptx();
        other.insert("sm_75/tile.ptx".to_owned(), file_of(&["tile_a", "tile_c"]));
        let stale = check(folder.path(), &other, None).unwrap();
        assert_eq!(stale, ["sm_80/tile: differs", "sm_90a/tile: differs"]);
        make(folder.path(), &other, None).unwrap();
        assert_eq!(present(&code), ["sm_90a/wgmma"]);
        let stale = check(folder.path(), &other, None).unwrap();
        assert_eq!(stale, ["sm_80/tile: is missing", "sm_90a/tile: is missing"]);
        fs::remove_file(file(&code, "sm_90a/wgmma")).unwrap();
        assert_eq!(check(folder.path(), &other, None).unwrap().len(), 3);
    }
}
