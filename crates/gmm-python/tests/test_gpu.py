"""On a GPU: rows of torch, CuPy, JAX and the driver API are fitted and evaluated in place."""

import gc
import threading
import warnings

import numpy as np
import pytest
from conftest import KINDS, start
from gpu import LIBRARIES, ONLY_THERE, assert_same, on_gpu, put

from gmm_rs import Likelihood, exceptions
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture

pytestmark = ONLY_THERE

PREDICTIONS = ("predict", "predict_proba", "score_samples", "score", "bic", "aic")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fits_and_predictions_have_the_bits_that_rows_from_the_host_give(rows, library, dtype, stays):
    X = rows.astype(dtype)
    there = put(library, X)
    for kind in KINDS:
        want = on_gpu(kind=kind).fit(X)
        one = on_gpu(kind=kind).fit(there)
        assert_same(one, want)
        for name in PREDICTIONS:
            found = getattr(one, name)(there)
            np.testing.assert_array_equal(found, getattr(want, name)(X), err_msg=f"{kind} {name}")
            assert isinstance(found, (np.ndarray, float)), name
        np.testing.assert_array_equal(on_gpu(kind=kind).fit_predict(there), want.predict(X))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("init", ["kmeans", "k-means++", "random", "random_from_data"])
def test_every_start_is_the_same_also_for_many_rows(library, init, stays):
    # More rows than the sample, and not a multiple of it.
    X, _ = make_gmm(123_457, 5, 7, separation=2.0, random_state=1)
    parameters = {"init_params": init, "max_iter": 5, "tol": 0.0, "n_init": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = on_gpu(7, **parameters).fit(X)
        assert_same(on_gpu(7, **parameters).fit(put(library, X)), want)


@pytest.mark.parametrize("library", LIBRARIES)
def test_row_weights_count_as_they_do_for_rows_from_the_host(rows, library):
    there = put(library, rows)
    for weights in (np.full(len(rows), 2.0), np.arange(len(rows)) % 4):
        want = on_gpu().fit(rows, sample_weight=weights)
        one = on_gpu().fit(there, sample_weight=weights)
        assert_same(one, want)
        assert one.score(there, sample_weight=weights) == want.score(rows, sample_weight=weights)
        if library != "driver":
            also = put(library, weights.astype(float))
            assert_same(on_gpu().fit(there, sample_weight=also), want)
            assert one.score(there, sample_weight=also) == want.score(rows, sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight"):
        on_gpu().fit(there, sample_weight=np.ones(3))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_weight_0_are_left_out_on_the_gpu(library, dtype, stays):
    X, _ = make_gmm(123_457, 5, 7, separation=2.0, random_state=1)
    X = X.astype(dtype)
    weights = np.random.default_rng(3).integers(0, 3, len(X)).astype(float)
    weights[:1000], weights[-1000:] = 0.0, 0.0
    # Too far out for a row of positive weight.
    X[500, 2] = 1e30
    there = put(library, X)
    parameters = {"max_iter": 5, "tol": 0.0, "n_init": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = on_gpu(7, **parameters).fit(X, sample_weight=weights)
        assert_same(on_gpu(7, **parameters).fit(there, sample_weight=weights), want)
    X[501, 3] = np.inf
    with pytest.raises(exceptions.DataError, match="row 501, column 3 is inf"):
        on_gpu(7).fit(put(library, X), sample_weight=weights)


@pytest.mark.parametrize("library", LIBRARIES)
def test_parameters_may_lie_on_the_gpu_too(rows, library):
    if library == "driver":
        pytest.skip("it has no way to the host")
    given = start(rows, 3, "full")
    there = {name: put(library, array) for name, array in given.items()}
    assert_same(on_gpu(**there).fit(put(library, rows)), on_gpu(**given).fit(rows))


@pytest.mark.parametrize("library", LIBRARIES)
def test_auto_takes_the_gpu_and_the_cpu_gets_a_copy(rows, library):
    there = put(library, rows)
    assert GaussianMixture(3, random_state=0).fit(there).engine_ == "cuda:0"
    here = GaussianMixture(3, random_state=0, device="cpu").fit(there)
    assert here.engine_ == "cpu"
    np.testing.assert_array_equal(here.means_, GaussianMixture(3, random_state=0, device="cpu").fit(rows).means_)
    np.testing.assert_array_equal(here.predict(there), here.predict(rows))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_precision_may_be_another_than_the_rows(rows, library, stays):
    for dtype, precision in [(np.float32, "f64"), (np.float64, "f32")]:
        X = rows.astype(dtype)
        assert_same(on_gpu(precision=precision).fit(put(library, X)), on_gpu(precision=precision).fit(X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_that_are_none_or_too_large_are_named(rows, library):
    fitted = on_gpu().fit(rows)
    X = rows.copy()
    X[7, 1], X[200, 0] = np.nan, np.inf
    there = put(library, X)
    for call in (on_gpu().fit, fitted.predict, fitted.score, Likelihood):
        with pytest.raises(exceptions.DataError, match="row 7, column 1 is NaN"):
            call(there)
    X = rows.copy()
    X[9, 2] = 1e200
    with pytest.raises(exceptions.DataError, match="column 2 reaches 1e200"):
        on_gpu().fit(put(library, X))
    # The context is still usable.
    assert_same(on_gpu().fit(put(library, rows)), fitted)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_rows_that_are_not_in_row_major_order_are_copied_on_the_gpu(rows, library, stays):
    wide = put(library, np.concatenate([rows, rows], axis=1))
    columns = put(library, np.ascontiguousarray(rows.T)).T
    want, half = on_gpu().fit(rows), on_gpu().fit(rows[::2])
    assert_same(on_gpu().fit(columns), want)
    assert_same(on_gpu().fit(wide[:, 3:]), want)
    assert_same(on_gpu().fit(put(library, rows)[::2]), half)
    np.testing.assert_array_equal(want.score_samples(columns), want.score_samples(rows))


def test_torch_work_on_other_streams_is_waited_for(rows, stays):
    torch = pytest.importorskip("torch")
    want = on_gpu().fit(rows)
    ready = torch.as_tensor(rows, device="cuda:0")
    for inside in (True, False):
        late = torch.full_like(ready, float("nan"))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # The rows are ready after about half a second of work on the stream.
            torch.cuda._sleep(1_000_000_000)
            late.copy_(ready)
            one = on_gpu().fit(late) if inside else None
        assert_same(one or on_gpu().fit(late), want)


def test_cupy_work_on_other_streams_is_waited_for(rows, stays):
    cupy = pytest.importorskip("cupy")
    want = on_gpu().fit(rows)
    # Each product is the same again.
    ready, big = cupy.asarray(rows), cupy.full((6000, 6000), 1 / 6000)
    for inside in (True, False):
        late = cupy.full_like(ready, cupy.nan)
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(20):
                big = big @ big
            late[...] = ready
            one = on_gpu().fit(late) if inside else None
        assert_same(one or on_gpu().fit(late), want)


def test_jax_work_that_is_under_way_is_waited_for(rows, stays):
    jax = pytest.importorskip("jax")
    there = put("jax", rows)

    def slowly(X):
        # Each product is the same again.
        big = jax.numpy.full((4000, 4000), 1 / 4000) + 0.0 * X[0, 0]
        for _ in range(20):
            big = big @ big
        return X + 0.0 * big[0, 0]

    assert_same(on_gpu().fit(jax.jit(slowly)(there)), on_gpu().fit(rows))


def test_memory_is_kept_as_long_as_it_is_read():
    torch = pytest.importorskip("torch")
    X, _ = make_gmm(400_000, 8, 8, separation=1.0, random_state=2)
    parameters = {"max_iter": 60, "tol": 0.0, "init_params": "random_from_data"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = on_gpu(8, **parameters).fit(X)
        one = on_gpu(8, **parameters)
        # Only the fit references these rows; memory that is freed too early is overwritten.
        work = threading.Thread(target=lambda: one.fit(torch.as_tensor(X, device="cuda:0")))
        work.start()
        while work.is_alive():
            torch.full(X.shape, float("nan"), dtype=torch.float64, device="cuda:0")
        work.join()
    assert_same(one, want)
    parameters = (want.weights_, want.means_, want.covariances_)
    value = Likelihood(X, device="cuda").value(*parameters)
    gc.collect()
    before = torch.cuda.memory_allocated()
    held = Likelihood(torch.as_tensor(X, device="cuda:0"))
    gc.collect()
    torch.full(X.shape, float("nan"), dtype=torch.float64, device="cuda:0")
    assert held.value(*parameters) == value
    del held
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_threads_fit_side_by_side(rows):
    want = [on_gpu(k).fit(rows) for k in (2, 3, 4, 5)]
    found = [on_gpu(k) for k in (2, 3, 4, 5)]
    there = put("torch", rows)
    work = [threading.Thread(target=one.fit, args=(there,)) for one in found]
    [thread.start() for thread in work]
    [thread.join() for thread in work]
    for one, other in zip(found, want):
        assert_same(one, other)


def test_types_that_are_not_read_are_named(rows):
    torch = pytest.importorskip("torch")
    there = torch.as_tensor(rows, device="cuda:0")
    for wrong, message in [
        (there.to(torch.bfloat16), "DLPack 4, 16 bits"),
        (there.to(torch.float16), "type '<f2'"),
        (there.to(torch.int32), "type '<i4'"),
        (there[:, 0], "Expected 2D array"),
        (there[:0], r"0 sample\(s\)"),
        (there.clone().requires_grad_(), "cannot be read on the GPU"),
    ]:
        with pytest.raises(exceptions.DataError, match=message):
            on_gpu().fit(wrong)


def test_a_gpu_that_is_not_there_or_not_the_rows_is_refused(rows):
    torch = pytest.importorskip("torch")
    there = torch.as_tensor(rows, device="cuda:0")
    for X in (rows, there):
        with pytest.raises(exceptions.DeviceError, match="no such device"):
            GaussianMixture(3, device="cuda:99").fit(X)
    with pytest.raises(exceptions.ParameterError, match="unknown device"):
        GaussianMixture(3, device="gpu").fit(there)
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU: rows on another cannot be tried")
    elsewhere = torch.as_tensor(rows, device="cuda:1")
    assert GaussianMixture(3, random_state=0).fit(elsewhere).engine_ == "cuda:1"
    with pytest.raises(exceptions.ParameterError, match="cuda:1: it must be on cuda:0"):
        on_gpu().fit(elsewhere)
