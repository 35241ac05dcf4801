//! Replays the fuzz targets' seeds, and every input that once found a bug, on a stable compiler.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/targets.rs"]
mod targets;

use replay::replay;

#[test]
fn csv_inputs_of_the_fuzzer_hold() {
    replay("csv", targets::csv);
}

#[test]
fn npy_inputs_of_the_fuzzer_hold() {
    replay("npy", targets::npy);
}

#[test]
fn mixtures_inputs_of_the_fuzzer_hold() {
    replay("mixtures", targets::mixtures);
}

#[test]
fn model_inputs_of_the_fuzzer_hold() {
    replay("model", targets::model);
}

#[test]
fn statistics_inputs_of_the_fuzzer_hold() {
    replay("statistics", targets::statistics);
}

#[test]
fn parquet_inputs_of_the_fuzzer_hold() {
    replay("parquet", targets::parquet);
}

#[test]
fn arrow_inputs_of_the_fuzzer_hold() {
    replay("arrow", targets::arrow);
}
