"""Arrays in NVIDIA GPU memory: torch, CuPy and JAX through DLPack, Numba through ``__cuda_array_interface__``."""

import sys

import numpy as np

from gmm_rs import _core
from gmm_rs.exceptions import DataError

_PRECISIONS = {"<f4": "f32", "<f8": "f64"}

# DLPack device types: kDLCUDA and kDLCUDAManaged.
_CUDA, _CUDA_MANAGED = 2, 13

# DLPack type codes and NumPy's kinds.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}

# DLPack's number of the legacy default stream: the library makes this stream wait for pending writes to the array.
_DEFAULT_STREAM = 1


class OnGpu:
    """Validated rows on a GPU: `core` is the object that the engines read; the other members are those of an array.

    Parameters
    ----------
    X : object
        Array with ``__dlpack__`` or ``__cuda_array_interface__``. It is referenced and must not be modified while it is
        read.
    """

    def __init__(self, X):
        said = _said(X)
        shape, kind = said["shape"], said["typestr"]
        if len(shape) != 2:
            hint = " Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row." * (len(shape) == 1)
            raise DataError(f"Expected 2D array, got an array of shape {shape} on a GPU.{hint}")
        n, d = shape
        if n == 0 or d == 0:
            what = f"{n} sample(s)" if n == 0 else f"{d} feature(s)"
            raise DataError(f"Found array with {what} (shape={shape}) while a minimum of 1 is required.")
        if kind not in _PRECISIONS:
            raise DataError(f"X has dtype {kind!r} on a GPU: convert it to float32 or float64 first")
        if said.get("mask") is not None:
            raise DataError("X has a mask, which is not supported: drop or fill masked rows first")
        stream = said.get("stream")
        if stream == 0:
            raise DataError("X has stream 0 in its __cuda_array_interface__, which the protocol does not allow")
        if not _is_row_major(said):
            said = _said(_row_major(X, said))
        self.shape, self.dtype, self.ordinal = shape, np.dtype(kind), said["ordinal"]
        self.core = _core.DeviceArray(said["owner"], said["address"], shape, _PRECISIONS[kind], stream)

    def __len__(self):
        return self.shape[0]

    def place(self, place):
        """`place` with 'auto' replaced by the GPU of the rows, if known."""
        is_known = place["device"] == "auto" and self.ordinal is not None
        return {**place, "device": f"cuda:{self.ordinal}"} if is_known else place

    def on_host(self, place):
        """A copy of the rows as a NumPy array."""
        # The copy needs a GPU engine, even if the CPU computes afterwards.
        device = place["device"] if place["device"].startswith("cuda") else "auto"
        place = self.place({**place, "device": device})
        return self.core.fetch({**place, "device": place["device"].replace("auto", "cuda")})


class Output:
    """An array on a GPU that the engines write to: its address, and the owner of its memory."""

    def __init__(self, array):
        self.address, self.owner = _said(array)["address"], array


def is_on_gpu(X):
    """Whether `X` reports that it is on a GPU."""
    return _is_on_gpu_by_dlpack(X) or hasattr(X, "__cuda_array_interface__")


def ordinal(X):
    """Ordinal of the GPU on which `X` reports to be; None if unknown."""
    return X.__dlpack_device__()[1] if _is_on_gpu_by_dlpack(X) else None


def to_host(array):
    """`array` in a form that NumPy accepts: if it is on a GPU, a host copy made by its own library."""
    if not is_on_gpu(array):
        return array
    for way in ("get", "copy_to_host"):
        if hasattr(array, way):
            return getattr(array, way)()
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def _is_on_gpu_by_dlpack(X):
    # A class has these methods but no device; NumPy arrays are skipped.
    if isinstance(X, (np.ndarray, type)) or not (hasattr(X, "__dlpack_device__") and hasattr(X, "__dlpack__")):
        return False
    return X.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED)


def _said(X):
    """The description of `X` with the keys of ``__cuda_array_interface__``, and `address`, `ordinal` and `owner`."""
    if _is_on_gpu_by_dlpack(X):
        return _said_by_dlpack(X)
    said = dict(X.__cuda_array_interface__)
    said.update(shape=tuple(said["shape"]), address=said["data"][0], ordinal=None, owner=X)
    return said


def _said_by_dlpack(X):
    try:
        try:
            capsule = X.__dlpack__(stream=_DEFAULT_STREAM, max_version=(1, 0))
        except TypeError:
            # The library is older than DLPack 1.0.
            capsule = X.__dlpack__(stream=_DEFAULT_STREAM)
        found = _core.Dlpack(capsule)
    except (BufferError, RuntimeError, ValueError) as error:
        raise DataError(f"X cannot be read on the GPU: {error}") from error
    (device, ordinal), (code, bits, lanes) = found.device, found.dtype
    if device not in (_CUDA, _CUDA_MANAGED):
        raise DataError(f"X came through DLPack from device type {device}, which is not an NVIDIA GPU")
    kind = f"<{_KINDS[code]}{bits // 8}" if code in _KINDS and lanes == 1 else f"DLPack {code}, {bits} bits × {lanes}"
    strides = found.strides
    return {
        "shape": tuple(found.shape),
        "typestr": kind,
        "strides": None if strides is None else tuple(step * bits // 8 for step in strides),
        "address": found.address,
        "ordinal": ordinal,
        "owner": found,
    }


def _is_row_major(said):
    (n, d), size = said["shape"], int(said["typestr"][2:])
    steps = said.get("strides") or (d * size, size)
    # With a single row or column, its stride is not used.
    return (n == 1 or steps[0] == d * size) and (d == 1 or steps[1] == size)


def _row_major(X, said):
    """A copy in row-major order on the GPU, made by the library of `X`."""
    if hasattr(X, "contiguous"):
        return X.contiguous()
    library = sys.modules.get(type(X).__module__.partition(".")[0])
    if not hasattr(library, "ascontiguousarray"):
        strides = said["strides"]
        raise DataError(f"X is not in row-major order on the GPU (strides {strides}): make it contiguous first")
    return library.ascontiguousarray(X)
