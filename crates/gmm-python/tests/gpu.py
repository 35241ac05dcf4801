"""Helpers for GPU tests: arrays of several libraries in GPU memory, and separate programs."""

import ctypes
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import has_gpu

from gmm_rs.mixture import GaussianMixture

# By default JAX allocates most of the GPU's memory at start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

ONLY_THERE = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no GPU here")]

LIBRARIES = ["torch", "cupy", "jax", "driver"]
ATTRIBUTES = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")


class Placed:
    """A copy of an array in the first GPU's memory, made with the driver API, with ``__cuda_array_interface__``."""

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
    """A copy of `X` on the first GPU, made by one of the libraries."""
    if library == "driver":
        return Placed(X)
    module = pytest.importorskip(library)
    if library == "torch":
        return module.as_tensor(X, device="cuda:0")
    if library == "cupy":
        return module.asarray(X)
    module.config.update("jax_enable_x64", True)
    return module.device_put(X, module.devices("gpu")[0])


def on_gpu(k=3, kind="full", **parameters):
    return GaussianMixture(k, covariance_type=kind, device="cuda", **{"random_state": 0, **parameters})


def assert_same(one, want):
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(one, name), getattr(want, name), err_msg=name)
    assert (one.n_iter_, one.converged_, one.lower_bounds_) == (want.n_iter_, want.converged_, want.lower_bounds_)
    assert one.engine_ == want.engine_ == "cuda:0"


def program(text, *arguments, **environment):
    """Run a program in a separate Python process."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
