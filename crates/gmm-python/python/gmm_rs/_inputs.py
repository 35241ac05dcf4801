"""What users pass as rows, as arrays that the engines read."""

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

from gmm_rs import _core, _gpu, _place
from gmm_rs.exceptions import DataError

# float32 and float64 stay as they are, everything else becomes float64.
_FLOATS = [np.float64, np.float32]


def rows(model, X, *, reset, **checks):
    """`X` as an array of shape (n, d), float32 or float64, whose columns `model` knows.

    Whether all is finite is looked at once, by the engine, which says in which row and column it is not.

    Parameters
    ----------
    model : estimator
        Gets ``n_features_in_`` and ``feature_names_in_`` where `reset` is set, else is asked for them.
    X : array-like of shape (n, d)
    reset : bool
    **checks
        Passed on to scikit-learn's ``check_array``.

    Returns
    -------
    X : ndarray of shape (n, d), or OnGpu
    """
    checks.update(dtype=_FLOATS, ensure_all_finite=False)
    if _gpu.is_on_gpu(X):
        return _rows_on_gpu(model, X, reset=reset, **checks)
    if _is_plain(X, checks):
        # What scikit-learn would look at takes longer than the iterations of a small fit.
        if hasattr(model, "feature_names_in_"):
            _check_feature_names(model, X, reset=reset)
        _check_n_features(model, X, reset=reset)
        return X
    array = _array(X)
    if array is X:
        return validate_data(model, X, reset=reset, **checks)
    if getattr(X, "shape", None) == array.shape:
        # For the names of the columns, which the array has no longer.
        validate_data(model, X, reset=reset, skip_check_array=True)
        array = check_array(array, estimator=model, input_name="X", **checks)
        _check_n_features(model, array, reset=reset)
        return array
    return validate_data(model, array, reset=reset, **checks)


def _is_plain(X, checks):
    """Whether `X` is what scikit-learn's ``check_array`` would leave as it is."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in _FLOATS
        and X.dtype.isnative
        and X.shape[0] >= checks.get("ensure_min_samples", 1)
        and X.shape[1] >= 1
    )


def _rows_on_gpu(model, X, *, reset, **checks):
    """Rows on a GPU in place, unless the CPU is to compute."""
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


def array(X, place=None, **checks):
    """`X` as an array of shape (n, d), float32 or float64, for those who know no columns.

    From a GPU it is brought by the engine of `place`.
    """
    if _gpu.is_on_gpu(X):
        X = _gpu.OnGpu(X).on_host(place or _place.place(None))
    return check_array(_array(X), dtype=_FLOATS, ensure_all_finite=False, input_name="X", **checks)


def array_in_place(X, place, **checks):
    """As :func:`array`, but rows on a GPU stay there, unless the CPU is to compute."""
    if _gpu.is_on_gpu(X) and place["device"] not in ("cpu", "reference"):
        return _gpu.OnGpu(X)
    return contiguous(array(X, place, **checks))


def weights(sample_weight, X):
    """Row weights as float64 of shape (n,); None stays None."""
    if sample_weight is None:
        return None
    if isinstance(X, _gpu.OnGpu):
        # They lie on the host, whose libraries know nothing of those rows but how many they are.
        X = np.broadcast_to(0.0, X.shape)
    return np.ascontiguousarray(_check_sample_weight(_gpu.to_host(sample_weight), X, dtype=np.float64))


def contiguous(X):
    """`X` itself where the engines can read it as it is, else a copy in row-major order."""
    if isinstance(X, _gpu.OnGpu):
        return X.core
    return np.require(X, requirements=["C_CONTIGUOUS", "ALIGNED"])


def on_host(X, place):
    """Rows as a NumPy array: those on a GPU are copied."""
    return X.on_host(place) if isinstance(X, _gpu.OnGpu) else X


def _array(X):
    """What NumPy would copy column by column, or not understand, as an array; anything else as it is."""
    if isinstance(X, np.ndarray):
        return X
    # pandas keeps columns of one type as one array already, and makes others one better than by way of Arrow.
    if hasattr(X, "__arrow_c_stream__") and not hasattr(X, "iloc"):
        return _core.table(X.__arrow_c_stream__())
    if _is_foreign(X):
        # scikit-learn knows the way to the host of each library that it dispatches to.
        return _convert_to_numpy(X, get_namespace(X)[0]) if _dispatches() else _shown(X)
    return X


def _shown(X):
    """An array of another library, in its own memory where NumPy can look into that."""
    return X if hasattr(X, "__array__") else np.from_dlpack(X)


def like(X, found):
    """`found`, an array about `X`, in the library and on the device of `X` where scikit-learn would give it there.

    That is where ``sklearn.set_config(array_api_dispatch=True)`` says so, and `X` is an array of a library other than
    NumPy; else it is `found` itself.
    """
    if not _dispatches() or not _is_foreign(X):
        return found
    namespace, _, device = get_namespace_and_device(X)
    return namespace.asarray(found, device=device)


def _is_foreign(X):
    return hasattr(X, "__dlpack__") and not isinstance(X, np.ndarray)


def _dispatches():
    return get_config()["array_api_dispatch"]
