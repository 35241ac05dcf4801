//! Replays the fuzz targets' seeds, and every input that once found something, on a stable compiler.

use std::path::Path;

#[path = "../../../fuzz/targets.rs"]
mod targets;

fn replay(target: &str, run: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut found = 0;
    for folder in ["seeds", "regressions"] {
        let Ok(files) = std::fs::read_dir(fuzz.join(folder).join(target)) else { continue };
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            run(&std::fs::read(&path).unwrap());
            found += 1;
        }
    }
    assert!(found > 0, "{target} has no inputs");
}

#[test]
fn csv_inputs_of_the_fuzzer_hold() {
    replay("csv", targets::csv);
}

#[test]
fn npy_inputs_of_the_fuzzer_hold() {
    replay("npy", targets::npy);
}

#[test]
fn model_inputs_of_the_fuzzer_hold() {
    replay("model", targets::model);
}

#[test]
fn statistics_inputs_of_the_fuzzer_hold() {
    replay("statistics", targets::statistics);
}
