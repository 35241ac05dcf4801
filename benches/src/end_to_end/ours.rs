//! The program `gmm`: fits and reads of every format, on each engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use gmm_bench::Status;
use gmm_model::Precision;
use serde_json::Value;

use super::case::{Case, Line, Parts};
use super::child::{self, Outcome};
use super::data::Table;

/// The program, and what it is asked for.
pub(crate) struct Ours<'a> {
    pub(crate) program: &'a Path,
    /// Folder for models and caches.
    pub(crate) folder: &'a Path,
    pub(crate) iterations: usize,
}

/// Options of a fit that only reads: the start takes one pass over the rows.
const ONLY_READ: [&str; 4] = ["--max-iter", "0", "--init", "stride"];

impl Ours<'_> {
    /// The cases of a table on an engine, their answers checked: models of all formats are the same to the bit, and
    /// their log-likelihood is that of `gmm score`. A wrong one has no time and is in the second list.
    ///
    /// # Errors
    /// If a fit fails.
    pub(crate) fn cases(&self, table: &Table, engine: &str) -> Result<(Vec<Case>, Vec<Line>)> {
        let (mut cases, mut wrong) = (Vec::new(), Vec::new());
        let mut first: Option<Model> = None;
        for (format, file) in &table.files {
            let iterations = self.iterations.to_string();
            let fit = ["--max-iter", &iterations, "--tol", "0"];
            let mut warm = self.case(table, ("fit", format), file, engine, &fit);
            let outcome = warm.run(true)?;
            let model = Model::read(&self.model(engine))?;
            let same = first.get_or_insert_with(|| model.clone()).parameters == model.parameters;
            let scored = self.score(engine, file)?;
            let far = (scored - model.log_likelihood).abs() > allowed(table.precision) * model.log_likelihood.abs();
            if !same || far || scored.is_nan() {
                let note = if same { "gmm score differs" } else { "the model differs from that of npy" };
                wrong.push(warm.line.without_time(Status::Wrong, note));
                continue;
            }
            describe(&mut warm.line, &outcome, table)?;
            if engine.starts_with("cuda") {
                let mut cold = self.case(table, ("fit", format), file, engine, &fit);
                (cold.cold, cold.caches) = (true, Some(self.folder.join("cold")));
                cold.line.program += " cold";
                cold.line.note = "empty caches of driver and program".to_owned();
                cases.push(cold);
            }
            let mut read = self.case(table, ("read", format), file, engine, &ONLY_READ);
            read.line.memory = read.run(true)?.anonymous.map(|bytes| (bytes, table.bytes()));
            cases.extend([read, warm]);
        }
        Ok((cases, wrong))
    }

    /// Fits from the parameters of `start`, for comparison with another program.
    pub(crate) fn fit_from(&self, table: &Table, at: usize, engine: &str, start: &Path) -> Result<Case> {
        let (format, file) = &table.files[at];
        let iterations = self.iterations.to_string();
        let options = ["--max-iter", &iterations, "--tol", "0", "--init", &start.to_string_lossy()];
        let mut case = self.case(table, ("fit from a start", format), file, engine, &options);
        let outcome = case.run(true)?;
        describe(&mut case.line, &outcome, table)?;
        Ok(case)
    }

    /// Writes the parameters of a start, without an iteration.
    ///
    /// # Errors
    /// If the program fails.
    pub(crate) fn start(&self, table: &Table) -> Result<PathBuf> {
        let path = self.folder.join("start.json");
        self.case(table, ("read", "npy"), &table.files[0].1, "cpu", &ONLY_READ).run(false)?;
        std::fs::copy(self.model("cpu"), &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn model(&self, engine: &str) -> PathBuf {
        self.folder.join(format!("model-{}.json", engine.replace([':', ','], "-")))
    }

    fn case(&self, table: &Table, (what, format): (&str, &str), file: &Path, engine: &str, options: &[&str]) -> Case {
        let (k, model) = (table.shape.k.to_string(), self.model(engine).display().to_string());
        let file = file.display().to_string();
        let fixed = ["fit", &file, "-k", &k, "--device", engine, "-o", &model, "--json", "-v"];
        Case {
            line: Line::new(what, &format!("gmm {engine}"), format, table),
            program: self.program.to_owned(),
            arguments: fixed.iter().chain(options).map(|&word| word.to_owned()).collect(),
            caches: Some(self.folder.join("warm")),
            cold: false,
            parts,
        }
    }

    /// The log-likelihood that `gmm score` reports for the model just written.
    fn score(&self, engine: &str, file: &Path) -> Result<f64> {
        let mut command = Command::new(self.program);
        command.arg("score").arg(self.model(engine)).arg(file).args(["--json", "-q", "--device", engine]);
        let outcome = child::run(&mut command, false)?;
        json(&outcome)?["log_likelihood"].as_f64().context("gmm score reports no log-likelihood")
    }
}

/// Adds memory and log-likelihood of a watched fit to its line.
fn describe(line: &mut Line, outcome: &Outcome, table: &Table) -> Result<()> {
    line.memory = outcome.anonymous.map(|bytes| (bytes, table.bytes()));
    line.log_likelihood = json(outcome)?["trace"].as_array().and_then(|all| all.last()?.as_f64());
    Ok(())
}

/// Largest difference of `gmm score` from the model's own log-likelihood, relative to it: both evaluate the same rows
/// under the same parameters, but the model file's parameters are rounded to the engine's own again.
const fn allowed(precision: Precision) -> f64 {
    match precision {
        Precision::F64 => 1e-12,
        Precision::F32 => 1e-7,
    }
}

/// What is compared of a model file.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    /// Weights, means and covariances, as written: with all digits.
    parameters: [Value; 3],
    log_likelihood: f64,
}

impl Model {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let model: Value = serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        let parameters = ["weights", "means", "covariances"].map(|name| model[name].clone());
        ensure!(parameters.iter().all(Value::is_array), "{} lacks parameters", path.display());
        let log_likelihood = model["fit"]["log_likelihood"].as_f64();
        Ok(Self { parameters, log_likelihood: log_likelihood.context("the model has no log-likelihood")? })
    }
}

fn json(outcome: &Outcome) -> Result<Value> {
    serde_json::from_str(&outcome.stdout).with_context(|| format!("this is not JSON: {}", outcome.stdout))
}

/// Reading, from the note `read .. in 5.2ms` of `-v`; fitting, from the JSON summary.
fn parts(outcome: &Outcome) -> Parts {
    let note = outcome.stderr.lines().find(|line| line.starts_with("read "));
    let read = note.and_then(|line| seconds(line.rsplit_once(" in ")?.1));
    Parts { read, fit: json(outcome).ok().and_then(|summary| summary["elapsed_s"].as_f64()) }
}

/// Seconds of a duration as Rust prints it.
fn seconds(text: &str) -> Option<f64> {
    let units = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_are_read_as_rust_prints_them() {
        for wanted in [2.5e-7, 9.774e-4, 0.0052, 12.5] {
            let read = seconds(&format!("{:.1?}", Duration::from_secs_f64(wanted))).unwrap();
            assert!((read - wanted).abs() <= 0.05 * wanted, "{wanted} is read as {read}");
        }
        assert_eq!(seconds("long"), None);
    }
}
