"""The same initial parameters give the same fit as in scikit-learn."""

import numpy as np
import pytest
from conftest import KINDS, model, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture as Original

from gmm_rs.datasets import make_gmm

FITTED = ["weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_", "lower_bounds_"]


def pair(X, k, kind, **parameters):
    given = {**start(X, k, kind), **parameters}
    ours = model(k, kind, **given).fit(X)
    theirs = Original(k, covariance_type=kind, **given).fit(X)
    return ours, theirs


def compare(ours, theirs, rtol):
    assert (ours.n_iter_, ours.converged_) == (theirs.n_iter_, theirs.converged_)
    for name in FITTED:
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        assert a.shape == b.shape, name
        # Relative to the largest entry of the array: an entry that should be 0 has no relative accuracy.
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_float64_fits_agree_to_nine_digits(rows, kind):
    compare(*pair(rows, 3, kind), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_fits_agree_to_what_float32_holds(rows, kind):
    X = rows.astype(np.float32)
    ours, theirs = pair(X, 3, kind, max_iter=5, tol=0.0)
    assert ours.means_.dtype == np.float32
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=0, atol=2e-4)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_agree_where_the_fits_do(rows, kind):
    ours, theirs = pair(rows, 3, kind)
    X = make_gmm(200, 3, 3, random_state=5)[0]
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-9)
    for name in ("score", "aic", "bic"):
        assert getattr(ours, name)(X) == pytest.approx(getattr(theirs, name)(X), rel=1e-9), name


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(30, 300),
    d=st.integers(1, 6),
    k=st.integers(1, 4),
    max_iter=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_agree_for_any_shape(kind, n, d, k, max_iter, seed):
    X = make_gmm(n, d, k, covariance_type=kind, random_state=seed)[0]
    # A component with almost no rows is ill-conditioned in both, so reg_covar is not tiny here.
    ours, theirs = pair(X, k, kind, max_iter=max_iter, reg_covar=1e-3)
    compare(ours, theirs, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_goes_on_as_scikit_learn_does(rows, kind):
    given = start(rows, 3, kind)
    both = [
        model(3, kind, warm_start=True, max_iter=3, **given),
        Original(3, covariance_type=kind, warm_start=True, max_iter=3, **given),
    ]
    for _ in range(4):
        for one in both:
            one.fit(rows)
        compare(*both, rtol=1e-9)


def test_a_warm_start_at_rest_takes_one_iteration(rows):
    one = model(warm_start=True, random_state=0).fit(rows)
    assert one.fit(rows).n_iter_ == 1 and one.converged_


@pytest.mark.parametrize("missing", ["weights_init", "means_init", "precisions_init"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_given_comes_from_the_initialization(rows, kind, missing):
    given = start(rows, 3, kind)
    # The means determine the order of components, so k-means' labels matter only if it computes the means.
    del given[missing]
    ours = model(3, kind, random_state=0, tol=1e-10, max_iter=1000, **given).fit(rows)
    theirs = Original(3, covariance_type=kind, random_state=0, tol=1e-10, max_iter=1000, **given).fit(rows)
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=1e-6)


def test_no_iterations_leave_the_start(rows):
    given = start(rows, 3, "full")
    one = model(max_iter=0, **given).fit(rows)
    np.testing.assert_array_equal(one.means_, given["means_init"])
    np.testing.assert_allclose(one.precisions_, given["precisions_init"], rtol=1e-10)
    assert (one.n_iter_, one.converged_, one.lower_bounds_, one.lower_bound_) == (0, False, [], -np.inf)


@pytest.mark.parametrize("init", ["kmeans", "k-means++", "random", "random_from_data"])
def test_every_way_of_starting_finds_separated_components(init):
    X, _, truth = make_gmm(600, 2, 3, separation=6.0, random_state=3, return_mixture=True)
    one = model(init_params=init, n_init=10, random_state=1, max_iter=500).fit(X)
    found = one.means_[np.argsort(one.means_[:, 0])]
    want = truth.means_[np.argsort(truth.means_[:, 0])]
    np.testing.assert_allclose(found, want, atol=0.6)


def test_the_same_seed_gives_the_same_bits(rows):
    first, second = (model(random_state=7, init_params="random").fit(rows) for _ in range(2))
    np.testing.assert_array_equal(first.means_, second.means_)
    np.testing.assert_array_equal(first.sample(5)[0], second.sample(5)[0])


def test_progress_is_printed_in_scikit_learns_words(rows, capsys):
    given = start(rows, 3, "full")
    model(verbose=1, verbose_interval=1, **given).fit(rows)
    ours = capsys.readouterr().out
    Original(3, verbose=1, verbose_interval=1, **given).fit(rows)
    assert ours == capsys.readouterr().out
    model(verbose=2, **given).fit(rows)
    assert "time lapse" in capsys.readouterr().out
