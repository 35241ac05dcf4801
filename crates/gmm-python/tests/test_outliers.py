"""The detector of outliers: thresholds, files and scikit-learn's requirements."""

import json
import pickle

import numpy as np
import pytest
from conftest import KINDS
from scipy.stats import chi2
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import gmm_rs
from gmm_rs.datasets import make_gmm
from gmm_rs.exceptions import ParameterError
from gmm_rs.outliers import GaussianMixtureDetector


def detector(k=2, **parameters):
    return GaussianMixtureDetector(k, **{"device": "cpu", "random_state": 0, **parameters})


@parametrize_with_checks([GaussianMixtureDetector(device="cpu")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_checks_for_every_kind(kind):
    results = check_estimator(GaussianMixtureDetector(device="cpu", covariance_type=kind), on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] in ("failed", "xfail")] == []


def test_scikit_learns_checks_with_a_threshold_of_the_mixture():
    # The rows of these checks have no outlier: all lie in the region with a probability of 0.99.
    none = dict.fromkeys(["check_outliers_fit_predict", "check_outliers_train"], "no row is an outlier")
    estimator = GaussianMixtureDetector(device="cpu", contamination="auto")
    results = check_estimator(estimator, expected_failed_checks=none, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


@pytest.mark.parametrize("contamination", [0.003, 0.01, 0.07, 0.2, 0.5])
def test_the_share_of_the_rows_is_flagged(rows, contamination):
    found = detector(3, contamination=contamination).fit(rows)
    assert (found.predict(rows) == -1).sum() == np.floor(contamination * 300 + 1e-9)
    np.testing.assert_array_equal(found.predict(rows) == -1, found.score_samples(rows) < found.offset_)
    np.testing.assert_allclose(found.decision_function(rows), found.score_samples(rows) - found.offset_)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_auto_is_the_region_of_the_chi_square_distribution_for_one_gaussian(d):
    X = np.random.default_rng(0).normal(size=(400, d))
    found = detector(1, reg_covar=0, contamination="auto").fit(X)
    top = -0.5 * np.linalg.slogdet(2 * np.pi * np.cov(X.T, bias=True).reshape(d, d))[1]
    # A share of 0.01 of 2¹⁷ draws has a relative standard error of 2.7 %, and the density falls by about that much.
    assert abs(found.offset_ - (top - 0.5 * chi2(d).ppf(0.99))) < 5 * 0.03


def test_a_row_of_weight_two_counts_twice(rows):
    weights = np.random.default_rng(1).integers(0, 3, 300)
    weighted = detector(1, contamination=0.05).fit(rows, sample_weight=weights)
    repeated = detector(1, contamination=0.05).fit(np.repeat(rows, weights, axis=0))
    assert abs(weighted.offset_ - repeated.offset_) < 1e-11


@pytest.mark.parametrize("form", ["json", "safetensors"])
@pytest.mark.parametrize("contamination", [0.02, "auto"])
def test_a_model_file_keeps_the_threshold(rows, tmp_path, form, contamination):
    before = detector(3, contamination=contamination).fit(rows)
    path = gmm_rs.save(before, tmp_path / f"model.{form}")
    after = GaussianMixtureDetector.load(path, device="cpu")
    assert (after.offset_, after.contamination) == (before.offset_, before.contamination)
    np.testing.assert_allclose(after.score_samples(rows), before.score_samples(rows), rtol=1e-13)
    np.testing.assert_array_equal(after.predict(rows), before.predict(rows))
    # For all other readers it is the mixture.
    assert gmm_rs.load(path).n_components == 3
    if form == "json":
        stored = json.loads(path.read_text())["outliers"]
        assert stored["log_density"] == before.offset_
        assert stored.get("contamination", "auto") == contamination
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(before)).predict(rows), before.predict(rows))


def test_a_model_without_a_threshold_is_refused(rows, tmp_path):
    path = gmm_rs.save(detector().fit(rows).mixture_, tmp_path / "model.json")
    with pytest.raises(ParameterError, match="no threshold"):
        GaussianMixtureDetector.load(path)


def test_rows_of_density_zero_are_outliers(rows):
    found = detector(contamination=0.01).fit(rows)
    far = found.decision_function([[1e200, 0, 0]])
    assert far[0] == -np.inf
    assert found.predict([[1e200, 0, 0]]).tolist() == [-1]


def test_planted_outliers_are_found():
    X, _ = make_gmm(990, 3, 2, separation=4.0, random_state=1)
    planted = np.random.default_rng(0).uniform(-1, 1, (10, 3)) * 8 * np.abs(X).max()
    found = detector(2, contamination=0.01).fit(np.r_[X, planted])
    assert (found.predict(planted) == -1).sum() >= 9


@pytest.mark.parametrize("wrong", [0, -0.1, 0.51, "many", None])
def test_a_wrong_contamination_is_an_error(rows, wrong):
    with pytest.raises(ValueError, match="contamination"):
        detector(contamination=wrong).fit(rows)
