"""Simulated GPU arrays without a GPU: errors for invalid arrays, and the lifetime of DLPack capsules."""

import ctypes
import gc

import numpy as np
import pytest
from conftest import has_gpu, model

from gmm_rs import Likelihood, Resident, _core, _gpu, exceptions, mcmc
from gmm_rs.mixture import GaussianMixture


def draws(X):
    return mcmc(X, 2, chains=1, draws=1, warmup=20)


class Said:
    """An array that claims to be on a GPU."""

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
    for call in (GaussianMixture(2).fit, fitted.predict, fitted.score, Likelihood, Resident, draws):
        with pytest.raises(exceptions.DataError, match=message):
            call(Said(**said))


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
is_capsule = ctypes.pythonapi.PyCapsule_IsValid
is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Lent:
    """An array that claims through DLPack to be on a GPU, and counts the calls of its deleter."""

    def __init__(self, shape=(4, 2), *, strides=None, dtype=(2, 64, 1), device=(2, 0), version=(1, 1), offset=0):
        self.given_back, self.asked = 0, []
        self.device, self.version = device, version
        axes = (ctypes.c_int64 * len(shape))(*shape)
        steps = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        tensor = Tensor(4096, (ctypes.c_int32 * 2)(*device), len(shape), *dtype, axes, steps, offset)
        deleter = DELETER(self._delete)
        if version is None:
            self.held = Managed(tensor, None, deleter)
        else:
            self.held = Versioned((ctypes.c_uint32 * 2)(*version), None, deleter, 0, tensor)
        self.kept = (axes, steps, deleter)

    def _delete(self, held):
        assert held == ctypes.addressof(self.held)
        self.given_back += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options)
        if self.version is None and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        # Capsules store only a pointer to their name, so the name must stay alive.
        self.name = ctypes.create_string_buffer(b"dltensor" if self.version is None else b"dltensor_versioned")
        self.capsule = new_capsule(ctypes.addressof(self.held), self.name, None)
        return self.capsule


@pytest.mark.parametrize("version", [None, (1, 0), (1, 9)])
def test_a_capsule_is_taken_once_and_given_back_once(version):
    lent = Lent((4, 2), version=version, offset=16)
    rows = _gpu.OnGpu(lent)
    assert (rows.shape, rows.dtype, rows.ordinal) == ((4, 2), np.float64, 0)
    assert lent.asked[-1]["stream"] == 1 and lent.given_back == 0
    old, new = (b"dltensor", b"used_dltensor") if version is None else (b"dltensor_versioned", b"used_dltensor_versioned")
    assert not is_capsule(lent.capsule, old) and is_capsule(lent.capsule, new)
    with pytest.raises(ValueError, match="did not return an unused DLPack capsule"):
        _core.Dlpack(lent.capsule)
    del rows
    gc.collect()
    assert lent.given_back == 1


def test_what_a_capsule_says_is_read_as_it_stands():
    lent = Lent((3, 5), strides=(7, 1), dtype=(2, 32, 1), device=(13, 2), offset=24)
    found = _core.Dlpack(lent.__dlpack__())
    assert (found.shape, found.strides, found.address) == ([3, 5], [7, 1], 4096 + 24)
    assert (found.device, found.dtype) == ((13, 2), (2, 32, 1))
    del found
    assert lent.given_back == 1


def test_a_version_that_is_not_known_stays_in_its_capsule():
    lent = Lent(version=(2, 0))
    with pytest.raises(exceptions.DataError, match="version 2.0 is not supported"):
        _gpu.OnGpu(lent)
    assert lent.given_back == 0 and is_capsule(lent.capsule, b"dltensor_versioned")


@pytest.mark.parametrize(
    ("lent", "message"),
    [
        ({"shape": (8,)}, r"Expected 2D array, got an array of shape \(8,\) on a GPU. Reshape your data"),
        ({"shape": ()}, r"Expected 2D array, got an array of shape \(\)"),
        ({"shape": (0, 2)}, r"0 sample\(s\) \(shape=\(0, 2\)\)"),
        ({"dtype": (0, 32, 1)}, "type '<i4' on a GPU"),
        ({"dtype": (4, 16, 1)}, "DLPack 4, 16 bits"),
        ({"dtype": (2, 64, 2)}, "DLPack 2, 64 bits × 2"),
        ({"strides": (1, 4)}, "not in row-major order on the GPU"),
        ({"strides": (4, 1)}, "not in row-major order on the GPU"),
        ({"strides": (-2, 1)}, "not in row-major order on the GPU"),
    ],
)
def test_what_comes_by_dlpack_and_cannot_be_read_is_refused(rows, lent, message):
    fitted = model(random_state=0).fit(rows[:, :2])
    for call in (GaussianMixture(2).fit, fitted.predict, fitted.score, Likelihood, Resident, draws):
        one = Lent(**lent)
        with pytest.raises(exceptions.DataError, match=message):
            call(one)
        gc.collect()
        assert one.given_back == len(one.asked) == 1


def test_a_library_that_does_not_export_is_quoted():
    lent = Lent()

    def refuse(**options):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    lent.__dlpack__ = refuse
    with pytest.raises(exceptions.DataError, match="cannot be read on the GPU: Can't export .* use tensor.detach"):
        GaussianMixture(2).fit(lent)


class Strided(Lent):
    """An array whose library can make a row-major copy."""

    def __init__(self, shape, strides):
        super().__init__(shape, strides=strides)
        self.shape = shape

    def contiguous(self):
        self.copy = Lent(self.shape)
        return self.copy


def test_rows_that_are_not_in_row_major_order_are_copied_by_their_library():
    lent = Strided((4, 2), (1, 4))
    rows = _gpu.OnGpu(lent)
    assert rows.shape == (4, 2) and lent.given_back == 1 and lent.copy.given_back == 0
    del rows
    gc.collect()
    assert lent.copy.given_back == 1


def test_one_row_or_one_column_is_in_row_major_order_whatever_its_other_step():
    for shape, strides in [((1, 3), (77, 1)), ((3, 1), (1, 77)), ((1, 1), (0, 0))]:
        assert _gpu.OnGpu(Lent(shape, strides=strides)).shape == shape


def test_the_gpu_that_computes_is_the_one_where_the_rows_lie_unless_another_is_named():
    place = {"device": "auto", "threads": 0, "precision": None}
    rows = _gpu.OnGpu(Lent(device=(2, 3)))
    assert rows.place(place)["device"] == "cuda:3"
    assert rows.place({**place, "device": "cuda:1"})["device"] == "cuda:1"
    assert _gpu.OnGpu(Said()).place(place)["device"] == "auto"


def test_arrays_on_the_host_are_no_arrays_on_a_gpu(rows):
    assert not any(map(_gpu.is_on_gpu, [rows, rows.tolist(), None, "rows", np.float64(1), Lent(device=(1, 0)), Lent]))
    assert _gpu.is_on_gpu(Lent()) and _gpu.is_on_gpu(Said())


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_is_said_what_lacks(rows):
    fitted = GaussianMixture(2, random_state=0).fit(rows[:, :2])
    with pytest.raises(exceptions.DeviceError, match="the rows are on a GPU, but the engine is 'cpu'"):
        fitted.predict(Said())
    for there in (Said(), Lent()):
        with pytest.raises(exceptions.DeviceError, match="the rows are on a GPU|cuda:0"):
            GaussianMixture(2).fit(there)
        with pytest.raises(exceptions.DeviceError, match="cuda"):
            model(2).fit(there)
        for call in (Likelihood, Resident, draws):
            with pytest.raises(exceptions.DeviceError, match="the rows are on a GPU|cuda:0"):
                call(there)
    for ask in (Resident(rows).inner, Resident(rows).matmul, lambda X: Resident(rows).top_k(X, 1)):
        with pytest.raises(exceptions.DeviceError, match="the rows are on a GPU"):
            ask(Said(shape=(3, 3)))
    with pytest.raises(ValueError, match="3 features.* expecting 2"):
        fitted.predict(Said(shape=(4, 3)))
    with pytest.raises(ValueError, match="1 sample.* minimum of 2 is required by GaussianMixture"):
        GaussianMixture(1).fit(Lent((1, 2)))
