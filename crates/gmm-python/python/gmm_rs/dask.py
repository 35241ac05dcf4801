"""`GaussianMixture` for data on a Dask cluster, with scikit-learn's interface.

Three lines::

    from gmm_rs.dask import GaussianMixture

    model = GaussianMixture(n_components=16, random_state=0).fit(X)  # A dask.array, a dask.dataframe, ..
    labels = model.predict(X)  # Lazy.

The partitions of the data stay on their workers, which need memory for about twice their rows. Each iteration sends the
parameters to them, and gets the sums of each partition back: ``k * d * d`` numbers for 'full' covariances. ``n``, ``k``
and ``d`` are the numbers of rows, components and columns.
"""

import math
import warnings

import numpy as np
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _partitions, _rules, mixture
from gmm_rs._dask_fit import DaskFit, is_lazy, partitions
from gmm_rs._threads import threads
from gmm_rs.exceptions import DataError, ParameterError

__all__ = ["GaussianMixture"]


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

    prior : None, default=None
        Another value is an error, since a fit on a cluster maximises the likelihood.

    floor : float, default=0.0
        As for `prior`.

    floor_relative : float, default=0.0
        As for `prior`.

    drop_starved : None, default=None
        As for `prior`.

    labels : None, default=None
        As for `prior`.

    fixed_weights : None, default=None
        As for `prior`.

    fixed_means : None, default=None
        As for `prior`.

    fixed_covariances : None, default=None
        As for `prior`.

    shared_covariances : None, default=None
        As for `prior`.

    noise : None, default=None
        As for `prior`.

    noise_volume : None, default=None
        As for `prior`.

    missing : 'error', default='error'
        As for `prior`: NaN is an error.

    truncated : None, default=None
        As for `prior`.

    factors : None, default=None
        As for `prior`.

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
        _rules.only_likelihood(self, "a fit on a cluster maximises the likelihood")
        if self.missing != "error":
            raise ParameterError(f"missing={self.missing!r}: a fit on a cluster takes no missing values")
        parts, weights = partitions(X, sample_weight)
        seed = _bridge.seed(self.random_state)
        with _partitions.Held(parts, weights, self._place()) as held:
            fit = DaskFit(self, held, seed)
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
