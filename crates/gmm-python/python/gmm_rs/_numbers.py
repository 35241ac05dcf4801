"""Rejects input that NumPy would convert to meaningless numbers, or reject without a position.

NumPy would convert dates, times and durations to counts of their units, parse text, and read masked values.
"""

import datetime
import numbers

import numpy as np

from gmm_rs.exceptions import DataError

# NumPy's kinds of numeric dtypes. scikit-learn rejects complex numbers with its own message.
_NUMBERS = "biufc"

_TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)
_TEXT = (str, bytes, bytearray)

_DATES = (
    "dates, times and durations are not numbers: convert them first, for example with "
    "(t - t.min()) / np.timedelta64(1, 's')"
)
_STRINGS = (
    "dtype='numeric' is not compatible with arrays of bytes/strings. Convert your data to numeric values explicitly "
    "instead."
)
_RECORDS = "records are not rows of numbers: use numpy.lib.recfunctions.structured_to_unstructured"


class NotANumberError(DataError, TypeError):
    """An object in place of a number; also a `TypeError`, which scikit-learn raises in this case."""


def check(X, name="X"):
    """Raise if `X` contains dates, text, records, masked entries, or objects that are not numbers.

    Parameters
    ----------
    X : object
        Any user input except an array on a GPU.
    name : str
        Name of `X` in messages.

    Raises
    ------
    DataError
        The message names the type, and the column of a frame, or the row and column of the first such object.
    """
    if hasattr(X, "iloc"):
        _check_frame(X, name)
    elif isinstance(X, np.ndarray):
        _check_array(X, name)
    elif hasattr(X, "dtype"):
        _check_kind(X.dtype, f"{name} is an array of {X.dtype}")
    elif isinstance(X, (list, tuple)) or hasattr(X, "__array__"):
        _check_sequence(X, name)


def check_is_collected(X):
    """Raise if `X` is a query that has not been executed, such as a polars LazyFrame."""
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        raise DataError(f"X is a {type(X).__name__}, which has no rows yet: call .collect() first")


def _check_sequence(X, name):
    if isinstance(X, (list, tuple)):
        for i, row in enumerate(X):
            if np.ma.is_masked(row):
                raise DataError(f"{name}: row {i} has masked entries: {_UNMASK}")
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):
        # Ragged, or unknown to NumPy: scikit-learn reports it.
        return
    _check_array(array, name)


_UNMASK = "drop or fill such rows first, for example with X.filled(..)"


def _check_array(X, name):
    if np.ma.is_masked(X):
        at = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), np.argwhere(np.ma.getmaskarray(X))[0]))
        raise DataError(f"{name} has {np.ma.count_masked(X)} masked entries, the first at {at}: {_UNMASK}")
    _check_kind(X.dtype, f"{name} is an array of {X.dtype}")
    if X.dtype.kind == "O":
        at, value = _first_other(X)
        if at is not None:
            where = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), np.unravel_index(at, X.shape)))
            raise _error(value, f"{name}: {where or 'it'} is {value!r}, {_type(value)}")


def _check_frame(X, name):
    dtypes = getattr(X, "dtypes", None)
    if not hasattr(X, "columns"):
        # A single column (a Series): scikit-learn reports its shape; here only the values are checked.
        _check_kind(dtypes, f"{name} holds {dtypes}")
        _check_array(np.asarray(X), name)
        return
    for j, (column, dtype) in enumerate(zip(X.columns, dtypes)):
        where = f"{name}: column {j} ({column!r})"
        _check_kind(dtype, f"{where} holds {dtype}")
        if getattr(dtype, "kind", "O") not in _NUMBERS:
            at, value = _first_other(np.asarray(X.iloc[:, j], dtype=object))
            if at is not None:
                raise _error(value, f"{where} holds {dtype}: row {at} is {value!r}, {_type(value)}")


def _check_kind(dtype, said):
    kind = getattr(dtype, "kind", None)
    if kind in ("M", "m"):
        raise DataError(f"{said}: {_DATES}")
    if kind in ("S", "U", "T"):
        raise DataError(f"{said}: {_STRINGS}")
    if kind == "V":
        raise DataError(f"{said}: {_RECORDS}")


def _first_other(objects):
    """Index and value of the first object that is not a number; the engine reports missing values (None, NaN)."""
    other = tuple(kind for kind in set(map(type, objects.flat)) if not _holds_numbers(kind))
    if not other:
        return None, None
    return next((i, value) for i, value in enumerate(objects.flat) if isinstance(value, other))


def _holds_numbers(kind):
    if issubclass(kind, (*_TIMES, *_TEXT, np.complexfloating)):
        return False
    if issubclass(kind, numbers.Complex) and not issubclass(kind, numbers.Real):
        return False
    # NumPy reports nested sequences as a wrong shape.
    nested = issubclass(kind, (list, tuple, np.ndarray))
    return nested or kind is type(None) or hasattr(kind, "__float__") or hasattr(kind, "__index__")


def _error(value, said):
    if isinstance(value, _TIMES):
        return DataError(f"{said}: {_DATES}")
    if isinstance(value, _TEXT):
        return DataError(f"{said}: {_STRINGS}")
    what = f"float() argument must be a string or a real number, not '{type(value).__name__}'"
    return NotANumberError(f"{said}: {what}")


def _type(value):
    return f"of type {type(value).__name__}"
