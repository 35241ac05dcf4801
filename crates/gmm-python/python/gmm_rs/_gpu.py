"""Arrays in the memory of an NVIDIA GPU: torch's, CuPy's and JAX's by DLPack, Numba's by ``__cuda_array_interface__``."""

import sys

import numpy as np

from gmm_rs import _core
from gmm_rs.exceptions import DataError

_PRECISIONS = {"<f4": "f32", "<f8": "f64"}

# DLPack's numbers of devices: CUDA, and CUDA's managed memory.
_CUDA, _CUDA_MANAGED = 2, 13

# DLPack's numbers of types, as NumPy abbreviates them.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}

# The legacy default stream, as DLPack counts: the library makes it wait for what writes the array.
_DEFAULT_STREAM = 1


class OnGpu:
    """Rows on a GPU, checked: `core` is what the engines read, the rest what is asked of an array.

    Parameters
    ----------
    X : object
        With ``__dlpack__`` or ``__cuda_array_interface__``. It is kept, and must not be written to while it is read.
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
            raise DataError(f"X is of type {kind!r} on a GPU: float32 and float64 are read there, convert it first")
        if said.get("mask") is not None:
            raise DataError("X has a mask, which is not read: drop or fill such rows first")
        stream = said.get("stream")
        if stream == 0:
            raise DataError("X names stream 0 in its __cuda_array_interface__, which is not allowed there")
        if not _is_row_major(said):
            said = _said(_row_major(X, said))
        self.shape, self.dtype, self.ordinal = shape, np.dtype(kind), said["ordinal"]
        self.core = _core.DeviceArray(said["owner"], said["address"], shape, _PRECISIONS[kind], stream)

    def __len__(self):
        return self.shape[0]

    def place(self, place):
        """`place`, where 'auto' is the GPU that the rows lie on."""
        is_known = place["device"] == "auto" and self.ordinal is not None
        return {**place, "device": f"cuda:{self.ordinal}"} if is_known else place

    def on_host(self, place):
        """A copy of the rows as a NumPy array."""
        # The way from the GPU is the GPU's, whoever computes then.
        device = place["device"] if place["device"].startswith("cuda") else "auto"
        place = self.place({**place, "device": device})
        return self.core.fetch({**place, "device": place["device"].replace("auto", "cuda")})


def is_on_gpu(X):
    """Whether `X` says that it lies on a GPU."""
    return _is_on_gpu_by_dlpack(X) or hasattr(X, "__cuda_array_interface__")


def ordinal(X):
    """Number of the GPU that `X` says it lies on; None where it does not."""
    return X.__dlpack_device__()[1] if _is_on_gpu_by_dlpack(X) else None


def to_host(array):
    """`array` as NumPy takes it: a copy on the host where it lies on a GPU, by the library that it is of."""
    if not is_on_gpu(array):
        return array
    for way in ("get", "copy_to_host"):
        if hasattr(array, way):
            return getattr(array, way)()
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def _is_on_gpu_by_dlpack(X):
    # A class has methods, but no device; NumPy's arrays are asked nothing.
    if isinstance(X, (np.ndarray, type)) or not (hasattr(X, "__dlpack_device__") and hasattr(X, "__dlpack__")):
        return False
    return X.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED)


def _said(X):
    """What `X` says of itself, in the words of ``__cuda_array_interface__``, with `address`, `ordinal` and `owner`."""
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
            # A library from before DLPack 1.0.
            capsule = X.__dlpack__(stream=_DEFAULT_STREAM)
        found = _core.Dlpack(capsule)
    except (BufferError, RuntimeError, ValueError) as error:
        raise DataError(f"X cannot be read on the GPU: {error}") from error
    (device, ordinal), (code, bits, lanes) = found.device, found.dtype
    if device not in (_CUDA, _CUDA_MANAGED):
        raise DataError(f"X came by DLPack from device {device}, and not from an NVIDIA GPU")
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
    # Where there is one row or column only, nobody steps to the next.
    return (n == 1 or steps[0] == d * size) and (d == 1 or steps[1] == size)


def _row_major(X, said):
    """A copy in row-major order on the GPU, by the library that `X` is of."""
    if hasattr(X, "contiguous"):
        return X.contiguous()
    library = sys.modules.get(type(X).__module__.partition(".")[0])
    if not hasattr(library, "ascontiguousarray"):
        strides = said["strides"]
        raise DataError(f"X is not in row-major order on the GPU (strides {strides}): make it contiguous first")
    return library.ascontiguousarray(X)
