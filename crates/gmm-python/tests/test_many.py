"""Many fits in one call have the bits of each fit alone."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from gmm_rs.exceptions import DataWarning, ParameterError
from gmm_rs.many import fit_many
from gmm_rs.mixture import GaussianMixture

KINDS = ("full", "tied", "diag", "spherical")


def stack(b=7, n=60, d=3, dtype=np.float64):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(b, n, d))
    rows[:, : n // 3] += 5.0
    return (rows + np.arange(b)[:, None, None]).astype(dtype)


def check(many, i, rows, k, weights=None, **parameters):
    alone = GaussianMixture(k, **parameters).fit(rows, sample_weight=weights)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        np.testing.assert_array_equal(getattr(many, name)[i], getattr(alone, name), err_msg=name)
        np.testing.assert_array_equal(getattr(many[i], name), getattr(alone, name), err_msg=name)
        assert getattr(many, name).dtype == getattr(alone, name).dtype
    assert many.n_iter_[i] == many[i].n_iter_ == alone.n_iter_
    assert many.converged_[i] == many[i].converged_ == alone.converged_
    assert many.lower_bound_[i] == many[i].lower_bound_ == alone.lower_bound_
    assert many[i].get_params() == alone.get_params()
    np.testing.assert_array_equal(many[i].predict(rows), alone.predict(rows))
    return alone


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stacked_fits_have_the_bits_of_each_alone(kind, dtype):
    X = stack(dtype=dtype)
    options = {"covariance_type": kind, "random_state": 3, "n_init": 2}
    many = fit_many(X, 2, **options)
    labels, densities = many.predict(X), many.score_samples(X)
    assert (len(many), labels.shape, densities.dtype) == (7, (7, 60), np.dtype(dtype))
    for i, rows in enumerate(X):
        alone = check(many, i, rows, 2, **options)
        np.testing.assert_array_equal(labels[i], alone.predict(rows))
        np.testing.assert_array_equal(densities[i], alone.score_samples(rows))


def test_lists_and_groups_are_stacked_fits_of_other_forms():
    X = stack()
    sizes = [60, 2, 31, 44, 59, 3, 60]
    each = [rows[:n] for rows, n in zip(X, sizes)]
    listed = fit_many(each, 1, random_state=0)
    for i, rows in enumerate(each):
        check(listed, i, rows, 1, random_state=0)
    assert [len(one) for one in listed.predict(each)] == sizes
    # Rows of the groups in turn, with labels of text.
    names = np.repeat([f"g{i}" for i in range(7)], sizes)
    order = np.random.default_rng(1).permutation(len(names))
    rows = np.concatenate(each)[order]
    grouped = fit_many(pd.DataFrame(rows), 1, groups=names[order], random_state=0)
    assert grouped.groups_.tolist() == [f"g{i}" for i in range(7)]
    densities = grouped.score_samples(rows, groups=names[order])
    for i in range(7):
        own = rows[names[order] == f"g{i}"]
        alone = check(grouped, i, own, 1, random_state=0)
        np.testing.assert_array_equal(densities[names[order] == f"g{i}"], alone.score_samples(own))
    np.testing.assert_array_equal(grouped.of("g3").means_, grouped[3].means_)
    # Only some of the groups.
    some = grouped.predict(each[3], groups=["g3"] * 44)
    np.testing.assert_array_equal(some, grouped.of("g3").predict(each[3]))


def test_weights_belong_to_their_rows():
    X = stack()
    weights = np.random.default_rng(2).integers(0, 3, X.shape[:2]).astype(float)
    many = fit_many(X, 2, sample_weight=weights, random_state=0)
    groups = np.tile(np.arange(7), 60)
    turned = fit_many(
        X.transpose(1, 0, 2).reshape(-1, 3), 2, groups=groups, sample_weight=weights.T.ravel(), random_state=0
    )
    for i, rows in enumerate(X):
        check(many, i, rows, 2, weights[i], random_state=0)
        check(turned, i, rows, 2, weights[i], random_state=0)
    listed = fit_many(list(X), 2, sample_weight=list(weights), random_state=0)
    np.testing.assert_array_equal(listed.means_, many.means_)


def test_a_group_that_fails_has_its_own_exception():
    X = stack()
    each = [X[0], X[1][:1], np.zeros((0, 3)), X[2]]
    with pytest.warns(DataWarning, match="2 of 4 groups failed; the first is"):
        many = fit_many(each, 2, random_state=0)
    assert [type(error).__name__ for error in many.errors] == ["NoneType", "ParameterError", "DataError", "NoneType"]
    assert np.isnan(many.means_[1:3]).all() and many.n_components_.tolist() == [2, 0, 0, 2]
    check(many, 0, X[0], 2, random_state=0)
    check(many, 3, X[2], 2, random_state=0)
    with pytest.raises(ParameterError, match="at least 2"):
        many[1]
    with pytest.raises(ParameterError, match="has no mixture"):
        many.predict(each)
    assert "2 failed" in repr(many)


def test_given_parameters_and_rules_are_those_of_every_group():
    X = stack()
    given = {
        "weights_init": [0.3, 0.7],
        "means_init": [[0.0, 0, 0], [5, 5, 5]],
        "precisions_init": [np.eye(3), np.eye(3)],
    }
    many = fit_many(X, 2, **given)
    for i in (0, 6):
        alone = GaussianMixture(2, **given).fit(X[i])
        np.testing.assert_array_equal(many.means_[i], alone.means_)
    for rule in ({"prior": "conjugate"}, {"floor": 0.5}, {"noise": "auto"}):
        many = fit_many(X, 2, random_state=1, **rule)
        labels = many.predict(X)
        for i in (0, 6):
            alone = GaussianMixture(2, random_state=1, **rule).fit(X[i])
            np.testing.assert_array_equal(many.means_[i], alone.means_)
            np.testing.assert_array_equal(labels[i], alone.predict(X[i]))
    dropped = fit_many(X[:, :20], 6, drop_starved=5.0, random_state=0)
    fewer = int(np.argmin(dropped.n_components_))
    k = dropped.n_components_[fewer]
    assert 0 < k < 6 and np.isnan(dropped.means_[fewer, k:]).all() and dropped[fewer].means_.shape == (k, 3)


def test_fits_that_do_not_converge_are_counted():
    with pytest.warns(ConvergenceWarning, match="7 of 7 fits did not converge"):
        many = fit_many(stack(), 2, max_iter=2, tol=0.0)
    assert many.n_iter_.tolist() == [2] * 7 and not many.converged_.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_many(stack(), 2, max_iter=0)


def test_mixtures_survive_a_pickle():
    X = stack()
    many = fit_many(X, 2, random_state=0)
    again = pickle.loads(pickle.dumps(many))
    np.testing.assert_array_equal(again.predict(X), many.predict(X))
    np.testing.assert_array_equal(again[4].precisions_, many[4].precisions_)
    assert again[4].lower_bounds_ == many[4].lower_bounds_


def test_malformed_input_says_what_to_do():
    X = stack()
    many = fit_many(X, 1)
    for call, what in [
        (lambda: fit_many(X[0], 1), "with groups"),
        (lambda: fit_many([], 1), "empty list"),
        (lambda: fit_many([X[0], X[0][:, :2]], 1), "same number"),
        (lambda: fit_many(X[0], 1, groups=[1, 2]), "one for each row"),
        (lambda: fit_many(X[0][:2], 1, groups=np.array([1, None], dtype=object)), "cannot be sorted"),
        (lambda: fit_many(X, 1, callback=print), "callback"),
        (lambda: fit_many(X, 2, means_init=np.zeros((2, 3))), "together"),
        (lambda: fit_many(X, 1, sample_weight=np.ones(3)), "sample_weight has shape"),
        (lambda: many.predict(X[:2]), "2 groups"),
        (lambda: many.predict(X[0], groups=[9] * 60), "no mixture for group 9"),
        (lambda: many.predict(X[:, :, :2]), "2 columns"),
        (lambda: many.of(9), "no group is 9"),
    ]:
        with pytest.raises(ParameterError, match=what):
            call()
    with pytest.raises(ValueError, match="covariance_type"):
        fit_many(X, 1, covariance_type="round")
    X[2, 3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fit_many(X, 1)
