"""Products with a matrix stored on an engine."""

import multiprocessing
import pickle
import sys

import numpy as np
import pytest
from conftest import stopped_within_a_second

from gmm_rs import Resident, exceptions


def numbers(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 5, 3), (300, 70, 65), (1, 1, 1), (40, 300, 2)])
def test_products_are_those_of_numpy_in_float64(shape, dtype):
    m, k, n = shape
    A, B = numbers(m, k, dtype=dtype), numbers(k, n, seed=1, dtype=dtype)
    resident = Resident(A)
    want = A.astype(np.float64) @ B.astype(np.float64)
    size = np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64)
    limit = 0.5 * np.finfo(dtype).eps * np.abs(want) + 2 * k * np.finfo(np.float64).eps * size
    for found in (resident @ B, resident.inner(B.T).T, resident.inner(np.asfortranarray(B.T)).T):
        assert found.dtype == dtype and (np.abs(found - want) <= limit).all()


def test_one_question_has_an_answer_without_an_axis():
    A, x = numbers(6, 6), numbers(6, seed=1)
    covariance = A @ A.T + np.eye(6)
    resident = Resident(covariance)
    assert resident.inner(x).shape == (6,)
    assert resident.quadratic_form(x) == pytest.approx(x @ covariance @ x)
    mean = numbers(6, seed=2)
    want = (x - mean) @ np.linalg.solve(covariance, x - mean)
    assert resident.mahalanobis(x, mean) == pytest.approx(want)
    assert resident.mahalanobis([x, mean], mean) == pytest.approx([want, 0.0])
    indices, values = resident.top_k(x, 2)
    assert indices.shape == values.shape == (2,)


def test_forms_of_a_matrix_that_is_not_symmetric():
    A, X = numbers(80, 80), numbers(500, 80, seed=1)
    np.testing.assert_allclose(Resident(A).quadratic_form(X), np.einsum("ij,jk,ik->i", X, A, X), rtol=1e-10, atol=1e-10)


def test_the_best_rows_are_those_of_a_stable_sort_with_nan_last():
    A = np.round(numbers(900, 4))
    A[5] = np.nan
    X = np.round(numbers(20, 4, seed=1))
    indices, values = Resident(A).top_k(X, 900)
    # NumPy sorts NaN to the end.
    want = np.argsort(-(X @ A.T), axis=1, kind="stable")
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(values, np.take_along_axis(X @ A.T, want, 1))
    few, _ = Resident(A).top_k(X, 7)
    np.testing.assert_array_equal(few, want[:, :7])


def test_precision_and_the_fast_way():
    A = np.abs(numbers(70, 5000, dtype=np.float32))
    exact = A.astype(np.float64) @ A.T.astype(np.float64)
    assert Resident(A, precision="f64").inner(A).dtype == np.float64
    assert Resident(A.astype(np.float64), precision="f32").inner(A).dtype == np.float32
    wrong = np.abs(Resident(A, fast=True).inner(A) / exact - 1).max()
    right = np.abs(Resident(A).inner(A) / exact - 1).max()
    assert right <= 2.0**-24 < wrong < 2.0**-16


def test_sides_of_zero_and_numbers_that_are_none():
    assert (Resident(np.empty((3, 0))) @ np.empty((0, 2)) == np.zeros((3, 2))).all()
    assert Resident(np.ones((3, 2))).inner(np.empty((0, 2))).shape == (0, 3)
    found = Resident([[1.0, np.nan], [1.0, 2.0]]).inner([[1.0, 1.0]])
    np.testing.assert_array_equal(found, [[np.nan, 3.0]])
    assert np.isnan(Resident(np.eye(2)).quadratic_form([np.inf, 0.0]))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r @ np.ones((3, 2)), r"right factor has shape \[3, 2\], expected \[2, 2\]"),
        (lambda r: r.inner(np.ones((3, 5))), r"questions has shape \[3, 5\], expected \[3, 2\]"),
        (lambda r: r.quadratic_form(np.ones(2)), r"\[4, 2\], expected \[2, 2\]"),
        (lambda r: r.mahalanobis(np.ones(2)), r"\[4, 2\], expected \[2, 2\]"),
        (lambda r: r.top_k(np.ones(2), 5), "count is 5: it must be at most 4"),
        (lambda r: r.top_k(np.ones(2), -1), "count is -1"),
        (lambda r: r.top_k(np.ones(2), 1.5), "count is 1.5"),
        (lambda r: Resident(r._matrix, precision="f16"), "f16"),
        (lambda r: Resident(r._matrix, device="tpu"), "tpu"),
    ],
)
def test_what_does_not_fit_is_told(ask, words):
    with pytest.raises(exceptions.ParameterError, match=words):
        ask(Resident(np.ones((4, 2))))


def test_matrices_without_a_factor_are_told():
    with pytest.raises(exceptions.NumericalError, match="pivot 0 of column 1"):
        Resident(np.ones((2, 2))).mahalanobis([1.0, 1.0])
    with pytest.raises(exceptions.ParameterError, match=r"entries \(1, 0\) and \(0, 1\) differ"):
        Resident([[1.0, 0.5], [0.0, 1.0]]).mahalanobis([1.0, 1.0])
    with pytest.raises(exceptions.ParameterError, match="mean has shape"):
        Resident(np.eye(2)).mahalanobis([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="[Cc]omplex"):
        Resident(np.ones((2, 2), complex))


def test_it_pickles_and_tells_what_it_is():
    A = numbers(30, 4, dtype=np.float32)
    resident = Resident(A, fast=True, n_jobs=1)
    twin = pickle.loads(pickle.dumps(resident))
    np.testing.assert_array_equal(twin.inner(A), resident.inner(A))
    assert repr(twin) == "Resident(<30 × 4 matrix of float32>)" and twin.shape == (30, 4) and twin.fast


def product_of(resident, x, queue):
    queue.put(resident.inner(x))


@pytest.mark.skipif(sys.platform != "linux", reason="fork is Linux's way")
def test_a_forked_process_multiplies_for_itself():
    A = numbers(400, 300)
    resident = Resident(A)
    want = resident.inner(A)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=product_of, args=(resident, A, queue))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    np.testing.assert_array_equal(found, want)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_stops_a_long_product_within_a_second():
    program = """
        import time
        import numpy as np
        from gmm_rs import Resident

        # Created first, and with the dtype of the matrix: Ctrl-C cannot interrupt NumPy's fill and conversion.
        resident, questions = Resident(np.ones((40_000, 1_000))), np.ones((200_000, 1_000))
        print("begun", flush=True)
        try:
            resident.top_k(questions, 3)
        except KeyboardInterrupt:
            print("stopped", time.time(), flush=True)
        print(resident.top_k(np.ones(1_000), 1)[0], flush=True)
    """
    assert stopped_within_a_second(program, after=1.5) == "[0]\n"
