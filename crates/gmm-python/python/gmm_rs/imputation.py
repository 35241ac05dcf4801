"""Imputation: missing values are replaced by what a Gaussian mixture says about them."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _core, _inputs, _mixtures
from gmm_rs.exceptions import ParameterError

__all__ = ["GaussianMixtureImputer", "Pooled", "pool"]


class Pooled(NamedTuple):
    """Estimates of imputed data sets, pooled by Rubin's rules (Rubin 1987, section 3.1).

    `variance` is the square of the standard error, ``within + (1 + 1/m) between``; `missing_information` the fraction of
    the information about the quantity that is missing.
    """

    estimate: float
    variance: float
    within: float
    between: float
    degrees_of_freedom: float
    missing_information: float


def pool(estimates, variances):
    """Pool the estimates of one quantity from several imputed data sets by Rubin's rules.

    Parameters
    ----------
    estimates : array-like of shape (m,)
        The estimate from each data set, at least two.

    variances : array-like of shape (m,)
        The squares of their standard errors.

    Returns
    -------
    pooled : Pooled

    Examples
    --------
    >>> from gmm_rs.imputation import pool
    >>> pool([2.0, 4.0], [1.0, 3.0]).variance
    5.0
    """
    arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in (estimates, variances)]
    for array, name in zip(arrays, ("estimates", "variances")):
        if array.ndim != 1:
            raise ParameterError(f"{name} has shape {array.shape}: it must have one number per imputed data set")
    return Pooled(**_core.pooled(*arrays))


class GaussianMixtureImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Imputation of missing values by a Gaussian mixture that is fitted to the rows with their missing values.

    Parameters
    ----------
    n_components : int, default=1
        Number of components. 1 is imputation by a multivariate normal distribution.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type.

    how : {'mean', 'mode', 'draw'}, default='mean'
        What replaces a missing value: its mean given the observed values of the row, its mean in the component that is
        most probable given these, or a draw.

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
        The fitted mixture, which takes missing values too.

    n_iter_ : int
        Number of EM iterations.

    converged_ : bool
        Whether EM converged.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of shape (d,)
        Names of the columns. Defined only if all names are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.imputation import GaussianMixtureImputer
    >>> X = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9], [4.0, np.nan]])
    >>> GaussianMixtureImputer().fit_transform(X)[3].round(1).tolist()
    [4.0, 7.9]
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "how": [StrOptions({"mean", "mode", "draw"})],
        **_mixtures.CONSTRAINTS,
    }

    _doc_link_module = "gmm_rs"
    _doc_link_template = ""

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        how="mean",
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
        self.how = how
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

    # Read by `_inputs.rows`: NaN is a missing value.
    missing = "em"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows, with NaN where a value is missing.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        weights = _inputs.weights(sample_weight, rows)
        estimator = _mixtures.mixture(self, self.n_components, self.covariance_type, missing="em")
        self.mixture_ = _mixtures.fit(estimator, rows, weights)
        self.n_iter_, self.converged_ = self.mixture_.n_iter_, self.mixture_.converged_
        return self

    def transform(self, X):
        """Replace missing values.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows, with NaN where a value is missing.

        Returns
        -------
        X : ndarray of shape (n, d)
            Rows in which nothing is missing; observed values are unchanged.
        """
        check_is_fitted(self)
        rows = _inputs.rows(self, X, reset=False, by_name=True)
        filled = self.mixture_.impute(np.asarray(rows), self.how)
        return filled.astype(rows.dtype, copy=False)
