//! Calls of the interface with arguments that C programs get wrong.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr;

use gmm_c::*;
use gmm_data::{ModelFile, write_model};
use gmm_model::{CovarianceType, Noise, SyntheticOptions, synthetic};

fn last() -> String {
    // SAFETY: the text is valid until the next failure of this thread.
    unsafe { CStr::from_ptr(gmm_last_error()) }.to_str().unwrap().to_owned()
}

fn load(path: &Path) -> (c_int, *mut Model) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut model = ptr::dangling_mut();
    // SAFETY: a string and a pointer to write to.
    let status = unsafe { gmm_load(path.as_ptr(), 1, &raw mut model) };
    assert_eq!(status == GMM_OK, !model.is_null());
    (status, model)
}

fn file() -> ModelFile {
    synthetic(3, 2, CovarianceType::Full, 1, &SyntheticOptions::default()).unwrap().into()
}

#[test]
fn invalid_arguments_are_a_status_and_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    write_model(&path, &file()).unwrap();
    let (status, model) = load(&path);
    assert_eq!(status, GMM_OK);
    let (rows, mut out, mut labels) = ([0.5, 1.0, f64::NAN, 2.0], [7.0; 6], [7; 2]);
    // SAFETY: pointers are valid for the lengths, or null.
    unsafe {
        assert_eq!((gmm_n_components(model), gmm_n_features(model)), (3, 2));
        let mut check = |model, rows: *const f64, n, d, text: &str, status| {
            assert_eq!(gmm_score_samples(model, rows, n, d, out.as_mut_ptr()), status);
            assert!(last().contains(text), "{}", last());
            assert_eq!(gmm_predict(model, rows, n, d, labels.as_mut_ptr()), status);
            assert_eq!(gmm_predict_proba(model, rows, n, d, out.as_mut_ptr()), status);
            assert!(last().contains(text), "{}", last());
        };
        check(ptr::null(), rows.as_ptr(), 1, 2, "model is NULL", GMM_INVALID_ARGUMENT);
        check(model, ptr::null(), 1, 2, "rows is NULL", GMM_INVALID_ARGUMENT);
        check(model, rows.as_ptr(), 1, 3, "the rows have 3 columns, the model has 2", GMM_INVALID_ARGUMENT);
        check(model, rows.as_ptr(), 0, 2, "there are no rows", GMM_INVALID_ARGUMENT);
        check(model, rows.as_ptr(), usize::MAX, 2, "overflows", GMM_INVALID_ARGUMENT);
        check(model, rows.as_ptr(), usize::MAX / 16, 2, "overflows", GMM_INVALID_ARGUMENT);
        check(model, rows.as_ptr(), 2, 2, "row 1, column 0 is NaN", GMM_BAD_DATA);
        assert_eq!(gmm_score_samples(model, rows.as_ptr(), 1, 2, ptr::null_mut()), GMM_INVALID_ARGUMENT);
        assert_eq!(last(), "log_densities is NULL");
        assert_eq!((out, labels), ([7.0; 6], [7; 2]), "nothing was written");
        assert_eq!(gmm_score_samples(model, rows.as_ptr(), 1, 2, out.as_mut_ptr()), GMM_OK);
        assert!(out[0].is_finite() && out[1] == 7.0);
        gmm_free(model);
        gmm_free(ptr::null_mut());
        assert_eq!(gmm_n_features(ptr::null()), 0);
    }
}

#[test]
fn files_that_cannot_be_loaded_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    let check = |status, text: &str| {
        let (found, model) = load(&path);
        assert!(model.is_null() && found == status && last().contains(text), "{found} {}", last());
    };
    check(GMM_FILE, "m.json");
    std::fs::write(&path, "{}").unwrap();
    check(GMM_BAD_DATA, "'format'");
    let noise = Some(Noise { weight: 0.5, log_volume: 1.0, region: None });
    write_model(&path, &ModelFile { noise, ..file() }).unwrap();
    check(GMM_BAD_DATA, "'noise'");
    write_model(&path, &ModelFile { clusters: Some(vec![0, 0, 1]), ..file() }).unwrap();
    check(GMM_BAD_DATA, "'clusters'");
    let mut model = ptr::null_mut();
    // SAFETY: null pointers are errors, and the string is one.
    unsafe {
        assert_eq!(gmm_load(ptr::null(), 1, &raw mut model), GMM_INVALID_ARGUMENT);
        assert_eq!(gmm_load(c"m.json".as_ptr(), 1, ptr::null_mut()), GMM_INVALID_ARGUMENT);
        assert_eq!(gmm_load(c"\xff".as_ptr(), 1, &raw mut model), GMM_INVALID_ARGUMENT);
        write_model(&path, &file()).unwrap();
        let path = CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(gmm_load(path.as_ptr(), 1025, &raw mut model), GMM_INVALID_ARGUMENT);
        assert!(model.is_null() && last() == "threads is 1025: it must be at most 1024", "{}", last());
    }
}

#[test]
fn threads_may_share_a_model_and_have_their_own_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    write_model(&path, &file()).unwrap();
    let address = load(&path).1 as usize;
    let rows: Vec<f64> = (0..2000).map(|i| f64::from(i % 17)).collect();
    let score = || {
        let mut out = vec![0.0; 1000];
        // SAFETY: the model lives until the end, and the lengths are right.
        let status = unsafe { gmm_score_samples(address as *const Model, rows.as_ptr(), 1000, 2, out.as_mut_ptr()) };
        assert_eq!(status, GMM_OK);
        out
    };
    let expected = score();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(last(), "");
                assert_eq!(score(), expected);
            });
        }
    });
    // SAFETY: it is used no more.
    unsafe { gmm_free(address as *mut Model) };
}
