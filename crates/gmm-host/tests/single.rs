//! The tests in single files, as one test program: linked once.

mod adapt;
mod common;
mod cpu_matches_reference;
mod near;
mod parts;
mod precision_factors;
mod regress;
mod sentinels;
mod structure;
mod truncated;
