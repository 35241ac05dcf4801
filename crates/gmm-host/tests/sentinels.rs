//! Sentinels far from all other rows do not reduce the precision of any result, on the CPU engine with each instruction
//! set.

#[path = "common/sentinels.rs"]
mod check;

use gmm_host::CpuEngine;

#[test]
fn sentinels_far_from_the_other_rows_fit_as_the_reference_fits_them() {
    for instructions in CpuEngine::instruction_sets() {
        let engine = CpuEngine::with_instructions(2, instructions).expect("an engine");
        let mut failures = Vec::new();
        check::check(&engine, |what, error, allowed| {
            // Written so that a NaN fails.
            let holds = error <= allowed;
            if !holds {
                failures.push(format!("{what}: off by {error:e}, {allowed:e} allowed"));
            }
        });
        assert!(failures.is_empty(), "{instructions}: {} of them:\n{}", failures.len(), failures.join("\n"));
    }
}
