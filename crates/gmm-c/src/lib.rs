//! Models of `gmm` in C: load, score, predict, free. `include/gmm.h` is made from this file.
//!
//! Every function that can fail returns a status, and [`gmm_last_error`] says what is wrong. No panic leaves a
//! function. Results have the bits of `gmm score` and `gmm predict` on the CPU.

mod failure;
mod model;

use std::ffi::{CStr, c_char, c_int};

use failure::{Failure, run};
pub use model::Model;
use model::{predict, predict_proba, score_samples};

/// The version of this interface. A program that was compiled with another one must be compiled again; it can compare
/// with gmm_abi_version().
pub const GMM_ABI_VERSION: u32 = 2;

/// Success.
pub const GMM_OK: c_int = 0;
/// An argument is invalid: a null pointer, a wrong number of columns, no rows, or a path that is not UTF-8.
pub const GMM_INVALID_ARGUMENT: c_int = 2;
/// The model or the rows are invalid, such as a value that is NaN or infinite.
pub const GMM_BAD_DATA: c_int = 3;
/// There is not enough memory, or no thread can be started.
pub const GMM_NO_RESOURCES: c_int = 5;
/// The file cannot be read.
pub const GMM_FILE: c_int = 6;
/// An internal error: please report it.
pub const GMM_FAULT: c_int = 70;

/// The version of this interface that the library has: GMM_ABI_VERSION of its header.
#[unsafe(no_mangle)]
pub extern "C" fn gmm_abi_version() -> u32 {
    GMM_ABI_VERSION
}

/// What was wrong with the last call in this thread that failed: one line of UTF-8, which names file and field, or row
/// and column. It is valid until the next call in this thread fails, and empty if none has.
#[unsafe(no_mangle)]
pub extern "C" fn gmm_last_error() -> *const c_char {
    failure::last()
}

/// Reads a model file of any form that gmm reads: JSON, safetensors, and those of Kaldi and mclust.
///
/// `path` is UTF-8. Evaluations use `threads` threads, at most 1024; 0 means one per available core. On success
/// `*model` is a model, to be freed by gmm_free; otherwise it is NULL.
///
/// Noise, clusters and the posterior of variational Bayes are part of the model: results are those of gmm score and gmm
/// predict.
///
/// # Safety
/// `path` is a string that ends with a zero byte, `model` is valid for a write; or either is NULL, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_load(path: *const c_char, threads: usize, model: *mut *mut Model) -> c_int {
    run(|| {
        // SAFETY: by the contract of this function a pointer that is not null is valid for a write.
        let Some(model) = (unsafe { model.as_mut() }) else { return Err(Failure::null("model")) };
        *model = std::ptr::null_mut();
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        // SAFETY: by the contract of this function the string ends with a zero byte.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path.to_str().map_err(|_| Failure::argument("path is not UTF-8"))?;
        *model = Box::into_raw(Box::new(Model::load(path, threads)?));
        Ok(())
    })
}

/// Frees a model. NULL is allowed.
///
/// # Safety
/// `model` is from gmm_load and is not used again, also not by a call in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_free(model: *mut Model) {
    if !model.is_null() {
        // A failure here has nobody to be reported to.
        let _ = run(|| {
            // SAFETY: by the contract of this function the pointer is that of the box of `gmm_load`, and is given up
            // here.
            drop(unsafe { Box::from_raw(model) });
            Ok(())
        });
    }
}

/// Number of columns `d` of the model; 0 for NULL.
///
/// # Safety
/// `model` is from gmm_load, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_n_features(model: *const Model) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.dim().1)
}

/// Number of components `k` of the model; 0 for NULL.
///
/// # Safety
/// `model` is from gmm_load, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_n_components(model: *const Model) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.dim().0)
}

/// Number of responsibilities of a row: of the components, or of the clusters if components were combined, and one more, the
/// last, if the model has noise; 0 for NULL.
///
/// # Safety
/// `model` is from gmm_load, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_n_responsibilities(model: *const Model) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.width())
}

/// Writes the natural logarithm of each row's density to `log_densities`, n numbers; of a model by variational Bayes that of
/// its posterior predictive density.
///
/// `rows` has n * d numbers in row-major order, of the model's d columns. A row's result does not depend on other rows.
/// Any thread may call this, also with the same model: the first call uses the threads of the model, others at the same
/// time their own.
///
/// # Safety
/// `model` is from gmm_load; `rows` is valid for reads of n * d numbers, `log_densities` for writes of n, and they do
/// not overlap. NULL is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_score_samples(
    model: *const Model,
    rows: *const f64,
    n: usize,
    d: usize,
    log_densities: *mut f64,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { score_samples(model, rows, (n, d), log_densities) })
}

/// Writes the component, or cluster, of largest responsibility of each row, from 0, to `labels`, n numbers; -1 is noise.
///
/// # Safety
/// As for gmm_score_samples.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_predict(
    model: *const Model,
    rows: *const f64,
    n: usize,
    d: usize,
    labels: *mut i32,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { predict(model, rows, (n, d), labels) })
}

/// Writes the responsibilities of each row to `responsibilities`, n * gmm_n_responsibilities numbers in row-major order.
/// Each row sums to 1.
///
/// # Safety
/// As for gmm_score_samples, with as many numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_predict_proba(
    model: *const Model,
    rows: *const f64,
    n: usize,
    d: usize,
    responsibilities: *mut f64,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { predict_proba(model, rows, (n, d), responsibilities) })
}

/// As gmm_score_samples, for rows of float, with the results of gmm for a file of such rows: products are computed in single
/// precision, and sums in double.
///
/// # Safety
/// As for gmm_score_samples.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_score_samples_f32(
    model: *const Model,
    rows: *const f32,
    n: usize,
    d: usize,
    log_densities: *mut f64,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { score_samples(model, rows, (n, d), log_densities) })
}

/// As gmm_predict, for rows of float, with the results of gmm for a file of such rows: products are computed in single
/// precision, and sums in double.
///
/// # Safety
/// As for gmm_predict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_predict_f32(
    model: *const Model,
    rows: *const f32,
    n: usize,
    d: usize,
    labels: *mut i32,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { predict(model, rows, (n, d), labels) })
}

/// As gmm_predict_proba, for rows of float, with the results of gmm for a file of such rows: products are computed in single
/// precision, and sums in double.
///
/// # Safety
/// As for gmm_predict_proba.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmm_predict_proba_f32(
    model: *const Model,
    rows: *const f32,
    n: usize,
    d: usize,
    responsibilities: *mut f64,
) -> c_int {
    // SAFETY: by the contract of this function.
    run(|| unsafe { predict_proba(model, rows, (n, d), responsibilities) })
}
