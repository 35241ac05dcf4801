"""The partitions of a fit with Dask: what each process does with its own, and how the client asks for it.

A process keeps the rows of its partitions on its engine between iterations. They are loaded again wherever Dask runs a
partition's task next, for example after a worker was killed. Each result depends only on its partition and the
arguments, and the client adds results in the order of the partitions: so neither the number of workers nor their fate
changes a bit.
"""

import threading
import uuid
from contextlib import contextmanager

import numpy as np

from gmm_rs import _core, _gpu, _inputs
from gmm_rs._given import float64
from gmm_rs._place import place as place_of
from gmm_rs.exceptions import DataError, GmmError

# Rows on this process's engines, by fit and partition. Fits of clients that died are dropped when there are this many
# newer ones; rows that are still needed are loaded again.
_KEPT: dict = {}
_LOCK = threading.Lock()
_MOST_FITS = 4


@contextmanager
def in_partition(index):
    """Name the partition in errors about its rows."""
    try:
        yield
    except GmmError as error:
        raise type(error)(f"partition {index}: {error}") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"partition {index}: {error}") from None
    except BaseException as error:
        # A panic is no `Exception`, and a worker would neither end nor report a task that raises it.
        if type(error).__name__ == "PanicException":
            raise RuntimeError(f"partition {index}: {error}") from None
        raise


def describe(part, weights, index, place):
    """`(rows of positive weight, columns, dtype, column names or None)` of a partition."""
    with in_partition(index):
        rows = _inputs.array_in_place(part, place, ensure_min_samples=0)
        weights = _weights(weights, rows)
        n = rows.shape[0] if weights is None else int((weights > 0).sum())
        return n, rows.shape[1], rows.dtype.name, names_of(part)


def names_of(X):
    """The column names of a table if all are strings, else None."""
    names = getattr(X, "columns", None)
    names = None if names is None else list(names)
    return names if names and all(isinstance(name, str) for name in names) else None


def sample(part, weights, index, place, seed, count):
    """`count` rows of positive weight, drawn without replacement, in their order, with their weights or None.

    The draws depend only on the seed and the index of the partition.
    """
    with in_partition(index):
        rows = _inputs.array_in_place(part, place, ensure_min_samples=0)
        weights = _weights(weights, rows)
        present = np.arange(rows.shape[0]) if weights is None else np.flatnonzero(weights > 0)
        if count < len(present):
            draws = np.random.Generator(np.random.Philox(key=[seed, index]))
            # The smallest of independent uniforms: the same in every version of NumPy.
            present = np.sort(present[np.argsort(draws.random(len(present)), kind="stable")[:count]])
        found = _inputs.array(part[present], place) if isinstance(rows, _gpu.OnGpu) else rows[present]
        is_bad = ~np.isfinite(found)
        if is_bad.any():
            at, column = (int(i) for i in np.argwhere(is_bad)[0])
            what = "NaN" if np.isnan(found[at, column]) else found[at, column]
            where = f"row {present[at]}, column {column}"
            raise DataError(f"{where} is {what}: data must be finite; drop or fill such rows first")
        return found, None if weights is None else weights[present]


def e_step(part, weights, index, given, fit, storage, place):
    """The byte form of the statistics of a partition."""
    # Arrays from another process may lie anywhere in a buffer.
    given = (given[0], *map(float64, given[1:]))
    with in_partition(index):
        with _LOCK:
            kept = _KEPT.get(fit, {}).get(index)
        if kept is None:
            kept = _load(part, weights, storage, place)
            with _LOCK:
                _KEPT.setdefault(fit, {})[index] = kept
                for old in list(_KEPT)[:-_MOST_FITS]:
                    del _KEPT[old]
        return kept.e_step(given).to_bytes()


def forget(fit):
    """Free the rows that this process keeps for a fit."""
    with _LOCK:
        _KEPT.pop(fit, None)


def log_likelihood(part, weights, index, model):
    """Log-likelihood, total weight and number of rows of a partition under a fitted estimator."""
    with in_partition(index):
        rows = _inputs.rows(model, part, reset=False, by_name=True, ensure_min_samples=0)
        weights = _weights(weights, rows)
        if rows.shape[0] == 0 or (weights is not None and not weights.any()):
            return 0.0, 0.0, 0
        total, weight = _core.score(_inputs.contiguous(rows), _attributes(model), place_of(model, rows), weights)
        return total, weight, rows.shape[0]


def predicted(part, model, method, width, block_id=None):
    """A method of a fitted estimator on a partition."""
    if part.shape[0] == 0:
        columns = (model.means_.shape[0],) if method == "predict_proba" else ()
        return np.empty((0, *columns), width)
    with in_partition(0 if block_id is None else block_id[0]):
        return getattr(model, method)(part).astype(width, copy=False)


def _attributes(model):
    from gmm_rs import _bridge

    return _bridge.parameters(model)


def _load(part, weights, storage, place):
    rows = _inputs.array_in_place(part, place, ensure_min_samples=0)
    weights = _weights(weights, rows)
    if rows.shape[0] == 0 or (weights is not None and not weights.any()):
        return _NoRows()
    storage = (storage[0], float64(storage[1]))
    place = rows.place(place) if isinstance(rows, _gpu.OnGpu) else place
    # The number of passes is not known; `auto` expects a fit of average length.
    return _core.PassRows(_inputs.contiguous(rows), place, storage, 50.0, weights)


class _NoRows:
    """A partition without rows of positive weight."""

    def e_step(self, given):
        return _core.Statistics.zero(given)


def _weights(weights, rows):
    """Row weights as float64 of shape (n,), checked; None stays None."""
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.shape == rows.shape[:1] and array.dtype.kind in "biuf" and not array.any():
        # An error for a whole data set, but not for a part of one.
        return np.zeros(array.shape)
    weights = _inputs.weights(weights, rows)
    is_bad = ~(np.isfinite(weights) & (weights >= 0))
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise DataError(f"the weight of row {row} is {weights[row]}: it must be finite and not negative")
    return weights


class Held:
    """The partitions of one fit, computed once and kept where they were computed.

    Parameters
    ----------
    parts, weights : list of Delayed
        Rows and row weights of each partition; `weights` may be None.
    place : dict
        Where each process computes.
    """

    def __init__(self, parts, weights, place):
        self.fit = uuid.uuid4().hex
        self.place = place
        self._lazy = (parts, [None] * len(parts) if weights is None else weights)

    def __enter__(self):
        import dask

        parts, weights = self._lazy
        kept = dask.persist(*parts, *(w for w in weights if w is not None))
        self._parts = kept[: len(parts)]
        self._weights = kept[len(parts) :] or weights
        return self

    def __exit__(self, *_):
        self._parts = self._weights = self._lazy = None
        forget(self.fit)
        client = _client()
        if client is not None:
            client.run(forget, self.fit, on_error="ignore")

    def each(self, function, *arguments, **by_partition):
        """Call ``function(part, weights, index, *arguments)`` on each partition, and return the results in order.

        Keyword arguments are lists of one value per partition.
        """
        import dask

        call = dask.delayed(_called, pure=False)
        # One object in the graph, not one per task. Unlike scattered data it is made anew if its worker dies.
        shared = dask.delayed((function, arguments), pure=False, traverse=False)
        each = zip(self._parts, self._weights)
        tasks = [
            call(shared, part, weights, index, **{name: values[index] for name, values in by_partition.items()})
            for index, (part, weights) in enumerate(each)
        ]
        return dask.compute(*tasks)


def _called(shared, part, weights, index, **by_partition):
    function, arguments = shared
    return function(part, weights, index, *arguments, **by_partition)


def _client():
    """The client of a distributed scheduler that `dask.compute` uses, or None."""
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None
