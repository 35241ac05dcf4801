"""On a GPU: rows of torch, CuPy, JAX and the driver itself are fitted and evaluated where they lie."""

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
from conftest import KINDS, has_gpu, start, stopped_within_a_second

from gmm_rs import Likelihood, Resident, _gpu, exceptions, mcmc
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture

# JAX would take most of the GPU's memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no GPU here")]

LIBRARIES = ["torch", "cupy", "jax", "driver"]
ATTRIBUTES = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")
PREDICTIONS = ("predict", "predict_proba", "score_samples", "score", "bic", "aic")


class Placed:
    """A copy of an array in the first GPU's memory, by the driver alone, that says so by ``__cuda_array_interface__``."""

    def __init__(self, array):
        array = np.ascontiguousarray(array)
        driver = ctypes.CDLL("libcuda.so.1")
        self._driver, self._address, context = driver, ctypes.c_uint64(), ctypes.c_void_p()
        assert driver.cuInit(0) == 0
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert driver.cuCtxSetCurrent(context) == 0
        bytes_, host = ctypes.c_size_t(array.nbytes), ctypes.c_void_p(array.ctypes.data)
        assert driver.cuMemAlloc_v2(ctypes.byref(self._address), bytes_) == 0
        assert driver.cuMemcpyHtoD_v2(self._address, host, bytes_) == 0
        said = {"shape": array.shape, "typestr": array.dtype.str, "data": (self._address.value, False), "version": 3}
        self.__cuda_array_interface__ = {**said, "strides": None, "stream": None}

    def __del__(self):
        self._driver.cuMemFree_v2(self._address)


def put(library, X):
    """A copy of `X` on the first GPU, by one of the libraries."""
    if library == "driver":
        return Placed(X)
    module = pytest.importorskip(library)
    if library == "torch":
        return module.as_tensor(X, device="cuda:0")
    if library == "cupy":
        return module.asarray(X)
    module.config.update("jax_enable_x64", True)
    return module.device_put(X, module.devices("gpu")[0])


@pytest.fixture
def stays(monkeypatch):
    """Nothing brings rows to the host."""

    def refuse(*_):
        raise AssertionError("rows came to the host")

    monkeypatch.setattr(_gpu.OnGpu, "on_host", refuse)


def on_gpu(k=3, kind="full", **parameters):
    return GaussianMixture(k, covariance_type=kind, device="cuda", **{"random_state": 0, **parameters})


def assert_same(one, want):
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(one, name), getattr(want, name), err_msg=name)
    assert (one.n_iter_, one.converged_, one.lower_bounds_) == (want.n_iter_, want.converged_, want.lower_bounds_)
    assert one.engine_ == want.engine_ == "cuda:0"


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
    # More rows than a sample has, in a number that leaves a rest.
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
    # The context is as good as before.
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
            # About half a second, at the end of which the rows come.
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
        # Nobody but the fit knows these rows; what is freed too early is overwritten.
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


def program(text, *arguments, **environment):
    """Runs Python of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


DISPATCHED = """
    import sys
    import numpy as np
    from sklearn import config_context
    from sklearn.mixture import GaussianMixture as Original
    from gmm_rs.datasets import make_gmm
    from gmm_rs.mixture import GaussianMixture

    library = sys.argv[1]
    if library == "torch":
        import torch

        put = lambda array: torch.as_tensor(array, device="cuda:0")
        back = lambda array: array.cpu().numpy()
    else:
        import cupy

        put, back = cupy.asarray, cupy.asnumpy
    rows, _ = make_gmm(2000, 3, 3, separation=2.0, random_state=0)
    means = rows[[0, 700, 1500]]
    for kind in ("full", "tied", "diag", "spherical"):
        full = {"full": np.array([np.eye(3)] * 3), "tied": np.eye(3), "diag": np.ones((3, 3)), "spherical": np.ones(3)}
        given = {"weights_init": np.full(3, 1 / 3), "means_init": means, "precisions_init": full[kind]}
        options = {"covariance_type": kind, "max_iter": 20, "tol": 0.0}
        for dtype in ("float64", "float32"):
            X = put(rows.astype(dtype))
            with config_context(array_api_dispatch=True):
                start = {name: put(array.astype(dtype)) for name, array in given.items()}
                # All is given; but its k-means does not know the array API, and it asks before it looks.
                theirs = Original(3, init_params="random", **options, **start).fit(X)
                ours = GaussianMixture(3, **options, **start, device="cuda").fit(X)
                assert ours.engine_ == "cuda:0"
                tolerance = 1e-6 if dtype == "float64" else 2e-2
                compared = [(name, getattr(ours, name), getattr(theirs, name)) for name in (
                    "weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")]
                for method in ("predict_proba", "score_samples", "predict"):
                    compared.append((method, getattr(ours, method)(X), getattr(theirs, method)(X)))
                compared.append(("fit_predict", ours.fit_predict(X), theirs.fit_predict(X)))
                compared += [("sample", a, b) for a, b in zip(ours.sample(7), theirs.sample(7))]
                for name, a, b in compared:
                    case = (library, kind, dtype, name)
                    assert type(a) is type(b), (case, type(a), type(b))
                    assert str(a.device) == str(b.device) and a.shape == b.shape, (case, a.device, b.device)
                    assert a.dtype == b.dtype, (case, a.dtype, b.dtype)
                    a, b = back(a), back(b)
                    if name in ("predict", "fit_predict"):
                        # Of rows between two components either may be right.
                        assert np.mean(a != b) <= tolerance, case
                    elif name != "sample":
                        assert np.abs(a - b).max() <= tolerance * max(1.0, np.abs(b).max()), case
                assert abs(ours.score(X) - float(theirs.score(X))) <= tolerance, (kind, dtype)
                # An estimator whose attributes lie on the GPU predicts for rows of the host too.
                assert isinstance(ours.predict(rows.astype(dtype)), np.ndarray)
                ours.set_params(warm_start=True, max_iter=1).fit(X)
            found = GaussianMixture(3, **options, device="cuda").fit(X)
            assert isinstance(found.means_, np.ndarray) and isinstance(found.predict(X), np.ndarray)
    print("all is well")
"""


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_with_dispatch_results_are_what_scikit_learns_are(library):
    pytest.importorskip(library)
    done = program(DISPATCHED, library, SCIPY_ARRAY_API="1")
    assert done.stdout == "all is well\n", done.stderr


FORKED = """
    import os, sys
    import numpy as np
    from gmm_rs import Likelihood, exceptions
    from gmm_rs.datasets import make_gmm
    from gmm_rs.mixture import GaussianMixture

    X, _ = make_gmm(1000, 2, 2, random_state=0)
    want = GaussianMixture(2, random_state=0, device="cuda").fit(X)
    given = (want.weights_, want.means_, want.covariances_)
    likelihood = Likelihood(X, device="cuda")
    value = likelihood.value(*given)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: want.predict(X), lambda: want.fit(X), lambda: likelihood.value(*given)):
                try:
                    call()
                except exceptions.DeviceError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("CUDA ran in a forked process")
            assert GaussianMixture(2, random_state=0).fit(X).engine_ == "cpu"
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert likelihood.value(*given) == value
    assert np.array_equal(GaussianMixture(2, random_state=0, device="cuda").fit(X).means_, want.means_)
    print("all is well")
"""


def test_a_forked_process_is_told_and_its_parent_goes_on():
    done = program(FORKED)
    assert done.stdout == "all is well\n", done.stderr


INTERRUPTED = """
import sys, time, warnings
import numpy as np
from gmm_rs.mixture import GaussianMixture

warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=({n}, {d}))
if {there}:
    import torch

    X = torch.as_tensor(X, device="cuda:0")
GaussianMixture({k}, device="cuda", max_iter=2, init_params="random_from_data").fit(X)
print("begun", flush=True)
try:
    GaussianMixture(
        {k}, device="cuda", tol=0.0, max_iter=10**9, init_params={init!r}, n_init={n_init}, random_state=0
    ).fit(X)
except KeyboardInterrupt:
    print("stopped", time.time(), flush=True)
else:
    sys.exit("the fit ended")
print(GaussianMixture(2, device="cuda", random_state=0).fit(X[:100, :2]).engine_, flush=True)
"""


@pytest.mark.parametrize("there", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "size",
    [
        {"n": 1000, "d": 2, "k": 2, "init": "random_from_data", "n_init": 1},
        {"n": 2_000_000, "d": 16, "k": 64, "init": "random_from_data", "n_init": 1},
        {"n": 1_000_000, "d": 20, "k": 500, "init": "kmeans", "n_init": 1000},
    ],
    ids=["in-short-iterations", "in-long-iterations", "in-initializations"],
)
def test_ctrl_c_stops_a_fit_on_the_gpu_within_a_second(size, there):
    if there:
        pytest.importorskip("torch")
    assert stopped_within_a_second(INTERRUPTED.format(**size, there=there), after=1.5) == "cuda:0\n"


SCRIPT = """
    import numpy as np
    from sklearn.mixture import GaussianMixture

    X = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (500, 2)) for c in (0.0, 9.0)])
    model = GaussianMixture(2, random_state=0).fit(X)
    print(sorted(round(float(m), 1) for m in model.means_[:, 0]), model.predict(X[:1]).shape)
"""


def test_an_unchanged_script_runs_on_the_gpu(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-m", "gmm_rs.accel", str(path)],
        env={**os.environ, "GMM_ACCEL_LOG": "info"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "(1,)" in done.stdout, done.stderr
    assert "fit of 1000 × 2 rows ran on cuda:0" in done.stderr

