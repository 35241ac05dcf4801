//! Stands in for the crate of this name, which panics where no CUDA toolkit is installed and makes the program link
//! `libcuda`, so that it would not start without a driver.
//!
//! `gmm-host` defines the driver's functions itself and opens the driver at run time; nothing is to be found or linked.

/// Finds and links nothing. `cust` and `cust_raw` call it from their build scripts.
pub fn include_cuda() {
    println!("cargo:rerun-if-changed=build.rs");
}
