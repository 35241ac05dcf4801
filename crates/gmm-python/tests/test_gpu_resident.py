"""On a GPU: rows and matrices stored there, for likelihoods, posterior draws and products."""

import gc
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
        # Away from the maximum, where gradients are not differences of nearly equal numbers.
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


QUESTIONS = {
    "inner": lambda one, x, b: one.inner(x),
    "matmul": lambda one, x, b: one @ b,
    "quadratic_form": lambda one, x, b: one.quadratic_form(x),
    "mahalanobis": lambda one, x, b: one.mahalanobis(x),
    "indices": lambda one, x, b: one.top_k(x, 3)[0],
    "values": lambda one, x, b: one.top_k(x, 3)[1],
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", [None, "f32", "f64"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_resident_matrix_and_questions_stay_on_the_gpu(library, precision, dtype, stays):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 150))
    # Exactly symmetric.
    A = np.tril(A.T @ A)
    A, x = (array.astype(dtype) for array in (A + np.tril(A, -1).T, rng.normal(size=(129, 150))))
    b = np.ascontiguousarray(x.T)
    want = Resident(A, device="cuda", precision=precision)
    one = Resident(put(library, A), precision=precision)
    assert (one.shape, one.dtype) == (want.shape, want.dtype)
    there = [put(library, array) for array in (x, b)]
    for name, ask in QUESTIONS.items():
        right = ask(want, x, b)
        for matrix, questions in [(one, there), (one, (x, b)), (want, there)]:
            found = ask(matrix, *questions)
            assert isinstance(found, np.ndarray) and found.dtype == right.dtype, name
            np.testing.assert_array_equal(found, right, err_msg=name)
    if library != "driver":
        np.testing.assert_array_equal(one.inner(there[0][0]), want.inner(x[0]))
        mean = put(library, x[0].astype(np.float64))
        np.testing.assert_array_equal(one.mahalanobis(there[0], mean), want.mahalanobis(x, x[0]))


@pytest.mark.parametrize("library", LIBRARIES)
def test_large_products_of_float32_are_the_same_from_the_gpu(library, stays):
    # Enough multiplications for split fp16; the first row needs more precision than that.
    rng = np.random.default_rng(1)
    A, x = rng.normal(size=(2500, 1000)).astype(np.float32), rng.normal(size=(1100, 1000)).astype(np.float32)
    for strange in (1.0, 1e12):
        A[0, 0] = strange
        found = Resident(put(library, A)).inner(put(library, x))
        np.testing.assert_array_equal(found, Resident(A, device="cuda").inner(x))


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_that_are_none_go_through_products_as_from_the_host(library):
    A, x = np.eye(3) * 1e10, np.ones((5, 3))
    x[1, 2], x[2, 0], x[3, 1] = np.nan, -np.inf, 1e200
    one, there = Resident(put(library, A)), put(library, x)
    want = Resident(A, device="cuda")
    for name, ask in QUESTIONS.items():
        b = np.ascontiguousarray(x.T)
        np.testing.assert_array_equal(ask(one, there, put(library, b)), ask(want, x, b), err_msg=name)
    assert np.isnan(one.quadratic_form(there)).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_resident_matrix_on_the_cpu_takes_arrays_of_a_gpu(rows, library):
    there = put(library, rows)
    want = Resident(rows, device="cpu").inner(rows)
    np.testing.assert_array_equal(Resident(there, device="cpu").inner(there), want)
    np.testing.assert_allclose(Resident(there, device="cuda").inner(rows), want, rtol=1e-12)


def test_a_resident_matrix_on_the_gpu_is_pickled_with_an_array_of_the_host(rows):
    one = Resident(put("torch", rows))
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.inner(rows), one.inner(rows))
    assert isinstance(again._matrix, np.ndarray)


def test_a_resident_matrix_on_the_gpu_is_kept_as_long_as_it_is_asked(rows):
    torch = pytest.importorskip("torch")
    want = Resident(rows, device="cuda").inner(rows)
    one = Resident(torch.as_tensor(rows, device="cuda:0"))
    gc.collect()
    torch.full(rows.shape, float("nan"), dtype=torch.float64, device="cuda:0")
    np.testing.assert_array_equal(one.inner(torch.as_tensor(rows, device="cuda:0")), want)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_of_the_posterior_run_on_the_gpu(rows, library, dtype, stays):
    X = rows.astype(dtype)
    there = put(library, X)
    parameters = {"chains": 2, "draws": 60, "warmup": 60, "random_state": 0}
    half_normal = {"covariances": {"prior": "half-normal"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for more in (
            {},
            {"sample_weight": (np.arange(len(X)) % 4).astype(float)},
            {"covariance_type": "diag", "prior": half_normal, "start": "each"},
        ):
            one = mcmc(there, 2, **parameters, **more)
            want = mcmc(X, 2, **parameters, **more, device="cuda")
            assert one.means.shape == (2, 60, 2, 3) and np.isfinite(one.sample_stats["lp"]).all()
            np.testing.assert_array_equal(one.means, want.means)
        # Chains can be continued with rows on the host or on the GPU.
        longer = mcmc(there, 2, **{**parameters, "draws": 80}, **more, checkpoint=want.checkpoint)
        np.testing.assert_array_equal(longer.means[:, :60], want.means)


def test_draws_refuse_rows_on_the_gpu_as_those_from_the_host(rows):
    X = rows.copy()
    X[7, 1] = np.nan
    with pytest.raises(exceptions.DataError, match="row 7, column 1 is NaN"):
        mcmc(put("torch", X), 2, chains=1, draws=1, warmup=20)
