//! Checkpoints whose checksum is right and whose content is not: made by hand, or by a program with a bug.

use std::ops::ControlFlow;

use gmm_data::{model_and_state, write_model_and_state};
use gmm_host::{CpuEngine, FitOptions, fit_resumed};
use gmm_model::Dataset;
use ndarray::Array2;
use serde_json::{Value, json};

use super::*;
use crate::exit;
use crate::output::Console;

fn data() -> Dataset {
    Dataset::new(Array2::from_shape_fn((40, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f64)).unwrap()
}

fn engine() -> CpuEngine {
    CpuEngine::new(1).unwrap()
}

/// The state of a fit in its second restart.
fn state(options: &FitOptions) -> FitState {
    let mut state = FitState::default();
    let observer: &mut gmm_host::Observer<'_> = &mut |step| {
        step.save(&mut state);
        if step.restart == 1 && step.iteration == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    fit_resumed(&engine(), &data(), options, FitState::default(), observer).unwrap_err();
    state
}

fn options() -> FitOptions {
    FitOptions { n_init: 3, max_iter: 4, tol: 0.0, ..FitOptions::new(3) }
}

fn basis() -> Basis {
    Basis::new(FitRecord::new(&options(), "kmeans"), (&data(), None), &engine(), 1).unwrap()
}

/// Reads a checkpoint, and goes on from it as the program does.
fn go_on(path: &Path) -> anyhow::Result<()> {
    let saved = Saved::read(path)?;
    let options = saved.options(&FitRecord::new(&options(), "kmeans"), &[])?;
    options.validate()?;
    saved.check(&basis(), &Console::new(true, false))?;
    // No wrong number of iterations may keep the test busy.
    let options = FitOptions { max_iter: options.max_iter.min(5), n_init: options.n_init.min(4), ..options };
    fit_resumed(&engine(), &data(), &options, saved.state, &mut |_| ControlFlow::Continue(()))?;
    Ok(())
}

/// All ways to reach a value inside another.
fn paths(value: &Value, prefix: &str, out: &mut Vec<String>) {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in inside {
        let path = format!("{prefix}/{name}");
        paths(value, &path, out);
        out.push(path);
    }
}

#[test]
fn a_state_goes_through_the_file_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["run.json", "run.safetensors"] {
        let path = folder.path().join(name);
        let state = state(&options());
        assert!(state.running.is_some() && state.best.is_some());
        record::write(&path, None, &basis(), &state).unwrap();
        let read = record::read(&path).unwrap().1;
        // Convergence is judged anew.
        let unjudged = |mut state: FitState| {
            state.running.iter_mut().chain(&mut state.best).for_each(|restart| restart.run.converged = false);
            state
        };
        assert_eq!(unjudged(read), unjudged(state));
        go_on(&path).unwrap();
    }
}

#[test]
fn any_other_value_in_a_state_is_read_or_refused_but_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    record::write(&path, None, &basis(), &state(&options())).unwrap();
    let (model, whole) = model_and_state(&std::fs::read(&path).unwrap(), "run.json").unwrap();
    let mut all = Vec::new();
    paths(&whole, "", &mut all);
    let others = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(1),
        json!(7),
        json!(1e300),
        json!(u64::MAX),
        json!(1u64 << 62),
        json!(""),
        json!("cuda:0"),
        json!([]),
        json!([[0, 1.0], [9, 1.0]]),
        json!({}),
        json!(true),
    ];
    let mut refused = 0;
    for place in &all {
        for other in &others {
            let mut state = whole.clone();
            *state.pointer_mut(place).unwrap() = other.clone();
            write_model_and_state(&path, &model, &state).unwrap();
            if let Err(error) = go_on(&path) {
                let text = exit::message(&error);
                assert!(!text.contains('\n') && exit::code(&error) != 1, "{place} = {other}: {text}");
                refused += 1;
            }
        }
    }
    assert!(refused > all.len() * others.len() / 2, "{refused} of {}", all.len() * others.len());
}
