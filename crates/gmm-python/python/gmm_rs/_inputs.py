"""Conversion of user input to arrays that the engines can read."""

import warnings

import numpy as np
from sklearn import get_config
from sklearn.utils._array_api import _convert_to_numpy, get_namespace, get_namespace_and_device
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_array,
    validate_data,
)

from gmm_rs import _core, _gpu, _numbers, _place
from gmm_rs.exceptions import DataError, ParameterError

# float32 and float64 stay as they are, everything else becomes float64.
_FLOATS = [np.float64, np.float32]


class Holed(np.ndarray):
    """Rows in which NaN is a missing value; `gmm_rs._core` knows the class by its name."""


def rows(model, X, *, reset, by_name=False, **checks):
    """`X` as an array of shape (n, d), float32 or float64, with its columns checked against `model`.

    NaN and infinity are not checked here: the engine does it once, and reports row and column. If the model takes
    missing values, the array is a `Holed` one.

    Parameters
    ----------
    model : estimator
        If `reset` is True, its ``n_features_in_`` and ``feature_names_in_`` are set; else they are compared with `X`.
    X : array-like of shape (n, d)
    reset : bool
    by_name : bool
        Whether to select the model's columns by name if a table has more columns.
    **checks
        Further arguments of scikit-learn's ``check_array``.

    Returns
    -------
    X : ndarray of shape (n, d), or OnGpu
    """
    found = _rows(model, X, reset=reset, by_name=by_name, **checks)
    if getattr(model, "missing", "error") != "em":
        return found
    if isinstance(found, _gpu.OnGpu):
        raise ParameterError("missing='em' takes rows in host memory: the rows are on a GPU")
    return found.view(Holed)


def has_option(model):
    """Whether missing values are read: as NaN, and nulls of tables too."""
    return getattr(model, "missing", "error") != "error"


def _rows(model, X, *, reset, by_name, **checks):
    checks.update(dtype=_FLOATS, ensure_all_finite=False)
    if _gpu.is_on_gpu(X):
        return _rows_on_gpu(model, X, reset=reset, **checks)
    if _is_plain(X, checks):
        # scikit-learn's checks take longer than the iterations of a small fit.
        if hasattr(model, "feature_names_in_"):
            _check_feature_names(model, X, reset=reset)
        _check_n_features(model, X, reset=reset)
        return X
    _numbers.check_is_collected(X)
    wanted = None if reset or not by_name else getattr(model, "feature_names_in_", None)
    if _is_table(X):
        array, names = _of_table(X, wanted, has_option(model))
        _check_names(model, names, reset=reset)
        array = check_array(array, estimator=model, input_name="X", **checks)
        _check_n_features(model, array, reset=reset)
        return array
    if wanted is not None:
        X = _chosen(X, list(wanted))
    return validate_data(model, _array(X), reset=reset, **checks)


def _is_plain(X, checks):
    """Whether scikit-learn's ``check_array`` would return `X` unchanged."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in _FLOATS
        and X.dtype.isnative
        and X.shape[0] >= checks.get("ensure_min_samples", 1)
        and X.shape[1] >= 1
    )


def _rows_on_gpu(model, X, *, reset, **checks):
    """Rows on a GPU, not copied unless the engine is the CPU."""
    X, place = _gpu.OnGpu(X), _place.place(model)
    if place["device"] in ("cpu", "reference"):
        return validate_data(model, X.on_host(place), reset=reset, **checks)
    _check_feature_names(model, X, reset=reset)
    _check_n_features(model, X, reset=reset)
    return _enough(X, checks, type(model).__name__)


def _enough(X, checks, who):
    least = checks.get("ensure_min_samples", 1)
    if len(X) < least:
        raise DataError(
            f"Found array with {len(X)} sample(s) (shape={X.shape}) while a minimum of {least} is required by {who}."
        )
    return X


def _check_names(model, names, *, reset):
    """scikit-learn's ``_check_feature_names``, with its messages, for tables that scikit-learn does not support."""
    known = getattr(model, "feature_names_in_", None)
    if reset:
        if names:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        elif known is not None:
            del model.feature_names_in_
        return
    who = type(model).__name__
    if names and known is None:
        warnings.warn(f"X has feature names, but {who} was fitted without feature names", stacklevel=2)
    elif not names and known is not None:
        warnings.warn(
            f"X does not have valid feature names, but {who} was fitted with feature names", stacklevel=2
        )
    elif names and list(known) != list(names):
        said = ["The feature names should match those that were passed during fit."]
        unseen, missing = sorted(set(names) - set(known)), sorted(set(known) - set(names))
        for title, those in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
            if those:
                said += [f"Feature names {title}:", *(f"- {name}" for name in those[:5]), *["- ..."] * (len(those) > 5)]
        if not unseen and not missing:
            said.append("Feature names must be in the same order as they were in fit.")
        raise DataError("\n".join(said) + "\n")


def array(X, place=None, **checks):
    """`X` as an array of shape (n, d), float32 or float64, for callers without an estimator.

    An array on a GPU is copied to the host by the engine of `place`.
    """
    if _gpu.is_on_gpu(X):
        X = _gpu.OnGpu(X).on_host(place or _place.place(None))
    _numbers.check_is_collected(X)
    X = _of_table(X)[0] if _is_table(X) else _array(X)
    return check_array(X, dtype=_FLOATS, ensure_all_finite=False, input_name="X", **checks)


def array_in_place(X, place, **checks):
    """As :func:`array`, but rows on a GPU stay there unless the engine is the CPU."""
    if _gpu.is_on_gpu(X) and place["device"] not in ("cpu", "reference"):
        return _gpu.OnGpu(X)
    return contiguous(array(X, place, **checks))


def weights(sample_weight, X):
    """Row weights as float64 of shape (n,); None stays None."""
    if sample_weight is None:
        return None
    if not _gpu.is_on_gpu(sample_weight):
        _numbers.check(sample_weight, "sample_weight")
    if isinstance(X, _gpu.OnGpu):
        # scikit-learn's check only needs the shape of the rows, which are on a GPU.
        X = np.broadcast_to(0.0, X.shape)
    found = _check_sample_weight(_gpu.to_host(sample_weight), X, dtype=np.float64)
    return np.require(found, np.float64, ["C_CONTIGUOUS", "ALIGNED"])


def contiguous(X):
    """`X` itself if the engines can read it, else a copy in row-major order."""
    if isinstance(X, _gpu.OnGpu):
        return X.core
    return np.require(X, requirements=["C_CONTIGUOUS", "ALIGNED"])


def on_host(X, place):
    """Rows as a NumPy array; rows on a GPU are copied."""
    return X.on_host(place) if isinstance(X, _gpu.OnGpu) else X


def _array(X):
    """`X` checked to contain numbers; an array of another library is converted for NumPy, all else is unchanged."""
    _numbers.check(X)
    if isinstance(X, np.ndarray):
        return X
    if _is_foreign(X):
        # scikit-learn can copy arrays of every library that it dispatches to to the host.
        return _convert_to_numpy(X, get_namespace(X)[0]) if _dispatches() else _shown(X)
    return X


def _is_table(X):
    """Whether `X` is read through Arrow, which provides the column names and copies once."""
    # pandas stores columns of one dtype as one array, and converts others better than Arrow would.
    return hasattr(X, "__arrow_c_stream__") and not hasattr(X, "iloc") and not isinstance(X, type)


def _of_table(X, wanted=None, nulls=False):
    """The rows of a table and its column names or None; if there are more columns than `wanted`, only those."""
    return _core.table(X.__arrow_c_stream__(), None if wanted is None else list(wanted), nulls)


def _chosen(X, wanted):
    """The columns `wanted` of a pandas frame that has all of them and more; else `X` unchanged."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return X
    names = list(X.columns)
    is_wider = len(names) > len(wanted) and all(names.count(name) == 1 for name in wanted)
    return X[wanted] if is_wider else X


def _shown(X):
    """An array of another library in a form that NumPy can read, without a copy if possible."""
    return X if hasattr(X, "__array__") else np.from_dlpack(X)


def like(X, found):
    """The result `found` in the array library and on the device of `X`, if scikit-learn would return it there.

    That is the case if ``sklearn.set_config(array_api_dispatch=True)`` is set and `X` is an array of another library
    than NumPy; else `found` itself is returned.
    """
    if not _dispatches() or not _is_foreign(X):
        return found
    namespace, _, device = get_namespace_and_device(X)
    return namespace.asarray(found, device=device)


def all_like(X, found):
    """As :func:`like` for several arrays of one dtype: they are views of one array, so that one copy goes to the device."""
    if not _dispatches() or not _is_foreign(X):
        return found
    namespace, _, device = get_namespace_and_device(X)
    flat = namespace.asarray(np.concatenate([array.ravel() for array in found]), device=device)
    ends = np.cumsum([array.size for array in found]).tolist()
    parts = [flat[end - array.size : end] for array, end in zip(found, ends)]
    return [namespace.reshape(part, array.shape) for part, array in zip(parts, found)]


def output(X, rows, shape, dtype):
    """A new array for results of `rows` that stay on the GPU, in the library and on the device of `X`; else None.

    `rows` are the validated rows of `X`. Results stay on the GPU in the cases of :func:`like`, if the engine reads the
    rows there and the library of `X` has arrays that can be written to.
    """
    if not (isinstance(rows, _gpu.OnGpu) and _dispatches() and _is_foreign(X)):
        return None
    namespace, _, device = get_namespace_and_device(X)
    if not {"torch", "cupy"} & set(namespace.__name__.split(".")):
        return None
    try:
        return namespace.empty(shape, dtype=getattr(namespace, dtype), device=device)
    except (MemoryError, RuntimeError):
        # The GPU has no room: the host may have it.
        return None


def converted(X, found, dtype):
    """`found`, an array of the library of `X`, as `dtype`."""
    namespace, _, _ = get_namespace_and_device(X)
    return namespace.astype(found, getattr(namespace, dtype), copy=False)


def _is_foreign(X):
    return hasattr(X, "__dlpack__") and not isinstance(X, np.ndarray)


def _dispatches():
    return get_config()["array_api_dispatch"]
