//! Replays the seed inputs of the fuzz targets for checkpoints and priors, and random changes of them, on a stable
//! compiler.

#[path = "../../../fuzz/mcmc.rs"]
mod mcmc;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn checkpoint_inputs_of_the_fuzzer_hold() {
    replay("checkpoint", mcmc::checkpoint);
}

#[test]
fn prior_inputs_of_the_fuzzer_hold() {
    replay("prior", mcmc::prior);
}
