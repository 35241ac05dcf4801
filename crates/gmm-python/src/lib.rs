//! `gmm_rs._core`: the engines, with NumPy arrays as input and output.
//!
//! This crate is a thin binding: arrays are checked and borrowed (`rows.rs`), parameters become a
//! [`Mixture`](gmm_model::Mixture) (`parameters.rs`), the work runs on a thread without the interpreter
//! (`supervise.rs`), and errors become the classes of `gmm_rs.exceptions` (`errors.rs`). scikit-learn's interface is
//! implemented in Python, under `python/gmm_rs`.

mod adapt;
mod bayes;
mod bootstrap;
mod components;
mod deconvolve;
mod device_array;
mod dlpack;
mod engines;
mod errors;
mod evaluate;
mod files;
mod fit;
mod given;
mod impute;
mod likelihood;
mod many;
mod mcmc;
mod online;
mod options;
mod parameters;
mod per_process;
mod products;
mod regress;
mod rows;
mod sample;
mod select;
mod sources;
mod statistics;
mod stoppable;
mod structure;
mod supervise;
mod table;
mod unconstrained;

use std::ffi::c_int;

use pyo3::prelude::*;

/// The default number of threads ([`gmm_host::default_threads`]). Exported as a C symbol, by which threadpoolctl
/// identifies this library (`python/gmm_rs/_threads.py`).
// SAFETY: no other library defines a symbol of this name.
#[unsafe(no_mangle)]
pub extern "C" fn gmm_rs_default_threads() -> c_int {
    c_int::try_from(gmm_host::default_threads()).unwrap_or(1)
}

/// The engines of gmm_rs. Private: use `gmm_rs.mixture`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(engines::engine, module)?)?;
    module.add_function(wrap_pyfunction!(fit::fit, module)?)?;
    module.add_function(wrap_pyfunction!(online::partial_fit, module)?)?;
    module.add_function(wrap_pyfunction!(select::select, module)?)?;
    module.add_function(wrap_pyfunction!(bootstrap::bootstrap, module)?)?;
    module.add_function(wrap_pyfunction!(files::read_model, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_model, module)?)?;
    module.add_function(wrap_pyfunction!(files::to_onnx, module)?)?;
    module.add_function(wrap_pyfunction!(sources::read_tables, module)?)?;
    module.add_function(wrap_pyfunction!(sources::memory_size, module)?)?;
    module.add_class::<sources::Gatherer>()?;
    module.add_function(wrap_pyfunction!(evaluate::log_densities, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::responsibilities, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::evaluate_there, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::labels, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::score, module)?)?;
    module.add_function(wrap_pyfunction!(impute::impute, module)?)?;
    module.add_function(wrap_pyfunction!(impute::pooled, module)?)?;
    module.add_function(wrap_pyfunction!(deconvolve::deconvolve, module)?)?;
    module.add_function(wrap_pyfunction!(deconvolve::view_points, module)?)?;
    module.add_function(wrap_pyfunction!(sample::sample, module)?)?;
    module.add_function(wrap_pyfunction!(sample::synthetic, module)?)?;
    module.add_function(wrap_pyfunction!(table::table, module)?)?;
    module.add_function(wrap_pyfunction!(parameters::covariances_of_precisions, module)?)?;
    module.add_function(wrap_pyfunction!(parameters::mixture, module)?)?;
    module.add_function(wrap_pyfunction!(mcmc::mcmc, module)?)?;
    module.add_function(wrap_pyfunction!(mcmc::summary, module)?)?;
    module.add_function(wrap_pyfunction!(mcmc::concerns, module)?)?;
    module.add_function(wrap_pyfunction!(mcmc::check_pointwise_memory, module)?)?;
    module.add_function(wrap_pyfunction!(mcmc::write_draws, module)?)?;
    module.add_function(wrap_pyfunction!(regress::regress_moments, module)?)?;
    module.add_function(wrap_pyfunction!(regress::regress_draws, module)?)?;
    module.add_function(wrap_pyfunction!(regress::regress_log_densities, module)?)?;
    module.add_function(wrap_pyfunction!(regress::regress_components, module)?)?;
    module.add_function(wrap_pyfunction!(regress::outlier_threshold, module)?)?;
    module.add_function(wrap_pyfunction!(regress::region_threshold, module)?)?;
    module.add_function(wrap_pyfunction!(bayes::posterior_expectation, module)?)?;
    module.add_function(wrap_pyfunction!(bayes::posterior_predictive, module)?)?;
    module.add_function(wrap_pyfunction!(bayes::posterior_draws, module)?)?;
    module.add_class::<device_array::DeviceArray>()?;
    module.add_class::<dlpack::Dlpack>()?;
    module.add_class::<likelihood::Held>()?;
    module.add_class::<components::Components>()?;
    module.add_class::<products::Resident>()?;
    module.add_class::<unconstrained::Unconstrained>()?;
    module.add_class::<statistics::Sums>()?;
    module.add_class::<statistics::Held>()?;
    module.add_function(wrap_pyfunction!(statistics::storage_of, module)?)?;
    for function in [
        wrap_pyfunction!(adapt::adapted, module)?,
        wrap_pyfunction!(adapt::adapted_means, module)?,
        wrap_pyfunction!(adapt::first_moments, module)?,
        wrap_pyfunction!(adapt::linear, module)?,
        wrap_pyfunction!(adapt::ratios, module)?,
        wrap_pyfunction!(adapt::supervectors, module)?,
        wrap_pyfunction!(adapt::top_statistics, module)?,
    ] {
        module.add_function(function)?;
    }
    module.add_function(wrap_pyfunction!(many::fit_many, module)?)?;
    module.add_function(wrap_pyfunction!(many::evaluate_many, module)?)?;
    module.add_class::<many::ManyFits>()?;
    module.add_function(wrap_pyfunction!(structure::distances_of, module)?)?;
    module.add_function(wrap_pyfunction!(structure::divergence, module)?)?;
    module.add_function(wrap_pyfunction!(structure::tree, module)?)?;
    module.add_function(wrap_pyfunction!(structure::merged, module)?)?;
    module.add_function(wrap_pyfunction!(structure::split_of, module)?)?;
    module.add_function(wrap_pyfunction!(structure::split_merge, module)?)?;
    module.add_function(wrap_pyfunction!(structure::tree_of_rows, module)?)?;
    Ok(())
}
