"""Rows with measurement errors, and linear views of rows: extreme deconvolution."""

import pickle

import numpy as np
import pytest
from conftest import KINDS
from sklearn.base import clone

from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture


def mixture(k=2, **parameters):
    return GaussianMixture(k, **{"device": "cpu", "random_state": 0, **parameters})


def noisy(n=800, d=3, seed=0):
    """True rows of two components, noisy ones, and the deviations of the errors."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, d)) + 5.0 * rng.integers(2, size=(n, 1))
    noise = rng.uniform(0.0, 2.0, size=(n, d))
    return truth, truth + noise * rng.normal(size=(n, d)), noise


def log_density(model, w, covariance, projection=None):
    """By the definition: the density of the noisy row."""
    projection = np.eye(len(w)) if projection is None else projection
    terms = []
    for weight, mean, sigma in zip(model.weights_, model.means_, model.covariances_):
        t = projection @ sigma @ projection.T + covariance
        z = w - projection @ mean
        terms.append(np.log(weight) - 0.5 * (z @ np.linalg.solve(t, z) + np.linalg.slogdet(2 * np.pi * t)[1]))
    return np.logaddexp.reduce(terms)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_find_the_components_of_the_true_rows(kind):
    _, X, noise = noisy()
    model = mixture(covariance_type=kind, tol=1e-6, max_iter=1000).fit(X, noise=noise)
    assert model.converged_ and np.diff(model.lower_bounds_).min() > -1e-9
    assert np.allclose(np.sort(model.means_[:, 0]), [0.0, 5.0], atol=0.4)
    variances = {"full": lambda c: c[:, 0, 0], "tied": lambda c: c[0, 0], "diag": lambda c: c[:, 0], "spherical": np.asarray}
    assert np.allclose(variances[kind](model.covariances_), 1.0, atol=0.35)
    assert abs(model.score(X, noise=noise) - model.score_samples(X, noise=noise).mean()) < 1e-12
    shares = model.predict_proba(X, noise=noise)
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert (model.predict(X, noise=noise) == shares.argmax(axis=1)).all()


def test_densities_are_those_of_the_definition_for_both_forms_of_noise_and_projections():
    _, X, noise = noisy(200)
    model = mixture().fit(X, noise=noise)
    covariances = np.einsum("ij,jk->ijk", noise**2, np.eye(3))
    expected = [log_density(model, x, s) for x, s in zip(X, covariances)]
    assert np.allclose(model.score_samples(X, noise=noise), expected, rtol=1e-12)
    assert np.allclose(model.score_samples(X, noise=covariances), expected, rtol=1e-12)
    R = np.random.default_rng(1).normal(size=(200, 2, 3))
    W = np.einsum("imd,id->im", R, X)
    expected = [log_density(model, w, np.diag(s[:2] ** 2), r) for w, s, r in zip(W, noise, R)]
    assert np.allclose(model.score_samples(W, noise=noise[:, :2], projection=R), expected, rtol=1e-11)
    other = mixture().fit(X, noise=covariances)
    assert np.allclose(other.means_, model.means_, atol=1e-8)


def test_noise_of_0_is_no_noise_and_lists_and_float32_are_taken():
    _, X, noise = noisy()
    plain, zero = mixture().fit(X), mixture().fit(X, noise=np.zeros_like(X))
    assert np.allclose(zero.means_, plain.means_) and zero.n_iter_ == plain.n_iter_
    listed = mixture().fit(X.tolist(), noise=noise.tolist())
    assert np.array_equal(listed.means_, mixture().fit(X, noise=noise).means_)
    single = mixture().fit(X.astype(np.float32), noise=noise.astype(np.float32))
    assert single.means_.dtype == np.float32 and np.allclose(single.means_, listed.means_, atol=1e-3)


def test_one_component_of_views_is_found_and_scored():
    rng = np.random.default_rng(3)
    V = rng.normal(size=(2000, 2)) + [1.0, 2.0]
    R = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]])[rng.integers(3, size=2000)]
    noise = rng.uniform(0.0, 1.0, size=(2000, 1))
    W = np.einsum("imd,id->im", R, V) + noise * rng.normal(size=(2000, 1))
    model = mixture(1, tol=1e-8, max_iter=2000).fit(W, noise=noise, projection=R)
    assert model.n_features_in_ == 2 and model.means_.shape == (1, 2)
    assert np.allclose(model.means_, [[1.0, 2.0]], atol=0.2)
    assert np.allclose(model.covariances_[0], np.eye(2), atol=0.3)
    with pytest.raises(ParameterError, match=r"projection has shape \(2000, 1, 2\), expected \(1999, 1, d\)"):
        model.predict(W[1:], noise=noise[1:], projection=R)


def test_deconvolved_rows_are_nearer_to_the_truth():
    truth, X, noise = noisy()
    model = mixture().fit(X, noise=noise)
    means, covariances = model.deconvolve(X, noise, return_cov=True)
    assert np.square(means - truth).sum() < 0.7 * np.square(X - truth).sum()
    inside = np.abs(means - truth) < np.sqrt(np.einsum("ijj->ij", covariances))
    assert 0.63 < inside.mean() < 0.73
    assert np.array_equal(model.deconvolve(X, noise), means)


def test_missing_values_go_with_noise():
    _, X, noise = noisy()
    holes = np.random.default_rng(2).random(X.shape) < 0.2
    X[holes], noise[holes] = np.nan, np.nan
    model = mixture(missing="em", tol=1e-6, max_iter=1000).fit(X, noise=noise)
    assert np.allclose(np.sort(model.means_[:, 0]), [0.0, 5.0], atol=0.4)
    assert np.isfinite(model.score_samples(X, noise=noise)).all()
    with pytest.raises(ParameterError, match="missing='drop' does not take noise"):
        mixture(missing="drop").fit(X, noise=noise)


def test_weights_fit_predict_and_pickles_go_with_noise():
    _, X, noise = noisy(300)
    weights = np.arange(300) % 3
    twice = np.repeat(np.arange(300), weights)
    options = {"means_init": [[0.0] * 3, [5.0] * 3], "weights_init": [0.5, 0.5], "precisions_init": [np.eye(3)] * 2}
    one = mixture(**options).fit(X, sample_weight=weights, noise=noise)
    other = mixture(**options).fit(X[twice], noise=noise[twice])
    assert np.allclose(one.means_, other.means_, atol=1e-8)
    model = mixture()
    labels = model.fit_predict(X, noise=noise)
    assert (labels == model.predict(X, noise=noise)).all()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.score_samples(X, noise=noise), model.score_samples(X, noise=noise))
    clone(model).fit(X, noise=noise)


def test_invalid_noise_is_refused():
    _, X, noise = noisy(50)
    noise[7, 2] = -0.5
    with pytest.raises(ValueError, match="row 7, column 2 is -0.5: it must be finite and not negative"):
        mixture().fit(X, noise=noise)
    with pytest.raises(ParameterError, match=r"noise has shape \(49, 3\), expected \(50, 3\), standard deviations"):
        mixture().fit(X, noise=np.ones((49, 3)))
    indefinite = np.tile(np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), (50, 1, 1))
    with pytest.raises(ValueError, match="error covariance of row 0 is not positive semidefinite"):
        mixture().fit(X, noise=indefinite)
    with pytest.raises(ParameterError, match="noise component"):
        mixture(noise="auto").fit(X, noise=np.ones_like(X))
    with pytest.raises(ParameterError, match="projection is for the CPU"):
        views = np.tile(np.eye(3), (50, 1, 1))
        GaussianMixture(2, device="cuda").fit(X, noise=np.ones_like(X), projection=views)
    with pytest.raises(ValueError, match="a start by a tree cannot be used with measurement errors"):
        mixture(init_params="tree").fit(X, noise=np.ones_like(X))
