//! Calls of the interface with arguments that C programs get wrong.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr;

use gmm_c::*;
use gmm_data::{ModelFile, write_model};
use gmm_host::{CpuEngine, evaluate};
use gmm_model::bayes::{BayesPrior, WeightPrior};
use gmm_model::{
    CovarianceType, Dataset, Noise, Precision, PriorScale, SyntheticOptions, reference, sample, synthetic,
};
use ndarray::{ArrayView1, array};

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
        assert_eq!((gmm_n_features(ptr::null()), gmm_n_responsibilities(ptr::null())), (0, 0));
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
    let noise = Some(Noise { weight: 1.5, log_volume: 1.0, region: None });
    if write_model(&path, &ModelFile { noise, ..file() }).is_ok() {
        check(GMM_BAD_DATA, "noise");
    }
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

/// Labels, log densities and responsibilities of rows.
type Found = (Vec<i32>, Vec<f64>, Vec<Vec<f64>>);

/// What the interface gives for rows of this type, by its three functions.
macro_rules! found {
    ($file:expr, $rows:expr, $score:ident, $predict:ident, $proba:ident) => {{
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        write_model(&path, $file).unwrap();
        let (status, model) = load(&path);
        assert_eq!(status, GMM_OK, "{}", last());
        let (rows, (n, d)) = ($rows.as_slice().unwrap(), $rows.dim());
        // SAFETY: the model lives until it is freed, and the lengths are right.
        unsafe {
            let width = gmm_n_responsibilities(model);
            let (mut labels, mut densities, mut all) = (vec![7; n], vec![7.0; n], vec![7.0; n * width]);
            assert_eq!($score(model, rows.as_ptr(), n, d, densities.as_mut_ptr()), GMM_OK, "{}", last());
            assert_eq!($predict(model, rows.as_ptr(), n, d, labels.as_mut_ptr()), GMM_OK, "{}", last());
            assert_eq!($proba(model, rows.as_ptr(), n, d, all.as_mut_ptr()), GMM_OK, "{}", last());
            gmm_free(model);
            (labels, densities, all.chunks(width).map(<[f64]>::to_vec).collect::<Vec<_>>())
        }
    }};
}

/// What a model says of a row, by the naive reference.
fn expected(file: &ModelFile, x: ArrayView1<'_, f64>) -> (i32, f64, Vec<f64>) {
    let posterior = file.posterior.as_ref();
    let mixture = posterior.map_or(file.mixture.clone(), |posterior| posterior.expectation().unwrap().mixture);
    let (density, all) = match &file.noise {
        Some(noise) => noise.reference(&mixture, x),
        None => {
            let (density, all) = reference::posterior(&mixture, x);
            (density, all.to_vec())
        }
    };
    let density = posterior.map_or(density, |posterior| posterior.predictive().log_density(x));
    let clusters = file.clusters.clone().unwrap_or_else(|| (0..file.mixture.n_components()).collect());
    let mut sums = vec![0.0; clusters.iter().max().unwrap() + 1 + usize::from(file.noise.is_some())];
    let last = sums.len() - 1;
    all.iter().enumerate().for_each(|(c, r)| sums[*clusters.get(c).unwrap_or(&last)] += r);
    let best = reference::argmax(ndarray::aview1(&sums));
    (if file.noise.is_some() && best == last { -1 } else { best as i32 }, density, sums)
}

/// A model by variational Bayes.
fn bayes() -> ModelFile {
    let start = synthetic(3, 2, CovarianceType::Full, 1, &SyntheticOptions::default()).unwrap();
    let prior = BayesPrior {
        weights: WeightPrior::Dirichlet { concentration: 0.5 },
        mean: array![0.0, 0.0],
        mean_precision: 1.0,
        degrees_of_freedom: 3.0,
        scale: PriorScale::Matrix(array![[1.0, 0.0], [0.0, 2.0]]),
    };
    let (rows, _) = sample(&start, 200, 0).unwrap();
    let posterior = prior.update(&reference::statistics(&start, rows.view(), None), 0.0).unwrap();
    ModelFile { posterior: Some(posterior.clone()), ..posterior.mixture().clone().into() }
}

#[test]
fn every_part_of_a_model_counts() {
    let noise = Some(Noise { weight: 0.3, log_volume: 6.0, region: None });
    let clusters = Some(vec![0, 1, 0]);
    let files = [
        file(),
        ModelFile { noise: noise.clone(), ..file() },
        ModelFile { clusters: clusters.clone(), ..file() },
        ModelFile { noise, clusters, ..file() },
        bayes(),
        ModelFile { clusters: Some(vec![1, 0, 1]), ..bayes() },
    ];
    for file in files {
        let (mut rows, _) = sample(&file.mixture, 100, 3).unwrap();
        // Far from all components: noise, if there is some.
        rows.row_mut(0).fill(60.0);
        let double: Found = found!(&file, &rows, gmm_score_samples, gmm_predict, gmm_predict_proba);
        let singles = rows.mapv(|v| v as f32);
        let single: Found = found!(&file, &singles, gmm_score_samples_f32, gmm_predict_f32, gmm_predict_proba_f32);
        let rounded = singles.mapv(f64::from);
        for (found, rows, eps) in [(double, &rows, f64::EPSILON), (single, &rounded, f64::from(f32::EPSILON))] {
            for (i, x) in rows.outer_iter().enumerate() {
                let (label, density, all) = expected(&file, x);
                // A density has the rounding errors of some sums of the size of the distances.
                let within = 64.0 * eps * density.abs().max(1.0);
                assert!((found.1[i] - density).abs() <= within, "{} {density}", found.1[i]);
                assert_eq!(found.2[i].len(), all.len());
                assert!(found.2[i].iter().zip(&all).all(|(a, b)| (a - b).abs() <= within), "{:?} {all:?}", found.2[i]);
                let is_close =
                    all.iter().filter(|r| (**r - all.iter().fold(0.0, |a: f64, b| a.max(*b))).abs() <= within);
                assert!(found.0[i] == label || is_close.count() > 1, "{} {label}", found.0[i]);
            }
            assert_eq!(found.0[0] == -1, file.noise.is_some());
        }
    }
}

#[test]
fn rows_of_float_have_the_bits_of_the_engine() {
    let file = file();
    let singles = sample(&file.mixture, 500, 3).unwrap().0.mapv(|v| v as f32);
    let found = found!(&file, &singles, gmm_score_samples_f32, gmm_predict_f32, gmm_predict_proba_f32);
    let (engine, data) = (CpuEngine::new(1).unwrap(), Dataset::new(singles).unwrap());
    let densities = evaluate::log_densities(&engine, &file.mixture, &data, Precision::F32).unwrap().0;
    assert_eq!(found.1, densities.to_vec());
    let all = evaluate::responsibilities(&engine, &file.mixture, &data, Precision::F32).unwrap();
    assert_eq!(found.2.concat(), all.into_raw_vec_and_offset().0);
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
