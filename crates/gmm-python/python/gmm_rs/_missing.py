"""Missing values of `GaussianMixture`: rows that are left out, and imputation."""

import contextlib
import copy

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _evaluation, _gpu, _inputs
from gmm_rs._base import count
from gmm_rs._place import place
from gmm_rs.exceptions import DataError, ParameterError

_HOW = ("mean", "mode", "draw")


@contextlib.contextmanager
def named(model):
    """Name the choice in an error about a missing value, if the model has not made it."""
    try:
        yield
    except DataError as error:
        text = str(error)
        if model.missing != "error" or not (" is NaN:" in text or ": missing value" in text):
            raise
        raise type(error)(f"{text}, or use missing='em' or missing='drop'") from None


def complete(rows, weights, labels):
    """The rows without NaN, with their weights and labels, which may be None."""
    if isinstance(rows, _gpu.OnGpu):
        raise ParameterError("missing='drop' takes rows in host memory: the rows are on a GPU")
    kept = ~np.isnan(rows).any(axis=1)
    if kept.all():
        return rows, weights, labels
    if not kept.any():
        raise DataError(f"each of the {len(rows)} rows has a missing value: use missing='em'")
    return rows[kept], *(None if array is None else array[kept] for array in (weights, labels))


def impute(model, X, how, n_draws):
    """The rows with their missing values replaced; see :meth:`gmm_rs.mixture.GaussianMixture.impute`."""
    check_is_fitted(model)
    if how not in _HOW:
        raise ParameterError(f"how is {how!r}: choose one of {', '.join(_HOW)}")
    if n_draws is not None:
        n_draws, how = count(n_draws, "n_draws"), "draw"
    # Whatever a fit does with NaN, here it is a missing value.
    reader = copy.copy(model)
    reader.missing = "em"
    rows = _inputs.contiguous(_inputs.rows(reader, X, reset=False, by_name=True))
    seed = _bridge.seed(model.random_state) if how == "draw" else 0
    of = (rows, _bridge.parameters(model), place(model), how, seed)
    dtype = _evaluation.width(model, rows)
    if n_draws is None:
        return _core.impute(*of, 0).astype(dtype, copy=False)
    return np.stack([_core.impute(*of, draw) for draw in range(n_draws)], dtype=dtype, casting="same_kind")
