//! Collects the licences of all dependencies of the program and the Python package.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell;

/// The released packages.
const ROOTS: [&str; 2] = ["gmm-cli", "gmm-python"];

/// Prefixes of the names of licence files.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];

const HEAD: &str = "\
# Licences of third parties

The program `gmm` and the Python package `gmm_rs` are built from the packages below, and contain Rust's standard library
(MIT OR Apache-2.0). Where a package has a choice of licences, any of them may be chosen. A text that several packages hold is
here once; the last column has its numbers.

| package | version | licence | texts |
|---|---|---|---|
";

/// The fields of `cargo metadata` in use.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// The registry; `None` for crates of this repository.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `build` or `dev`; `None` for a normal dependency.
    kind: Option<String>,
}

/// A dependency with its licence expression and licence files.
struct ThirdParty {
    name: String,
    version: String,
    licence: String,
    texts: Vec<(String, String)>,
}

/// Returns the text of `THIRD-PARTY-LICENSES.md` for one platform.
///
/// # Errors
/// Errors if `cargo metadata` fails or a file cannot be read.
pub(super) fn page(target: &str) -> Result<String> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", target];
    let said = shell::output(&mut shell::cargo(&arguments))?;
    let metadata: Metadata =
        serde_json::from_str(&said).context("cargo metadata wrote something else than expected")?;
    let mut all = vec![font()?];
    for package in built_in(&metadata).into_iter().filter(|package| package.source.is_some()) {
        all.push(third_party(package)?);
    }
    all.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    let silent: Vec<&str> = all.iter().filter(|one| one.texts.is_empty()).map(|one| one.name.as_str()).collect();
    eprintln!("{} licences of third parties; no licence file is in {}", all.len(), silent.join(", "));
    Ok(written(&all))
}

/// The packages that the roots reach by normal dependencies.
fn built_in(metadata: &Metadata) -> Vec<&Package> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|one| (one.id.as_str(), one)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|one| (one.id.as_str(), one)).collect();
    let roots = metadata.packages.iter().filter(|one| one.source.is_none() && ROOTS.contains(&one.name.as_str()));
    let mut left: Vec<&str> = roots.map(|one| one.id.as_str()).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = left.pop() {
        if reached.insert(id) {
            let edges = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let normal = edges.filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            left.extend(normal.map(|edge| edge.pkg.as_str()));
        }
    }
    reached.into_iter().filter_map(|id| packages.get(id).copied()).collect()
}

fn third_party(package: &Package) -> Result<ThirdParty> {
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    Ok(ThirdParty {
        name: package.name.clone(),
        version: package.version.clone(),
        licence: package.license.clone().unwrap_or_else(|| "see its texts".to_owned()),
        texts: texts(folder)?,
    })
}

/// The bundled font of the plots, which is not a package.
fn font() -> Result<ThirdParty> {
    let texts = texts(&shell::root().join("crates/gmm-plot/font"))?;
    let (name, version) = ("DejaVu Sans (a font, reduced)".to_owned(), "2.37".to_owned());
    Ok(ThirdParty { name, version, licence: "Bitstream-Vera".to_owned(), texts })
}

/// Names and contents of a folder's licence files, sorted by name.
fn texts(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_licence(&name) && entry.path().is_file() {
            let text = fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
            texts.push((name, tidied(&String::from_utf8_lossy(&text))));
        }
    }
    texts.sort();
    Ok(texts)
}

fn is_licence(name: &str) -> bool {
    let upper = name.to_uppercase();
    BEGINNINGS.iter().any(|beginning| upper.starts_with(beginning)) && !upper.ends_with(".RS")
}

/// Normalises line ends and surrounding blank lines, so that copies of a text compare equal.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Formats the table of packages, then each text once with the packages that contain it.
fn written(all: &[ThirdParty]) -> String {
    let mut page = HEAD.to_owned();
    let mut texts: Vec<(&str, Vec<String>)> = Vec::new();
    for one in all {
        let mut numbers = Vec::new();
        for (file, text) in &one.texts {
            let known = texts.iter().position(|(of, _)| of == text);
            let at = known.unwrap_or_else(|| {
                texts.push((text, Vec::new()));
                texts.len() - 1
            });
            texts[at].1.push(format!("{} {} ({file})", one.name, one.version));
            numbers.push((at + 1).to_string());
        }
        let numbers = if numbers.is_empty() { "none: it ships no licence file".to_owned() } else { numbers.join(", ") };
        writeln!(page, "| {} | {} | {} | {numbers} |", one.name, one.version, one.licence).expect("a string takes all");
    }
    for (i, (text, holders)) in texts.iter().enumerate() {
        let holders = holders.join(", ");
        write!(page, "\n## Text {}\n\nOf {holders}:\n\n~~~~text\n{text}\n~~~~\n", i + 1).expect("a string takes all");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_built_in_is_listed() {
        let package = |name: &str, source: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","version":"1.0.0","license":"MIT","source":{source},"manifest_path":"/"}}"#
            )
        };
        let edge = |to: &str, kind: &str| format!(r#"{{"pkg":"{to}","dep_kinds":[{{"kind":{kind}}}]}}"#);
        let packages = ["a", "b", "c", "d"].map(|name| package(name, "\"registry\"")).join(",");
        let edges = [edge("a", "null"), edge("b", "\"build\""), edge("c", "\"dev\"")].join(",");
        let text = format!(
            r#"{{"packages":[{},{packages}],"resolve":{{"nodes":[{{"id":"gmm-cli","deps":[{edges}]}},{{"id":"a","deps":[{}]}}]}}}}"#,
            package("gmm-cli", "null"),
            edge("d", "null"),
        );
        let metadata: Metadata = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = built_in(&metadata).into_iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "d", "gmm-cli"]);
    }

    #[test]
    fn a_text_is_there_once_and_a_package_without_one_is_named() {
        let of = |name: &str, text: Option<&str>| ThirdParty {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT".to_owned(),
            texts: text.map(|text| ("LICENSE".to_owned(), tidied(text))).into_iter().collect(),
        };
        let page = written(&[of("a", Some("Do.\n")), of("b", Some("\nDo. \r\n")), of("c", None)]);
        assert!(
            page.contains("| b | 1.0.0 | MIT | 1 |\n| c | 1.0.0 | MIT | none: it ships no licence file |"),
            "{page}"
        );
        assert!(
            page.ends_with("## Text 1\n\nOf a 1.0.0 (LICENSE), b 1.0.0 (LICENSE):\n\n~~~~text\nDo.\n~~~~\n"),
            "{page}"
        );
    }

    #[test]
    fn licence_files_are_known_by_their_names() {
        for name in ["LICENSE", "license-mit", "LICENCE.txt", "COPYING", "NOTICE.txt", "UNLICENSE"] {
            assert!(is_licence(name), "{name}");
        }
        for name in ["licenses.rs", "README.md", "Cargo.toml"] {
            assert!(!is_licence(name), "{name}");
        }
    }
}
