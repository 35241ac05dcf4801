"""`partial_fit`: online EM."""

import pickle

import numpy as np
import pytest
from conftest import KINDS, model
from sklearn.base import clone

from gmm_rs.datasets import make_gmm
from gmm_rs.exceptions import DataError, ParameterError
from gmm_rs.mixture import GaussianMixture


@pytest.fixture(scope="module")
def many():
    """Rows of a mixture of three components, in random order."""
    return make_gmm(20_000, n_features=2, n_components=3, separation=3.0, random_state=3)[0]


def batches(X, n=20):
    return np.array_split(X, n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_batch_is_one_iteration_to_the_bit(many, kind, dtype):
    X = many[:2000].astype(dtype)
    one = model(kind=kind, random_state=0, max_iter=1, tol=0).fit(X)
    online = model(kind=kind, random_state=0).partial_fit(X)
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_array_equal(getattr(online, name), getattr(one, name))
    assert (online.n_iter_, online.lower_bounds_) == (1, one.lower_bounds_)
    assert online.means_.dtype == dtype


def test_some_epochs_reach_the_likelihood_of_fit(many):
    batch = model(random_state=0, tol=1e-8, max_iter=500).fit(many)
    online = model(random_state=0)
    for _ in range(4):
        for X in batches(many):
            online.partial_fit(X)
    assert -1e-6 < batch.score(many) - online.score(many) < 1e-3
    assert (online.n_iter_, len(online.lower_bounds_), online.converged_) == (80, 80, False)


def test_a_pickle_goes_on_to_the_same_bits(many):
    whole = model(random_state=0)
    for X in batches(many)[:3]:
        whole.partial_fit(X)
    part = pickle.loads(pickle.dumps(whole))
    for X in batches(many)[3:6]:
        whole.partial_fit(X)
        part.partial_fit(X)
    np.testing.assert_array_equal(whole.covariances_, part.covariances_)
    assert whole.lower_bounds_ == part.lower_bounds_


def test_it_goes_on_from_a_fit_and_a_fit_begins_anew(many):
    fitted = model(random_state=0, tol=1e-8, max_iter=500).fit(many)
    means = fitted.means_
    fitted.partial_fit(many)
    np.testing.assert_allclose(fitted.means_, means, atol=1e-2)
    assert fitted.n_iter_ == 1
    again = fitted.fit(many).means_
    np.testing.assert_array_equal(again, means)


def test_weights_count_as_repeated_rows(many):
    X = many[:900]
    repeats = np.arange(900) % 3
    start = model(random_state=0, max_iter=0).fit(X)
    given = {
        "weights_init": start.weights_,
        "means_init": start.means_,
        "precisions_init": start.precisions_,
    }
    weighted, repeated = model(**given), model(**given)
    for _ in range(3):
        weighted.partial_fit(X, sample_weight=repeats)
        repeated.partial_fit(np.repeat(X, repeats, axis=0))
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-9)


def test_later_batches_may_be_small_and_are_checked(many):
    online = model(random_state=0).partial_fit(many[:500])
    before = online.means_
    online.partial_fit(many[500:501])
    assert not np.array_equal(online.means_, before)
    with pytest.raises(ValueError, match="3 features, but GaussianMixture is expecting 2"):
        online.partial_fit(np.zeros((5, 3)))
    after = pickle.dumps(online)
    with pytest.raises(DataError, match="row 1"):
        online.partial_fit([[0.0, 1.0], [np.nan, 1.0]])
    assert pickle.dumps(online) == after
    with pytest.raises(ParameterError, match="n_components = 3, n_samples = 2"):
        model().partial_fit(many[:2])


def test_partly_given_parameters_are_the_start(many):
    X = many[:1000]
    means = X[:3]
    one = GaussianMixture(3, means_init=means, max_iter=1, tol=0, random_state=1, device="cpu").fit(X)
    online = GaussianMixture(3, means_init=means, random_state=1, device="cpu").partial_fit(X)
    np.testing.assert_array_equal(online.means_, one.means_)
