//! The bodies of the fuzz targets of `gmm-mcmc`. `crates/gmm-mcmc/tests/fuzz_inputs.rs` includes this file and replays
//! `seeds/` and `regressions/` on a stable compiler.

#![allow(dead_code, reason = "each target uses its own function")]

use gmm_mcmc::{Checkpoint, PriorOptions};

/// Checkpoints of a run.
pub(crate) fn checkpoint(bytes: &[u8]) {
    match Checkpoint::from_bytes(bytes) {
        Ok(checkpoint) => {
            let again = checkpoint.to_bytes();
            assert_eq!(Checkpoint::from_bytes(&again).expect("what was written is read").to_bytes(), again);
        }
        Err(error) => assert!(error.to_string().len() < 4000, "{error}"),
    }
}

/// Priors as TOML.
pub(crate) fn prior(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(error) = PriorOptions::from_toml(text)
    {
        assert!(error.to_string().len() < 4000, "{error}");
    }
}
