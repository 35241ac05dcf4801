"""Rows known only within limits: censored, rounded, truncated, and intervals."""

import math

import numpy as np
import pytest
from conftest import KINDS
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gmm_rs import select
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture, Limits

CORRELATED = np.array([[1.0, 0.6], [0.6, 1.0]])


def mixture(k=1, **parameters):
    return GaussianMixture(k, **{"device": "cpu", "random_state": 0, "tol": 1e-8, "max_iter": 3000, **parameters})


def rows(n=3000, seed=0):
    return np.random.default_rng(seed).multivariate_normal([0.0, 2.0], CORRELATED, size=n)


def check(model, within=0.12):
    assert model.converged_ and np.diff(model.lower_bounds_).min() > -1e-9
    assert np.allclose(model.means_, [[0.0, 2.0]], atol=within)
    assert np.allclose(model.covariances_[0], CORRELATED, atol=within)


def normal_cdf(x):
    return 0.5 * (1.0 + np.vectorize(math.erf)(np.asarray(x) / np.sqrt(2.0)))


def test_fits_find_what_limits_hide():
    X = rows()
    seen = np.column_stack([np.maximum(X[:, 0], -0.5), np.minimum(X[:, 1], 2.5)])
    check(mixture().fit(seen, limits=Limits(censored=([-0.5, np.nan], [np.inf, 2.5]))))
    assert mixture().fit(seen).covariances_[0, 0, 0] < 0.75
    check(mixture().fit(2 * np.round(X / 2), limits=Limits(rounded=2.0)))
    inside = X[X[:, 0] < 0.5]
    check(mixture().fit(inside, limits=Limits(truncated=(None, [0.5, np.inf]))), within=0.25)


def test_densities_are_those_of_the_definition():
    X = rows(200)
    model = mixture(covariance_type="diag").fit(X)
    (mean,), (sd,) = model.means_, np.sqrt(model.covariances_)
    log_normal = -0.5 * ((X - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    below = normal_cdf((0.3 - mean[0]) / sd[0])
    expected = np.where(X[:, 0] <= 0.3, np.log(below), log_normal[:, 0]) + log_normal[:, 1]
    limits = Limits(censored=([0.3, np.nan], None))
    assert np.allclose(model.score_samples(X, limits=limits), expected, rtol=1e-12)
    within = np.log(normal_cdf((X + 0.25 - mean) / sd) - normal_cdf((X - 0.25 - mean) / sd)).sum(axis=1)
    assert np.allclose(model.score_samples(X, limits=Limits(rounded=0.5)), within, rtol=1e-9)
    inside = X[X[:, 0] > -1.0]
    recorded = 1.0 - normal_cdf((-1.0 - mean[0]) / sd[0])
    found = model.score_samples(inside, limits=Limits(truncated=([-1.0, -np.inf], None)))
    assert np.allclose(found, log_normal[X[:, 0] > -1.0].sum(axis=1) - np.log(recorded), rtol=1e-12)


def test_all_forms_of_the_same_limits_agree():
    X = rows(400)
    seen = np.maximum(X, -0.5)
    low = np.full(seen.shape, -0.5)
    same = [Limits(censored=(end, None)) for end in (-0.5, [-0.5, -0.5], low)]
    same.append(Limits(censored=(low, np.inf)))
    lower = np.where(X < -0.5, np.nan, X)
    models = [mixture().fit(seen, limits=limits) for limits in same]
    models += [mixture().fit(end, limits=Limits(upper=seen)) for end in (lower, np.where(X < -0.5, -np.inf, X))]
    assert all(np.allclose(model.means_, models[0].means_, atol=1e-6) for model in models)
    assert np.allclose(models[-1].score(lower, limits=Limits(upper=seen)), models[0].score(seen, limits=same[0]))
    rounded = np.round(X)
    one = mixture().fit(rounded, limits=Limits(rounded=[1.0, 0.0]))
    ends = [rounded - [0.5, 0.0], rounded + [0.5, 0.0]]
    other = mixture().fit(ends[0], limits=Limits(upper=ends[1]))
    assert np.allclose(one.means_, other.means_, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_takes_limits(kind):
    X = np.vstack([rows(300), rows(300, seed=1) + 8.0])
    limits, weights = Limits(censored=(None, 9.0)), np.arange(600) % 3
    model = clone(mixture(2, covariance_type=kind, tol=1e-4))
    labels = model.fit_predict(np.minimum(X, 9.0), limits=limits)
    X = np.minimum(X, 9.0)
    assert (labels == model.predict(X, limits=limits)).all() and len(np.unique(labels)) == 2
    shares = model.predict_proba(X, limits=limits)
    assert np.allclose(shares.sum(axis=1), 1.0) and (shares.argmax(axis=1) == labels).all()
    densities = model.score_samples(X, limits=limits)
    assert np.isclose(model.score(X, limits=limits), densities.mean(), rtol=1e-12)
    found = model.score(X, None, weights, limits=limits)
    assert np.isclose(found, np.average(densities, weights=weights), rtol=1e-12)
    assert np.isclose(model.bic(X, limits=limits) - model.aic(X, limits=limits), model._n_parameters() * (np.log(600) - 2))
    twice = np.repeat(np.arange(600), weights)
    start = {"weights_init": model.weights_, "means_init": model.means_, "precisions_init": model.precisions_}
    weighted = mixture(2, covariance_type=kind, **start).fit(X, sample_weight=weights, limits=limits)
    assert np.allclose(weighted.means_, mixture(2, covariance_type=kind, **start).fit(X[twice], limits=limits).means_, atol=1e-6)


def test_float32_values_at_a_limit_are_censored_and_missing_values_go_with_limits():
    X = np.maximum(rows(), -0.1).astype(np.float32)
    model = mixture().fit(X, limits=Limits(censored=(-0.1, None)))
    assert model.means_.dtype == np.float32
    check(model, within=0.15)
    X = np.maximum(rows(), -0.5)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    check(mixture(missing="em").fit(X, limits=Limits(censored=(-0.5, None))))
    with pytest.raises(ValueError, match="is NaN: "):
        mixture().fit(X, limits=Limits(censored=(-0.5, None)))
    with pytest.raises(ValueError, match="is NaN: "):
        mixture().fit(X, limits=Limits(upper=X))
    check(mixture(missing="em").fit(np.where(X == -0.5, np.nan, X), limits=Limits(upper=X)))


def test_selection_takes_limits_and_measurement_errors():
    X = np.vstack([rows(300), rows(300, seed=1) + 6.0])
    options = {"random_state": 0, "device": "auto", "tol": 1e-6, "max_iter": 500}
    limits = Limits(rounded=1.0)
    found = select(np.round(X), [1, 2], limits=limits, **options)
    assert found.best_estimator_.n_components == 2
    one = mixture(2, **{**options, "device": "cpu"}).fit(np.round(X), limits=limits)
    assert np.array_equal(found.best_estimator_.means_, one.means_)
    noise = np.random.default_rng(0).uniform(0.0, 1.0, size=X.shape)
    noisy = X + noise * np.random.default_rng(1).normal(size=X.shape)
    found = select(noisy, [1, 2], row_noise=noise, **options)
    one = mixture(2, **{**options, "device": "cpu"}).fit(noisy, noise=noise)
    assert np.array_equal(found.best_estimator_.means_, one.means_)
    with pytest.raises(ParameterError, match="does not go with the noise component"):
        select(noisy, [1, 2], row_noise=noise, noise="auto")


def test_invalid_limits_are_refused():
    X = rows(50)
    refused = [
        (Limits(censored=(1.0, 0.0)), "low limit of censored must be below the high one, at row 0, column 0: 1.0 and 0.0"),
        (Limits(censored=0.5), r"censored must be a pair \(low, high\)"),
        (Limits(censored=([1.0, 2.0, 3.0], None)), r"censored has shape \(3,\), expected \(2,\) or \(50, 2\)"),
        (Limits(rounded=-1.0), "finite steps that are not negative"),
        (Limits(truncated=(np.zeros((50, 2)), None)), r"truncated has shape \(50, 2\), expected \(2,\)"),
        (Limits(truncated=(0.0, 1.0)), "is outside of the truncation from 0 to 1"),
        (Limits(truncated=(1.0, 0.0)), "is empty in column 0"),
        (Limits(upper=np.ones(50)), r"upper has shape \(50,\), expected \(50, 2\)"),
        (Limits(upper=X - 1.0), "row 0, column 0"),
        ({"censored": (0.0, 1.0)}, "it must be gmm_rs.mixture.Limits"),
    ]
    for limits, message in refused:
        with pytest.raises(ValueError, match=message):
            mixture().fit(X, limits=limits)
    limits = Limits(rounded=1.0)
    with pytest.raises(ParameterError, match="leave censored and rounded out"):
        Limits(upper=X, rounded=1.0)
    with pytest.raises(ParameterError, match="limits cannot be used with noise or projection"):
        mixture().fit(X, noise=np.ones_like(X), limits=limits)
    with pytest.raises(ParameterError, match="limits are for the CPU"):
        GaussianMixture(device="cuda").fit(X, limits=limits)
    with pytest.raises(ParameterError, match="missing='drop' does not take limits"):
        mixture(missing="drop").fit(X, limits=limits)
    with pytest.raises(ParameterError, match="limits do not go with the noise component"):
        mixture(noise="auto").fit(X, limits=limits)
    with pytest.raises(ValueError, match="a start by a tree cannot be used with censored, rounded or truncated rows"):
        mixture(init_params="tree").fit(X, limits=limits)
    with pytest.raises(NotFittedError):
        mixture().predict(X, limits=limits)
    assert repr(limits) == "Limits(rounded=1.0)"
