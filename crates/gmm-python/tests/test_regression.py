"""Gaussian mixture regression: least squares, the definition, and scikit-learn's requirements."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import KINDS
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_diabetes
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from gmm_rs.exceptions import DataError, NumericalError, ParameterError
from gmm_rs.regression import GaussianMixtureRegressor


def model(k=1, **parameters):
    return GaussianMixtureRegressor(k, **{"device": "cpu", "random_state": 0, **parameters})


@parametrize_with_checks([GaussianMixtureRegressor(device="cpu")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_checks_for_every_kind_with_several_components(kind):
    # Without correlations predictions are steps; and rows in another order start k-means elsewhere.
    poor = {
        "check_regressors_train": "few components predict steps",
        "check_sample_weight_equivalence_on_dense_data": "repeated rows give k-means another start",
    }
    estimator = GaussianMixtureRegressor(3, covariance_type=kind, device="cpu", random_state=0)
    results = check_estimator(estimator, expected_failed_checks=poor, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


@pytest.fixture(scope="module")
def curve():
    """500 rows of two features and one target that is a noisy sine of the first."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, (500, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)


def least_squares(X, y):
    """Predictions of numpy.linalg.lstsq about the means, so that an offset costs it no precision either."""
    centre, middle = X.mean(axis=0), y.mean(axis=0)
    coefficients = np.linalg.lstsq(X - centre, y - middle, rcond=None)[0]
    return lambda new: middle + (new - centre) @ coefficients


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("targets", [None, 1, 3])
def test_one_component_is_least_squares(offset, targets):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5)) + offset
    shape = (400,) if targets is None else (400, targets)
    coefficients = rng.normal(size=(5, *shape[1:]))
    y = (X - offset) @ coefficients + rng.normal(size=shape) + offset
    found = model(reg_covar=0).fit(X, y)
    new = X[:50] * 1.5 - offset / 2
    expected = least_squares(X, y)(new)
    assert found.predict(new).shape == expected.shape
    # The mean of each feature is rounded to 1e-16 of the offset, and its error is multiplied by the coefficient.
    np.testing.assert_allclose(found.predict(new), expected, rtol=1e-12, atol=1e-12 * max(1.0, offset))
    residuals = y - least_squares(X, y)(X)
    _, deviations = found.predict(new, return_std=True)
    # Each residual of the reference is rounded like its row.
    rounding = 1e-12 + 1e-16 * offset
    np.testing.assert_allclose(deviations, np.broadcast_to(residuals.std(axis=0), deviations.shape), rtol=rounding)


def test_row_weights_are_weighted_least_squares():
    rng = np.random.default_rng(2)
    X, y, weights = rng.normal(size=(90, 3)), rng.normal(size=90), rng.integers(0, 4, 90)
    repeated = least_squares(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    found = model(reg_covar=0).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(found.predict(X), repeated(X), rtol=1e-12, atol=1e-13)


def test_the_coefficients_of_a_published_regression():
    # Efron, Hastie, Johnstone and Tibshirani (2004), "Least angle regression", Table 1's data; the least squares R² of
    # 0.5177 is that of scikit-learn's user guide and of R's lm(y ~ ., diabetes).
    X, y = load_diabetes(return_X_y=True)
    assert round(model(reg_covar=0).fit(X, y).score(X, y), 4) == 0.5177


def by_definition(mixture, X, d):
    """Mean and standard deviation of the last column given the others, from dense inverses."""
    weights, means, deviations = [], [], []
    for w, mean, cov in zip(mixture.weights_, mixture.means_, mixture.covariances_):
        inverse = np.linalg.inv(cov[:d, :d])
        weights.append(w * multivariate_normal(mean[:d], cov[:d, :d]).pdf(X))
        means.append(mean[d] + (X - mean[:d]) @ inverse @ cov[:d, d])
        deviations.append(cov[d, d] - cov[d, :d] @ inverse @ cov[:d, d])
    weights, means, variances = np.array(weights) / np.sum(weights, axis=0), np.array(means), np.array(deviations)
    mean = (weights * means).sum(axis=0)
    variance = (weights * (variances[:, None] + means**2)).sum(axis=0) - mean**2
    return mean, np.sqrt(variance), (weights, means, variances)


def test_predictions_follow_the_definition(curve):
    X, y = curve
    found = model(6).fit(X, y)
    mean, deviation, (weights, means, variances) = by_definition(found.mixture_, X, 2)
    predicted, std = found.predict(X, return_std=True)
    np.testing.assert_allclose(predicted, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(std, deviation, rtol=1e-8)
    conditional = found.conditional(X)
    np.testing.assert_allclose(conditional.weights, weights.T, atol=1e-12)
    np.testing.assert_allclose(conditional.means[:, :, 0], means.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(conditional.covariances[:, 0, 0], variances, rtol=1e-10)
    density = np.log((weights.T * norm(means.T, np.sqrt(variances)).pdf(y[:, None])).sum(axis=1))
    np.testing.assert_allclose(found.log_density(X, y), density, rtol=1e-10, atol=1e-12)


def test_gmr_predicts_the_same(curve):
    # A. Fabisch (2021), "gmr: Gaussian Mixture Regression", Journal of Open Source Software 6(62), 3054.
    gmr = pytest.importorskip("gmr")
    X, y = curve
    found = model(5).fit(X, y)
    mixture = found.mixture_
    theirs = gmr.GMM(5, priors=mixture.weights_, means=mixture.means_, covariances=mixture.covariances_)
    np.testing.assert_allclose(found.predict(X), theirs.predict(np.array([0, 1]), X)[:, 0], rtol=1e-9, atol=1e-11)


def test_a_mixture_follows_a_curve_that_a_line_does_not(curve):
    X, y = curve
    assert model(1).fit(X, y).score(X, y) < 0.7
    assert model(8, n_init=3).fit(X, y).score(X, y) > 0.95


def test_draws_have_the_predicted_moments_and_depend_on_the_seed(curve):
    X, y = curve
    found = model(4).fit(X, y)
    mean, deviation = found.predict(X[:20], return_std=True)
    draws = found.sample_y(X[:20], 4000, random_state=3)
    assert draws.shape == (20, 4000)
    assert (np.abs(draws.mean(axis=1) - mean) < 5 * deviation / np.sqrt(4000)).all()
    np.testing.assert_array_equal(draws, found.sample_y(X[:20], 4000, random_state=3))
    assert not np.array_equal(draws[:, :9], found.sample_y(X[:20], 9, random_state=4))
    both = model(2).fit(X, np.c_[y, X[:, 0]])
    assert both.sample_y(X[:7], 3).shape == (7, 2, 3)


def test_names_pickles_and_f32(curve):
    X, y = curve
    frame = pd.DataFrame(X, columns=["a", "b"])
    found = model(3).fit(frame, y)
    assert found.feature_names_in_.tolist() == ["a", "b"]
    wider = frame.assign(c=1.0)[["c", "b", "a"]]
    np.testing.assert_array_equal(found.predict(wider), found.predict(frame))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict(frame), found.predict(frame))
    single = model(3).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.mixture_.means_.dtype == np.float32
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), found.predict(frame), atol=0.02)


def test_bad_input_is_an_error_that_says_what(curve):
    X, y = curve
    with pytest.raises(DataError, match="row 3, column 1 is NaN"):
        broken = X.copy()
        broken[3, 1] = np.nan
        model().fit(broken, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model().fit(X, np.where(y > 0, y, np.nan))
    with pytest.raises(NumericalError, match="column"):
        model(reg_covar=0).fit(np.c_[X, X.sum(axis=1)], y)
    found = model().fit(X, y)
    with pytest.raises(ParameterError, match="n_samples"):
        found.sample_y(X, 0)
    with pytest.raises(ParameterError, match="2 targets"):
        found.log_density(X, np.c_[y, y])
    far = found.predict([[1e200, -1e200]], return_std=True)
    assert np.isfinite(far).all()


def test_predictions_have_the_dtype_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=200)
    model = GaussianMixtureRegressor(2, device="cpu", random_state=0).fit(X, y)
    for rows in (X, X.astype(np.float32)):
        mean, deviation = model.predict(rows, return_std=True)
        found = [mean, deviation, model.predict(rows), model.sample_y(rows, 2), model.log_density(rows, y)]
        assert [array.dtype for array in found] == [rows.dtype] * 5
    np.testing.assert_allclose(mean, model.predict(X), atol=1e-5)
