"""On a GPU: rows and matrices that stay there, for likelihoods, draws of the posterior and products."""

import pickle
import warnings

import numpy as np
import pytest
from gpu import LIBRARIES, ONLY_THERE, on_gpu, put

from gmm_rs import Likelihood, Resident, exceptions, mcmc

pytestmark = ONLY_THERE


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_likelihood_stays_on_the_gpu(rows, library, stays):
    there = put(library, rows)
    fitted = on_gpu().fit(rows)
    given = (fitted.weights_, fitted.means_, fitted.covariances_)
    weights = 1.0 + np.arange(len(rows)) % 3
    for sample_weight in (None, weights):
        one = Likelihood(there, sample_weight=sample_weight)
        want = Likelihood(rows, sample_weight=sample_weight, device="cuda")
        reference = Likelihood(rows, sample_weight=sample_weight, device="reference")
        assert one.value(*given) == want.value(*given)
        assert one.value(*given) == pytest.approx(reference.value(*given), rel=1e-11)
        # Away from the top, where gradients are no differences of what is alike.
        moved = (given[0], given[1] + 0.5, given[2])
        (value, found), (same, wanted) = one.value_and_gradient(*moved), want.value_and_gradient(*moved)
        exact, right = reference.value_and_gradient(*moved)
        assert value == same == pytest.approx(exact, rel=1e-11)
        for a, b, c in zip(found, wanted, right):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=0.0, atol=1e-9 * np.abs(c).max())
        np.testing.assert_array_equal(one.log_densities(*given), want.log_densities(*given))
        sets = [np.stack([array] * 3) for array in given]
        np.testing.assert_array_equal(one.batch(*sets), want.batch(*sets))
        assert one.components(*given).value == want.components(*given).value
        point = one.unconstrained(3).point(*given)
        assert one.unconstrained(3).value(point) == want.unconstrained(3).value(point)


def test_a_likelihood_of_rows_on_the_gpu_is_pickled_with_rows_of_the_host(rows):
    fitted = on_gpu().fit(rows)
    given = (fitted.weights_, fitted.means_, fitted.covariances_)
    one = Likelihood(put("torch", rows), device="cuda")
    again = pickle.loads(pickle.dumps(one))
    assert again.value(*given) == one.value(*given) and isinstance(again._rows, np.ndarray)


def test_a_resident_matrix_takes_arrays_of_a_gpu(rows):
    there = put("torch", rows)
    want = Resident(rows, device="cpu").inner(rows[:5])
    np.testing.assert_array_equal(Resident(there, device="cpu").inner(there[:5]), want)
    try:
        found = Resident(there, device="cuda").inner(rows[:5])
    except exceptions.DeviceError as error:
        assert "cuda:0" in str(error)
    else:
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_draws_of_the_posterior_run_on_the_gpu(rows):
    parameters = {"chains": 2, "draws": 60, "warmup": 60, "random_state": 0, "device": "cuda"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = mcmc(put("torch", rows), 2, **parameters)
        want = mcmc(rows, 2, **parameters)
    assert one.means.shape == (2, 60, 2, 3) and np.isfinite(one.sample_stats["lp"]).all()
    np.testing.assert_array_equal(one.means, want.means)
