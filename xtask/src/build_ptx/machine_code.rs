//! Machine code: what ptxas makes of the PTX for the architectures in [`ARCHITECTURES`].
//!
//! A driver compiles PTX on a kernel's first use, one kernel at a time, and needs seconds for those of a fit. Devices
//! of these architectures load machine code instead. All others, and drivers that do not accept it, compile the PTX.
//!
//! `crates/gmm-kernels/ptx/machine_code/<architecture>/<target>-<family>.cubin.zst` has the machine code of the
//! kernels of `<target>/<family>.ptx`, except those that devices of this architecture load from a newer target. `LIST`,
//! beside the folders, names the kernels of each file, and the checksum of the PTX from which it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::committed::{self, Files};
use super::family;
use super::side_by_side;
use super::source::sha256;

/// Architectures with machine code, and the targets whose kernels their devices load, newest first.
///
/// Code for `sm_80` runs on every device of compute capability 8.x, that for `sm_90a` on 9.0 only.
const ARCHITECTURES: [(&str, &[&str]); 2] = [("sm_80", &["sm_80", "sm_75"]), ("sm_90a", &["sm_90a", "sm_80", "sm_75"])];

/// Folder below that of the PTX, and the name of its list.
const FOLDER: &str = "machine_code";
const LIST: &str = "LIST";

/// Zstandard level: the files are committed, so their size counts more than the seconds that it takes.
const LEVEL: i32 = 19;

/// What one file is made from.
struct Source {
    /// Path below the folder, without extensions: `sm_90a/sm_80-products`.
    path: String,
    architecture: &'static str,
    kernels: Vec<String>,
    ptx: String,
}

/// The files to make from the committed PTX, in the order of their paths.
fn sources(ptx: &Files) -> Result<Vec<Source>> {
    let mut all = Vec::new();
    for (architecture, targets) in ARCHITECTURES {
        let mut newer = BTreeSet::new();
        for target in targets {
            let mut own = Vec::new();
            for (path, text) in ptx {
                let name = path.strip_prefix(&format!("{target}/")).and_then(|file| file.strip_suffix(".ptx"));
                let Some(name) = name else { continue };
                let (head, kernels) = family::parts(text)?;
                own.extend(kernels.keys().map(|&kernel| kernel.to_owned()));
                let loaded: BTreeMap<_, _> = kernels.into_iter().filter(|(k, _)| !newer.contains(*k)).collect();
                if !loaded.is_empty() {
                    all.push(Source {
                        path: format!("{architecture}/{target}-{name}"),
                        architecture,
                        kernels: loaded.keys().map(|&kernel| kernel.to_owned()).collect(),
                        ptx: head + &loaded.into_values().collect::<String>(),
                    });
                }
            }
            newer.extend(own);
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// The list's line of a file: checksum of its PTX, path, kernels.
fn line(source: &Source) -> String {
    format!("{} {} {}", sha256(source.ptx.as_bytes()), source.path, source.kernels.join(" "))
}

fn list_text(assembler: &str, lines: &[String]) -> String {
    let mut text = format!(
        "Machine code of the kernels. Made by `cargo xtask build-ptx` from the PTX; do not edit.\nptxas: {assembler}\n"
    );
    lines.iter().for_each(|line| writeln!(text, "{line}").expect("a string takes all"));
    text
}

/// Release and build of a ptxas.
fn version(ptxas: &Path) -> Result<String> {
    let out = Command::new(ptxas).arg("--version").output();
    let out = out.with_context(|| format!("cannot run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let release = text.lines().find_map(|line| line.split_once("release ")).map(|(_, release)| release.to_owned());
    release.with_context(|| format!("{} --version prints no release", ptxas.display()))
}

/// Assembles one file.
fn assembled(ptxas: &Path, source: &Source) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    // ptxas writes the name of its input into the output.
    let [from, to] = ["kernels.ptx", "kernels.cubin"].map(|name| folder.path().join(name));
    fs::write(&from, &source.ptx)?;
    let out = Command::new(ptxas)
        .current_dir(folder.path())
        .args(["-arch", source.architecture, "-o", "kernels.cubin", "kernels.ptx"])
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    ensure!(out.status.success(), "{}: ptxas failed:\n{}", source.path, String::from_utf8_lossy(&out.stderr));
    Ok(fs::read(to)?)
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

/// Makes the files whose PTX, or the assembler, has changed, and removes those that are no longer needed. Without an
/// assembler it only removes: drivers then compile the PTX.
pub(super) fn make(ptx_folder: &Path, ptx: &Files, ptxas: Option<&Path>) -> Result<()> {
    let folder = ptx_folder.join(FOLDER);
    let (made_by, old) = read_list(&folder).unwrap_or_default();
    let assembler = ptxas.map(version).transpose()?;
    let wanted = sources(ptx)?;
    let same = |source: &&Source| {
        assembler.as_ref().is_none_or(|name| *name == made_by)
            && old.contains(&line(source))
            && file(&folder, &source.path).exists()
    };
    let (kept, changed): (Vec<&Source>, Vec<&Source>) = wanted.iter().partition(same);
    let made = match ptxas {
        Some(ptxas) => side_by_side(&changed, |source| assembled(ptxas, source)),
        None => Vec::new(),
    };
    let mut there: Vec<&Source> = kept;
    for (source, code) in changed.iter().zip(made) {
        let to = file(&folder, &source.path);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::write(&to, zstd::bulk::compress(&code?, LEVEL)?)?;
        there.push(source);
    }
    for path in present(&folder).iter().filter(|path| there.iter().all(|source| source.path != **path)) {
        fs::remove_file(file(&folder, path))?;
    }
    there.sort_by(|a, b| a.path.cmp(&b.path));
    let lines: Vec<String> = there.iter().map(|source| line(source)).collect();
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(LIST), list_text(&assembler.unwrap_or(made_by), &lines))?;
    println!(
        "machine code: {} files, {} of them new, {} missing",
        lines.len(),
        changed_count(&lines, &old),
        wanted.len() - lines.len()
    );
    Ok(())
}

/// Number of lines that the old list does not have.
fn changed_count(lines: &[String], old: &[String]) -> usize {
    lines.iter().filter(|line| !old.contains(line)).count()
}

/// Returns what is stale: files made from other PTX, missing or superfluous ones, and, given the same assembler as made
/// them, those with other content.
pub(super) fn check(ptx_folder: &Path, ptx: &Files, ptxas: Option<&Path>) -> Result<Vec<String>> {
    let folder = ptx_folder.join(FOLDER);
    let Some((made_by, lines)) = read_list(&folder) else {
        return Ok(vec![format!("{FOLDER}/{LIST} is missing or cannot be read")]);
    };
    let wanted = sources(ptx)?;
    let by_path = |lines: &[String]| -> BTreeMap<String, String> {
        let path = |line: &String| line.split(' ').nth(1).map(|path| (path.to_owned(), line.clone()));
        lines.iter().filter_map(path).collect()
    };
    let wanted_lines: Vec<String> = wanted.iter().map(line).collect();
    let mut stale = committed::differences(&by_path(&lines), &by_path(&wanted_lines));
    let files: BTreeSet<String> = present(&folder).into_iter().collect();
    let listed: BTreeSet<String> = by_path(&lines).into_keys().collect();
    stale.extend(files.symmetric_difference(&listed).map(|path| format!("{path}: in the folder or the list only")));
    let Some(ptxas) = ptxas.filter(|_| stale.is_empty()) else { return Ok(stale) };
    if version(ptxas)? != made_by {
        println!("note: the machine code was made by another ptxas, {made_by}: only checksums were compared");
        return Ok(stale);
    }
    let differs = |source: &Source| -> Result<bool> {
        let committed = zstd::stream::decode_all(fs::File::open(file(&folder, &source.path))?)?;
        Ok(assembled(ptxas, source)? != committed)
    };
    for (source, differs) in wanted.iter().zip(side_by_side(&wanted, differs)) {
        if differs? {
            stale.push(format!("{}: differs from what ptxas makes", source.path));
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> String {
        format!(".visible .entry {name}(\n)\n{{\n\tret;\n}}\n")
    }

    fn file_of(target: &str, kernels: &[&str]) -> String {
        let head = format!("// A comment.\n.version 8.0\n.target {target}\n.address_size 64\n");
        head + &kernels.iter().map(|name| kernel(name)).collect::<String>()
    }

    fn ptx() -> Files {
        Files::from([
            ("sm_75/tile.ptx".to_owned(), file_of("sm_75", &["tile_a", "tile_b"])),
            ("sm_80/tile.ptx".to_owned(), file_of("sm_80", &["tile_b"])),
            ("sm_90a/wgmma.ptx".to_owned(), file_of("sm_90a", &["wgmma"])),
        ])
    }

    #[test]
    fn a_device_has_each_kernel_once_from_its_newest_target() {
        let all: Vec<String> = sources(&ptx()).unwrap().iter().map(|s| format!("{} {:?}", s.path, s.kernels)).collect();
        assert_eq!(
            all,
            [
                r#"sm_80/sm_75-tile ["tile_a"]"#,
                r#"sm_80/sm_80-tile ["tile_b"]"#,
                r#"sm_90a/sm_75-tile ["tile_a"]"#,
                r#"sm_90a/sm_80-tile ["tile_b"]"#,
                r#"sm_90a/sm_90a-wgmma ["wgmma"]"#,
            ]
        );
        let first = &sources(&ptx()).unwrap()[0];
        assert!(
            first.ptx.starts_with(".version 8.0\n.target sm_75\n") && !first.ptx.contains("tile_b"),
            "{}",
            first.ptx
        );
    }

    #[test]
    fn without_an_assembler_what_changed_is_removed_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let code = folder.path().join(FOLDER);
        let lines: Vec<String> = sources(&ptx()).unwrap().iter().map(line).collect();
        for path in lines.iter().map(|line| line.split(' ').nth(1).unwrap()) {
            fs::create_dir_all(file(&code, path).parent().unwrap()).unwrap();
            fs::write(file(&code, path), "code").unwrap();
        }
        fs::write(code.join(LIST), list_text("release 13.0", &lines)).unwrap();
        assert_eq!(check(folder.path(), &ptx(), None).unwrap(), [] as [String; 0]);
        let mut other = ptx();
        other.insert("sm_75/tile.ptx".to_owned(), file_of("sm_75", &["tile_a", "tile_c"]));
        let stale = check(folder.path(), &other, None).unwrap();
        assert_eq!(stale, ["sm_80/sm_75-tile: differs", "sm_90a/sm_75-tile: differs"]);
        make(folder.path(), &other, None).unwrap();
        assert_eq!(present(&code).len(), 3);
        let stale = check(folder.path(), &other, None).unwrap();
        assert_eq!(stale, ["sm_80/sm_75-tile: is missing", "sm_90a/sm_75-tile: is missing"]);
        fs::remove_file(file(&code, "sm_80/sm_80-tile")).unwrap();
        assert_eq!(check(folder.path(), &other, None).unwrap().len(), 3);
    }
}
