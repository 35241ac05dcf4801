//! Models in the forms of Kaldi and mclust.

use crate::common::{golden, message};
use gmm_data::{
    ExchangeFormat, FileError, ModelFile, model_and_state, model_to_exchange, read_model, read_model_bytes,
    write_exchange,
};
use gmm_model::{CovarianceType, Covariances, Mixture, Noise, SyntheticOptions, reference, synthetic};
use ndarray::{Array1, Array2, ArrayView1, array};
use serde_json::Value;

const FORMATS: [ExchangeFormat; 3] = [ExchangeFormat::KaldiDiag, ExchangeFormat::KaldiFull, ExchangeFormat::Mclust];

const DIAG: &str = "\
<DiagGMM>
<GCONSTS>  [ -3.5 -4.25 ]
<WEIGHTS>  [ 0.3333333 0.6666667 ]
<MEANS_INVVARS>  [
  0.5 -2 1e-3
  4 0 -0.25 ]
<INV_VARS>  [
  1 2 4
  0.5 0.125 8 ]
</DiagGMM>
";

const FULL: &str = "\
<FullGMM>
<GCONSTS>  [ -3.5 ]
<WEIGHTS>  [ 1 ]
<MEANS_INVCOVARS>  [
  1 2 ]
<INV_COVARS> [
2
0.5 1 ]
</FullGMM>
";

fn read(text: &str) -> Result<ModelFile, FileError> {
    read_model_bytes(text.as_bytes(), "m")
}

fn check(result: Result<ModelFile, FileError>, pieces: &[&str]) {
    let text = message(result.expect_err("an error"));
    for piece in pieces {
        assert!(text.contains(piece), "'{piece}' is not in: {text}");
    }
}

fn models() -> Vec<ModelFile> {
    let shapes = [(1, 1), (1, 3), (3, 1), (4, 5)];
    let all = shapes.into_iter().flat_map(|(k, d)| CovarianceType::ALL.map(|kind| (k, d, kind)));
    all.map(|(k, d, kind)| synthetic(k, d, kind, 1, &SyntheticOptions::default()).unwrap().into()).collect()
}

fn density(model: &ModelFile, x: ArrayView1<'_, f64>) -> f64 {
    match &model.noise {
        Some(noise) => noise.reference(&model.mixture, x).0,
        None => reference::posterior(&model.mixture, x).0,
    }
}

/// Rows near the means.
fn rows(model: &ModelFile) -> Array2<f64> {
    let means = model.mixture.means();
    Array2::from_shape_fn(means.dim(), |(c, j)| means[[c, j]] + 0.25 * (j as f64 - 1.0))
}

fn is_written(model: &ModelFile, format: ExchangeFormat) -> bool {
    let kind = model.mixture.covariance_type();
    format != ExchangeFormat::KaldiDiag || matches!(kind, CovarianceType::Diag | CovarianceType::Spherical)
}

#[test]
fn densities_come_back_from_every_form() {
    for model in models() {
        for format in FORMATS.into_iter().filter(|format| is_written(&model, *format)) {
            let text = model_to_exchange(&model, format).unwrap();
            let again = read(&text).unwrap();
            for x in rows(&model).outer_iter() {
                let (before, after) = (density(&model, x), density(&again, x));
                // Inverses of matrices whose condition is below 1e4.
                let within = 1e5 * f64::EPSILON * before.abs().max(1.0) * (1.0 + x.dot(&x));
                assert!((before - after).abs() <= within, "{format:?}: {before} {after}\n{text}");
            }
        }
    }
}

#[test]
fn parameters_come_back_from_mclust_bit_for_bit() {
    for model in models() {
        let again = read(&model_to_exchange(&model, ExchangeFormat::Mclust).unwrap()).unwrap();
        assert_eq!(again.mixture.means(), model.mixture.means());
        assert_eq!(again.mixture.weights(), model.mixture.weights());
        let (before, after) = (model.mixture.covariances(), again.mixture.covariances());
        assert!(before.values().eq(after.values()), "{before:?} {after:?}");
        if model.mixture.n_features() > 1 {
            assert_eq!(again, model);
        }
    }
}

#[test]
fn fits_of_mclust_have_its_densities() {
    for (name, kind) in [
        ("VVV", CovarianceType::Full),
        ("VEV", CovarianceType::Full),
        ("XXX", CovarianceType::Full),
        ("V", CovarianceType::Full),
        ("noise", CovarianceType::Full),
        ("EEE", CovarianceType::Tied),
        ("EEI", CovarianceType::Tied),
        ("EII", CovarianceType::Tied),
        ("E", CovarianceType::Tied),
        ("VVI", CovarianceType::Diag),
        ("VII", CovarianceType::Spherical),
    ] {
        let path = golden(&format!("mclust_{name}.json"));
        let model = read_model(&path).unwrap();
        assert_eq!(model.mixture.covariance_type(), kind, "{name}");
        let text: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let rows = text["rows"].as_array().unwrap();
        for (row, expected) in rows.iter().zip(text["log_density"].as_array().unwrap()) {
            let row: Array1<f64> = match row {
                Value::Array(values) => values.iter().map(|v| v.as_f64().unwrap()).collect(),
                one => array![one.as_f64().unwrap()],
            };
            let (found, expected) = (density(&model, row.view()), expected.as_f64().unwrap());
            // R writes 15 digits, of which the distance over a standard deviation loses some.
            assert!((found - expected).abs() < 1e-11, "{name}: {found} {expected}");
        }
    }
}

#[test]
fn noise_comes_back_from_mclust() {
    let noise = Noise { weight: 0.125, log_volume: 7.0, region: None };
    let model = ModelFile { noise: Some(noise), ..models().pop().unwrap() };
    let again = read(&model_to_exchange(&model, ExchangeFormat::Mclust).unwrap()).unwrap();
    for x in rows(&model).outer_iter() {
        assert!((density(&model, x) - density(&again, x)).abs() < 1e-13 * density(&model, x).abs());
    }
}

/// The numbers of each matrix of a text of Kaldi, read without regard to lines.
fn matrices(text: &str) -> Vec<Vec<f64>> {
    let brackets = text.split('[').skip(1).map(|rest| rest.split_once(']').unwrap().0);
    brackets.map(|numbers| numbers.split_whitespace().map(|v| v.parse().unwrap()).collect()).collect()
}

/// `c + (Σ⁻¹ μ)ᵀ x − ½ xᵀ Σ⁻¹ x`, as Kaldi computes log densities.
#[test]
fn kaldis_formula_gives_the_densities() {
    for model in models() {
        let (k, d) = model.mixture.means().dim();
        for format in FORMATS.into_iter().take(2).filter(|format| is_written(&model, *format)) {
            let all = matrices(&model_to_exchange(&model, format).unwrap());
            for x in rows(&model).outer_iter() {
                let joint: Vec<f64> = (0..k)
                    .map(|c| {
                        let square = match format {
                            ExchangeFormat::KaldiDiag => (0..d).map(|j| all[3][c * d + j] * x[j] * x[j]).sum::<f64>(),
                            _ => {
                                let at = |i: usize, j: usize| all[3 + c][i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
                                (0..d)
                                    .flat_map(|i| (0..d).map(move |j| (i, j)))
                                    .map(|(i, j)| at(i, j) * x[i] * x[j])
                                    .sum()
                            }
                        };
                        all[0][c] + (0..d).map(|j| all[2][c * d + j] * x[j]).sum::<f64>() - 0.5 * square
                    })
                    .collect();
                let (found, expected) = (reference::log_sum_exp(&joint), density(&model, x));
                let within = 1e5 * f64::EPSILON * expected.abs().max(1.0) * (1.0 + x.dot(&x));
                assert!((found - expected).abs() <= within, "{format:?}: {found} {expected}");
            }
        }
    }
}

#[test]
fn a_text_of_kaldi_is_read_and_its_weights_normalised() {
    for text in [DIAG.to_owned(), DIAG.replace("DiagGMM>", "DiagGMMBegin>").replace("</DiagGMMBegin>", "<DiagGMMEnd>")]
    {
        let mixture = read(&text).unwrap().mixture;
        assert_eq!(mixture.means(), array![[0.5, -1.0, 2.5e-4], [8.0, 0.0, -0.03125]]);
        assert_eq!(mixture.covariances(), &Covariances::Diag(array![[1.0, 0.5, 0.25], [2.0, 8.0, 0.125]]));
        assert!((mixture.weights().sum() - 1.0).abs() < 1e-15);
    }
    let without_constants: String =
        DIAG.lines().filter(|line| !line.starts_with("<GCONSTS>")).collect::<Vec<_>>().join("\n");
    assert_eq!(read(&without_constants).unwrap(), read(DIAG).unwrap());
    let rounded = DIAG.replace("0.3333333", "0.333331");
    assert!((read(&rounded).unwrap().mixture.weights().sum() - 1.0).abs() < 1e-15);
    let mixture = read(FULL).unwrap().mixture;
    let covariance = array![[4.0, -2.0], [-2.0, 8.0]] / 7.0;
    let Covariances::Full(found) = mixture.covariances() else { panic!("full") };
    assert!((&found.index_axis(ndarray::Axis(0), 0) - &covariance).iter().all(|v| v.abs() < 1e-15));
    assert!((&mixture.means().row(0) - &array![0.0, 2.0]).iter().all(|v| v.abs() < 1e-15));
}

/// What `Write` of Kaldi makes of a mixture, byte by byte: a token is followed by a blank, and so is each number; a vector
/// begins with a blank; a row of a matrix begins with two, a packed one with none.
#[test]
fn a_text_of_kaldi_is_read_and_written_byte_by_byte() {
    let diag = "<DiagGMM> \n<GCONSTS>  [ -2.9310242 -4.223 ]\n<WEIGHTS>  [ 0.25 0.75 ]\n\
                <MEANS_INVVARS>  [\n  0.5 -2.25 \n  4.5 0.125 ]\n\
                <INV_VARS>  [\n  1.5 2.25 \n  0.5 0.125 ]\n</DiagGMM> \n";
    let full = "<FullGMM> \n<GCONSTS>  [ -2.9310242 -4.223 ]\n<WEIGHTS>  [ 0.25 0.75 ]\n\
                <MEANS_INVCOVARS>  [\n  0.5 -2.25 \n  4.5 0.125 ]\n\
                <INV_COVARS> [\n1.5 \n0.5 2.25 ]\n[\n0.5 \n0.125 0.125 ]\n</FullGMM> \n";
    for (text, format) in [(diag, ExchangeFormat::KaldiDiag), (full, ExchangeFormat::KaldiFull)] {
        let model = read(text).unwrap();
        let again = model_to_exchange(&model, format).unwrap();
        // All but the numbers, whose digits an inversion rounds.
        let layout = |text: &str| -> String {
            let is_number = |word: &str| word.trim_end().parse::<f64>().is_ok();
            let pieces = text.split_inclusive([' ', '\n']);
            pieces
                .map(|word| if is_number(word) { word.replace(word.trim_end(), "#") } else { word.to_owned() })
                .collect()
        };
        assert_eq!(layout(&again), layout(text));
        let (before, after) = (matrices(text), matrices(&again));
        for (before, after) in before[1..].iter().flatten().zip(after[1..].iter().flatten()) {
            assert!((before - after).abs() <= 64.0 * f64::EPSILON * before.abs(), "{before} {after}");
        }
    }
}

/// A start for features of 40 columns that scripts for Kaldi use: one component of mean 0 and variance 1, whose constant
/// Kaldi prints as -36.75754. It is -20 ln 2π.
#[test]
fn kaldis_constant_of_a_standard_normal_is_ours() {
    let row = |value: &str| [value; 40].join(" ");
    let text = format!(
        "<DiagGMM> \n<GCONSTS>  [ -36.75754 ]\n<WEIGHTS>  [ 1 ]\n<MEANS_INVVARS>  [\n  {} ]\n<INV_VARS>  [\n  {} ]\n\
         </DiagGMM> \n",
        row("0"),
        row("1")
    );
    let model = read(&text).unwrap();
    assert_eq!(model.mixture.means(), Array2::<f64>::zeros((1, 40)));
    assert_eq!(model.mixture.covariances(), &Covariances::Diag(Array2::ones((1, 40))));
    let found = matrices(&model_to_exchange(&model, ExchangeFormat::KaldiDiag).unwrap())[0][0];
    assert_eq!(format!("{found:.5}"), "-36.75754");
    assert_eq!(density(&model, Array1::zeros(40).view()), found);
}

#[test]
fn a_text_of_kaldi_that_is_damaged_names_the_line() {
    let changed = |from: &str, to: &str| {
        assert!(DIAG.contains(from));
        read(&DIAG.replacen(from, to, 1))
    };
    check(changed("0.6666667", "x"), &["m: line 3, '<WEIGHTS>'", "'x' is not a number"]);
    check(changed("0.6666667", "nan"), &["line 3", "'nan' is not finite"]);
    check(changed("0.6666667", "0.5"), &["line 3, '<WEIGHTS>'", "the weights sum to 0.8333333"]);
    check(changed(" 1e-3", ""), &["line 6, '<MEANS_INVVARS>'", "row 1 has 3 numbers, but the rows before have 2"]);
    check(changed("0.5 0.125 8", ""), &["'<INV_VARS>'", "1 rows, but there are 2 weights"]);
    check(changed("<INV_VARS>", "<INV_COVARS>"), &["line 7", "'<INV_COVARS>' where <INV_VARS> should be"]);
    check(changed("1 2 4", "1 -2 4"), &["component 0", "not positive definite"]);
    check(changed("1 2 4", "1 0 4"), &["not finite"]);
    check(changed("</DiagGMM>\n", "</DiagGMM>\n<DiagGMM>"), &["line 11", "one mixture"]);
    check(read(&FULL.replace("0.5 1", "2 1")), &["line 8, '<INV_COVARS>'", "component 0", "not positive definite"]);
    check(read(&FULL.replace("0.5 1", "1")), &["line 8, '<INV_COVARS>'", "2 numbers", "2 columns has 3"]);
    check(read("\0B<DiagGMM> \0"), &["a binary file of Kaldi", "gmm-global-copy --binary=false"]);
    check(read("\0B<FullGMM> \0"), &["fgmm-global-copy --binary=false"]);
    check(read("<TransitionModel> "), &["many mixtures"]);
    for text in [DIAG, FULL] {
        for len in 0..text.trim_end().len() {
            message(read(&text[..len]).expect_err("an error"));
        }
    }
}

#[test]
fn a_list_of_mclust_that_is_damaged_names_the_field() {
    let text = std::fs::read_to_string(golden("mclust_VVV.json")).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        read(&text.replacen(from, to, 1))
    };
    check(changed("\"pro\":[0.644071789029678,", "\"pro\":[0.6441,"), &["'pro'", "sum to 1.00002", "digits = NA"]);
    check(changed("\"pro\":[", "\"pro\":[0.5,"), &["'pro'", "3 weights for the 2 columns"]);
    check(changed("\"pro\":[", "\"pro\":[\"NA\","), &["'pro'"]);
    check(changed("\"mean\":[[", "\"mean\":[[1],["), &["'mean'", "unequal lengths"]);
    check(
        changed("\"modelName\":[\"VVV\"],\"d\":[2],\"G\":[2],\"sigma\"", "\"modelName\":\"QQQ\",\"sigma\""),
        &["'QQQ'"],
    );
    let contradiction = "\"modelName\":[\"VVV\"],\"d\":[2],\"G\":[2],\"sigma\"";
    let name = |name: &str| contradiction.replace("VVV", name);
    check(changed(contradiction, &name("VVI")), &["'modelName'", "'VVI'"]);
    check(changed(contradiction, "\"modelName\":[\"VVV\"],\"d\":[3],\"sigma\""), &["'d'", "3, but the means are of 2"]);
    check(changed(contradiction, "\"modelName\":[\"VVV\"],\"G\":[4],\"sigma\""), &["'G'", "4, but the means are of 2"]);
    for other in ["VVI", "EEE"] {
        let all = read(&text.replace("\"VVV\"", &format!("\"{other}\"")));
        check(all, &["'sigma'", &format!("is none of model '{other}'")]);
    }
    check(changed("\"sigma\":[[[", "\"sigma\":[[[1],["), &["'sigma'", "unequal lengths"]);
    check(changed("\"sigma\":", "\"other\":"), &["'sigma'", "missing field"]);
    check(changed("\"variance\":{", "\"variance\":1,\"x\":{"), &["'variance'", "must be an object"]);
    check(changed("[[0.16981756291335,", "[[-0.16981756291335,"), &["component 0", "not positive definite"]);
    for len in 0..text.trim_end().len() {
        message(read(&text[..len]).expect_err("an error"));
    }
}

#[test]
fn what_a_form_cannot_hold_is_an_error_that_names_the_field() {
    let model = models().pop().unwrap();
    let refused = |model: &ModelFile, format| message(model_to_exchange(model, format).unwrap_err());
    let noise = Noise { weight: 0.5, log_volume: 1.0, region: None };
    let noisy = ModelFile { noise: Some(noise), ..model.clone() };
    assert!(refused(&noisy, ExchangeFormat::KaldiFull).contains("'noise': Kaldi's form has no place"));
    let clustered = ModelFile { clusters: Some(vec![0, 0, 1, 1]), ..model };
    for format in FORMATS {
        assert!(refused(&clustered, format).contains("'clusters'"));
    }
    let with = |variances| {
        let mixture = Mixture::new(array![0.0, 1.0], array![[0.0, 1.0], [2.0, 3.0]], Covariances::Diag(variances));
        ModelFile::from(mixture.unwrap())
    };
    let extreme = with(array![[1.0, 1e-60], [1.0, 1.0]]);
    assert!(refused(&extreme, ExchangeFormat::KaldiDiag).contains("exceeds the range of f32"));
    assert!(refused(&extreme, ExchangeFormat::KaldiFull).contains("exceeds the range of f32"));
    let tiny = Mixture::new(array![1e-50, 1.0], array![[0.0], [2.0]], Covariances::Diag(array![[1.0], [1.0]]));
    assert!(refused(&tiny.unwrap().into(), ExchangeFormat::KaldiDiag).contains("weight of component 0 is below"));
    // A weight of 0 has an infinite constant, which Kaldi cannot read.
    let text = model_to_exchange(&with(array![[1.0, 1.0], [1.0, 1.0]]), ExchangeFormat::KaldiDiag).unwrap();
    assert!(!text.contains("GCONSTS") && !text.contains("inf"));
    read(&text).unwrap();
    let full = models().into_iter().find(|model| model.mixture.covariance_type() == CovarianceType::Full).unwrap();
    assert!(refused(&full, ExchangeFormat::KaldiDiag).contains("*.ubm"));
}

#[test]
fn files_are_written_whole_and_the_extension_names_the_format() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in ["final.dubm", "final.UBM", "fit.mclust"].into_iter().zip(FORMATS) {
        let path = folder.path().join(name);
        assert_eq!(ExchangeFormat::of_path(&path), Some(format));
        let model = ModelFile::from(synthetic(2, 2, CovarianceType::Diag, 1, &SyntheticOptions::default()).unwrap());
        write_exchange(&path, &model, format).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), model_to_exchange(&model, format).unwrap());
        assert_eq!(read_model(&path).unwrap().mixture.means().dim(), (2, 2));
    }
    assert_eq!(ExchangeFormat::of_path("m.json".as_ref()), None);
    let error = model_and_state(DIAG.as_bytes(), "m").unwrap_err();
    assert!(message(error).contains("not a checkpoint"));
}
