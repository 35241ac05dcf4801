"""`BayesianGaussianMixture` with scikit-learn's interface, computed by the engines of this package."""

from numbers import Real

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bayes, _bridge, _convert, _core, _evaluation, _inputs
from gmm_rs._base import Mixture, count
from gmm_rs._given import Parameters
from gmm_rs._place import place

__all__ = ["BayesianGaussianMixture"]


class BayesianGaussianMixture(Mixture):
    """Variational Bayesian estimation of a Gaussian mixture, on a multi-core CPU or an NVIDIA GPU.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.BayesianGaussianMixture`; from the same
    posterior, an iteration gives the same posterior. There are these differences:

    - The bounds in `lower_bound_` and `lower_bounds_` include all constants, which scikit-learn leaves out. So bounds of
      fits to the same data can be compared whatever their `n_components`, `covariance_type` and priors; ``lower_bound_``
      is a lower bound of the logarithm of the evidence. They are evaluated after each E-step, scikit-learn's after each
      M-step.
    - For 'diag' and 'spherical' covariances of several columns, the E-step takes the expectation of the log precision
      under the Gamma distributions of these models. scikit-learn takes that of a Wishart distribution for all kinds.
    - The same `random_state` gives other random initialisations than scikit-learn's; they are the same on every machine.

    Parameters
    ----------
    n_components : int, default=1
        Largest number of components ``k``. Components that the data do not need get a weight near zero.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        'full': each component has its own covariance matrix; 'tied': all components share one matrix; 'diag': each
        component has its own diagonal matrix; 'spherical': each component has a single variance.

    tol : float, default=1e-3
        Convergence threshold. The fit stops when the lower bound, over all rows, changes by less than this.

    reg_covar : float, default=1e-6
        Non-negative regularization added to the variances of each component's rows, in squared units of the data. Only
        with 0 is the bound certain never to fall.

    max_iter : int, default=100
        Maximum number of iterations. 0 returns the posterior of the initialisation.

    n_init : int, default=1
        Number of initialisations. The result with the highest lower bound is kept.

    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data', 'tree', 'best', 'mix-up'}, default='kmeans'
        Initialisation method, as for :class:`GaussianMixture`. Its mixture is turned into a posterior.

    weight_concentration_prior_type : {'dirichlet_process', 'dirichlet_distribution'}, default='dirichlet_process'
        Family of the prior of the weights: an infinite mixture, truncated at `n_components`, or a finite one.

    weight_concentration_prior : float, default=None
        Concentration of that prior. A small one leaves more components empty. None means ``1 / n_components``.

    mean_precision_prior : float, default=None
        Number of rows that the prior of a mean is worth. None means 1.

    mean_prior : array-like of shape (d,), default=None
        Prior mean of the means. None means the mean of the data.

    degrees_of_freedom_prior : float, default=None
        Number of rows that the prior of a covariance is worth; above ``d - 1`` for 'full' and 'tied'. None means ``d``.

    covariance_prior : float or array-like, default=None
        Prior scale of the covariances, `degrees_of_freedom_prior` times the expected covariance: of shape (d, d) for
        'full' and 'tied', (d,) for 'diag', one number for 'spherical'. None means the covariance of the data.

    random_state : int, RandomState instance or None, default=None
        Random seed of the initialisation, of :meth:`sample` and of :meth:`sample_posterior`.

    warm_start : bool, default=False
        Whether `fit` continues from the posterior of the previous fit.

    verbose : int, default=0
        1 prints initializations and iterations, 2 also times and changes.

    verbose_interval : int, default=10
        Number of iterations between prints.

    device : str, default='auto'
        'auto', 'cpu', 'cuda', 'cuda:1', 'cuda:0,1', 'cuda:all' or 'reference', as for :class:`GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied; sums are always float64. None means the precision of the
        data.

    n_jobs : int, default=None
        Number of CPU threads, as for :class:`GaussianMixture`.

    init_rows : int, default=None
        Number of rows on which 'kmeans' and 'k-means++' run, as for :class:`GaussianMixture`.

    callback : callable, default=None
        ``callback(iteration, lower_bound)`` is called after each iteration, as for :class:`GaussianMixture`.

    moves : bool, default=False
        Whether components are reordered, merged, deleted and added after the iterations, as long as that raises the
        lower bound. Often better than several `n_init`, and faster.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Posterior means of the component weights.

    means_ : ndarray of shape (k, d)
        Posterior means of the component means.

    covariances_ : ndarray
        Inverses of the expected precisions, of shape (k, d, d) for 'full', (d, d) for 'tied', (k, d) for 'diag', (k,)
        for 'spherical'.

    precisions_ : ndarray
        Expected precisions, with the shape of `covariances_`.

    precisions_cholesky_ : ndarray
        Upper triangular Cholesky factors ``U`` of the precisions ``U @ U.T``; for 'diag' and 'spherical' the square
        roots of the precisions. With the shape of `covariances_`.

    converged_ : bool
        Whether the best fit converged.

    n_iter_ : int
        Number of iterations of the best fit.

    lower_bound_ : float
        Lower bound of the log evidence at the last E-step of the best fit, with all constants.

    lower_bounds_ : list of float, of length `n_iter_`
        Lower bound at every E-step of the best fit.

    weight_concentration_prior_ : float
        Concentration of the prior of the weights.

    weight_concentration_ : tuple of two ndarrays of shape (k,), or ndarray of shape (k,)
        Posterior of the weights: the two parameters of the Beta distributions of a Dirichlet process, or the
        concentrations of a Dirichlet distribution.

    mean_precision_prior_ : float
        Number of rows that the prior of a mean is worth.

    mean_precision_ : ndarray of shape (k,)
        Number of rows, with those of the prior, from which each mean is known.

    mean_prior_ : ndarray of shape (d,)
        Prior mean of the means.

    degrees_of_freedom_prior_ : float
        Number of rows that the prior of a covariance is worth.

    degrees_of_freedom_ : ndarray of shape (k,), or float for 'tied'
        Number of rows, with those of the prior, from which each covariance is known; for 'tied' over ``k``.

    covariance_prior_ : float or ndarray
        Prior scale of the covariances.

    n_features_in_ : int
        Number of columns ``d`` seen during `fit`.

    feature_names_in_ : ndarray of shape (d,)
        Names of the columns seen during `fit`. Defined only if all names are strings.

    engine_ : str
        The engine used: 'cpu', 'cuda:0', ..

    See Also
    --------
    GaussianMixture : Maximum likelihood.

    References
    ----------
    .. [1] Bishop, Christopher M. (2006). Pattern Recognition and Machine Learning, section 10.2. Springer.
    .. [2] Attias, Hagai (2000). A variational Bayesian framework for graphical models. Advances in Neural Information
       Processing Systems 12.
    .. [3] Blei, David M. and Michael I. Jordan (2006). Variational inference for Dirichlet process mixtures. Bayesian
       Analysis 1(1).

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.mixture import BayesianGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(200, 2)), rng.normal(size=(100, 2)) + 9])
    >>> model = BayesianGaussianMixture(n_components=6, max_iter=1000, random_state=0).fit(X)
    >>> sorted(model.weights_[model.weights_ > 0.01].round(1).tolist())
    [0.3, 0.7]
    """

    _parameter_constraints: dict = {
        **Mixture._parameter_constraints,
        "weight_concentration_prior_type": [StrOptions(set(_bayes.FAMILIES))],
        "weight_concentration_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_precision_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_prior": [None, "array-like"],
        "degrees_of_freedom_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "covariance_prior": [None, "array-like", Interval(Real, 0.0, None, closed="neither")],
        "precision": [StrOptions({"f32", "f64"}), None],
        "moves": ["boolean"],
    }

    def __init__(
        self,
        *,
        n_components=1,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=None,
        mean_precision_prior=None,
        mean_prior=None,
        degrees_of_freedom_prior=None,
        covariance_prior=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
        device="auto",
        precision=None,
        n_jobs=None,
        init_rows=None,
        callback=None,
        moves=False,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        self.init_rows = init_rows
        self.callback = callback
        self.moves = moves

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Estimate the posterior by variational Bayes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows. float32 and float64 arrays in row-major order are not copied; arrays on an NVIDIA GPU stay there.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows, a row of weight 0 is ignored.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If data or parameters are invalid; the message names row and column, or parameter.
        """
        self._fit(X, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model and predict the component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights, as for :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n,)
            Most probable component of each row.
        """
        rows = self._fit(X, sample_weight)
        return _inputs.like(X, _evaluation.labels(_bayes.Expectation(self), rows))

    def _fit(self, X, sample_weight):
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        self.engine_ = _bayes.fit(self, rows, _inputs.weights(sample_weight, rows))
        _bridge.as_given(self, X)
        return rows

    def _e_step(self):
        expectation = _bayes.Expectation(self)
        return expectation, expectation.log_scale

    def score_samples(self, X):
        """Compute what scikit-learn calls the log-likelihood of each row.

        It is the logarithm of ``sum_c exp(E ln(weight_c density_c(x)))``, the sum of the terms of the E-step. That is
        not a density, and a little smaller than one: for the density of a new row see :meth:`predictive_log_density`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_prob : ndarray of shape (n,)
            Value of each row; ``-inf`` if the density of every component underflows.
        """
        found, log_scale = self._evaluated(X, "log_densities")
        return found + log_scale

    def score(self, X, y=None, sample_weight=None):
        """Compute the mean of :meth:`score_samples`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights of the mean.

        Returns
        -------
        log_likelihood : float
            Mean value.
        """
        return self._mean_log_density(X, sample_weight)

    def predictive_log_density(self, X):
        """Compute the log posterior predictive density of each row.

        The density of a new row given the data: a mixture of Student distributions, with heavier tails than the
        mixture of the posterior means. Computed on the CPU in float64.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_density : ndarray of shape (n,)
            Log density of each row.
        """
        check_is_fitted(self)
        rows = _inputs.rows(self, X, reset=False, by_name=True)
        rows = _inputs.contiguous(_inputs.on_host(rows, place(self, rows)))
        return _inputs.like(X, _core.posterior_predictive(rows, _bayes.posterior(self), place(self)))

    def sample_posterior(self, n_draws=1):
        """Draw mixtures from the posterior.

        Parameters
        ----------
        n_draws : int, default=1
            Number of mixtures to draw.

        Returns
        -------
        parameters : Parameters
            `weights` of shape (n_draws, k), `means` of shape (n_draws, k, d), and `covariances`, with the shape of
            `covariances_` after the first axis.
        """
        check_is_fitted(self)
        n = count(n_draws, "n_draws")
        drawn = _core.posterior_draws(_bayes.posterior(self), n, _bridge.seed(self.random_state))
        return Parameters(*(np.stack([one[name] for one in drawn]) for name in Parameters._fields))

    def to_sklearn(self):
        """Convert to a :class:`sklearn.mixture.BayesianGaussianMixture`, fitted if this estimator is fitted.

        Returns
        -------
        estimator : sklearn.mixture.BayesianGaussianMixture
            Without the parameters and attributes that only this class has (`device`, `precision`, `n_jobs`,
            `init_rows`, `callback`, `engine_`).
        """
        return _convert.to_sklearn_bayesian(self)

    @classmethod
    def from_sklearn(cls, estimator, **parameters):
        """Convert from a :class:`sklearn.mixture.BayesianGaussianMixture`, fitted if that estimator is fitted.

        Parameters
        ----------
        estimator : sklearn.mixture.BayesianGaussianMixture
            The estimator to convert.
        **parameters
            Further parameters of this class, such as ``device='cpu'``.

        Returns
        -------
        estimator : BayesianGaussianMixture
            Its bounds are those of `estimator`, without the constants.
        """
        return _convert.from_sklearn_bayesian(cls, estimator, parameters)


# Users know it by the module that they import it from; pickles and documentation name that.
BayesianGaussianMixture.__module__ = "gmm_rs.mixture"
