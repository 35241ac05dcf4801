//! Imports have one direction: in the GPU engine and the kernels' crate, folders import only from folders earlier in a
//! list, and modules never import each other in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex_lite::Regex;

/// Folders and files of the GPU engine from the bottom up: each may import from itself and from those before it.
const CUDA: [&str; 17] = [
    "number",
    "shape",
    "driver",
    "launch",
    "rows",
    "em",
    "seeding",
    "log_likelihood",
    "truncated",
    "products",
    "tune",
    "resident",
    "parts",
    "many",
    "deconvolution",
    "group",
    // The engine itself, `mod.rs`.
    "",
];

/// For each module, by its path below the root such as `em::paths::fused`, the modules that it imports from outside its
/// tests.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn imports_of_the_gpu_engine_run_down_its_list_of_folders() {
    let imports = imports(&root().join("crates/gmm-host/src/cuda"), "crate::cuda");
    let floor = |module: &str| {
        let folder = module.split("::").next().unwrap_or_default();
        CUDA.iter()
            .position(|known| *known == folder)
            .unwrap_or_else(|| panic!("{folder} has no place in CUDA of this file"))
    };
    let up: Vec<_> = edges(&imports).filter(|(from, to)| floor(to) > floor(from)).collect();
    assert!(up.is_empty(), "imports that run up:\n{}", lines(&up));
}

#[test]
fn no_files_import_one_another_in_a_circle() {
    let cuda = imports(&root().join("crates/gmm-host/src/cuda"), "crate::cuda");
    // In the kernels' crate a folder is a unit, because an entry point names its body and the body names the entry's
    // argument list.
    let kernels = imports(&root().join("crates/gmm-kernels/src"), "crate");
    for (crate_name, imports) in [("gmm-host", cuda), ("gmm-kernels", units(&kernels))] {
        let found = circles(&imports);
        assert!(found.is_empty(), "imports in circles in {crate_name}:\n{}", lines(&found));
    }
}

/// Imports between folders of kernels: those directly below `em` and `seeding`, and the other top-level folders. The
/// crate's root is left out: it only re-exports.
fn units(imports: &Imports) -> Imports {
    let unit = |module: &str| {
        let depth = if module.starts_with("em::") || module.starts_with("seeding::") { 2 } else { 1 };
        module.split("::").take(depth).collect::<Vec<_>>().join("::")
    };
    let mut out = Imports::new();
    for (from, to) in edges(imports).map(|(from, to)| (unit(from), unit(to))) {
        if from != to && !from.is_empty() && !to.is_empty() {
            out.entry(from).or_default().insert(to);
        }
    }
    out
}

#[test]
fn a_circle_and_a_nested_import_are_found() {
    let modules = ["", "a", "a::b", "a::d", "c"].map(str::to_owned).into();
    let text = "use super::{d::{X, y::Z}, super::c};\npub(crate) use crate::a::W;\nuse std::fs;";
    assert_eq!(imported(text, "a::b", "crate", &modules), ["a", "a::d", "c"].map(str::to_owned).into());
    let edge = |from: &str, to: &str| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    assert_eq!(circles(&Imports::from([edge("a", "b"), edge("b", "c"), edge("c", "b")])), [("b", "c"), ("c", "b")]);
    assert_eq!(circles(&Imports::from([edge("a", "b"), edge("b", "c")])), []);
}

/// The imports between the modules below a folder.
fn imports(folder: &Path, prefix: &str) -> Imports {
    let files = rust_files(folder);
    let name = |path: &PathBuf| {
        let inner = path.strip_prefix(folder).expect("below the folder").with_extension("");
        let parts: Vec<_> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.join("::").trim_end_matches("mod").trim_end_matches("lib").trim_end_matches("::").to_owned()
    };
    let modules: BTreeSet<String> = files.iter().map(name).collect();
    files
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).expect("a source file");
            let module = name(path);
            let found = imported(without_tests(&text), &module, prefix, &modules);
            (module, found)
        })
        .collect()
}

/// The modules among `modules` that the text of one imports from.
fn imported(text: &str, module: &str, prefix: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let statement = Regex::new(r"(?m)^\s*(?:pub(?:\([a-z :]+\))? )?use ([^;]+);").unwrap();
    let paths = statement.captures_iter(text).flat_map(|found| expand(&found[1].replace(char::is_whitespace, " ")));
    let absolute = paths.filter_map(|path| resolve(&path, module, prefix, modules));
    // The module that contains an item: the longest prefix of its path that is a module.
    let owner = |path: String| {
        let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
        (0..=parts.len()).rev().map(|len| parts[..len].join("::")).find(|name| modules.contains(name))
    };
    absolute.filter_map(owner).filter(|name| name != module).collect()
}

/// Expands `a::{b, c::{d}}` to `a::b` and `a::c::d`.
fn expand(path: &str) -> Vec<String> {
    let Some(open) = path.find('{') else { return vec![path.trim().to_owned()] };
    let (head, inner) = (path[..open].trim(), &path[open + 1..path.rfind('}').unwrap_or(path.len())]);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(&inner[std::mem::replace(&mut start, at + 1)..at]),
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|part| format!("{head}{part}")).collect()
}

/// Resolves an import to a path below the root; `None` if it is from elsewhere.
fn resolve(path: &str, module: &str, prefix: &str, modules: &BTreeSet<String>) -> Option<String> {
    let path = path.split(" as ").next()?.trim();
    if let Some(rest) = path.strip_prefix(prefix) {
        return rest.strip_prefix("::").map(str::to_owned);
    }
    let (mut here, mut rest): (Vec<&str>, &str) = (module.split("::").filter(|part| !part.is_empty()).collect(), path);
    if let Some(after) = rest.strip_prefix("self::") {
        rest = after;
    } else if rest.starts_with("super::") {
        while let Some(after) = rest.strip_prefix("super::") {
            here.pop()?;
            rest = after;
        }
    } else {
        // A child of the module, referred to by its name.
        let child = [&here[..], &[rest.split("::").next()?]].concat().join("::");
        modules.contains(&child).then_some(())?;
    }
    Some([&here[..], &[rest]].concat().join("::"))
}

/// The imports that are part of a cycle.
fn circles(imports: &Imports) -> Vec<(&str, &str)> {
    let leads_to = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(at) = next.pop() {
            next.extend(
                imports.get(at).into_iter().flatten().map(String::as_str).filter(|&module| seen.insert(module)),
            );
        }
        seen.contains(to)
    };
    edges(imports).filter(|(from, to)| leads_to(to, from)).collect()
}

fn edges(imports: &Imports) -> impl Iterator<Item = (&str, &str)> {
    imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from.as_str(), to.as_str())))
}

fn lines(edges: &[(&str, &str)]) -> String {
    edges.iter().map(|(from, to)| format!("{from} -> {to}")).collect::<Vec<_>>().join("\n")
}

fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests").map_or(text, |at| &text[..at])
}

/// All Rust files below a folder, except tests and the tests' fake driver.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "tests" && name != "fake" {
                found.extend(rust_files(&path));
            }
        } else if path.extension().is_some_and(|e| e == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
