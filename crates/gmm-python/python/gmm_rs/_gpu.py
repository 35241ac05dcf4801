"""Arrays in the memory of an NVIDIA GPU, by ``__cuda_array_interface__``: torch's, CuPy's, JAX's, Numba's."""

import numpy as np

from gmm_rs import _core
from gmm_rs.exceptions import DataError

_PRECISIONS = {"<f4": "f32", "<f8": "f64"}


class OnGpu:
    """Rows on a GPU, checked: `core` is what the engines read, the rest what is asked of an array.

    Parameters
    ----------
    X : object
        With ``__cuda_array_interface__``.
    """

    def __init__(self, X):
        said = X.__cuda_array_interface__
        shape, kind = tuple(said["shape"]), said["typestr"]
        if len(shape) != 2:
            hint = " Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row." * (len(shape) == 1)
            raise DataError(f"Expected 2D array, got an array of shape {shape} on a GPU.{hint}")
        n, d = shape
        if n == 0 or d == 0:
            what = f"{n} sample(s)" if n == 0 else f"{d} feature(s)"
            raise DataError(f"Found array with {what} (shape={shape}) while a minimum of 1 is required.")
        if kind not in _PRECISIONS:
            raise DataError(f"X is of type {kind!r} on a GPU: float32 and float64 are read there, convert it first")
        if said.get("mask") is not None:
            raise DataError("X has a mask, which is not read: drop or fill such rows first")
        self.shape, self.dtype = shape, np.dtype(kind)
        strides = said.get("strides") or (d * self.dtype.itemsize, self.dtype.itemsize)
        # Where there is one row or column only, nobody steps to the next.
        steps = [found == wanted for found, wanted in zip(strides, (d * self.dtype.itemsize, self.dtype.itemsize))]
        if not ((n == 1 or steps[0]) and (d == 1 or steps[1])):
            raise DataError(f"X is not in row-major order on the GPU (strides {strides}): make it contiguous first")
        stream = said.get("stream")
        if stream == 0:
            raise DataError("X names stream 0 in its __cuda_array_interface__, which is not allowed there")
        self.core = _core.DeviceArray(X, said["data"][0], shape, _PRECISIONS[kind], stream)

    def __len__(self):
        return self.shape[0]

    def on_host(self, place):
        """A copy of the rows as a NumPy array."""
        # The way from the GPU is the GPU's, whoever computes then.
        device = place["device"] if place["device"].startswith("cuda") else "cuda"
        return self.core.fetch({**place, "device": device})


def is_on_gpu(X):
    """Whether `X` says that it lies on a GPU."""
    return hasattr(X, "__cuda_array_interface__")
