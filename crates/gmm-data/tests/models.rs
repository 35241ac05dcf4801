//! Model files.

use crate::common::{self, golden};
use gmm_data::{FileError, ModelFile, model_to_json, model_to_safetensors, read_model, read_model_bytes, write_model};
use gmm_model::bayes::{BayesPrior, WeightPrior};
use gmm_model::{
    CovarianceType, Covariances, FactorLoadings, FitSummary, Mixture, Noise, NoiseRegion, NoiseRotation,
    OutlierThreshold, Precision, PriorScale, RowStorage,
};
use ndarray::{Array3, array};

fn fit() -> FitSummary {
    FitSummary {
        log_likelihood: -1_234.567_890_123_456_7,
        mean_log_likelihood: -0.1,
        n_rows: 272,
        iterations: 17,
        converged: true,
        aic: 1.0,
        bic: 2.0,
        icl: 3.0,
        tol: 1e-3,
        reg_covar: 1e-6,
        seed: u64::MAX,
        engine: "cpu".to_owned(),
        precision: "f64".to_owned(),
        trace: vec![-0.5, -1.0 / 3.0, -0.0],
        lower_bound: Some(-12.5),
        rules: vec!["covariance floor 0.25".to_owned()],
    }
}

fn noise() -> Noise {
    let rotation = NoiseRotation { centre: vec![1.0 / 3.0; 3], axes: vec![vec![1.0 / 3.0, -0.0, 1e-300]; 3] };
    let region = NoiseRegion { lower: vec![-1.0; 3], upper: vec![0.1, 0.2, 0.1 + 0.2], rotation: Some(rotation) };
    Noise::new(1.0 / 3.0, region).unwrap()
}

fn models() -> Vec<ModelFile> {
    let tiny = f64::MIN_POSITIVE / 4.0;
    let means = array![[-0.0, tiny, 1e300], [1.0 / 3.0, -1e-300, f64::MAX]];
    let full = Array3::from_shape_fn((2, 3, 3), |(c, i, j)| if i == j { 2.0 + c as f64 / 3.0 } else { -0.1 / 3.0 });
    let tied = full.index_axis(ndarray::Axis(0), 1).to_owned();
    [
        Covariances::Full(full),
        Covariances::Tied(tied),
        Covariances::Diag(array![[tiny, 1.0 / 3.0, 1e-6], [5e-324, 0.1, 1e307]]),
        Covariances::Spherical(array![tiny, 0.1]),
    ]
    .into_iter()
    .map(|covariances| ModelFile {
        mixture: Mixture::new(array![0.1 + 0.2, 1.0 - (0.1 + 0.2)], means.clone(), covariances).unwrap(),
        feature_names: Some(vec!["a".into(), "b \"quoted\"\n".into(), "ü".into()]),
        fit: Some(fit()),
        storage: Some(RowStorage { precision: Precision::F32, shift: vec![-0.0, tiny, 1.0 / 3.0] }),
        trace: vec![-0.5, -1.0 / 3.0],
        outliers: Some(OutlierThreshold { log_density: -7.0 / 3.0, contamination: Some(0.1), level: None }),
        clusters: Some(vec![1, 0]),
        posterior: None,
        noise: Some(noise()),
    })
    .collect()
}

fn bits(model: &ModelFile) -> Vec<u64> {
    let m = &model.mixture;
    let covariances: Vec<f64> = match m.covariances() {
        Covariances::Full(a) => a.iter().copied().collect(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
        Covariances::Spherical(a) => a.to_vec(),
    };
    let fit = model.fit.iter().flat_map(|f| [f.log_likelihood, f.tol].into_iter().chain(f.trace.clone()));
    let storage = model.storage.iter().flat_map(|s| s.shift.clone()).chain(model.trace.clone());
    let fit = fit.chain(storage);
    let all = m.weights().to_vec().into_iter().chain(m.means().iter().copied().collect::<Vec<_>>());
    all.chain(covariances).chain(fit).map(f64::to_bits).collect()
}

#[test]
fn every_kind_comes_back_bit_for_bit_from_either_form() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        for name in ["m.json", "m.safetensors"] {
            let path = folder.path().join(name);
            write_model(&path, &model).unwrap();
            let first = std::fs::read(&path).unwrap();
            let again = read_model(&path).unwrap();
            assert_eq!(again, model);
            assert_eq!(bits(&again), bits(&model));
            write_model(&path, &again).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), first, "equal models, equal bytes");
        }
    }
}

/// A mixture of factor analysers: two factors in three columns.
fn with_factors() -> ModelFile {
    let loadings = FactorLoadings {
        loadings: Array3::from_shape_fn((2, 3, 2), |(c, i, e)| (1 + c + 2 * i + 5 * e) as f64 / 3.0 - 1.0),
        uniquenesses: array![[0.1, 1.0 / 3.0, 2.0], [1e-7, 0.1 + 0.2, 5.0]],
    };
    let means = array![[-0.0, 1.0, 1e10], [1.0 / 3.0, -1.0, 0.1]];
    ModelFile::from(Mixture::of_loadings(array![0.25, 0.75], means, loadings).unwrap())
}

#[test]
fn factors_come_back_bit_for_bit_and_must_be_those_of_the_covariances() {
    let model = with_factors();
    let text = model_to_json(&model).unwrap();
    assert_eq!(read_model_bytes(text.as_bytes(), "m").unwrap(), model);
    let bytes = model_to_safetensors(&model).unwrap();
    assert_eq!(read_model_bytes(&bytes, "m").unwrap(), model);

    for (from, to) in [
        ("\"uniquenesses\":[[0.1,", "\"uniquenesses\":[[0.2,"),
        ("\"uniquenesses\":[[0.1,", "\"uniquenesses\":[[-0.1,"),
        ("\"uniquenesses\":[[0.1,", "\"uniquenesses\":[["),
        ("\"loadings\":[[[", "\"loadings\":[[[1.0,"),
        ("\"loadings\":[[", "\"loadings\":[[[0.0,0.0],"),
        ("\"loadings\"", "\"other\""),
    ] {
        assert!(text.contains(from), "{text}");
        let error = read_model_bytes(text.replacen(from, to, 1).as_bytes(), "m").unwrap_err();
        assert!(error.to_string().contains("factors"), "{error}");
    }
    // Without the field the covariances are plain ones.
    let line = text.lines().find(|line| line.contains("\"factors\"")).unwrap();
    let plain = read_model_bytes(text.replacen(line, "", 1).as_bytes(), "m").unwrap();
    assert!(plain.mixture.loadings().is_none());
    assert_eq!(plain.mixture.covariances(), model.mixture.covariances());
}

#[test]
fn the_json_has_a_row_per_line() {
    let mut model = models().remove(2);
    let ModelFile { fit, storage, trace, outliers, clusters, noise, .. } = &mut model;
    (*fit, *storage, *trace, *outliers, *clusters, *noise) = (None, None, Vec::new(), None, None, None);
    model.mixture = Mixture::new(
        array![0.25, 0.75],
        array![[0.5, 1.0], [2.0, -0.0]],
        Covariances::Diag(array![[1.0, 2.0], [3.0, 1e-7]]),
    )
    .unwrap();
    model.feature_names = None;
    let want = r#"{
  "format": "gmm-model",
  "version": 1,
  "covariance_type": "diag",
  "n_components": 2,
  "n_features": 2,
  "feature_names": null,
  "weights": [0.25, 0.75],
  "means": [
    [0.5, 1.0],
    [2.0, -0.0]
  ],
  "covariances": [
    [1.0, 2.0],
    [3.0, 1e-7]
  ],
  "fit": null
}
"#;
    assert_eq!(model_to_json(&model).unwrap(), want);
}

#[test]
fn noise_that_does_not_fit_the_mixture_is_an_error_that_names_the_field() {
    for change in [
        |noise: &mut Noise| noise.weight = 1.5,
        |noise: &mut Noise| noise.region.as_mut().unwrap().lower.truncate(2),
        |noise: &mut Noise| noise.region.as_mut().unwrap().upper[1] = -1.0,
        |noise: &mut Noise| noise.region.as_mut().unwrap().rotation.as_mut().unwrap().axes[2].clear(),
    ] {
        let mut model = models().remove(0);
        change(model.noise.as_mut().unwrap());
        let error = model_to_json(&model).unwrap_err();
        assert!(error.to_string().contains("noise"), "{error}");
    }
}

#[test]
fn files_of_other_writers_are_read_and_unknown_fields_ignored() {
    for name in ["model.json", "model.safetensors"] {
        let model = read_model(golden(name)).unwrap();
        assert_eq!(model.mixture.means()[[1, 2]], 5.0 / 8.0, "{name}");
        assert_eq!(model.feature_names.unwrap(), ["a", "b", "c"]);
        assert!(model.fit.is_none());
    }
}

#[test]
fn a_fit_that_is_not_finite_is_null_and_comes_back_as_nan() {
    let mut model = models().remove(0);
    model.fit.as_mut().unwrap().log_likelihood = f64::NEG_INFINITY;
    model.fit.as_mut().unwrap().trace[1] = f64::NAN;
    for bytes in [model_to_json(&model).unwrap().into_bytes(), model_to_safetensors(&model).unwrap()] {
        let fit = read_model_bytes(&bytes, "m").unwrap().fit.unwrap();
        assert!(fit.log_likelihood.is_nan() && fit.trace[1].is_nan());
        assert_eq!(fit.trace[0], -0.5);
    }
}

fn with(old: &str, new: &str) -> Result<ModelFile, FileError> {
    let text = std::fs::read_to_string(golden("model.json")).unwrap();
    assert!(text.contains(old), "{text}");
    read_model_bytes(text.replace(old, new).as_bytes(), "m.json")
}

fn check(result: Result<ModelFile, FileError>, pieces: &[&str]) {
    let text = common::message(result.expect_err("an error"));
    for piece in pieces {
        assert!(text.contains(piece), "'{piece}' is not in: {text}");
    }
}

#[test]
fn row_54_a_later_version_or_another_format_is_an_error() {
    check(with("\"version\": 1", "\"version\": 2"), &["m.json: 'version'", "version is 2", "update"]);
    check(with("\"version\": 1", "\"version\": 0"), &["'version'"]);
    check(with("\"version\": 1, ", ""), &["'version': missing field"]);
    check(with("gmm-model", "onnx"), &["'format'", "'onnx'"]);
    check(with("\"format\": \"gmm-model\", ", ""), &["'format'"]);
    check(read_model_bytes(b"", "m"), &["empty"]);
    check(read_model_bytes(b"solid", "m"), &["not json or safetensors"]);
    check(read_model_bytes(b"{\"a\": ", "m.json"), &["line 1", "not JSON"]);
}

#[test]
fn row_54_shapes_that_disagree_name_the_field() {
    check(with("[0.25, 0.75]", "[0.25, 0.5, 0.25]"), &["'weights'", "[3]", "[2]"]);
    check(with("[0.0, 0.125, 0.25]", "[0.0, 0.125]"), &["'means'", "row 1 has 3 numbers"]);
    check(with("\"n_features\": 3", "\"n_features\": 4"), &["'means'", "[2, 3]", "[2, 4]"]);
    check(with("\"n_components\": 2", "\"n_components\": 1"), &["'weights'"]);
    check(with("\"diag\"", "\"tied\""), &["'covariances'", "[2, 3]", "[3, 3]"]);
    check(with("\"diag\"", "\"full\""), &["'covariances'"]);
    check(with("\"diag\"", "\"round\""), &["'covariance_type'", "'round'", "full, tied, diag, spherical"]);
    check(with("\"n_features\": 3", "\"n_features\": -3"), &["'n_features'"]);
    check(with("[\"a\", \"b\", \"c\"]", "[\"a\"]"), &["'feature_names'", "1 names for 3 columns"]);
}

#[test]
fn row_54_a_weight_that_is_nan_names_the_field() {
    for word in ["NaN", "null", "Infinity", "-Infinity", "1e999", "\"x\""] {
        check(with("[0.25, 0.75]", &format!("[0.25, {word}]")), &["m.json: ", "'weights'"]);
    }
    let whole = std::fs::read(golden("model.safetensors")).unwrap();
    let at = whole.windows(8).rposition(|w| w == 0.75f64.to_le_bytes()).unwrap();
    // Depending on the order, 0.75 may also occur among the means or covariances: a change at each place must be
    // rejected.
    let mut bytes = whole.clone();
    bytes[at..at + 8].copy_from_slice(&f64::NAN.to_le_bytes());
    check(read_model_bytes(&bytes, "m.safetensors"), &["m.safetensors: ", "component", "not finite (NaN)"]);
}

#[test]
fn row_54_a_field_that_stands_in_the_file_twice_is_refused() {
    check(with("\"weights\"", "\"weights\": [0.5, 0.5], \"weights\""), &["'weights'", "twice"]);
    check(with("\"version\": 1", "\"version\": 2, \"version\": 1"), &["'version'", "twice"]);
    check(with("\"version\": 1", "\"x\": 2, \"\\u0078\": 1, \"version\": 1"), &["'x'", "twice"]);
    let mut model = models().remove(0);
    model.fit = Some(fit());
    let text = model_to_json(&model).unwrap().replace("\"tol\":", "\"tol\": 1.0, \"tol\":");
    check(read_model_bytes(text.as_bytes(), "m"), &["'fit'", "duplicate field", "tol"]);
}

#[test]
fn row_54_an_unknown_kind_lists_the_choices_whatever_the_covariances_look_like() {
    for model in models() {
        let kind = model.mixture.covariance_type().name();
        let text = model_to_json(&model).unwrap().replace(&format!("\"{kind}\""), "\"fulll\"");
        let choices = "unknown covariance type 'fulll': choose one of full, tied, diag, spherical";
        check(read_model_bytes(text.as_bytes(), "m"), &["'covariance_type'", choices]);
    }
}

#[test]
fn a_byte_order_mark_before_the_text_is_read_over() {
    for model in models() {
        let text = format!("\u{feff}{}", model_to_json(&model).unwrap());
        assert_eq!(read_model_bytes(text.as_bytes(), "m").unwrap(), model);
    }
    check(read_model_bytes("\u{feff}".as_bytes(), "m"), &["not json or safetensors"]);
}

#[test]
fn row_54_missing_fields_are_named() {
    let text = std::fs::read_to_string(golden("model.json")).unwrap();
    for name in ["weights", "means", "covariances", "covariance_type", "n_components", "n_features"] {
        let changed = text.replace(&format!("\"{name}\""), "\"other\"");
        check(read_model_bytes(changed.as_bytes(), "m"), &[&format!("'{name}'"), "missing field"]);
    }
}

#[test]
fn row_45_to_47_what_is_no_mixture_is_refused() {
    check(with("[0.25, 0.75]", "[0.5, 0.75]"), &["sum to 1.25"]);
    check(with("[0.25, 0.75]", "[-0.25, 1.25]"), &["negative"]);
    check(with("[1.0, 2.0, 3.0]", "[1.0, -2.0, 3.0]"), &["component 0", "not positive definite"]);
}

#[test]
fn row_51_truncated_models_are_errors() {
    for model in models() {
        for bytes in [model_to_json(&model).unwrap().into_bytes(), model_to_safetensors(&model).unwrap()] {
            // The last byte of the JSON is a line break, which may be missing.
            for len in 0..bytes.len() - 1 {
                common::message(read_model_bytes(&bytes[..len], "m").expect_err("an error"));
            }
        }
    }
}

#[test]
fn a_model_needs_an_extension_that_is_known_and_as_many_names_as_columns() {
    let mut model = models().remove(0);
    let error = write_model("m.pickle", &model).unwrap_err();
    assert!(common::message(error).contains("'pickle': use json or safetensors"));
    model.feature_names = Some(vec!["a".into()]);
    assert!(common::message(write_model("m.json", &model).unwrap_err()).contains("1 names for 3 columns"));
}

#[test]
fn clusters_that_do_not_match_the_components_name_the_field() {
    let read = |clusters: &str| with("\"version\": 1", &format!("\"version\": 1, \"clusters\": {clusters}"));
    assert_eq!(read("[1, 0]").unwrap().clusters, Some(vec![1, 0]));
    check(read("[0]"), &["'clusters'", "1 clusters for 2"]);
    check(read("[0, 2]"), &["'clusters'", "component 1 is in cluster 2"]);
    check(read("[1, 1]"), &["'clusters'", "no component is in cluster 0"]);
    check(read("[-1, 0]"), &["'clusters'"]);
    let model = ModelFile { clusters: Some(vec![0, 0, 0]), ..models().remove(0) };
    let error = write_model(tempfile::tempdir().unwrap().path().join("m.json"), &model).unwrap_err();
    assert!(error.to_string().contains("3 clusters for 2"), "{error}");
}

fn prior(kind: CovarianceType) -> BayesPrior {
    BayesPrior {
        weights: WeightPrior::DirichletProcess { concentration: 1.0 / 3.0 },
        mean: array![0.1, -0.0],
        mean_precision: 0.7,
        degrees_of_freedom: 2.5,
        scale: match kind {
            CovarianceType::Full | CovarianceType::Tied => PriorScale::Matrix(array![[1.0 / 3.0, 0.1], [0.1, 2.0]]),
            CovarianceType::Diag => PriorScale::Variances(array![1.0 / 3.0, 2.0]),
            CovarianceType::Spherical => PriorScale::Variance(1.0 / 3.0),
        },
    }
}

fn posterior(kind: CovarianceType, weights: WeightPrior) -> ModelFile {
    let x = array![[0.3, 1.0 / 3.0], [2.0, 5.0], [-1.0, 0.5], [2.5, 4.0], [0.1, 0.2]];
    let start = gmm_model::synthetic(3, 2, kind, 1, &gmm_model::SyntheticOptions::default()).unwrap();
    let statistics = gmm_model::reference::statistics(&start, x.view(), None);
    let posterior = BayesPrior { weights, ..prior(kind) }.update(&statistics, 0.0).unwrap();
    ModelFile { posterior: Some(posterior.clone()), ..ModelFile::from(posterior.mixture().clone()) }
}

#[test]
fn posteriors_come_back_bit_for_bit_from_either_form() {
    let folder = tempfile::tempdir().unwrap();
    for kind in CovarianceType::ALL {
        for weights in
            [WeightPrior::Dirichlet { concentration: 0.1 }, WeightPrior::DirichletProcess { concentration: 1.0 / 3.0 }]
        {
            let model = posterior(kind, weights);
            for name in ["m.json", "m.safetensors"] {
                let path = folder.path().join(name);
                write_model(&path, &model).unwrap();
                assert_eq!(read_model(&path).unwrap(), model, "{kind} {weights:?} {name}");
            }
        }
    }
}

#[test]
fn damaged_posteriors_name_the_field() {
    let model = posterior(CovarianceType::Full, WeightPrior::DirichletProcess { concentration: 0.5 });
    let text = model_to_json(&model).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        read_model_bytes(text.replacen(from, to, 1).as_bytes(), "<test>")
    };
    check(changed("\"weight_prior\":\"dp\"", "\"weight_prior\":\"zip\""), &["'posterior'", "zip"]);
    check(changed("\"weight_prior\":\"dp\"", "\"weight_prior\":\"dirichlet\""), &["'posterior'", "family"]);
    check(changed("\"mean_precision_prior\":0.7", "\"mean_precision_prior\":-1"), &["'posterior'", "mean precision"]);
    check(changed("\"degrees_of_freedom_prior\":2.5", "\"degrees_of_freedom_prior\":1"), &["degrees of freedom"]);
    check(changed("\"mean_prior\":[0.1,-0.0]", "\"mean_prior\":[0.1]"), &["'posterior'", "mean prior"]);
    check(changed("\"covariance_prior\":[[", "\"covariance_prior\":[[1],["), &["'posterior'", "unequal length"]);
    let other = ModelFile { mixture: models().remove(2).mixture, ..model };
    let error = write_model(tempfile::tempdir().unwrap().path().join("m.json"), &other).unwrap_err();
    assert!(error.to_string().contains("posterior of the model's mixture"), "{error}");
}
