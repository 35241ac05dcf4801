//! Tests the benchmark on the CPU engine: the record parses, and wrong answers fail.

use std::path::Path;

use gmm_host::{CpuEngine, Error, Hooks, Wrapped};
use gmm_model::Statistics;

use super::line::COLUMNS;
use super::{Arguments, run_on};

/// A change that makes the statistics of a pass wrong.
type Spoil = fn(&mut Statistics);

/// Hooks that apply the change to every pass.
#[derive(Clone)]
struct Spoiled(Spoil);

impl Hooks for Spoiled {
    fn passed(&mut self, mut statistics: Statistics) -> Result<Statistics, Error> {
        (self.0)(&mut statistics);
        Ok(statistics)
    }
}

fn arguments(workloads: &[&str], out: &Path) -> Arguments {
    Arguments {
        workloads: workloads.iter().map(|&word| word.to_owned()).collect(),
        engine: "cpu".to_owned(),
        quick: true,
        repeats: 1,
        seconds: 0.0,
        out: out.to_owned(),
        commit: Some("test".to_owned()),
        seed: 4,
    }
}

/// Runs on a CPU engine whose sums are changed by `spoil`. Returns whether the run succeeded, and the record's rows as
/// fields.
fn run(spoil: Spoil, workloads: &[&str]) -> (bool, Vec<Vec<String>>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("record.csv");
    let cpu = CpuEngine::new(2).unwrap();
    let engine = Wrapped::new(&cpu, || Spoiled(spoil));
    let done = run_on(&engine, &arguments(workloads, &out));
    let text = std::fs::read_to_string(&out).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    (done.is_ok(), rows.map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

fn field<'a>(row: &'a [String], column: &str) -> &'a str {
    &row[COLUMNS.split(',').position(|name| name == column).unwrap()]
}

#[test]
fn every_workload_runs_and_every_row_parses() {
    let (succeeded, rows) = run(|_| {}, &[]);
    assert!(succeeded, "{rows:?}");
    // Of the squares only those on the CPU are run.
    assert_eq!(rows.len(), 20 + 5 + 4 + 11 + 8 + 14);
    for row in &rows {
        assert_eq!(row.len(), COLUMNS.split(',').count(), "{row:?}");
        assert_eq!(field(row, "verdict"), "ok", "{row:?}");
        assert!(field(row, "ms").parse::<f64>().unwrap().is_finite(), "{row:?}");
        assert!(field(row, "samples").parse::<usize>().unwrap() > 0, "{row:?}");
    }
    let worst = rows.iter().filter(|row| field(row, "what") == "em").map(|row| field(row, "offset_second_error"));
    assert!(worst.map(|error| error.parse::<f64>().unwrap()).all(|error| error < 2e-6));
}

#[test]
fn a_wrong_sum_fails_and_is_not_timed() {
    let spoils: [(&str, Spoil); 5] = [
        ("second", |s| s.second[0] *= 1.001),
        ("first", |s| s.first[[1, 0]] *= 1.001),
        ("weight", |s| s.weight[1] *= 1.001),
        ("log-likelihood", |s| s.log_likelihood *= 1.001),
        ("rows", |s| s.n_rows -= 1),
    ];
    for (what, spoil) in spoils {
        let (succeeded, rows) = run(spoil, &["W2-diag-f32"]);
        assert!(!succeeded, "{what} was spoiled, and nobody saw it");
        assert_eq!((rows.len(), field(&rows[0], "verdict"), field(&rows[0], "ms")), (1, "wrong", ""), "{what}");
    }
}

#[test]
fn small_fits_with_a_wrong_sum_fail_too() {
    let (succeeded, rows) = run(|s| s.second[0] *= 1.001, &["fit-272-given"]);
    assert!(!succeeded);
    assert_eq!((field(&rows[0], "verdict"), field(&rows[0], "ms")), ("wrong", ""));
}

#[test]
fn likelihoods_with_a_wrong_sum_fail_too() {
    let (succeeded, rows) = run(|s| s.second[0] *= 1.001, &["likelihood-diag-1"]);
    assert!(!succeeded);
    assert_eq!((field(&rows[0], "verdict"), field(&rows[0], "ms")), ("wrong", ""));
}

#[test]
fn a_filter_that_matches_nothing_is_an_error() {
    assert_eq!(run(|_| {}, &["W9"]), (false, vec![]));
}
