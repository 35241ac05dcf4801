"""Mixtures with scikit-learn's interface, computed by the engines of this package."""

import math
from numbers import Integral, Real

from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from gmm_rs import _bridge, _evaluation, _inputs, _measured, _missing
from gmm_rs._base import Mixture
from gmm_rs._bayesian import BayesianGaussianMixture
from gmm_rs._beyond_sklearn import BeyondSklearn
from gmm_rs._limits import Limits
from gmm_rs.exceptions import ParameterError

__all__ = ["BayesianGaussianMixture", "GaussianMixture", "Limits"]


class GaussianMixture(BeyondSklearn, _measured.MeasuredMixture, Mixture):
    """Gaussian mixture model, fitted by EM on a multi-core CPU or an NVIDIA GPU.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.GaussianMixture`, and the same initial
    parameters give the same fit. The same `random_state` gives other random initialisations than scikit-learn's; they
    are the same on every machine. Results do not lose precision if the data are far from the origin or float32.

    Predictions use the current values of `weights_`, `means_` and `precisions_cholesky_`, which a program may also set
    itself; any square root ``U`` of a precision ``U @ U.T`` is valid. They are computed in the wider dtype of rows and
    attributes.

    Parameters
    ----------
    n_components : int, default=1
        Number of components ``k``, at most the number of rows.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        'full': each component has its own covariance matrix; 'tied': all components share one matrix; 'diag': each
        component has its own diagonal matrix; 'spherical': each component has a single variance.

    tol : float, default=1e-3
        Convergence threshold. EM stops when the mean log-likelihood changes by less than this.

    reg_covar : float, default=1e-6
        Non-negative regularization added to the diagonal of the covariances, in squared units of the data.

    max_iter : int, default=100
        Maximum number of EM iterations. 0 returns the initial parameters.

    n_init : int, default=1
        Number of initialisations. The best result is kept.

    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data', 'tree', 'best', 'mix-up'}, default='kmeans'
        Initialisation method. 'kmeans': k-means clusters; 'k-means++': each row belongs to the nearest k-means++
        centre; 'random': random responsibilities; 'random_from_data': random rows as means, with the covariance of all
        rows; 'tree': model-based agglomeration of at most 2000 rows, as in mclust; 'best': the best of 'tree', 'kmeans'
        and eight times 'random_from_data' by likelihood after ten iterations; 'mix-up': one component, split again and
        again with EM in between. Row weights act like repeated rows, except with 'random': a row of weight 2 draws its
        responsibilities once and counts twice, while two equal rows draw twice.

    weights_init : array-like of shape (k,), default=None
        Initial component weights; they sum to 1.

    means_init : array-like of shape (k, d), default=None
        Initial means.

    precisions_init : array-like, default=None
        Initial precisions (inverses of the covariances), with the shape of `covariances_`. Initial parameters that are
        None come from `init_params`.

    random_state : int, RandomState instance or None, default=None
        Random seed of the initialisation and of :meth:`sample`.

    warm_start : bool, default=False
        Whether `fit` continues from the result of the previous fit.

    verbose : int, default=0
        1 prints initializations and iterations, 2 also times and changes.

    verbose_interval : int, default=10
        Number of iterations between prints.

    device : str, default='auto'
        'auto' takes the first NVIDIA GPU or the CPU, whichever is expected to finish first; 'cpu'; 'cuda' or 'cuda:1',
        an error if that GPU cannot be used; 'cuda:0,1' or 'cuda:all', several GPUs with a share of the rows each;
        'reference', a simple and slow implementation for checks.

    precision : {'f32', 'f64', 'fast'}, default=None
        Precision in which rows are stored and multiplied; sums are always float64. None means the precision of the
        data. 'fast' means 'f32', and lets `fit` iterate in fp16 (11 significant bits) on a GPU if that is faster;
        `fast_loss_` is the measured loss of accuracy.

    n_jobs : int, default=None
        Number of CPU threads; -1 means all cores, -2 all but one. None means the first of these that is set: `n_jobs`
        of the joblib context (``joblib.parallel_config``), a limit set by threadpoolctl (``threadpool_limits``), the
        environment variable ``RAYON_NUM_THREADS``, then ``OMP_NUM_THREADS``, which joblib sets in its worker processes
        (``inner_max_num_threads``); else all cores available to the process. The same number of threads gives the same
        bits. The check for NaN and infinity in large data always uses all cores.

    init_rows : int, default=None
        Number of rows, spread evenly over the data, on which 'kmeans' and 'k-means++' run in each initialisation. None:
        the larger of 32768 and ``64 k`` if there are more than twice as many rows, else all. Clusters of a few rows
        among millions may need more.

    callback : callable, default=None
        ``callback(iteration, lower_bound)`` is called after each iteration (on a GPU, after some iterations) with the
        number of the iteration, counted from 1 in each initialisation, and its value in `lower_bounds_`. If it returns
        a true value, the fit stops and keeps the best result so far, without a warning. If it raises, the fit stops and
        the estimator is unchanged.

    prior : {'conjugate'} or dict, default=None
        'conjugate' maximises the posterior density under a conjugate prior instead of the likelihood: that of Fraley and
        Raftery (2007), made from the data, as in mclust. Components cannot collapse onto a few rows, and the bounds
        in `lower_bounds_` include the logarithm of the prior density over the total row weight. With this,
        `floor`, `floor_relative` or `drop_starved` a fit of finite data always ends with a model. A dict gives parts of
        that prior: 'mean' (d,), 'shrinkage' (rows that it is worth), 'degrees_of_freedom', 'scale' with the shape of one
        covariance, and 'concentration', at least 1, of the weights' Dirichlet prior; the others are those of 'conjugate'.

    floor : float, default=0.0
        Smallest variance of a component in any direction, in squared units of the data.

    floor_relative : float, default=0.0
        Smallest variance of a component, as a fraction of the variance of each column.

    drop_starved : float, default=None
        Components whose rows count at most this, or whose weight is at most 1e-5, are dropped during the fit; the
        fitted arrays then have fewer than `n_components` components. Kaldi uses 10.

    labels : {'y'}, default=None
        'y': `fit` takes from `y` the known component of each row, from 0, and -1 where it is unknown; labelled rows keep
        their component. None: `y` is ignored, as in scikit-learn, so that a pipeline which passes its target to all
        steps gets the same fit as before.

    fixed_weights : list of int or 'all', default=None
        Components whose weight stays that of `weights_init`, to the bit; the other weights share the rest. With
        `warm_start` and for a fit that continues, the weights of the last fit stay.

    fixed_means : list of int or 'all', default=None
        Components whose mean stays that of `means_init`.

    fixed_covariances : list of int or 'all', default=None
        Components whose covariance stays that of `precisions_init`.

    shared_covariances : list of lists of int, or 'all', default=None
        Groups of components that share one covariance. Not for 'tied', where all do.

    noise : 'auto', float or array-like of bool of shape (n,), default=None
        Adds a uniform component for rows that belong to no other (Banfield and Raftery 1993), as in mclust. At the start
        the noise is what nearest-neighbour cleaning finds ('auto'), this share of the rows with the farthest neighbours,
        or the given rows. The label of noise is -1, and `predict_proba` has it as a last column. `weights_` are those of
        a row that is not noise. See `noise_weight_`.

    noise_volume : float, default=None
        Hypervolume of the region of the noise, mclust's ``1 / Vinv``. None: that of the smaller of two boxes around the
        rows, along the columns and along the principal axes.

    missing : {'error', 'em', 'drop'}, default='error'
        What NaN in the rows means. 'error': invalid input. 'em': a missing value, taken to be missing at random; the fit
        maximises the likelihood of the observed values (Ghahramani and Jordan 1994), and predictions use the densities of
        the observed values. 'drop': `fit` leaves such rows out; predictions refuse them. See :meth:`impute`.

    truncated : int, default=None
        Truncated EM: each row counts for this many components only, those that explain it best, which are searched for
        near those it had before. For thousands of components of any kind but 'tied', on the CPU unless ``device`` names a
        GPU; start with ``init_params='random_from_data'``, since k-means compares all rows with all components.
        `lower_bound_` then is a lower bound of the mean log-likelihood.

    factors : int, default=None
        Mixture of factor analysers: each covariance is ``loadings @ loadings.T + diag(uniquenesses)`` with this many
        factors, at least 1 and fewer than columns. For 'full', of many columns or few rows; fewer parameters than a full
        covariance, more than a diagonal one. Uniquenesses are at least `reg_covar`.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Component weights.

    means_ : ndarray of shape (k, d)
        Component means.

    covariances_ : ndarray
        Component covariances, of shape (k, d, d) for 'full', (d, d) for 'tied', (k, d) for 'diag', (k,) for
        'spherical'.

    precisions_ : ndarray
        Component precisions, the inverses of the covariances, with the shape of `covariances_`.

    precisions_cholesky_ : ndarray
        Upper triangular Cholesky factors ``U`` of the precisions ``U @ U.T``; for 'diag' and 'spherical' the square
        roots of the precisions. With the shape of `covariances_`.

    converged_ : bool
        Whether the best fit converged.

    n_iter_ : int
        Number of EM iterations of the best fit.

    lower_bound_ : float
        Mean log-likelihood at the last E-step of the best fit.

    lower_bounds_ : list of float, of length `n_iter_`
        Mean log-likelihood at every E-step of the best fit.

    loadings_ : ndarray of shape (k, d, factors)
        Loadings of the factors, known up to a rotation of them. Exists only after a fit with `factors`.

    uniquenesses_ : ndarray of shape (k, d)
        Variances that are not of the factors. Exists only after a fit with `factors`.

    noise_weight_ : float
        Share of noise. This and the next two exist only after a fit with `noise`.

    noise_log_volume_ : float
        Logarithm of the volume: the density of noise is ``exp(-noise_log_volume_)`` everywhere.

    noise_region_ : dict or None
        The box from which :meth:`sample` draws noise: 'lower' and 'upper', and perhaps 'rotation'.

    clusters_ : ndarray of shape (k,)
        The cluster of each component, if the model was read from a file that has clusters.

    n_features_in_ : int
        Number of columns ``d`` seen during `fit`.

    feature_names_in_ : ndarray of shape (d,)
        Names of the columns seen during `fit`. Defined only if all names are strings.

    engine_ : str
        The engine used: 'cpu', 'cuda:0', ..

    fast_loss_ : dict of float, or None
        Loss of accuracy if `precision='fast'` ran in fp16, else None. It is the difference between one fp16 iteration
        and one full-precision iteration from the fitted mixture: 'log_likelihood' per row, 'weights', 'means' in
        standard deviations, and 'covariances' relative to their norm.

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
        **Mixture._parameter_constraints,
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "precision": [StrOptions({"f32", "f64", "fast"}), None],
        "prior": [StrOptions({"conjugate"}), dict, None],
        "floor": [Interval(Real, 0.0, None, closed="left")],
        "floor_relative": [Interval(Real, 0.0, None, closed="left")],
        "drop_starved": [Interval(Real, 0.0, None, closed="left"), None],
        "labels": [StrOptions({"y"}), None],
        "fixed_weights": ["array-like", StrOptions({"all"}), None],
        "fixed_means": ["array-like", StrOptions({"all"}), None],
        "fixed_covariances": ["array-like", StrOptions({"all"}), None],
        "shared_covariances": [list, tuple, StrOptions({"all"}), None],
        "noise": [StrOptions({"auto"}), Interval(Real, 0.0, 1.0, closed="neither"), "array-like", None],
        "noise_volume": [Interval(Real, 0.0, None, closed="neither"), None],
        "missing": [StrOptions({"error", "em", "drop"})],
        "truncated": [Interval(Integral, 1, None, closed="left"), None],
        "factors": [Interval(Integral, 1, None, closed="left"), None],
    }

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
        prior=None,
        floor=0.0,
        floor_relative=0.0,
        drop_starved=None,
        labels=None,
        fixed_weights=None,
        fixed_means=None,
        fixed_covariances=None,
        shared_covariances=None,
        noise=None,
        noise_volume=None,
        missing="error",
        truncated=None,
        factors=None,
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
        self.prior = prior
        self.floor = floor
        self.floor_relative = floor_relative
        self.drop_starved = drop_starved
        self.labels = labels
        self.fixed_weights = fixed_weights
        self.fixed_means = fixed_means
        self.fixed_covariances = fixed_covariances
        self.shared_covariances = shared_covariances
        self.noise = noise
        self.noise_volume = noise_volume
        self.missing = missing
        self.truncated = truncated
        self.factors = factors

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "em"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, noise=None, projection=None, limits=None):
        """Estimate model parameters with the EM algorithm.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows. float32 and float64 arrays in row-major order are not copied; arrays on an NVIDIA GPU stay there.

        y : array-like of shape (n,), default=None
            Ignored unless ``labels='y'``: then the component of each row, from 0, and -1 where it is unknown.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows, a row of weight 0 is ignored, which also trains on
            a subset of the rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows: standard deviations (not variances) of independent errors, or covariances.
            The fit then finds the mixture of the true rows, without the errors (extreme deconvolution; Bovy, Hogg and
            Roweis 2011), on the CPU, or on a GPU if `device` names one (up to 16 columns; any number if errors are
            independent and covariances 'diag' or 'spherical'). 0 is exact; with ``missing='em'`` values may be missing
            too. Not to be confused with the parameter `noise`, a component of rows that belong to no other.

        projection : array-like of shape (n, m, d), default=None
            Projections ``R`` of the rows: `X`, of shape (n, m), then holds ``R @ v`` of true rows ``v`` of `d` values, and
            `noise` is that of the m values; None is exact. On the CPU.

        limits : Limits, default=None
            Values that are censored or rounded, and truncation of the rows (:class:`Limits`). The fit then finds the
            mixture of the true rows by EM (Lee and Scott 2012), on the CPU. With ``missing='em'`` values may be missing
            too. Not with `noise` and `projection`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If data or parameters are invalid (the message names row and column, or component), or if a covariance is
            singular (the message names component and column). All exception classes are in :mod:`gmm_rs.exceptions`.
        """
        self._fit(X, y, sample_weight, noise, projection, limits)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the parameters with one batch of rows, by online EM (Cappé and Moulines 2009).

        Memory does not grow with the number of batches, and each row is read once. The first call finds the start by
        `init_params` on its batch, so that should have many rows per component, and makes one iteration of EM. Call
        number t, counted from 0, then gives its batch the share ``(t + 2) ** -0.7`` of the running average of the
        sufficient statistics, if all batches have the same total weight. After `fit`, the first batch has the share of
        call 1. `tol`, `max_iter`, `warm_start`, `verbose` and `callback` have no effect.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows: at least `n_components` in the first call. The order of all batches should be random.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights, as for :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator. `n_iter_` is the number of calls, `lower_bounds_` has the mean log-likelihood of each
            batch before its step, and `converged_` is False. A pickle holds the running average. The updates start from
            that average: attributes changed in between have no effect on it.
        """
        is_first = not hasattr(self, "converged_")
        rows = _inputs.rows(self, X, reset=is_first, ensure_min_samples=2 if is_first else 1)
        self.engine_ = _bridge.partial_fit(self, rows, _inputs.weights(sample_weight, rows))
        _bridge.as_given(self, X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_predict(self, X, y=None, sample_weight=None, *, noise=None, projection=None, limits=None):
        """Fit the model and predict the component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : array-like of shape (n,), default=None
            As for :meth:`fit`.

        sample_weight : array-like of shape (n,), default=None
            Row weights, as for :meth:`fit`.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n,)
            Most probable component of each row.
        """
        rows, left_out = self._fit(X, y, sample_weight, noise, projection, limits)
        if left_out:
            raise ParameterError("missing='drop' left rows out of the fit, so they have no label: use missing='em'")
        return _inputs.like(X, _evaluation.labels(self, rows))

    def _fit(self, X, y, sample_weight, noise=None, projection=None, limits=None):
        with _missing.named(self):
            rows = _measured.rows(self, X, noise, projection, limits, reset=True, ensure_min_samples=2)
            weights, labels = _inputs.weights(sample_weight, rows), _bridge.labels_of(self, y, rows.shape[0])
            n = len(rows)
            if self.missing == "drop":
                rows, weights, labels = _missing.complete(rows, weights, labels)
            self.engine_ = _bridge.fit(self, rows, weights, labels)
        _bridge.as_given(self, X)
        return rows, n - len(rows)

    def bic(self, X, *, noise=None, projection=None, limits=None):
        """Compute the Bayesian information criterion (BIC) on `X`; lower is better.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        bic : float
        """
        n, log_likelihood = _measured.rows_and_log_likelihood(self, X, noise, projection, limits)
        return -2 * log_likelihood + self._n_parameters() * math.log(n)

    def aic(self, X, *, noise=None, projection=None, limits=None):
        """Compute the Akaike information criterion (AIC) on `X`; lower is better.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        aic : float
        """
        _, log_likelihood = _measured.rows_and_log_likelihood(self, X, noise, projection, limits)
        return -2 * log_likelihood + 2 * self._n_parameters()

    def _n_parameters(self):
        return _evaluation.n_parameters(self)
