"""Arrays that lie on a GPU: what is refused needs none, the rest runs where there is one."""

import ctypes

import numpy as np
import pytest
from conftest import model

from gmm_rs import Likelihood, _core, exceptions
from gmm_rs.mixture import GaussianMixture


class Said:
    """An array that says it lies on a GPU."""

    def __init__(self, **said):
        self.__cuda_array_interface__ = {"shape": (4, 2), "typestr": "<f8", "data": (4096, False), "version": 3, **said}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"shape": (8,)}, r"Expected 2D array, got an array of shape \(8,\) on a GPU. Reshape your data"),
        ({"shape": (2, 2, 2)}, "Expected 2D array"),
        ({"shape": (0, 2)}, r"0 sample\(s\) \(shape=\(0, 2\)\)"),
        ({"shape": (4, 0)}, r"0 feature\(s\) \(shape=\(4, 0\)\)"),
        ({"typestr": "<i4"}, "type '<i4' on a GPU"),
        ({"typestr": ">f8"}, "type '>f8' on a GPU"),
        ({"typestr": "<c16"}, "type '<c16' on a GPU"),
        ({"strides": (8, 32)}, "not in row-major order on the GPU"),
        ({"strides": (32, 8)}, "not in row-major order on the GPU"),
        ({"mask": object()}, "has a mask"),
        ({"stream": 0}, "stream 0"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_gpu_is_asked(rows, said, message):
    fitted = model(random_state=0).fit(rows[:, :2])
    for call in (GaussianMixture(2).fit, fitted.predict, fitted.score, Likelihood):
        with pytest.raises(exceptions.DataError, match=message):
            call(Said(**said))


def has_gpu():
    name, _, _ = _core.engine({"device": "auto", "threads": 1, "precision": None})
    return name.startswith("cuda")


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_is_said_what_lacks(rows):
    fitted = GaussianMixture(2, random_state=0).fit(rows[:, :2])
    with pytest.raises(exceptions.DeviceError, match="the rows lie on a GPU, and the engine is 'cpu'"):
        fitted.predict(Said())
    with pytest.raises(exceptions.DeviceError, match="cuda"):
        GaussianMixture(2).fit(Said())
    with pytest.raises(ValueError, match="3 features.* expecting 2"):
        fitted.predict(Said(shape=(4, 3)))


class Placed:
    """A copy of an array in the first GPU's memory, by the driver alone."""

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


@pytest.mark.skipif(not has_gpu(), reason="no GPU here")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_on_a_gpu_give_what_rows_on_the_host_give(rows, dtype):
    X = rows.astype(dtype)
    there = Placed(X)
    want = GaussianMixture(3, random_state=0, device="cuda").fit(X)
    one = GaussianMixture(3, random_state=0, device="cuda").fit(there)
    np.testing.assert_array_equal(one.means_, want.means_)
    for name in ("predict", "predict_proba", "score_samples", "score", "bic", "aic"):
        np.testing.assert_array_equal(getattr(one, name)(there), getattr(want, name)(X), err_msg=name)
    weights = np.arange(len(X), dtype=float)
    assert one.score(there, sample_weight=weights) == want.score(X, sample_weight=weights)
    on_cpu = GaussianMixture.from_sklearn(want.to_sklearn(), device="cpu")
    np.testing.assert_array_equal(on_cpu.predict(there), on_cpu.predict(X))
    parameters = (want.weights_, want.means_, want.covariances_)
    assert Likelihood(there, device="cuda").value(*parameters) == Likelihood(X, device="cuda").value(*parameters)
    X[7, 1] = np.nan
    with pytest.raises(exceptions.DataError, match="row 7, column 1 is NaN"):
        one.predict(Placed(X))


@pytest.mark.skipif(not has_gpu(), reason="no GPU here")
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_of_libraries_are_read_on_the_gpu(rows, library):
    xp = pytest.importorskip(library)
    there = xp.asarray(rows, device="cuda") if library == "torch" else xp.asarray(rows)
    want = GaussianMixture(3, random_state=0, device="cuda").fit(rows)
    np.testing.assert_array_equal(want.score_samples(there), want.score_samples(rows))
