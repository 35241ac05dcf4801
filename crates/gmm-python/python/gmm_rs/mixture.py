"""`GaussianMixture` with scikit-learn's interface, computed by this package's engines."""

import functools
import math
from numbers import Integral, Real

from sklearn.base import BaseEstimator, DensityMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _inputs
from gmm_rs._convert import from_sklearn, to_sklearn

__all__ = ["GaussianMixture"]


class GaussianMixture(DensityMixin, BaseEstimator):
    """Gaussian mixture, fitted by EM on all cores or on an NVIDIA GPU.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.GaussianMixture`, and the same start gives
    the same fit. The same `random_state` gives other random starts than scikit-learn's, the same on every machine.
    Results keep the digits that the data have, also far from the origin and in float32.

    Predictions evaluate `weights_`, `means_` and `precisions_cholesky_` as they are, which a program may set itself; any square
    root ``U`` of a precision ``U @ U.T`` will do. They are computed in the wider type of rows and attributes.

    Parameters
    ----------
    n_components : int, default=1
        Number of components ``k``, at most the number of rows.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        'full': a matrix for each component; 'tied': one matrix for all; 'diag': variances for each component;
        'spherical': one variance for each component.

    tol : float, default=1e-3
        EM stops when the mean log-likelihood changes by less than this.

    reg_covar : float, default=1e-6
        Added to the covariances' diagonals: an absolute amount, in squared units of the data.

    max_iter : int, default=100
        Most EM iterations; 0 leaves the start as it is.

    n_init : int, default=1
        Starts, of which the best fit is kept.

    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data'}, default='kmeans'
        Where EM starts. 'kmeans': k-means clusters; 'k-means++': each row belongs to the nearest of k-means++'s
        seeds; 'random': random responsibilities; 'random_from_data': random rows as means, and the covariance of all
        rows. With row weights the start is that of the repeated rows, but for 'random', where a row of weight 2 draws its
        responsibilities once and counts twice, while two equal rows draw twice.

    weights_init : array-like of shape (k,), default=None
        Component weights to start from; they sum to 1.

    means_init : array-like of shape (k, d), default=None
        Means to start from.

    precisions_init : array-like, default=None
        Inverse covariances to start from, shaped as `covariances_`. What is not given comes from `init_params`.

    random_state : int, RandomState instance or None, default=None
        Seed of starts and of :meth:`sample`.

    warm_start : bool, default=False
        Whether `fit` goes on from where the last one ended.

    verbose : int, default=0
        1 prints initializations and iterations, 2 also times and changes.

    verbose_interval : int, default=10
        Iterations between prints.

    device : str, default='auto'
        'auto' takes the first NVIDIA GPU where there is one, else the CPU; 'cpu'; 'cuda' or 'cuda:1' fail where that
        GPU cannot be used; 'reference' is slow and plain, for checks.

    precision : {'f32', 'f64', 'fast'}, default=None
        Type in which rows are held and multiplied; sums are float64 in any case. None takes the data's own. 'fast' is
        'f32', and `fit` may then iterate with 11 bits on a GPU where that is faster; `fast_loss_` says what it cost.

    n_jobs : int, default=None
        Threads on the CPU; -1 is all cores, -2 all but one. None is the first of these that there is: `n_jobs` of joblib's
        context (``joblib.parallel_config``), a limit of threadpoolctl's (``threadpool_limits``), the environment's
        ``RAYON_NUM_THREADS``, then ``OMP_NUM_THREADS``, which joblib sets in its worker processes
        (``inner_max_num_threads``), and all cores that the process may use. The same number gives the same bits. All
        cores look in any case whether all of many numbers are finite.

    init_rows : int, default=None
        Rows that 'kmeans' and 'k-means++' look at in each start, drawn evenly. None: the larger of 32768 and ``64 k``
        where there are more than twice as many, else all. Clusters of a few rows among millions may need more.

    callback : callable, default=None
        ``callback(iteration, lower_bound)`` is called after each iteration (on a GPU: after some) with its number, from 1 in
        each start, and `lower_bounds_`' value for it. Where it returns something true, the fit ends there with the
        best that it has, without a warning; what it raises ends the fit and leaves the estimator as it was.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Component weights.

    means_ : ndarray of shape (k, d)
        Component means.

    covariances_ : ndarray
        Shape (k, d, d) for 'full', (d, d) for 'tied', (k, d) for 'diag', (k,) for 'spherical'.

    precisions_ : ndarray
        Inverse covariances, shaped as `covariances_`.

    precisions_cholesky_ : ndarray
        Upper triangular factors ``U`` of the precisions ``U @ U.T``, or their roots; shaped as `covariances_`.

    converged_ : bool
        Whether the best fit converged.

    n_iter_ : int
        EM iterations of the best fit.

    lower_bound_ : float
        Mean log-likelihood at the last E-step of the best fit.

    lower_bounds_ : list of float, of length `n_iter_`
        The same at every E-step.

    n_features_in_ : int
        Columns ``d`` seen during `fit`.

    feature_names_in_ : ndarray of shape (d,)
        Their names, where all are strings.

    engine_ : str
        The engine that ran: 'cpu', 'cuda:0', ..

    fast_loss_ : dict of float, or None
        Where `precision='fast'` gave digits away, how far one iteration with fewer is from the same with all, measured at
        the end: 'log_likelihood' a row, 'weights', 'means' in standard deviations, 'covariances' relative.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.mixture import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> sorted(model.means_.round(6).tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions(set(_bridge.STARTS))],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "precision": [StrOptions({"f32", "f64", "fast"}), None],
        "n_jobs": [Integral, None],
        "init_rows": [Interval(Integral, 1, None, closed="left"), None],
        "callback": [callable, None],
    }

    # Where scikit-learn's HTML form links to. This project's pages have no public address, and scikit-learn's are of
    # another class: no link.
    _doc_link_module = "gmm_rs"
    _doc_link_template = ""

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
        device="auto",
        precision=None,
        n_jobs=None,
        init_rows=None,
        callback=None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        self.init_rows = init_rows
        self.callback = callback

    @classmethod
    @functools.cache
    def _get_param_names(cls):
        # scikit-learn reads them out of the signature anew each time.
        return super()._get_param_names()

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Estimate the parameters by EM.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows. float32 and float64 in row-major order are not copied; those on an NVIDIA GPU stay there.

        y : Ignored
            For scikit-learn's conventions.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 is the row twice, a row of weight 0 is not there.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For data or parameters that cannot be used, naming row and column or component; for a covariance that is
            singular, naming component and column. All errors of the engines are in :mod:`gmm_rs.exceptions`.
        """
        self._fit(X, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit, and give the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)

        y : Ignored

        sample_weight : array-like of shape (n,), default=None

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        return _inputs.like(X, _bridge.labels(self, self._fit(X, sample_weight)))

    def _fit(self, X, sample_weight):
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        self.engine_ = _bridge.fit(self, rows, _inputs.weights(sample_weight, rows))
        _bridge.as_given(self, X)
        return rows

    def predict(self, X):
        """The most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        labels : ndarray of shape (n,)
            The first among equals.
        """
        check_is_fitted(self)
        return _inputs.like(X, _bridge.labels(self, _inputs.rows(self, X, reset=False, by_name=True)))

    def predict_proba(self, X):
        """The probability of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        resp : ndarray of shape (n, k)
            Each row sums to 1.
        """
        check_is_fitted(self)
        return _inputs.like(X, _bridge.responsibilities(self, _inputs.rows(self, X, reset=False, by_name=True)))

    def score_samples(self, X):
        """Log density of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        log_prob : ndarray of shape (n,)
            ``-inf`` where every component's density underflows.
        """
        check_is_fitted(self)
        return _inputs.like(X, _bridge.log_densities(self, _inputs.rows(self, X, reset=False, by_name=True)))

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n, d)

        y : Ignored

        sample_weight : array-like of shape (n,), default=None
            Row weights of the mean.

        Returns
        -------
        log_likelihood : float
        """
        check_is_fitted(self)
        X = _inputs.rows(self, X, reset=False, by_name=True)
        return _bridge.score(self, X, _inputs.weights(sample_weight, X))

    def sample(self, n_samples=1):
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            How many.

        Returns
        -------
        X : ndarray of shape (n_samples, d)
            In random order, where scikit-learn's are sorted by component.

        y : ndarray of shape (n_samples,)
            The components that they come from.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ValueError(f"Invalid value for 'n_samples': {n_samples!r}. It must be an integer of at least 1.")
        drawn = _core.sample(_bridge.parameters(self), int(n_samples), _bridge.seed(self.random_state))
        return tuple(_inputs.like(self.means_, array) for array in drawn)

    def bic(self, X):
        """Bayesian information criterion on `X`; lower is better.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        bic : float
        """
        n, log_likelihood = _bridge.rows_and_log_likelihood(self, X)
        return -2 * log_likelihood + self._n_parameters() * math.log(n)

    def aic(self, X):
        """Akaike's information criterion on `X`; lower is better.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        aic : float
        """
        _, log_likelihood = _bridge.rows_and_log_likelihood(self, X)
        return -2 * log_likelihood + 2 * self._n_parameters()

    def _n_parameters(self):
        return _bridge.n_parameters(self)

    def to_sklearn(self):
        """The same estimator as :class:`sklearn.mixture.GaussianMixture`, fitted where this one is.

        Returns
        -------
        estimator : sklearn.mixture.GaussianMixture
            What only this class has (`device`, `precision`, `n_jobs`, `init_rows`, `callback`, `engine_`) is left out.
        """
        return to_sklearn(self)

    @classmethod
    def from_sklearn(cls, estimator, **parameters):
        """This class's twin of a :class:`sklearn.mixture.GaussianMixture`, fitted where that is.

        Parameters
        ----------
        estimator : sklearn.mixture.GaussianMixture
        **parameters
            Further parameters, such as ``device='cpu'``.

        Returns
        -------
        estimator : GaussianMixture
        """
        return from_sklearn(cls, estimator, parameters)
