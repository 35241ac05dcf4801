//! Plain words: phrases and names that only this project once used are errors, with the standard term to write instead.

use std::fs;
use std::path::{Path, PathBuf};

use gmm_tests::root;
use regex_lite::Regex;

/// Patterns of private phrases, and what to write. Upper case at the start of a sentence is matched too.
const PHRASES: [(&str, &str); 18] = [
    (r"\b(?:numbers?|values?|rows?) that (?:is|are) none\b", "NaN; not finite"),
    (r"\bsecond cache\b", "L2 cache"),
    (r"\b(?:is|are|was|were) sent for\b", "prefetched"),
    (r"\bon (?:its|their) way\b", "in flight"),
    (r"\blooks? of the host\b", "host poll; host synchronisation"),
    (r"\b(?:to|can|cannot|could) be had\b", "available"),
    (r"\bwho wants\b", "callers that need"),
    (r"\bas (?:long|many) as an? \w+ likes\b", "up to `max`"),
    (r"\b(?:for|of|in|with|at|by|into) so many\b", "`n`; that many"),
    (r"\b(?:is|are|was) not said\b", "unspecified"),
    (r"\b(?:gave|gives?|given) away\b", "lost; traded"),
    (r"\b(?:is|are) told of\b", "is reported"),
    (r"\bwhoever\b", "users who; callers that"),
    (r"\b(?:lose|loses|losing|lost) (?:no |few )?digits\b", "lose precision, and how much"),
    (r"\bdigits? (?:is|are|was|were) lost\b", "precision is lost, and how much"),
    (r"\bsuch as has\b", "one that has"),
    (r"\bwhat (?:these|those) two lose\b", "name the path, its error bound and the fallback"),
    (r"\bheads and tails\b", "hi and lo parts"),
];

/// Names of types that say how a value came about in place of what it is, or that meant several things.
const NAMES: &str = r"\b(?:struct|enum|trait|type|union) (?:Asked|Brought|Cut|Forced|Here|Kept|Left|LoopKernels|Place|Places|Said|Seen|Sent|There|Told|Wanted|Way|Ways)\b";

/// Pages that quote the past, records, and this file.
const EXCEPT: [&str; 3] = ["tests/tests/words.rs", "benches/record", "CHANGELOG.md"];

#[test]
fn prose_and_code_use_standard_terms() {
    let rules = rules();
    let found: Vec<String> = sources().iter().flat_map(|path| faults(&rules, path, &read(path))).collect();
    assert!(found.is_empty(), "{} private words:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_private_word_is_found_with_what_to_write_instead() {
    let check = |text: &str, expected: &[&str]| {
        let found = faults(&rules(), &root().join("x.rs"), text);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for (fault, part) in found.iter().zip(expected) {
            assert!(fault.contains(part), "'{part}' is not in {fault}");
        }
    };
    check("/// Whoever builds it\n// numbers that are none", &["x.rs:1: 'Whoever': write users", "x.rs:2: 'numbers"]);
    check("// in the second cache, on its way", &["L2 cache", "in flight"]);
    check("pub(crate) struct Wanted {", &["a noun"]);
    check("/// Errors if a value is NaN. So many rows fit.\nstruct Layout;", &[]);
}

struct Rule {
    pattern: Regex,
    instead: &'static str,
}

fn rules() -> Vec<Rule> {
    let phrase = |(pattern, instead): (&str, &'static str)| Rule { pattern: regex(&format!("(?i){pattern}")), instead };
    let names = Rule { pattern: regex(NAMES), instead: "a noun that names the thing" };
    PHRASES.into_iter().map(phrase).chain([names]).collect()
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// `file:line: 'phrase': write ...` for each private word of a text.
fn faults(rules: &[Rule], path: &Path, text: &str) -> Vec<String> {
    let file = path.strip_prefix(root()).expect("a file of the repository").display().to_string();
    let of_line = |(number, line): (usize, &str)| -> Vec<String> {
        let found = rules.iter().filter_map(|rule| Some((rule.pattern.find(line)?, rule.instead)));
        found.map(|(at, instead)| format!("{file}:{}: '{}': write {instead}", number + 1, at.as_str())).collect()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// Every file of prose or code in the repository.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let relative = path.strip_prefix(root()).expect("below the root");
            if ["target", ".git", "node_modules", "__pycache__"].contains(&name.as_str())
                || EXCEPT.iter().any(|except| relative == Path::new(except))
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if ["rs", "md", "py", "pyi", "toml", "yml"].iter().any(|e| path.extension().is_some_and(|x| x == *e))
            {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 500, "{} files", found.len());
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
