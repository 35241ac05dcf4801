"""A fit on a Dask cluster: partitions of a collection, the start from a sample of them, and EM over them."""

import math
from contextlib import contextmanager

import numpy as np

from gmm_rs import _bridge, _core, _partitions
from gmm_rs._progress import Progress
from gmm_rs.exceptions import DataError, NumericalError, ParameterError

# The number of rows from which the first mixture is found, as on a single machine: at least this many, or this many per
# component.
_SAMPLE, _SAMPLE_EACH = 1 << 15, 64


def is_lazy(X):
    """Whether `X` is a collection of Dask, or a list of them."""
    try:
        from dask import is_dask_collection
    except ImportError:
        return False
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(is_dask_collection(part) or _is_future(part) for part in X)
    return is_dask_collection(X)


def _is_future(part):
    return type(part).__module__.partition(".")[0] == "distributed" and hasattr(part, "key")


def partitions(X, sample_weight):
    """Lists of Delayed: the partitions of the rows, and those of the weights or None."""
    try:
        import dask
    except ImportError:
        raise ImportError("gmm_rs.dask needs Dask: pip install 'dask[distributed]'") from None
    parts = _parts(X)
    if sample_weight is None:
        return parts, None
    if not is_lazy(sample_weight):
        if not is_lazy(X):
            return parts, [dask.delayed(sample_weight, traverse=False)]
        sizes = getattr(X, "chunks", ((np.nan,),))[0]
        if np.isnan(sizes).any() or sum(sizes) != len(sample_weight):
            raise ParameterError("sample_weight must be a Dask collection with the partitions of X")
        ends = np.cumsum(sizes)
        whole = np.asarray(sample_weight)
        return parts, [dask.delayed(whole[end - size : end], traverse=False) for size, end in zip(sizes, ends)]
    if hasattr(sample_weight, "rechunk") and hasattr(X, "chunks") and sample_weight.shape == X.shape[:1]:
        sample_weight = sample_weight.rechunk((X.chunks[0],))
    weights = _parts(sample_weight, axes=1)
    if len(weights) != len(parts):
        raise ParameterError(f"sample_weight has {len(weights)} partitions, X has {len(parts)}")
    return parts, weights


def _parts(X, axes=2):
    from dask.delayed import Delayed, delayed

    if not is_lazy(X):
        return [delayed(X, traverse=False)]
    if isinstance(X, list | tuple):
        return [part if isinstance(part, Delayed) else delayed(part) for part in X]
    if hasattr(X, "chunks"):
        if X.ndim != axes:
            advice = "reshape it with X.reshape(-1, 1) or X.reshape(1, -1)" if X.ndim == 1 else "rows × columns are needed"
            raise DataError(f"Expected {axes}D array, got {X.ndim}D array instead: {advice}")
        return list((X.rechunk({1: -1}) if axes == 2 else X).to_delayed().ravel())
    if hasattr(X, "to_delayed"):
        return list(X.to_delayed())
    # A single Delayed.
    return [X]


class DaskFit:
    """One call of `fit`: restarts of EM over the partitions.

    Attributes
    ----------
    dtype : numpy dtype
        Of the fitted attributes: that of the rows.
    n_features : int
    names : list of str, or None
    progress : Progress
    """

    def __init__(self, model, held, seed):
        self.model, self.held, self.seed = model, held, seed
        self.progress = Progress(model)
        sizes, columns, dtypes, names = zip(*held.each(_partitions.describe, held.place))
        for what, found in (("columns", columns), ("column names", names)):
            differs = next((i for i, value in enumerate(found) if value != found[0]), None)
            if differs is not None:
                raise DataError(f"partition {differs} has {what} {found[differs]}, partition 0 has {found[0]}")
        self.n_features, self.names = columns[0], names[0]
        self.dtype = np.result_type(*dtypes)
        n, k = sum(sizes), model.n_components
        if n < max(2, k):
            raise ParameterError(
                f"Expected n_samples >= n_components but got n_components = {k}, n_samples = {n}; at least 2 rows of "
                "positive weight are needed"
            )
        self._take_sample(sizes, n, k)

    def _take_sample(self, sizes, n, k):
        given = self.model.init_rows
        some = max(_SAMPLE, _SAMPLE_EACH * k) if given is None else max(given, k, 2)
        count = some if (n // 2 > some if given is None else n > some) else n
        # Partition `i` ends with its share of the sample, rounded down, and the last with all of it.
        ends = [end * count // n for end in np.cumsum(sizes).tolist()]
        counts = np.diff([0, *ends]).tolist()
        seed = self.seed % 2**64
        place = self.held.place
        found = self.held.each(_partitions.sample, place, seed, count=counts)
        rows = np.concatenate([rows for rows, _ in found]).astype(self.dtype, copy=False)
        self.sample = np.ascontiguousarray(rows)
        weighted = found[0][1] is not None
        self.sample_weights = np.concatenate([weights for _, weights in found]) if weighted else None

    def best(self):
        """The best of all restarts."""
        model, best, failure = self.model, None, None
        is_continued = model.warm_start and hasattr(model, "converged_")
        init = self._init(is_continued)
        restarts = model.n_init if any(part is None for part in init[0]) and not is_continued else 1
        for restart in range(restarts):
            try:
                start = self._start(*init, restart)
                run = self._run(start, restart, model.lower_bound_ if is_continued else None)
            except NumericalError as error:
                # A numerical failure of one restart does not end the others.
                failure = failure or error
                continue
            if best is None or _bridge._reached(run) > _bridge._reached(best):
                best = run
            if self.progress.is_stopped:
                break
        self.progress.end()
        if best is None:
            raise NumericalError(f"{_bridge._ILL_DEFINED} Here: {failure}")
        return best

    def _init(self, is_continued):
        """The given parts of the start, and the method for the others."""
        model = self.model
        if is_continued:
            return (model.weights_, model.means_, model.covariances_), None
        return _bridge._given(model, self.n_features), _bridge.STARTS[model.init_params]

    def _start(self, given, word, restart):
        """The first mixture, and how its rows are stored, from the sample."""
        found = {}
        if any(part is None for part in given):
            found = self._on_sample(word, restart)
            rest = (found["weights"], found["means"], found["covariances"])
            given = tuple(r if g is None else g for g, r in zip(given, rest))
        start = self._on_sample(tuple(np.ascontiguousarray(part, dtype=np.float64) for part in given), restart)
        # Always that of the first restart's method, if there is one: the rows are loaded once.
        self.storage = getattr(self, "storage", None) or start["storage"]
        return {**start, "empty": []}

    def _on_sample(self, init, restart):
        model = self.model
        options = {
            "n_components": model.n_components,
            "covariance_type": model.covariance_type,
            "n_init": 1,
            "init_rows": None,
            "tol": model.tol,
            "max_iter": 0,
            "reg_covar": model.reg_covar,
            "seed": (self.seed + restart) % 2**64,
        }
        # On the CPU, so that the start does not depend on the client's machine.
        place = {**self.held.place, "device": "cpu"}
        return _core.fit(self.sample, options, place, init, self.sample_weights)

    def _run(self, found, restart, last):
        """EM from a start; `last` is the lower bound that the first one is compared with, if any."""
        model, kind = self.model, self.model.covariance_type
        found["trace"], found["converged"] = [], False
        while len(found["trace"]) < model.max_iter and not found["converged"] and not self.progress.is_stopped:
            iteration = len(found["trace"]) + 1
            given = (kind, found["weights"], found["means"], found["covariances"])
            with _at(iteration):
                arguments = (given, self.held.fit, self.storage, self.held.place)
                total = added(self.held.each(_partitions.e_step, *arguments))
                step = total.maximise(given, model.reg_covar)
            mean = total.log_likelihood / total.total_weight
            change = math.inf if last is None else mean - last
            last = mean
            found.update(step, trace=[*found["trace"], mean], converged=abs(change) < model.tol)
            if self.progress.follow is not None:
                self.progress.follow(restart, iteration, mean, change)
        return found


def added(statistics):
    """The sum of byte forms, in order."""
    first, *others = map(_core.Statistics.from_bytes, statistics)
    for other in others:
        first = first.plus(other)
    return first


@contextmanager
def _at(iteration):
    """Name the iteration in numerical errors, which count it as the first: each step is a call of its own."""
    try:
        yield
    except NumericalError as error:
        raise NumericalError(str(error).replace("iteration 1:", f"iteration {iteration}:")) from None
