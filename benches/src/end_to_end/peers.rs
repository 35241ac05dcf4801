//! Other programs from Python, each in a process of its own: readers of files, and scikit-learn's fit.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use gmm_bench::Status;
use gmm_model::Precision;
use serde_json::Value;

use super::case::{Case, Line, Parts};
use super::child::{self, Outcome};
use super::data::Table;

const SCRIPT: &str = include_str!("../../peers/end_to_end.py");

/// Readers, and the formats of each.
const READERS: [(&str, &[&str]); 4] = [
    ("numpy", &["npy"]),
    ("polars", &["csv", "parquet", "arrow"]),
    ("pandas", &["csv", "parquet", "arrow"]),
    ("pyarrow", &["csv", "parquet", "arrow"]),
];

/// Largest difference of scikit-learn's log-likelihood from ours from the same start, relative to ours. In f32 it also
/// sums in f32.
const fn allowed(precision: Precision) -> f64 {
    match precision {
        Precision::F64 => 1e-6,
        Precision::F32 => 1e-3,
    }
}

/// A Python, and the script that runs in it.
pub(crate) struct Peers<'a> {
    pub(crate) python: &'a Path,
    pub(crate) folder: &'a Path,
}

/// A checked case, or the line that says why there is none.
pub(crate) type Checked = std::result::Result<Case, Box<Line>>;

impl Peers<'_> {
    /// Names and versions of the packages, for the head of a record.
    ///
    /// # Errors
    /// If Python cannot be started.
    pub(crate) fn versions(&self) -> Result<Vec<(String, String)>> {
        let outcome = child::run(Command::new(self.python).args(["-c", SCRIPT, "versions"]), false)?;
        let answer: Value = serde_json::from_str(&outcome.stdout).context("the script's versions")?;
        let packages = answer["packages"].as_object().context("the script's packages")?;
        let version = |value: &Value| value.as_str().unwrap_or("is not installed").to_owned();
        let python = ("peer python".to_owned(), version(&answer["python"]));
        Ok([python].into_iter().chain(packages.iter().map(|(name, v)| (format!("peer {name}"), version(v)))).collect())
    }

    /// Every reader of a table's files. The sums of each matrix are checked.
    pub(crate) fn readers(&self, table: &Table) -> Vec<Checked> {
        let files = table.files.iter().flat_map(|(format, file)| {
            let reading = READERS.iter().filter(move |(_, formats)| formats.contains(format));
            reading.map(move |(package, _)| self.reader(table, package, format, file))
        });
        files.collect()
    }

    fn reader(&self, table: &Table, package: &str, format: &str, file: &Path) -> Checked {
        let words = ["read", package, format, &file.display().to_string()].map(str::to_owned);
        let mut case = self.case(Line::new("read", package, format, table), &words);
        case.arguments.push("--check".to_owned());
        let (outcome, answer) = checked(&case)?;
        case.arguments.pop();
        let sums: Option<[f64; 2]> = serde_json::from_value(answer["sums"].clone()).ok();
        if !sums.is_some_and(|sums| table.has_sums(sums)) {
            return Err(Box::new(case.line.without_time(Status::Wrong, "sums of the matrix differ")));
        }
        case.line.memory = outcome.anonymous.map(|bytes| (bytes, table.bytes()));
        if answer["dtype"] != format!("float{}", if table.precision == Precision::F32 { 32 } else { 64 }).as_str() {
            case.line.note = format!("as {}", answer["dtype"].as_str().unwrap_or_default());
        }
        Ok(case)
    }

    /// scikit-learn's fit of a file, from the parameters of a model file (then its log-likelihood is compared with
    /// `wanted`), or from random rows.
    pub(crate) fn fit(&self, table: &Table, at: usize, iterations: usize, start: Option<(&Path, f64)>) -> Checked {
        let (format, file) = &table.files[at];
        let what = if start.is_some() { "fit from a start" } else { "fit" };
        let from = start.map_or_else(|| "random".to_owned(), |(path, _)| path.display().to_string());
        let output = self.folder.join("model.npz").display().to_string();
        let numbers = [table.shape.k.to_string(), iterations.to_string()];
        let words = ["fit", format, &file.display().to_string(), &from, &numbers[0], &output, &numbers[1]];
        let mut case = self.case(Line::new(what, "scikit-learn", format, table), &words.map(str::to_owned));
        let (outcome, answer) = checked(&case)?;
        let Some(found) = answer["lower_bound"].as_f64() else {
            return Err(Box::new(case.line.without_time(Status::Error, "no log-likelihood")));
        };
        if let Some((_, wanted)) = start {
            let error = ((found - wanted) / wanted).abs();
            // A NaN is wrong.
            let right = error <= allowed(table.precision);
            if !right {
                let note = format!("log-likelihood differs from ours by {error:.1e}");
                return Err(Box::new(case.line.without_time(Status::Wrong, &note)));
            }
        }
        case.line.memory = outcome.anonymous.map(|bytes| (bytes, table.bytes()));
        case.line.log_likelihood = Some(found);
        let with = format!("reads with {}", answer["reader"].as_str().unwrap_or_default());
        case.line.note = if start.is_some() { with } else { format!("from random rows; {with}") };
        Ok(case)
    }

    fn case(&self, line: Line, words: &[String]) -> Case {
        let script = ["-c".to_owned(), SCRIPT.to_owned()];
        Case {
            line,
            program: PathBuf::from(self.python),
            arguments: script.into_iter().chain(words.iter().cloned()).collect(),
            caches: None,
            cold: false,
            parts,
        }
    }
}

/// The first run, with its answer; else a line with the reason.
fn checked(case: &Case) -> std::result::Result<(Outcome, Value), Box<Line>> {
    let line = |why: &str| Box::new(case.line.clone().without_time(Status::Error, why));
    let outcome = case.run(true).map_err(|why| line(&format!("{why:#}")))?;
    let answer: Value = serde_json::from_str(&outcome.stdout).map_err(|why| line(&why.to_string()))?;
    match answer["missing"].as_str() {
        Some(missing) => Err(line(missing)),
        None => Ok((outcome, answer)),
    }
}

fn parts(outcome: &Outcome) -> Parts {
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
    Parts { read: answer["read_seconds"].as_f64(), fit: answer["fit_seconds"].as_f64() }
}
