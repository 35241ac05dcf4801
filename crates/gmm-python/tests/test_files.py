"""Reading and writing of the model files of the program `gmm`."""

import errno
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import KINDS, model
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture as Original

import gmm_rs
from gmm_rs import exceptions
from gmm_rs.mixture import GaussianMixture

ARRAYS = ["weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_"]
RECORD = ["converged_", "n_iter_", "lower_bound_", "lower_bounds_", "engine_", "n_features_in_"]

ROOT = Path(__file__).parents[3]


def program():
    """The program `gmm`, if it has been built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [target / profile / "gmm" for profile in ("debug", "release")]
    return next((path for path in found if path.is_file()), None)


def gmm(*arguments, cwd):
    if program() is None:
        pytest.skip("the program gmm is not built")
    done = subprocess.run([program(), *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", ["json", "safetensors"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded_to_the_bit(rows, kind, form, tmp_path):
    fitted = model(3, kind, random_state=0, tol=1e-5, reg_covar=1e-7).fit(pd.DataFrame(rows, columns=["a", "b", "c"]))
    path = tmp_path / f"model.{form}"
    assert gmm_rs.save(fitted, path) is path
    again = gmm_rs.load(path)
    assert type(again) is GaussianMixture
    for name in ARRAYS:
        assert getattr(again, name).tobytes() == getattr(fitted, name).tobytes(), name
    for name in RECORD:
        assert getattr(again, name) == getattr(fitted, name), name
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert (again.n_components, again.covariance_type, again.tol, again.reg_covar) == (3, kind, 1e-5, 1e-7)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    np.testing.assert_array_equal(again.set_params(device="cpu").predict(frame), fitted.predict(frame))
    # Saving the loaded model gives the same file.
    gmm_rs.save(again, tmp_path / f"again.{form}")
    assert (tmp_path / f"again.{form}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_reads_what_python_writes(rows, kind, tmp_path):
    fitted = model(3, kind, random_state=0).fit(rows)
    gmm_rs.save(fitted, tmp_path / "model.safetensors")
    np.save(tmp_path / "rows.npy", rows)
    said = gmm("predict", "model.safetensors", "rows.npy", "--device", "cpu", cwd=tmp_path)
    labels = [int(line) for line in said.split() if line.isdigit()]
    np.testing.assert_array_equal(labels, fitted.predict(rows))


@pytest.mark.parametrize("form", ["json", "safetensors"])
def test_python_reads_what_the_program_writes(rows, form, tmp_path):
    pd.DataFrame(rows, columns=["a", "b", "c"]).to_csv(tmp_path / "rows.csv", index=False)
    options = ["--seed", "5", "--device", "cpu", "--threads", "2", "--covariance", "tied"]
    gmm("fit", "rows.csv", "-k", "3", "-o", f"model.{form}", *options, cwd=tmp_path)
    found = gmm_rs.load(tmp_path / f"model.{form}", device="cpu", n_jobs=2)
    fitted = GaussianMixture(3, covariance_type="tied", random_state=5, device="cpu", n_jobs=2)
    fitted.fit(pd.read_csv(tmp_path / "rows.csv"))
    for name in ARRAYS:
        assert getattr(found, name).tobytes() == getattr(fitted, name).tobytes(), name
    for name in RECORD:
        assert getattr(found, name) == getattr(fitted, name), name
    assert found.feature_names_in_.tolist() == ["a", "b", "c"] and found.n_jobs == 2


def test_numbers_of_every_size_come_back_to_the_bit(tmp_path):
    X = np.array([[1e-200, 1e150, 1 / 3], [3e-200, -1e150, 2 / 3], [2e-200, 7e149, 5e-324], [5e-200, 1e149, np.pi]])
    fitted = model(1, "diag").fit(np.random.default_rng(0).normal(size=(10, 3)))
    fitted.means_ = X[1:2].copy()
    gmm_rs.save(fitted, tmp_path / "m.json")
    assert gmm_rs.load(tmp_path / "m.json").means_.tobytes() == X[1:2].tobytes()


def test_an_estimator_of_scikit_learns_is_saved_without_a_record(rows, tmp_path):
    theirs = Original(3, random_state=0).fit(rows)
    gmm_rs.save(theirs, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["fit"] is None
    ours = gmm_rs.load(tmp_path / "m.json", device="cpu")
    np.testing.assert_array_equal(ours.covariances_, theirs.covariances_)
    np.testing.assert_allclose(ours.score_samples(rows), theirs.score_samples(rows), rtol=1e-9)
    assert not hasattr(ours, "converged_") and not hasattr(ours, "feature_names_in_")


def test_float32_attributes_are_saved_as_they_are(rows, tmp_path):
    fitted = model(3, "full", random_state=0).fit(rows.astype(np.float32))
    gmm_rs.save(fitted, tmp_path / "m.json")
    again = gmm_rs.load(tmp_path / "m.json")
    assert again.means_.dtype == np.float64
    np.testing.assert_array_equal(again.means_, fitted.means_)
    np.testing.assert_array_equal(again.covariances_, fitted.covariances_)
    np.testing.assert_allclose(again.weights_, fitted.weights_, rtol=1e-7)


def test_a_warm_start_that_converged_at_once_is_saved_as_it_says(rows, tmp_path):
    fitted = model(3, random_state=0, warm_start=True).fit(rows)
    fitted.fit(rows)
    gmm_rs.save(fitted, tmp_path / "m.json")
    again = gmm_rs.load(tmp_path / "m.json")
    assert [getattr(again, name) for name in RECORD] == [getattr(fitted, name) for name in RECORD]


def test_a_refit_of_what_was_loaded_has_a_record_of_its_own(rows, tmp_path):
    gmm_rs.save(model(3, random_state=0).fit(rows), tmp_path / "m.json")
    again = gmm_rs.load(tmp_path / "m.json", device="cpu", max_iter=2, tol=0.0)
    with pytest.warns(UserWarning):
        again.fit(rows[:200])
    gmm_rs.save(again, tmp_path / "n.json")
    fit = json.loads((tmp_path / "n.json").read_text())["fit"]
    assert (fit["n_rows"], fit["iterations"], fit["converged"]) == (200, 2, False)


def test_what_the_system_refuses_is_an_oserror_of_its_kind(rows, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        gmm_rs.load(tmp_path / "none.json")
    assert missing.value.errno == errno.ENOENT and missing.value.filename == str(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        gmm_rs.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no"):
        gmm_rs.save(model(2).fit(rows), tmp_path / "no" / "m.json")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(NotADirectoryError):
        gmm_rs.load(tmp_path / "a.json" / "b.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"a,b\n1,2\n", "json or safetensors"),
        (b'{"format": "gmm-model", "version": 99}', "version is 99"),
        (b'{"format": "gmm-model", "version": 1}', "covariance_type.*missing"),
        (b'{"weights": [1]}', "'format'"),
        (b"\x93NUMPY\x01\x00", "json or safetensors"),
        (b"{" * 100_000, "."),
    ],
)
def test_a_file_that_holds_no_model_is_a_value_error_that_names_it(content, words, tmp_path):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        gmm_rs.load(tmp_path / "m.json")
    assert isinstance(error.value, exceptions.FileError) and str(tmp_path / "m.json") in str(error.value)


def test_parameters_that_are_no_mixture_are_told_with_component(rows, tmp_path):
    gmm_rs.save(model(2, "diag", random_state=0).fit(rows), tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    content["covariances"][1][2] = -1.0
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(exceptions.FileError, match="component 1"):
        gmm_rs.load(tmp_path / "m.json")


def test_what_cannot_be_saved_is_told_and_leaves_the_file(rows, tmp_path):
    fitted = model(2, random_state=0).fit(rows)
    path = tmp_path / "m.json"
    gmm_rs.save(fitted, path)
    before = path.read_bytes()
    with pytest.raises(exceptions.ParameterError, match="json or safetensors"):
        gmm_rs.save(fitted, tmp_path / "m.pkl")
    with pytest.raises(ValueError, match="not fitted"):
        gmm_rs.save(GaussianMixture(2), path)
    for other in (KMeans(n_clusters=2).fit(rows), {}, None):
        with pytest.raises(TypeError, match="expected a GaussianMixture"):
            gmm_rs.save(other, path)
    fitted.weights_ = np.array([0.5, 0.7])
    with pytest.raises(exceptions.ParameterError, match="weights"):
        gmm_rs.save(fitted, path)
    fitted.weights_ = np.array([0.5, 0.5])
    fitted.covariances_ = 4.0 * fitted.covariances_
    with pytest.raises(exceptions.ParameterError, match="covariances_ and precisions_cholesky_ do not match"):
        gmm_rs.save(fitted, path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["m.json"]


def test_parameters_that_contradict_the_file_are_refused(rows, tmp_path):
    gmm_rs.save(model(2, "tied", random_state=0).fit(rows), tmp_path / "m.json")
    assert gmm_rs.load(tmp_path / "m.json", n_components=2).n_components == 2
    with pytest.raises(exceptions.ParameterError, match="n_components is 3: the file has 2"):
        gmm_rs.load(tmp_path / "m.json", n_components=3)
    with pytest.raises(TypeError, match="colour"):
        gmm_rs.load(tmp_path / "m.json", colour="red")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_condition_1e12_is_saved_and_loaded(kind, tmp_path):
    X = np.random.default_rng(0).normal(size=(400, 4)) * [1e-6, 1.0, 1e6, 1.0]
    fitted = model(2, kind, random_state=0, reg_covar=0.0).fit(X)
    again = gmm_rs.load(gmm_rs.save(fitted, tmp_path / "m.safetensors"))
    assert again.precisions_cholesky_.tobytes() == fitted.precisions_cholesky_.tobytes()
