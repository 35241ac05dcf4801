"""`GaussianMixture` for data on a Dask cluster, with scikit-learn's interface.

Three lines::

    from gmm_rs.dask import GaussianMixture

    model = GaussianMixture(n_components=16, random_state=0).fit(X)  # A dask.array, a dask.dataframe, ..
    labels = model.predict(X)  # Lazy.

The partitions of the data stay on their workers, which need memory for about twice their rows. Each iteration sends the
parameters to them, and gets the sums of each partition back: ``k * d * d`` numbers for 'full' covariances. ``n``, ``k`` and ``d`` are the numbers of rows, components
and columns.
"""

import math
import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _partitions, mixture
from gmm_rs._progress import Progress
from gmm_rs._threads import threads
from gmm_rs.exceptions import DataError, NumericalError, ParameterError

__all__ = ["GaussianMixture"]

# The number of rows from which the first mixture is found, as on a single machine: at least this many, or this many per
# component.
_SAMPLE, _SAMPLE_EACH = 1 << 15, 64


class GaussianMixture(mixture.GaussianMixture):
    """Gaussian mixture model, fitted by EM on the workers of a Dask cluster.

    Parameters and attributes are those of :class:`gmm_rs.mixture.GaussianMixture`. What differs:

    - `fit` takes collections of Dask. It works with a distributed client and with Dask's schedulers of one machine.
    - The first mixture comes from a sample of the rows: of `init_rows`, by default of 32768 or ``64 k`` if there are
      more than twice as many rows. EM itself uses all rows.
    - `n_jobs` is the number of threads that work on one partition, by default 1: Dask works on several partitions at
      once.
    - `device='auto'` chooses for each partition, on its worker: a GPU if the worker has one and the work is large enough.
    - Predictions are lazy collections of Dask if the input is one.

    The result has the same bits for any number of workers, also if workers die and Dask repeats their tasks: it depends on
    the partitions, their order, the parameters, and the kind of the workers' processors (with ``device='cpu'`` not on
    their GPUs).

    Parameters
    ----------
    n_components : int, default=1
        Number of components ``k``, at most the number of rows.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        As in :class:`gmm_rs.mixture.GaussianMixture`, like all parameters without another description.

    tol : float, default=1e-3
        Convergence threshold on the mean log-likelihood.

    reg_covar : float, default=1e-6
        Added to the diagonal of the covariances.

    max_iter : int, default=100
        Maximum number of EM iterations, each a pass over all partitions.

    n_init : int, default=1
        Number of initialisations. The best result is kept.

    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data'}, default='kmeans'
        Initialisation method, on the sample.

    weights_init : array-like of shape (k,), default=None
        Initial component weights.

    means_init : array-like of shape (k, d), default=None
        Initial means.

    precisions_init : array-like, default=None
        Initial precisions.

    random_state : int, RandomState instance or None, default=None
        Random seed of the sample, of the initialisation and of `sample`.

    warm_start : bool, default=False
        Whether `fit` continues from the result of the previous fit.

    verbose : int, default=0
        1 prints initializations and iterations, 2 also times and changes.

    verbose_interval : int, default=10
        Number of iterations between prints.

    device : str, default='auto'
        Where each worker computes.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied. None means the precision of the data, or 'f64' if the sample
        has rows that would lose precision in 'f32'.

    n_jobs : int, default=None
        Number of threads for one partition; None means 1.

    init_rows : int, default=None
        Number of rows of the sample.

    callback : callable, default=None
        ``callback(iteration, lower_bound)`` is called after each iteration; a true result ends the fit.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Component weights.

    means_ : ndarray of shape (k, d)
        Component means.

    covariances_ : ndarray
        Component covariances.

    precisions_ : ndarray
        Component precisions.

    precisions_cholesky_ : ndarray
        Upper triangular Cholesky factors of the precisions.

    converged_ : bool
        Whether the best fit converged.

    n_iter_ : int
        Number of EM iterations of the best fit.

    lower_bound_ : float
        Mean log-likelihood at the last E-step of the best fit.

    lower_bounds_ : list of float, of length `n_iter_`
        Mean log-likelihood at every E-step of the best fit.

    n_features_in_ : int
        Number of columns ``d``.

    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if all are strings.

    engine_ : str
        'dask'.

    fast_loss_ : None
        Always None: `precision='fast'` is not supported.

    Examples
    --------
    >>> import dask.array as da
    >>> from gmm_rs.dask import GaussianMixture
    >>> X = da.from_array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], chunks=(3, 2))
    >>> model = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> sorted(model.means_.round(6).tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.predict(X).compute().shape
    (6,)
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Estimate model parameters with the EM algorithm.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows, in partitions. An array is divided along the rows only; the chunks of a row are joined.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : dask.array, dask.dataframe.Series, list of Delayed, or array-like of shape (n,), default=None
            Row weights, in the same partitions.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If data or parameters are invalid: the message names the partition, counted from 0, and its row and column;
            or if a covariance is singular.
        """
        if self.precision == "fast":
            raise ParameterError("precision is 'fast': on a cluster it must be 'f32', 'f64' or None")
        parts, weights = partitions(X, sample_weight)
        seed = _bridge.seed(self.random_state)
        with _partitions.Held(parts, weights, self._place()) as held:
            fit = _Fit(self, held, seed)
            found = fit.best()
        if not found["converged"] and not fit.progress.is_stopped and self.max_iter > 0:
            warnings.warn(_bridge._NOT_CONVERGED, ConvergenceWarning, stacklevel=3)
        if found["empty"]:
            text = f"components {found['empty']} are empty: they kept their last mean and covariance"
            warnings.warn(text, ConvergenceWarning, stacklevel=3)
        self._set(found, fit)
        return self

    def _place(self):
        # The number of threads decides the rounding of sums, so it must not depend on the worker.
        n = 1 if self.n_jobs is None else threads(self.n_jobs)
        return {"device": self.device, "threads": n, "precision": self.precision}

    def _set(self, found, fit):
        _bridge.set_parameters(self, found, fit.dtype)
        self.converged_ = found["converged"]
        self.n_iter_ = len(found["trace"])
        self.lower_bounds_ = found["trace"]
        self.lower_bound_ = found["trace"][-1] if found["trace"] else -np.inf
        self.fast_loss_ = None
        self.engine_ = "dask"
        self.n_features_in_ = fit.n_features
        # The record of an earlier fit is not this fit's.
        self._fit_record = None
        if fit.names is not None:
            self.feature_names_in_ = np.asarray(fit.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model and predict the component of each row.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights, as for :meth:`fit`.

        Returns
        -------
        labels : dask.array or ndarray of shape (n,)
            Most probable component of each row.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def predict(self, X):
        """Predict the component of each row.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        Returns
        -------
        labels : dask.array or ndarray of shape (n,)
            Most probable component of each row, lazy if `X` is a collection of Dask.
        """
        return self._per_row(X, "predict")

    def predict_proba(self, X):
        """Evaluate the probability (responsibility) of each component for each row.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        Returns
        -------
        resp : dask.array or ndarray of shape (n, k)
            Probability of each component for each row, lazy if `X` is a collection of Dask.
        """
        return self._per_row(X, "predict_proba")

    def score_samples(self, X):
        """Compute the log density of each row.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_prob : dask.array or ndarray of shape (n,)
            Log density of each row, lazy if `X` is a collection of Dask.
        """
        return self._per_row(X, "score_samples")

    def score(self, X, y=None, sample_weight=None):
        """Compute the mean log density of the rows.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights of the mean, in the partitions of `X`.

        Returns
        -------
        log_likelihood : float
            Mean log density.
        """
        total, weight, _ = self._totals(X, sample_weight)
        return total / weight

    def bic(self, X):
        """Compute the Bayesian information criterion (BIC) on `X`; lower is better.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        Returns
        -------
        bic : float
        """
        total, _, n = self._totals(X, None)
        return -2 * total + self._n_parameters() * math.log(n)

    def aic(self, X):
        """Compute the Akaike information criterion (AIC) on `X`; lower is better.

        Parameters
        ----------
        X : dask.array, dask.dataframe, list of Delayed, or array-like of shape (n, d)
            Rows.

        Returns
        -------
        aic : float
        """
        return -2 * self._totals(X, None)[0] + 2 * self._n_parameters()

    def _totals(self, X, sample_weight):
        """Log-likelihood, total weight and number of rows, added in the order of the partitions."""
        check_is_fitted(self)
        with _partitions.Held(*partitions(X, sample_weight), self._place()) as held:
            each = held.each(_partitions.log_likelihood, self._plain())
        total, weight, n = (sum(values) for values in zip(*each))
        if n == 0:
            raise DataError("there are no rows of positive weight")
        return total, weight, n

    def _per_row(self, X, method):
        check_is_fitted(self)
        if not is_lazy(X):
            return getattr(super(), method)(X)
        import dask.array as da

        model, k = self._plain(), self.means_.shape[0]
        shape, tail = ((k,), (k,)) if method == "predict_proba" else ((), ())
        if isinstance(X, da.Array):
            self._check_columns(X)
            X = X.rechunk({1: -1})
            dtype = np.dtype(np.int64) if method == "predict" else np.result_type(X.dtype, self.means_.dtype)
            ways = {"chunks": (X.chunks[0], tail)} if tail else {"drop_axis": 1}
            meta = np.empty((0,) * (1 + len(shape)), dtype)
            of = {"model": model, "method": method, "width": dtype}
            return da.map_blocks(_partitions.predicted, X, **of, **ways, dtype=dtype, meta=meta)
        import dask

        dtype = np.dtype(np.int64) if method == "predict" else np.dtype(np.float64)
        call, model = dask.delayed(_partitions.predicted), dask.delayed(model)
        blocks = [call(part, model, method, dtype, (i,)) for i, part in enumerate(partitions(X, None)[0])]
        return da.concatenate([da.from_delayed(block, (np.nan, *shape), dtype) for block in blocks])

    def _check_columns(self, X):
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            found = f"X has shape {X.shape}" if X.ndim != 2 else f"X has {X.shape[1]} features"
            raise DataError(f"{found}, but GaussianMixture is expecting {self.n_features_in_} features as input")

    def _plain(self):
        """The fitted estimator for one process, which runs on the workers."""
        plain = mixture.GaussianMixture(**{**self.get_params(), "n_jobs": self._place()["threads"], "callback": None})
        fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
        plain.__dict__.update(fitted)
        return plain


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


class _Fit:
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
