#![no_main]

#[path = "../mcmc.rs"]
mod mcmc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mcmc::prior(bytes));
