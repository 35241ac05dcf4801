"""Gaussian mixture regression: the distribution of targets given features, under a mixture of both."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from gmm_rs import _bridge, _core, _inputs, _mixtures
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError

__all__ = ["Conditional", "GaussianMixtureRegressor"]


class Conditional(NamedTuple):
    """The mixtures of the targets given each of n rows, with k components and t targets.

    Parameters
    ----------
    weights : ndarray of shape (n, k)
        Weights of the components.

    means : ndarray of shape (n, k, t)
        Means of the components.

    covariances : ndarray of shape (k, t, t)
        Covariances of the components, the same for all rows.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class _Regression(NamedTuple):
    """A mixture, its given columns and its targets, in the form that `gmm_rs._core` takes."""

    mixture: tuple
    given: list
    targets: list


class GaussianMixtureRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Gaussian mixture regression.

    A mixture is fitted to features and targets together; predictions are the mean, the standard deviation, or draws of
    the targets given the features. Each component is a linear regression, and the components' probabilities depend on
    the features (Sung 2004). One component with full covariances and ``reg_covar=0`` is the least squares fit, computed
    from the covariances of the centred data.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariances of features and targets. With 'diag' and 'spherical' the prediction within a component is constant.

    tol : float, default=1e-3
        This and the following parameters are those of :class:`~gmm_rs.mixture.GaussianMixture`.

    reg_covar : float, default=1e-6

    max_iter : int, default=100

    n_init : int, default=1

    init_params : str, default='kmeans'

    random_state : int, RandomState instance or None, default=None

    device : str, default='auto'

    precision : {'f32', 'f64', 'fast'}, default=None

    n_jobs : int, default=None

    init_rows : int, default=None

    Attributes
    ----------
    mixture_ : GaussianMixture
        The mixture of the ``d`` features, followed by the targets.

    n_iter_ : int
        Number of EM iterations.

    converged_ : bool
        Whether EM converged.

    n_features_in_ : int
        Number of features ``d``.

    n_targets_ : int
        Number of targets.

    feature_names_in_ : ndarray of shape (d,)
        Names of the features. Defined only if all names are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.regression import GaussianMixtureRegressor
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = GaussianMixtureRegressor(reg_covar=0).fit(X, [1.0, 3.5, 4.5, 7.0])
    >>> model.predict([[1.5], [4.0]]).round(6).tolist()
    [4.0, 8.75]
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        **_mixtures.CONSTRAINTS,
    }

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
        random_state=None,
        device="auto",
        precision=None,
        n_jobs=None,
        init_rows=None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        self.init_rows = init_rows

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit the mixture of features and targets.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features.

        y : array-like of shape (n,) or (n, t)
            Targets.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = _mixtures.host_rows(self, X, reset=True, ensure_min_samples=2)
        y = _mixtures.target(self, y, multi_output=True, y_numeric=True)
        check_consistent_length(rows, y)
        self._is_vector = y.ndim == 1
        y = y.reshape(len(y), -1)
        self.n_targets_ = y.shape[1]
        joint = np.hstack([rows, y.astype(np.result_type(y.dtype, np.float32), copy=False)])
        estimator = _mixtures.mixture(self, self.n_components, self.covariance_type)
        self.mixture_ = _mixtures.fit(estimator, joint, _inputs.weights(sample_weight, rows))
        self.n_iter_, self.converged_ = self.mixture_.n_iter_, self.mixture_.converged_
        return self

    def predict(self, X, return_std=False):
        """Predict the mean of the targets.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features.

        return_std : bool, default=False
            Whether to return the standard deviations too.

        Returns
        -------
        y_mean : ndarray of shape (n,) or (n, t)
            Means.

        y_std : ndarray of shape (n,) or (n, t)
            Standard deviations, only if `return_std` is True.
        """
        rows = self._rows(X)
        means, deviations = _core.regress_moments(rows, self._regression(), place(self))
        means, deviations = (self._shaped(values).astype(rows.dtype, copy=False) for values in (means, deviations))
        return (means, deviations) if return_std else means

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draw targets given the features.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features.

        n_samples : int, default=1
            Number of draws for each row.

        random_state : int, RandomState instance or None, default=0
            Random seed. Draws of a row depend only on the seed and the row's index.

        Returns
        -------
        y_samples : ndarray of shape (n, n_samples) or (n, t, n_samples)
            Draws.
        """
        rows = self._rows(X)
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ParameterError(f"n_samples is {n_samples!r}: it must be an integer of at least 1")
        seed = _bridge.seed(random_state)
        draws = _core.regress_draws(rows, self._regression(), place(self), int(n_samples), seed).swapaxes(1, 2)
        draws = draws.astype(rows.dtype, copy=False)
        return draws[:, 0] if self._is_vector else draws

    def log_density(self, X, y):
        """Compute the log density of targets given the features.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features.

        y : array-like of shape (n,) or (n, t)
            Targets.

        Returns
        -------
        log_prob : ndarray of shape (n,)
            Log density of all targets of each row.
        """
        rows = self._rows(X)
        y = _mixtures.target(self, y, multi_output=True, y_numeric=True).reshape(len(rows), -1)
        if y.shape[1] != self.n_targets_:
            raise ParameterError(f"y has {y.shape[1]} targets: the model has {self.n_targets_}")
        joint = np.ascontiguousarray(np.hstack([rows, y]), dtype=np.float64)
        found = _core.regress_log_densities(joint, self._regression(), place(self))
        return found.astype(rows.dtype, copy=False)

    def conditional(self, X):
        """Compute the mixtures of the targets given the features.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features.

        Returns
        -------
        conditional : Conditional
            A named tuple of `weights`, `means` and `covariances`.
        """
        return Conditional(*_core.regress_components(self._rows(X), self._regression(), place(self)))

    def _rows(self, X):
        check_is_fitted(self)
        return _inputs.contiguous(_mixtures.host_rows(self, X, reset=False))

    def _regression(self):
        d = self.n_features_in_
        return _Regression(_mixtures.given(self.mixture_), list(range(d)), list(range(d, d + self.n_targets_)))

    def _shaped(self, values):
        return values[:, 0] if self._is_vector else values
