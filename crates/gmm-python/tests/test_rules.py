"""Fits beyond maximum likelihood: priors, floors, dropped components, labels."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.mixture import GaussianMixture as Original
from sklearn.utils.estimator_checks import parametrize_with_checks

from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture

RULES = [{"prior": "conjugate"}, {"floor": 1e-3}, {"floor_relative": 0.01}, {"drop_starved": 10}, {"drop_starved": 0.5}]
KINDS = ["full", "tied", "diag", "spherical"]


def blobs(n=200, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) + 6 * classes[:, None], classes


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore")
def test_rows_that_scikit_learn_refuses_give_a_model(rule, kind, dtype):
    rng = np.random.default_rng(1)
    one_hot = np.eye(8)[rng.integers(0, 8, 40)]
    for X, k in [
        (np.ones((10, 3)), 3),
        (np.array([[9999.0], [0.0]]), 2),
        (np.repeat(rng.normal(size=(4, 2)), 5, axis=0), 8),
        (one_hot, 12),
        (1e30 * rng.normal(size=(20, 2)), 4),
    ]:
        model = GaussianMixture(k, covariance_type=kind, reg_covar=0, random_state=0, **rule).fit(X.astype(dtype))
        assert np.isfinite(model.means_).all() and np.isfinite(model.weights_).all()
        assert model.predict(X.astype(dtype)).shape == (len(X),)


def test_a_prior_is_that_of_fraley_and_raftery():
    X, _ = blobs()
    model = GaussianMixture(1, prior="conjugate", reg_covar=0, max_iter=1, tol=0).fit(X)
    n, d = X.shape
    mean, centred = X.mean(0), X - X.mean(0)
    # With one component: the mean is that of the data, and the covariance has the divisor of their table 2.
    scale = centred.T @ centred / (n - 1)
    expected = (scale + centred.T @ centred) / (d + 2 + n + d + 2)
    np.testing.assert_allclose(model.means_[0], mean, rtol=1e-12)
    np.testing.assert_allclose(model.covariances_[0], expected, rtol=1e-12)


def test_a_floor_bounds_the_variances():
    X, _ = blobs()
    model = GaussianMixture(6, covariance_type="diag", floor=0.5, random_state=0).fit(X)
    assert model.covariances_.min() >= 0.5


def test_starved_components_are_dropped():
    X, _ = blobs()
    X[3] = 500.0
    with pytest.warns(match="dropped"):
        model = GaussianMixture(5, drop_starved=10, random_state=0).fit(X)
    k = len(model.weights_)
    assert k < 5 and model.means_.shape == (k, 2) and (200 * model.weights_ > 10).all()
    assert model.predict_proba(X).shape == (200, k)
    assert np.isfinite(model.bic(X))


def test_labels_decide_which_component_is_which():
    X, classes = blobs()
    for swap in [False, True]:
        y = np.full(200, -1)
        y[:10] = 1 - classes[:10] if swap else classes[:10]
        model = GaussianMixture(2, labels="y", random_state=3).fit(X, y)
        expected = 1 - classes if swap else classes
        assert (model.predict(X) == expected).mean() > 0.99
        assert (GaussianMixture(2, labels="y", random_state=3).fit_predict(X, y) == model.predict(X)).all()


def test_a_labelled_fit_is_em_with_known_responsibilities():
    X, classes = blobs()
    y = np.where(np.arange(200) % 4 == 0, classes, -1)
    start = Original(2, random_state=0, max_iter=1, tol=0).fit(X)
    given = {"weights_init": start.weights_, "means_init": start.means_, "precisions_init": start.precisions_}
    model = GaussianMixture(2, labels="y", max_iter=5, tol=0, reg_covar=0, **given)
    with pytest.warns(match="converge"):
        model.fit(X, y)
    weights, means, covariances = start.weights_, start.means_, start.covariances_
    for _ in range(5):
        r = np.stack([w * multivariate_normal(m, c).pdf(X) for w, m, c in zip(weights, means, covariances)], axis=1)
        r /= r.sum(1, keepdims=True)
        r[y >= 0] = np.eye(2)[y[y >= 0]]
        weights = r.mean(0)
        means = (r.T @ X) / r.sum(0)[:, None]
        covariances = [((X - m).T * r[:, c]) @ (X - m) / r[:, c].sum() for c, m in enumerate(means)]
    np.testing.assert_allclose(model.means_, means, rtol=1e-9)
    np.testing.assert_allclose(model.covariances_, covariances, rtol=1e-9)


def test_y_is_ignored_unless_labels_are_asked_for():
    X, classes = blobs()
    plain = GaussianMixture(2, random_state=0).fit(X)
    with_y = GaussianMixture(2, random_state=0).fit(X, classes)
    np.testing.assert_array_equal(plain.means_, with_y.means_)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "y is None"),
        (np.zeros(3), "shape"),
        (np.full(200, 2), r"y\[0\] is 2"),
        (np.full(200, 0.5), "whole numbers"),
        (np.full(200, "a"), "whole numbers"),
        (np.full(200, -2), r"y\[0\] is -2"),
    ],
    ids=str,
)
def test_wrong_labels_are_errors(y, message):
    X, _ = blobs()
    with pytest.raises(ValueError, match=message):
        GaussianMixture(2, labels="y").fit(X, y)


def test_partial_fit_refuses_what_it_would_ignore():
    X, _ = blobs()
    for rule in [*RULES, {"labels": "y"}]:
        with pytest.raises(ParameterError, match="partial_fit"):
            GaussianMixture(2, **rule).partial_fit(X)


REFUSED = dict.fromkeys(
    ["check_fit_score_takes_y", "check_n_features_in_after_fitting"], "they call partial_fit, which refuses a rule"
)


@parametrize_with_checks(
    [GaussianMixture(prior="conjugate"), GaussianMixture(floor=0.1, floor_relative=0.1)],
    expected_failed_checks=lambda estimator: REFUSED,
)
def test_scikit_learns_checks_hold_with_a_rule(estimator, check):
    check(clone(estimator))


def test_a_fit_of_labelled_rows_only_is_that_of_each_group():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.arange(60) % 2
    model = GaussianMixture(2, labels="y", reg_covar=0, device="cpu").fit(X, y)
    for c in range(2):
        np.testing.assert_allclose(model.means_[c], X[y == c].mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(model.covariances_[c], np.cov(X[y == c].T, ddof=0), rtol=1e-10)


@pytest.mark.parametrize(("kind", "factors"), [("diag", None), ("spherical", None), ("full", None), ("full", 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_truncated_fits_have_a_lower_bound(kind, factors, dtype):
    rng = np.random.default_rng(2)
    centres = 8 * rng.random((60, 5))
    X = (centres[rng.integers(0, 60, 4000)] + 0.3 * rng.normal(size=(4000, 5))).astype(dtype)
    start = dict(init_params="random_from_data", random_state=1, max_iter=60, tol=1e-4)
    given = dict(covariance_type=kind, factors=factors, **start)
    whole = GaussianMixture(60, **given).fit(X)
    model = GaussianMixture(60, truncated=3, **given).fit(X)
    assert (np.diff(model.lower_bounds_) > -1e-6).all()
    assert model.lower_bound_ <= model.score(X) + 1e-4
    assert model.score(X) > whole.score(X) - 0.1
    every = GaussianMixture(60, truncated=60, **given).fit(X)
    assert abs(every.lower_bound_ - whole.lower_bound_) < 1e-3
    assert clone(model).get_params()["truncated"] == 3


def test_truncated_fits_refuse_what_they_cannot_do():
    X, _ = blobs()
    with pytest.raises(ValueError, match="full, diag, spherical or factors:H"):
        GaussianMixture(3, covariance_type="tied", truncated=2).fit(X)
    for wrong in (0, True, 10**30):
        with pytest.raises(ValueError, match="truncated"):
            GaussianMixture(3, covariance_type="diag", truncated=wrong).fit(X)
    with pytest.raises(ValueError, match="variational|noise"):
        GaussianMixture(3, covariance_type="diag", truncated=2, noise="auto").fit(X)
