//! The committed files in `crates/gmm-kernels/ptx`: one file per target and family, and `SOURCES`, which lists them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::sha256;

/// Contents of files by path relative to the folder, such as `sm_80/update.ptx`.
pub(super) type Files = BTreeMap<String, String>;

/// File name of the list.
pub(super) const LIST: &str = "SOURCES";

/// Content of the list.
#[derive(Debug, PartialEq)]
pub(super) struct List {
    /// The compiler of the kernels.
    pub(super) compiler: String,
    /// Checksum of the sources.
    pub(super) sources: String,
    /// Checksums of the files, by path.
    pub(super) files: BTreeMap<String, String>,
}

impl List {
    pub(super) fn of(files: &Files, compiler: &str, sources: &str) -> Self {
        let files = files.iter().map(|(path, text)| (path.clone(), sha256(text.as_bytes()))).collect();
        Self { compiler: compiler.to_owned(), sources: sources.to_owned(), files }
    }

    /// The text of the list. The lines of the files have the format of `sha256sum`.
    pub(super) fn text(&self) -> String {
        let Self { compiler, sources, files } = self;
        let mut text = format!(
            "Kernels of gmm-kernels as PTX. Made by `cargo xtask build-ptx`; do not edit.\n\
             compiler: {compiler}\nsources: sha256 {sources}\n"
        );
        files.iter().for_each(|(path, sum)| writeln!(text, "{sum}  {path}").expect("a string takes all"));
        text
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let file = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_owned(), sum.to_owned()));
        Some(Self {
            compiler: field("compiler: ")?,
            sources: field("sources: sha256 ")?,
            files: text.lines().skip(3).filter_map(file).collect(),
        })
    }
}

/// Reads all PTX files in the subfolders of `folder`; empty if the folder does not exist.
pub(super) fn read(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    for target in fs::read_dir(folder).into_iter().flatten() {
        let target = target?.path();
        if !target.is_dir() {
            continue;
        }
        for file in fs::read_dir(&target)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "ptx") {
                let name = path.strip_prefix(folder)?.to_string_lossy().replace('\\', "/");
                files.insert(
                    name,
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?,
                );
            }
        }
    }
    Ok(files)
}

/// Replaces the files of the folder by `new`; writes only those that differ, and prints which.
pub(super) fn write(folder: &Path, old: &Files, new: &Files, list: &List) -> Result<()> {
    for path in old.keys().filter(|path| !new.contains_key(*path)) {
        fs::remove_file(folder.join(path)).with_context(|| format!("cannot delete {path}"))?;
        println!("deleted {path}");
    }
    for (path, text) in new.iter().filter(|(path, text)| old.get(*path) != Some(text)) {
        let file = folder.join(path);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("wrote {path}: {} kB", text.len() / 1024);
    }
    let same = new.iter().filter(|(path, text)| old.get(*path) == Some(text)).count();
    println!("{same} of {} files are unchanged", new.len());
    fs::write(folder.join(LIST), list.text()).with_context(|| format!("cannot write {LIST}"))
}

/// The differences of two sets of files, by checksum or by content, one line each.
pub(super) fn differences<T: PartialEq>(committed: &BTreeMap<String, T>, wanted: &BTreeMap<String, T>) -> Vec<String> {
    let missing = wanted.keys().filter(|path| !committed.contains_key(*path)).map(|path| format!("{path}: is missing"));
    let others = committed.iter().filter_map(|(path, is)| match wanted.get(path) {
        None => Some(format!("{path}: should not be there")),
        Some(should) => (is != should).then(|| format!("{path}: differs")),
    });
    missing.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let list = List::of(&files(&[("sm_75/tile.ptx", "ret;"), ("sm_80/tile.ptx", "")]), "rustc 1, LLVM 2", "abc");
        assert_eq!(List::read(&list.text()).unwrap(), list);
        assert!(
            list.text().ends_with("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  sm_80/tile.ptx\n")
        );
        assert_eq!(List::read("nothing"), None);
    }

    #[test]
    fn files_that_did_not_change_are_left_alone_and_others_go() {
        let folder = std::env::temp_dir().join(format!("build-ptx-committed-{}", std::process::id()));
        let old = files(&[("sm_75/a.ptx", "a"), ("sm_75/b.ptx", "b"), ("sm_80/c.ptx", "c")]);
        let new = files(&[("sm_75/a.ptx", "a"), ("sm_75/b.ptx", "other"), ("sm_90a/d.ptx", "d")]);
        let list = |files| List::of(files, "rustc 1", "abc");
        assert_eq!(read(&folder).unwrap(), Files::new());
        write(&folder, &Files::new(), &old, &list(&old)).unwrap();
        assert_eq!(read(&folder).unwrap(), old);
        let time = || fs::metadata(folder.join("sm_75/a.ptx")).unwrap().modified().unwrap();
        let before = time();
        write(&folder, &old, &new, &list(&new)).unwrap();
        assert_eq!((read(&folder).unwrap(), time()), (new.clone(), before));
        assert_eq!(List::read(&fs::read_to_string(folder.join(LIST)).unwrap()).unwrap(), list(&new));
        let told = differences(&old, &new);
        assert_eq!(told, ["sm_90a/d.ptx: is missing", "sm_75/b.ptx: differs", "sm_80/c.ptx: should not be there"]);
        fs::remove_dir_all(folder).unwrap();
    }

    /// Checks the repository itself: a merge that takes a file from one side and the list from the other fails here.
    #[test]
    fn the_files_committed_are_those_of_the_list() {
        let folder = super::super::root().join(super::super::FOLDER);
        let list = List::read(&fs::read_to_string(folder.join(LIST)).unwrap()).unwrap();
        let found = List::of(&read(&folder).unwrap(), "", "").files;
        assert_eq!(differences(&found, &list.files), [] as [String; 0], "run `cargo xtask build-ptx`");
    }
}
