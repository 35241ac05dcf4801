//! Time of a pass with missing values against that of a complete pass.
//!
//! ```sh
//! cargo test --release -p gmm-host --test missing -- --ignored --nocapture speed
//! ```

use std::time::{Duration, Instant};

use gmm_host::{CpuEngine, Engine, Resident, shift};

use super::*;

/// The fastest of some passes.
fn fastest(rows: &mut dyn Resident, mixture: &Mixture) -> Duration {
    let one = |_| {
        let start = Instant::now();
        rows.pass(mixture).unwrap();
        start.elapsed()
    };
    (0..12).map(one).min().unwrap()
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn a_tenth_missing_takes_at_most_four_times_a_complete_pass() {
    let (n, d) = (100_000, 13);
    let engine = CpuEngine::new(2).unwrap();
    for k in [8, 3] {
        let mixture = common::mixture(CovarianceType::Full, k, d, 0.0, 1.0, 1);
        let rows = common::rows(n, d, 0.0, 1.0, 1);
        let complete = Dataset::new(rows.clone()).unwrap();
        let at = shift::of_data(&complete);
        let whole = fastest(engine.load(&complete, Precision::F64, &at).unwrap().as_mut(), &mixture);
        for share in [0.01, 0.1, 0.3] {
            let mut rows = rows.clone();
            punch(&mut rows, share, 1);
            let holed = Dataset::with_holes(rows).unwrap();
            let start = Instant::now();
            let mut resident = engine.load(&holed, Precision::F64, &at).unwrap();
            let load = start.elapsed();
            let with_holes = fastest(resident.as_mut(), &mixture);
            let ratio = with_holes.as_secs_f64() / whole.as_secs_f64();
            println!(
                "k={k} {share} missing: load {load:.1?}, pass {with_holes:.1?}, complete {whole:.1?}, ratio {ratio:.2}"
            );
            assert!(share != 0.1 || k != 8 || ratio < 4.0, "{ratio}");
        }
    }
}
