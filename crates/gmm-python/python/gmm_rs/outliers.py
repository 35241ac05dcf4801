"""Outliers: the rows whose density under a mixture is below a threshold."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _core, _evaluation, _inputs, _mixtures
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError

__all__ = ["GaussianMixtureDetector"]

# The probability of the highest-density region with contamination='auto'.
_LEVEL = 0.99


class GaussianMixtureDetector(OutlierMixin, BaseEstimator):
    """Outlier detection by the density of a Gaussian mixture.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type.

    contamination : 'auto' or float, default=0.1
        A number, above 0 and at most 0.5: the threshold is the quantile of the log densities of the training rows
        below which at most this share of their weight lies. 'auto': the threshold is that of the highest-density region
        with a probability of 0.99 under the mixture itself (Hyndman 1996), whatever the rows.

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
        The fitted mixture.

    offset_ : float
        The threshold: the log density below which a row is an outlier.

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
    >>> from gmm_rs.datasets import make_gmm
    >>> from gmm_rs.outliers import GaussianMixtureDetector
    >>> X, y = make_gmm(500, 2, 2, random_state=0)
    >>> model = GaussianMixtureDetector(2, contamination=0.02, random_state=0).fit(X)
    >>> int((model.predict(X) == -1).sum()), model.predict([[1e3, 1e3]]).tolist()
    (10, [-1])
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "contamination": [StrOptions({"auto"}), Interval(Real, 0, 0.5, closed="right")],
        **_mixtures.CONSTRAINTS,
    }

    _doc_link_module = "gmm_rs"
    _doc_link_template = ""

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        contamination=0.1,
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
        self.contamination = contamination
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
    def fit(self, X, y=None, sample_weight=None):
        """Fit the mixture and choose the threshold.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows, also for the threshold.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        weights = _inputs.weights(sample_weight, rows)
        estimator = _mixtures.mixture(self, self.n_components, self.covariance_type)
        self.mixture_ = _mixtures.fit(estimator, rows, weights)
        self.n_iter_, self.converged_ = self.mixture_.n_iter_, self.mixture_.converged_
        if self.contamination == "auto":
            self.offset_ = _core.region_threshold(_mixtures.given(self.mixture_), _LEVEL, 0, place(self))
        else:
            densities = np.asarray(_evaluation.log_densities(self.mixture_, rows), dtype=np.float64)
            self.offset_ = _core.outlier_threshold(densities, float(self.contamination), weights)
        return self

    def score_samples(self, X):
        """Compute the log density of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_prob : ndarray of shape (n,)
            Log density; the lower, the more abnormal.
        """
        check_is_fitted(self)
        return _evaluation.log_densities(self.mixture_, _inputs.rows(self, X, reset=False, by_name=True))

    def decision_function(self, X):
        """Compute the log density of each row minus the threshold.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        decision : ndarray of shape (n,)
            Negative for outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X):
        """Predict whether each row is an outlier.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        is_inlier : ndarray of shape (n,)
            -1 for outliers, 1 for all other rows.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    @classmethod
    def load(cls, path, **parameters):
        """Read a model file with a threshold, written by :func:`gmm_rs.save` or ``gmm outliers --save``.

        Parameters
        ----------
        path : path
            Model file.
        **parameters
            Parameters of the estimator, such as ``device="cpu"``.

        Returns
        -------
        model : GaussianMixtureDetector
            With the mixture, the threshold and, if it was chosen for one, the contamination of the file.
        """
        from gmm_rs.files import load

        threshold = _core.read_model(path)["outliers"]
        if threshold is None:
            raise ParameterError(f"{path}: the model has no threshold: use `gmm outliers --save`, or fit a detector")
        estimator = load(path)
        log_density, contamination, _ = threshold
        known = {name: getattr(estimator, name) for name in ("n_components", "covariance_type", "tol", "reg_covar")}
        known["contamination"] = "auto" if contamination is None else contamination
        model = cls(**{**known, **parameters})
        estimator.set_params(device=model.device, precision=model.precision, n_jobs=model.n_jobs)
        model.mixture_, model.offset_ = estimator, log_density
        for name in ("n_features_in_", "feature_names_in_", "n_iter_", "converged_"):
            if hasattr(estimator, name):
                setattr(model, name, getattr(estimator, name))
        return model

    def _threshold(self):
        """Log density, contamination and level, for a model file."""
        if self.contamination == "auto":
            return float(self.offset_), None, _LEVEL
        return float(self.offset_), float(self.contamination), None
