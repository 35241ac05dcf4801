"""ONNX models in onnxruntime have the results of the estimator that they were made from."""

import json

import numpy as np
import pytest
from conftest import KINDS, model

from gmm_rs.exceptions import FileError, ParameterError
from gmm_rs.mixture import GaussianMixture

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DTYPES = {"f32": np.float32, "f64": np.float64}


def run(content, X):
    """Labels, responsibilities and log densities."""
    onnx.checker.check_model(onnx.load_model_from_string(content), full_check=True)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["label", "responsibilities", "log_density"], {"X": X})


def check(fitted, X, precision):
    """That all outputs for these rows, rounded to the precision, are those of the estimator in f64."""
    X = X.astype(DTYPES[precision])
    labels, responsibilities, densities = run(fitted.to_onnx(precision=precision), X)
    rows = X.astype(np.float64)
    expected = fitted.score_samples(rows)
    assert labels.dtype == np.int64
    assert responsibilities.dtype == densities.dtype == X.dtype
    within = {"f32": 1e-6, "f64": 1e-12}[precision]
    # An exponent has the rounding errors of its size, and so does its exponential.
    size = np.maximum(1, np.abs(expected))
    assert np.all(np.abs(densities - expected) <= within * size)
    assert np.all(np.abs(responsibilities - fitted.predict_proba(rows)) <= within * size[:, None])
    np.testing.assert_array_equal(labels, fitted.predict(rows))


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_the_estimator(rows, kind, precision, offset):
    X = rows + offset
    check(model(3, kind, random_state=0).fit(X), X, precision)


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_component_has_all_rows(rows, kind, precision):
    check(model(1, kind, random_state=0).fit(rows), rows, precision)


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_component_of_weight_zero_has_no_rows(rows, kind, precision):
    fitted = model(3, kind, random_state=0).fit(rows)
    fitted.weights_ = np.array([0.4, 0.0, 0.6])
    check(fitted, rows, precision)
    _, responsibilities, _ = run(fitted.to_onnx(precision="f64"), rows.astype(np.float64))
    assert np.all(responsibilities[:, 1] == 0)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_responsibilities_in_f32_have_the_digits_of_f32(kind, offset):
    rng = np.random.default_rng(0)
    # Close components, and distances of which f32 would lose 1e-6.
    X = rng.normal(size=(4000, 40)) + 0.3 * rng.integers(0, 3, size=(4000, 1)) + offset
    fitted = model(3, kind, random_state=0).fit(X)
    rows = X.astype(np.float32)
    _, responsibilities, densities = run(fitted.to_onnx(precision="f32"), rows)
    expected = fitted.predict_proba(rows.astype(np.float64))
    assert np.all(np.abs(responsibilities - expected) <= 4 * np.finfo(np.float32).eps)
    expected = fitted.score_samples(rows.astype(np.float64))
    assert np.all(np.abs(densities - expected) <= 4 * np.finfo(np.float32).eps * np.abs(expected))


def test_a_row_whose_densities_underflow_has_the_weights(rows):
    fitted = model(3, "full", random_state=0).fit(rows)
    labels, responsibilities, densities = run(fitted.to_onnx(precision="f64"), np.full((1, 3), 1e200))
    assert densities[0] == -np.inf
    np.testing.assert_allclose(responsibilities[0], fitted.weights_, rtol=1e-12)
    assert labels[0] == fitted.weights_.argmax()
    # The distances of rows of f32 are in the range of f64: only the density is rounded to −∞.
    row = np.full((1, 3), 1e30, np.float32)
    labels, responsibilities, densities = run(fitted.to_onnx(precision="f32"), row)
    assert densities[0] == -np.inf
    np.testing.assert_array_equal(responsibilities, fitted.predict_proba(row.astype(np.float64)))
    assert labels[0] == fitted.predict(row.astype(np.float64))[0]


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_noise_is_the_last_column_and_the_label_minus_one(rows, precision):
    X = np.vstack([rows, np.random.default_rng(0).uniform(-30, 30, (60, 3))])
    fitted = model(3, "full", random_state=0, noise="auto").fit(X)
    assert np.any(fitted.predict(X) == -1)
    check(fitted, X, precision)


def test_the_file_is_the_bytes_and_names_the_columns(rows, tmp_path):
    pd = pytest.importorskip("pandas")
    fitted = model(3, "diag", random_state=0).fit(pd.DataFrame(rows, columns=["a", "b", "c"]))
    assert fitted.to_onnx(tmp_path / "model.onnx") is None
    content = (tmp_path / "model.onnx").read_bytes()
    assert content == fitted.to_onnx(precision="f32")
    found = {entry.key: entry.value for entry in onnx.load_model_from_string(content).metadata_props}
    assert json.loads(found["feature_names"]) == ["a", "b", "c"]
    assert found["covariance_type"] == "diag"


def test_what_cannot_be_written_is_an_error(rows):
    fitted = model(3, "spherical", random_state=0).fit(rows)
    with pytest.raises(ParameterError, match="f16"):
        fitted.to_onnx(precision="f16")
    narrow = GaussianMixture(3, covariance_type="spherical", device="cpu", reg_covar=0.0, tol=0.0).fit(rows * 1e-42)
    with pytest.raises(FileError, match="use precision f64"):
        narrow.to_onnx()
