//! The state after an engine fails in the middle of a fit: rows 67, 69 and 72 of the table of bad input.

use std::fs;

use gmm_host::{CpuEngine, Error, Hooks, Wrapped, fit};
use gmm_model::Statistics;
use ndarray::Array2;
use tempfile::TempDir;

use super::*;

/// The pass that fails.
const AT: usize = 4;

/// The result that the failing pass returns in place of its statistics.
type Answer = fn(Statistics) -> Result<Statistics, Error>;

/// Hooks that make pass number `at` fail.
#[derive(Clone)]
struct Failing {
    passes: usize,
    at: usize,
    answer: Answer,
}

impl Hooks for Failing {
    fn passed(&mut self, statistics: Statistics) -> Result<Statistics, Error> {
        self.passes += 1;
        if self.passes == self.at { (self.answer)(statistics) } else { Ok(statistics) }
    }
}

fn data() -> Dataset {
    Dataset::new(Array2::from_shape_fn((60, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f64 + (i % 3) as f64 * 9.0)).unwrap()
}

fn options(max_iter: usize) -> FitOptions {
    FitOptions { tol: 0.0, max_iter, ..FitOptions::new(3) }
}

fn checkpoint(path: PathBuf, options: &FitOptions) -> Checkpoint {
    let basis = Basis::new(FitRecord::new(options, "kmeans"), (&data(), None), &CpuEngine::new(1).unwrap(), 1).unwrap();
    Checkpoint::new(path, None, basis)
}

/// Runs a fit whose pass `at` fails; returns the exit code, the message, and the folder with the checkpoint.
fn failed(at: usize, answer: Answer, older: Option<&str>) -> (u8, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    if let Some(text) = older {
        fs::write(&path, text).unwrap();
    }
    let cpu = CpuEngine::new(1).unwrap();
    let engine = Wrapped::new(&cpu, || Failing { passes: 0, at, answer });
    let options = options(10);
    let checkpoint = Some(checkpoint(path, &options));
    let error = observed(checkpoint, FitState::default(), &data(), &options, &engine, &Console::new(true, false));
    let error = error.unwrap_err();
    (exit::code(&error), exit::message(&error), folder)
}

/// Checks that the checkpoint has the mixture before the failure, and that the message says how to continue from it.
#[track_caller]
fn keeps_what_was_reached(answer: Answer, code: u8, parts: &[&str]) {
    let (found, message, folder) = failed(AT, answer, Some("an older checkpoint"));
    assert_eq!(found, code, "{message}");
    let path = folder.path().join("run.json");
    let go_on = format!("the mixture after {} iterations is in {}: --init", AT - 1, path.display());
    for part in parts.iter().copied().chain([go_on.as_str()]) {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
    assert_eq!(message.matches(parts[0]).count(), 1, "said once: {message}");
    let want = fit(&CpuEngine::new(1).unwrap(), &data(), &options(AT - 1)).unwrap().mixture;
    assert_eq!(gmm_data::read_model(&path).unwrap().mixture, want);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file");
}

fn device_lost(_: Statistics) -> Result<Statistics, Error> {
    Err(Error::Device("cuda:0: kernel e_step_full_f64: cuStreamSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE".to_owned()))
}

fn no_memory(_: Statistics) -> Result<Statistics, Error> {
    Err(Error::Memory { what: "a pass on the GPU", wanted: 2_000, free: 1_000 })
}

fn not_finite(mut statistics: Statistics) -> Result<Statistics, Error> {
    statistics.weight[1] = f64::NAN;
    Ok(statistics)
}

fn no_likelihood(mut statistics: Statistics) -> Result<Statistics, Error> {
    statistics.log_likelihood = f64::NEG_INFINITY;
    Ok(statistics)
}

#[test]
fn row_67_want_of_memory_in_mid_fit_keeps_the_last_mixture_and_exits_with_5() {
    keeps_what_was_reached(no_memory, exit::DEVICE, &["needs 2000 bytes of memory, 1000 are free"]);
}

#[test]
fn row_69_a_device_lost_in_mid_fit_keeps_the_last_mixture_and_exits_with_5() {
    keeps_what_was_reached(device_lost, exit::DEVICE, &["CUDA_ERROR_ECC_UNCORRECTABLE", "cuda:0"]);
}

#[test]
fn row_72_statistics_that_are_not_finite_keep_the_last_mixture_and_exit_with_4() {
    keeps_what_was_reached(not_finite, exit::NUMERICAL, &["iteration 4: the statistics of component 1"]);
    keeps_what_was_reached(no_likelihood, exit::NUMERICAL, &["iteration 4: the log-likelihood is -inf"]);
}

#[test]
fn row_69_a_device_lost_before_the_first_iteration_leaves_the_older_checkpoint_as_it_is() {
    let (code, message, folder) = failed(1, device_lost, Some("an older checkpoint"));
    assert_eq!(code, exit::DEVICE, "{message}");
    assert!(!message.contains("run.json"), "{message}");
    assert_eq!(fs::read_to_string(folder.path().join("run.json")).unwrap(), "an older checkpoint");
    let (_, _, folder) = failed(1, device_lost, None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn row_69_a_checkpoint_that_cannot_be_written_is_told_beside_the_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gone").join("run.json");
    let options = options(1);
    let mut checkpoint = checkpoint(path, &options);
    let state = fit(&CpuEngine::new(1).unwrap(), &data(), &options).unwrap().state;
    // The first write fails, since the folder does not exist; the state is still pending.
    checkpoint.done(&state).unwrap_err();
    let error = device_lost(Statistics::zero(CovarianceType::Diag, Array2::zeros((1, 1)))).unwrap_err();
    let error = stopped(error.into(), &mut checkpoint, 1);
    assert_eq!(exit::code(&error), exit::DEVICE);
    let message = exit::message(&error);
    assert!(
        message.contains("ECC_UNCORRECTABLE") && message.contains("lost: ") && message.contains("gone"),
        "{message}"
    );
}
