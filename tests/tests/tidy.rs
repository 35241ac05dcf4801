//! Checks of the repository itself: the rules of CONTRIBUTING.md that a program can check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex_lite::Regex;

const MAX_LINES: usize = 600;

/// The workspace crates that each crate may depend on. A new crate must be added here.
const DIRECTION: [(&str, &[&str]); 12] = [
    ("find_cuda_helper", &[]),
    ("gmm-model", &[]),
    ("gmm-data", &["gmm-model"]),
    ("gmm-kernels", &["gmm-model"]),
    ("gmm-host", &["gmm-model", "gmm-kernels"]),
    ("gmm-mcmc", &["gmm-model", "gmm-host"]),
    ("gmm-plot", &["gmm-model"]),
    ("gmm-bench", &["gmm-model", "gmm-data", "gmm-host"]),
    ("gmm-serve", &["gmm-model", "gmm-data", "gmm-host"]),
    ("gmm-c", &["gmm-model", "gmm-data", "gmm-host"]),
    ("gmm-cli", &["gmm-model", "gmm-data", "gmm-host", "gmm-mcmc", "gmm-plot", "gmm-bench", "gmm-serve"]),
    ("gmm-python", &["gmm-model", "gmm-data", "gmm-host", "gmm-mcmc"]),
];

#[test]
fn every_source_file_begins_with_what_it_is_for() {
    let silent = rust_files(&["crates", "xtask", "benches"])
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .filter(|path| !read(path).starts_with("//! "));
    none(silent.map(shown), "files whose first line is not `//! what it is for`");
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let lengths = rust_files(&["crates", "xtask", "benches", "tests"]).map(|path| (read(&path).lines().count(), path));
    let long = lengths.filter(|(lines, _)| *lines > MAX_LINES);
    none(long.map(|(lines, path)| format!("{}: {lines} lines", shown(path))), "files that are too long");
}

#[test]
fn dependencies_between_crates_point_one_way() {
    let wrong = manifests().flat_map(|(name, manifest)| {
        let allowed = DIRECTION.iter().find(|(of, _)| *of == name).map(|(_, allowed)| *allowed);
        let allowed = allowed.unwrap_or_else(|| panic!("{name} has no place in DIRECTION of this file"));
        let ours = dependencies(&manifest).into_iter().filter(|on| on.starts_with("gmm-"));
        ours.filter(|on| !allowed.contains(&on.as_str())).map(|on| format!("{name} uses {on}")).collect::<Vec<_>>()
    });
    none(wrong, "dependencies that point the wrong way");
}

#[test]
fn only_the_cuda_engine_knows_cust() {
    let cust = Regex::new(r"\bcust(_raw|_core|_derive)?\b").unwrap();
    let sources =
        rust_files(&["crates"]).filter(|path| !path.starts_with(root().join("crates/gmm-host/src/cuda"))).flat_map(
            |path| code_lines(&path).filter(|(_, line)| cust.is_match(line)).map(|(at, _)| at).collect::<Vec<_>>(),
        );
    let users = manifests()
        .filter(|(name, manifest)| name != "gmm-host" && dependencies(manifest).iter().any(|on| cust.is_match(on)));
    none(sources.chain(users.map(|(name, _)| name)), "uses of cust outside crates/gmm-host/src/cuda");
}

#[test]
fn shipped_code_has_no_placeholders() {
    let placeholder = Regex::new(r"\b(todo|unimplemented|dbg)!").unwrap();
    let found = rust_files(&["crates", "xtask", "benches"]).flat_map(|path| {
        code_lines(&path).filter(|(_, line)| placeholder.is_match(line)).map(|(at, _)| at).collect::<Vec<_>>()
    });
    none(found, "placeholders in shipped code");
}

#[test]
fn the_front_pages_exist() {
    let pages = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE-MIT", "LICENSE-APACHE"];
    none(pages.into_iter().filter(|page| !root().join(page).is_file()), "front pages that are missing");
}

#[test]
fn every_path_that_contributing_and_architecture_name_exists() {
    let path = Regex::new(r"`((?:crates|tests|fuzz|xtask|benches|docs)/[\w./-]*)`").unwrap();
    let missing = ["CONTRIBUTING.md", "ARCHITECTURE.md"].into_iter().flat_map(|page| {
        let text = read(&root().join(page));
        let named: Vec<String> = path.captures_iter(&text).map(|found| found[1].to_owned()).collect();
        named.into_iter().filter(|name| !root().join(name).exists()).map(move |name| format!("{page}: {name}"))
    });
    none(missing, "paths that are not there");
}

#[test]
fn architecture_has_at_most_150_lines() {
    let lines = read(&root().join("ARCHITECTURE.md")).lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn the_readme_has_at_most_130_lines() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 130, "{lines} lines");
}

#[test]
fn what_release_optimises_less_has_a_level_in_dist() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().unwrap();
    let levels = |profile: &str| match manifest["profile"][profile].get("package") {
        Some(packages) => packages.as_table().unwrap().clone(),
        None => toml::Table::new(),
    };
    let dist = levels("dist");
    let lower = levels("release").into_iter().filter(|(_, settings)| settings.get("opt-level").is_some());
    let own = [toml::Value::from(3), toml::Value::from("s")];
    let missing = lower.filter(|(name, _)| {
        !dist.get(name).and_then(|of| of.get("opt-level")).is_some_and(|level| own.contains(level))
    });
    none(missing.map(|(name, _)| name), "packages without `opt-level = 3` or `\"s\"` in [profile.dist.package]");
}

/// Where cargo does not look for test files itself, a file that nobody names would not run.
#[test]
fn every_test_file_is_part_of_a_test_program() {
    let module = Regex::new(r"(?m)^mod (\w+);").unwrap();
    let all = files(&root().join("crates"), "toml").chain([root().join("tests/Cargo.toml")]);
    let mut found = 0;
    let missing = all.filter(|path| path.ends_with("Cargo.toml")).flat_map(|path| {
        let manifest: toml::Table = read(&path).parse().unwrap();
        if manifest["package"].get("autotests") != Some(&false.into()) {
            return Vec::new();
        }
        let folder = path.parent().unwrap();
        let programs: Vec<_> =
            manifest["test"].as_array().unwrap().iter().map(|test| test["path"].as_str().unwrap()).collect();
        let text: String = programs.iter().map(|program| read(&folder.join(program))).collect();
        let modules: Vec<_> = module.captures_iter(&text).map(|found| found[1].to_owned()).collect();
        let entries = fs::read_dir(folder.join("tests")).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.join("main.rs").exists() || path.extension().is_some_and(|e| e == "rs"));
        let files: Vec<_> = files.collect();
        found += files.len();
        let is_run = |path: &PathBuf| {
            let (name, main) = (path.file_stem().unwrap().to_str().unwrap(), path.join("main.rs"));
            modules.iter().any(|module| module == name)
                || programs.iter().any(|program| [path, &main].contains(&&folder.join(program)))
        };
        files.into_iter().filter(|path| !is_run(path)).map(shown).collect()
    });
    none(missing.collect::<Vec<_>>(), "test files that no test program has");
    assert!(found > 50, "{found} files");
}

/// A dependency with other features is compiled once more, and so is all that depends on it.
#[test]
fn packages_that_are_built_alone_share_the_dependencies_of_the_workspace() {
    let packages = |arguments: &[&str]| -> BTreeSet<String> {
        let mut tree = Command::new(env!("CARGO"));
        tree.current_dir(root()).args(["tree", "--offline", "--no-dedupe", "--prefix", "none", "-f", "{p} {f}"]);
        let out = tree.args(arguments).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let tested = packages(&["--workspace", "-e", "normal,build,dev"]);
    for alone in ["xtask", "gmm-python"] {
        let built = packages(&["-p", alone, "-e", "normal,build"]);
        assert!(built.len() > 20, "{alone}: {built:?}");
        // Tests have the emulator, the Python package has not, and xtask makes the PTX.
        let others = built.difference(&tested).filter(|package| !package.starts_with("gmm-kernels "));
        none(others.cloned(), &format!("packages of {alone} that have other features in the workspace"));
    }
}

#[test]
fn links_between_documents_resolve() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let broken = files(root(), "md").flat_map(|page| {
        let text = without_fences(&read(&page));
        let folder = page.parent().unwrap().to_owned();
        let targets = link.captures_iter(&text).map(|found| found[1].to_owned());
        targets
            .filter(|to| !to.contains("://") && !to.starts_with("mailto:") && !to.starts_with('#'))
            .filter(|to| !folder.join(to.split('#').next().unwrap()).exists())
            .map(|to| format!("{}: {to}", shown(page.clone())))
            .collect::<Vec<_>>()
    });
    none(broken, "links to files that are not there");
}

#[test]
fn every_speed_in_the_readme_is_in_a_committed_record() {
    // If it is missing, the_front_pages_exist reports that.
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    none(unrecorded(&readme, |record| fs::read_to_string(root().join("benches/record").join(record)).ok()), "figures");
}

#[test]
fn every_speed_in_the_readme_is_on_the_page_of_benchmarks() {
    let page = fs::read_to_string(root().join("docs/BENCHMARKS.md")).unwrap_or_default();
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    none(unrecorded(&readme, |record| section(&page, record)), "figures that docs/BENCHMARKS.md lacks");
}

#[test]
fn a_record_is_on_the_page_where_its_figures_are_and_not_where_it_is_an_earlier_one() {
    let page = "# Page\n## m\n### cpu\n[b](../benches/record/m/b.csv)\n|ms|\n|12.345|\n\nEarlier: [a](../benches/record/m/a.csv)\n";
    let check = |text: &str, expected: usize| {
        assert_eq!(unrecorded(text, |record| section(page, record)).len(), expected, "{text}");
    };
    check("12.3 ms <!-- record: m/b.csv -->", 0);
    check("12.4 ms <!-- record: m/b.csv -->", 1);
    check("12.3 ms <!-- record: m/a.csv -->", 1);
}

/// The part of the page that shows a record.
fn section(page: &str, record: &str) -> Option<String> {
    let link = format!("](../benches/record/{record})");
    let shown = page.split("\n### ").filter_map(|section| section.split("\nEarlier: ").next());
    shown.into_iter().find(|section| section.contains(&link)).map(str::to_owned)
}

#[test]
fn a_figure_without_a_record_or_other_than_in_the_record_is_found() {
    let record = |name: &str| (name == "m/a.csv").then(|| "# run 99\nkind,ms,ratio\nfull,12.345,15.04\n".to_owned());
    let check = |text: &str, expected: usize| {
        let found = unrecorded(text, record);
        assert_eq!(found.len(), expected, "{text:?}: {found:?}");
    };
    check("An iteration takes 12.3 ms, 15× less. <!-- record: m/a.csv -->", 0);
    check("An iteration takes 12.4 ms. <!-- record: m/a.csv -->", 1);
    check("An iteration takes 12.3 ms.", 1);
    check("An iteration takes 12.3 ms. <!-- record: m/b.csv -->", 1);
    check("What its comment says: 99 ms. <!-- record: m/a.csv -->", 1);
    check("<!-- record: m/a.csv -->\n| kind | ms |\n|---|---:|\n| full | 12.37 |\n| 8 | 12.3 |", 1);
    check("<!-- record: m/a.csv -->\n\nIn another block: 15 times.", 1);
    check("```\nfitted in 3 ms\n```\nA 2×2 matrix, K=8, 1e5 rows, 64 components.", 0);
}

/// The figures with a unit of speed whose block names no record that contains them.
fn unrecorded(text: &str, record: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let marker = Regex::new(r"<!-- record: (\S+) -->").unwrap();
    let text = without_fences(text);
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    let wrong = blocks.flat_map(|block| {
        let names: Vec<String> = marker.captures_iter(block).map(|found| found[1].to_owned()).collect();
        let recorded: Vec<f64> = names
            .iter()
            .filter_map(|name| record(name))
            .flat_map(|text| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>())
            .flat_map(|line| numbers(&line))
            .collect();
        let wrong = figures(&without_markers(block)).into_iter().filter(|figure| !is_among(figure, &recorded));
        wrong.map(|figure| format!("'{figure}' is not in {names:?}")).collect::<Vec<_>>()
    });
    wrong.collect()
}

fn without_markers(block: &str) -> String {
    Regex::new(r"<!-- record: (\S+) -->").unwrap().replace_all(block, "").into_owned()
}

/// All numbers of a text.
fn numbers(text: &str) -> Vec<f64> {
    let number = Regex::new(r"\d+(?:\.\d+)?(?:e-?\d+)?").unwrap();
    number.find_iter(text).filter_map(|n| n.as_str().parse().ok()).collect()
}

/// Whether the figure is one of the values, rounded to the figure's decimals.
fn is_among(figure: &str, values: &[f64]) -> bool {
    let decimals = figure.split_once('.').map_or(0, |(_, after)| after.len());
    values.iter().any(|value| format!("{value:.decimals$}") == figure)
}

/// Numbers followed by a unit of speed, and the numbers of table columns whose heading names such a unit.
fn figures(block: &str) -> Vec<String> {
    const UNITS: &str = r"(?:ms|µs|ns|s|x|times|[GT]FLOP/s|[GT]B/s|rows/s)\b";
    let figure = Regex::new(&format!(r"(\d+(?:\.\d+)?)(?:\s?{UNITS}|×(?:\D|$))")).unwrap();
    let heading = Regex::new(&format!(r"\b{UNITS}|×")).unwrap();
    let number = Regex::new(r"^\**(\d+(?:\.\d+)?)\**$").unwrap();
    let mut found: Vec<String> = figure.captures_iter(block).map(|f| f[1].to_owned()).collect();
    let cells = |line: &str| line.trim().trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = block.lines().filter(|line| line.trim_start().starts_with('|')).map(cells);
    let timed: Vec<bool> = rows.next().unwrap_or_default().iter().map(|cell| heading.is_match(cell)).collect();
    for row in rows {
        let in_time = row.iter().zip(&timed).filter(|(_, timed)| **timed);
        found.extend(in_time.filter_map(|(cell, _)| number.captures(cell)).map(|n| n[1].to_owned()));
    }
    found
}

fn without_fences(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Lines of code without comments, each with its file and line for messages.
fn code_lines(path: &Path) -> impl Iterator<Item = (String, String)> {
    let name = shown(path.to_owned());
    let lines: Vec<_> = read(path).lines().map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect();
    lines.into_iter().enumerate().map(move |(i, line)| (format!("{name}:{}", i + 1), line))
}

/// Name and manifest of each crate under `crates/`.
fn manifests() -> impl Iterator<Item = (String, toml::Table)> {
    files(&root().join("crates"), "toml").filter(|path| path.ends_with("Cargo.toml")).map(|path| {
        let manifest: toml::Table = read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", shown(path)));
        (manifest["package"]["name"].as_str().expect("a name").to_owned(), manifest)
    })
}

/// The dependencies with which the crate is built; those of its tests are not restricted.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let places =
        std::iter::once(manifest).chain(targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table));
    let tables = places.flat_map(|place| ["dependencies", "build-dependencies"].map(|key| place.get(key)));
    let entries = tables.flatten().filter_map(toml::Value::as_table).flatten();
    entries.map(|(name, entry)| entry.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn rust_files(folders: &[&str]) -> impl Iterator<Item = PathBuf> {
    folders.iter().flat_map(|folder| files(&root().join(folder), "rs")).collect::<Vec<_>>().into_iter()
}

/// Files of one extension below a folder, in order, without hidden folders, build directories and links.
fn files(folder: &Path, extension: &str) -> std::vec::IntoIter<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && !hidden && entry.file_name() != "target" && !path.join("CACHEDIR.TAG").exists() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.into_iter()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: PathBuf) -> String {
    path.strip_prefix(root()).unwrap_or(&path).display().to_string()
}

fn none(found: impl IntoIterator<Item = impl Into<String>>, what: &str) {
    let found: Vec<String> = found.into_iter().map(Into::into).collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}
