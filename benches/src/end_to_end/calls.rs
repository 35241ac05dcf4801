//! Calls of the Python package with arrays in memory, by a script that checks and times them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use gmm_bench::{Shape, Status};
use gmm_model::Precision;
use serde_json::Value;

use super::case::Line;
use super::child;

const SCRIPT: &str = include_str!("../../peers/python_calls.py");

/// Sizes of the calls.
pub(crate) struct Calls {
    pub(crate) shape: Shape,
    /// Rows on a GPU, of which the CPU gets `shape.n`.
    pub(crate) gpu_rows: usize,
    pub(crate) iterations: usize,
    pub(crate) runs: usize,
}

impl Calls {
    /// The lines of one engine, `cpu` or `cuda`. A package that is missing, or a script that fails, gives a line with
    /// the reason.
    ///
    /// # Errors
    /// If an answer of the script cannot be read.
    pub(crate) fn run(&self, python: &Path, engine: &str) -> Result<Vec<Line>> {
        let Self { shape: Shape { n, k, d }, gpu_rows, iterations, runs } = self;
        let numbers = [
            ("--rows-cpu", n),
            ("--rows-gpu", gpu_rows),
            ("--columns", d),
            ("-k", k),
            ("--iterations", iterations),
            ("--runs", runs),
        ];
        let mut command = Command::new(python);
        // Without it scikit-learn refuses array API dispatch, in which results stay on the device.
        command.env("SCIPY_ARRAY_API", "1").args(["-c", SCRIPT, "--device", engine]);
        for (name, number) in numbers {
            command.arg(name).arg(number.to_string());
        }
        let nothing = |why: &str| self.line("call fit", "NumPy", engine, *n).without_time(Status::Error, why);
        match child::run(&mut command, false) {
            Ok(outcome) => outcome.stdout.lines().map(|line| self.read(line)).collect(),
            Err(why) => Ok(vec![nothing(&format!("{why:#}"))]),
        }
    }

    fn line(&self, what: &str, way: &str, device: &str, n: usize) -> Line {
        Line {
            what: what.to_owned(),
            program: format!("gmm_rs {device}"),
            format: way.to_owned(),
            precision: Precision::F32,
            shape: Shape { n, ..self.shape },
            status: Status::Ok,
            seconds: Vec::new(),
            parts: Vec::new(),
            memory: None,
            others: None,
            log_likelihood: None,
            note: String::new(),
        }
    }

    /// The line of one answer.
    fn read(&self, text: &str) -> Result<Line> {
        let answer: Value = serde_json::from_str(text).with_context(|| format!("the script answered {text}"))?;
        let word =
            |name: &str| answer[name].as_str().with_context(|| format!("the script's {name} is missing: {text}"));
        let n = answer["n"].as_u64().map_or(self.shape.n, |n| n as usize);
        let mut line = self.line(&format!("call {}", word("what")?), word("way")?, word("device")?, n);
        if let Some(missing) = answer["missing"].as_str() {
            return Ok(line.without_time(Status::Error, missing));
        }
        let note = format!("error {:.1e}", answer["error"].as_f64().unwrap_or(f64::NAN));
        if answer["wrong"] == true {
            return Ok(line.without_time(Status::Wrong, &note));
        }
        line.seconds = serde_json::from_value(answer["seconds"].clone()).context("the script's times")?;
        line.note = note;
        Ok(line)
    }
}
