"""Classification by Gaussian mixtures: discriminant analysis with a Gaussian or a mixture per class."""

import math
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from gmm_rs import _evaluation, _inputs, _mixtures, _semi_supervised
from gmm_rs._semi_supervised import log_sum_exp
from gmm_rs.exceptions import DataError, ParameterError
from gmm_rs.selection import _components, _kinds, select

__all__ = ["GaussianMixtureClassifier"]

# mclust's default numbers of components per class.
_BIC_COMPONENTS = range(1, 6)


class GaussianMixtureClassifier(ClassifierMixin, BaseEstimator):
    """Discriminant analysis with Gaussian mixtures.

    With ``n_components=1`` each class is one Gaussian and all classes share the structure of the covariances, which is
    eigenvalue decomposition discriminant analysis (EDDA, Bensmail and Celeux 1996): 'full' is quadratic discriminant
    analysis, 'tied' linear discriminant analysis with the pooled covariance of all classes, and 'diag' the naive Bayes
    classifier. Else each class is a mixture of its own (mixture discriminant analysis, Hastie and Tibshirani 1996;
    MclustDA, Fraley and Raftery 2002).

    Parameters
    ----------
    n_components : int, iterable of int, dict, or 'bic', default=1
        Number of components per class. A dict has the number of each class. From an iterable, the number with the
        lowest BIC is chosen for each class; 'bic' means ``range(1, 6)``.

    covariance_type : str or iterable of str, default='full'
        'full', 'tied', 'diag' or 'spherical'. Of several the one with the lowest BIC is chosen: for all classes
        together with ``n_components=1``, else for each class. With ``n_components=1`` 'tied' means one covariance for
        all classes, else one for the components of a class.

    priors : array-like of shape (n_classes,), default=None
        Prior probabilities of the classes, in the order of `classes_`. None means their shares of the training rows.

    unlabelled : object, default=None
        Rows with this label, such as -1, have no known class: they help to estimate the mixtures and priors by EM, in
        which labelled rows keep their class. Numbers of components and covariance types are chosen on the labelled rows.
        None: every label is a class, also -1.

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
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes.

    mixtures_ : list of GaussianMixture
        The mixture of each class.

    priors_ : ndarray of shape (n_classes,)
        Prior probabilities used by predictions.

    proportions_ : ndarray of shape (n_classes,)
        Shares of the classes among the training rows.

    log_likelihood_ : float
        Log-likelihood of the training rows, whether labelled or not, under the mixture of all classes with
        `proportions_`: the one that mclust prints.

    n_parameters_ : int
        Number of free parameters of that mixture.

    bic_ : float
        Bayesian information criterion; lower is better. mclust prints its negative.

    n_iter_ : int
        Number of EM iterations with unlabelled rows, else the largest of all mixtures.

    converged_ : bool
        Whether EM with unlabelled rows converged, else whether all mixtures did.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of shape (d,)
        Names of the columns. Defined only if all names are strings.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gmm_rs.classification import GaussianMixtureClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianMixtureClassifier(covariance_type=["full", "tied", "diag"], reg_covar=0).fit(X, y)
    >>> model.mixtures_[0].covariance_type, round(model.score(X, y), 2)
    ('full', 0.98)
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"bic"}), dict, "array-like", range],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"}), "array-like", set],
        "priors": ["array-like", None],
        "unlabelled": "no_validation",
        **_mixtures.CONSTRAINTS,
    }

    _doc_link_module = "gmm_rs"
    _doc_link_template = ""

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        priors=None,
        unlabelled=None,
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
        self.priors = priors
        self.unlabelled = unlabelled
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
        """Fit the mixtures of all classes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : array-like of shape (n,)
            Labels; `unlabelled` for rows without one.

        sample_weight : array-like of shape (n,), default=None
            Row weights: a row of weight 2 counts as two equal rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = _mixtures.host_rows(self, X, reset=True, ensure_min_samples=2)
        y = _mixtures.target(self, y)
        check_consistent_length(rows, y)
        check_classification_targets(y)
        weights = _inputs.weights(sample_weight, rows)
        is_known = np.ones(len(y), dtype=bool) if self.unlabelled is None else np.asarray(y != self.unlabelled)
        self._set_classes(y, is_known)
        codes = np.full(len(y), -1)
        codes[is_known] = np.searchsorted(self.classes_, y[is_known])
        self._fit_labelled(rows, codes, weights)
        self.n_iter_ = max(mixture.n_iter_ for mixture in self.mixtures_)
        self.converged_ = all(mixture.converged_ for mixture in self.mixtures_)
        if not is_known.all():
            _semi_supervised.fit(self, rows, codes, weights)
            if not self.converged_:
                warnings.warn(
                    "EM with unlabelled rows did not converge: raise max_iter or tol", ConvergenceWarning, stacklevel=2
                )
        self.priors_ = self._priors()
        self.log_likelihood_, self.bic_ = self._criterion(rows, weights)
        return self

    def _set_classes(self, y, is_known):
        self.classes_ = np.unique(y[is_known])
        if not len(self.classes_):
            raise DataError(f"all labels are {self.unlabelled!r}, which means unlabelled: no class is known")
        if len(self.classes_) == 1 and not is_known.all():
            raise DataError(
                f"only one class is known, since {self.unlabelled!r} means unlabelled: if it is a class, set "
                "unlabelled=None"
            )

    def _fit_labelled(self, rows, codes, weights):
        """Fit the mixtures to the rows of known class."""
        share = np.bincount(codes[codes >= 0], None if weights is None else weights[codes >= 0], len(self.classes_))
        if not (share > 0).all():
            raise DataError(f"all rows of class {self.classes_[np.argmin(share)]} have weight 0")
        self.proportions_ = share / share.sum()
        kinds = _kinds(self.covariance_type)
        if isinstance(self.n_components, Integral) and self.n_components == 1:
            self._fit_common(rows, codes, weights, kinds)
            return
        self._is_pooled = False
        self.mixtures_ = []
        for label, (own, own_weights) in zip(self.classes_, _by_class(rows, codes, weights, len(self.classes_))):
            components = self._components_of(label)
            try:
                if len(components) * len(kinds) == 1:
                    mixture = _mixtures.fit(_mixtures.mixture(self, components[0], kinds[0]), own, own_weights)
                else:
                    mixture = self._selected(own, own_weights, components, kinds)
            except ValueError as error:
                raise type(error)(f"class {label}: {error}") from None
            self.mixtures_.append(mixture)
        self.n_parameters_ = sum(map(_evaluation.n_parameters, self.mixtures_)) + len(self.classes_) - 1

    def _fit_common(self, rows, codes, weights, kinds):
        """One Gaussian per class, with the covariance structure of the lowest BIC for all classes."""
        best = None
        for kind in kinds:
            fit = _pooled if kind == "tied" else _separate
            self._is_pooled = kind == "tied"
            self.mixtures_ = fit(self, rows, codes, weights, kind)
            c, d = len(self.classes_), rows.shape[1]
            free = {"full": c * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": c * d, "spherical": c}[kind]
            self.n_parameters_ = free + c * d + c - 1
            if len(kinds) == 1:
                return
            is_known = codes >= 0
            _, bic = self._criterion(rows[is_known], None if weights is None else weights[is_known])
            if best is None or bic < best[0]:
                best = bic, self.mixtures_, self.n_parameters_, self._is_pooled
        _, self.mixtures_, self.n_parameters_, self._is_pooled = best

    def _components_of(self, label):
        """The numbers of components to choose from for a class."""
        given = self.n_components
        if isinstance(given, str):
            return list(_BIC_COMPONENTS)
        if isinstance(given, dict):
            if label not in given:
                raise ParameterError(f"n_components has no entry for class {label}: it has {list(given)}")
            given = given[label]
        return _components(given)

    def _selected(self, rows, weights, components, kinds):
        """The mixture with the lowest BIC among those with at most as many components as rows."""
        possible = [k for k in components if k <= len(rows)] or components
        passed = {name: getattr(self, name) for name in _mixtures._PASSED}
        return select(rows, possible, covariance_type=kinds, sample_weight=weights, **passed).best_estimator_

    def _priors(self):
        if self.priors is None:
            return self.proportions_
        priors = np.asarray(self.priors, dtype=np.float64)
        n = len(self.classes_)
        if priors.shape != (n,) or not (priors >= 0).all() or abs(priors.sum() - 1) > 1e-6:
            raise ParameterError(f"priors are {self.priors!r}: they must be {n} probabilities that sum to 1")
        return priors / priors.sum()

    def _criterion(self, rows, weights):
        """Log-likelihood and BIC of rows under the mixture of all classes."""
        joint = _semi_supervised.log_densities(self.mixtures_, rows) + _log(self.proportions_)
        each = log_sum_exp(joint)
        total = each.sum() if weights is None else weights @ each
        n = len(rows) if weights is None else weights.sum()
        return float(total), float(self.n_parameters_ * math.log(n) - 2 * total)

    def predict_log_proba(self, X):
        """Compute the log probability of each class.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_proba : ndarray of shape (n, n_classes)
            Log probabilities, in the order of `classes_`. A row whose densities underflow has the log priors.
        """
        check_is_fitted(self)
        rows = _mixtures.host_rows(self, X, reset=False)
        return _semi_supervised.log_posterior(self.mixtures_, rows, _log(self.priors_))

    def predict_proba(self, X):
        """Compute the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        proba : ndarray of shape (n, n_classes)
            Probabilities, in the order of `classes_`. Each row sums to 1.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """Predict the class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n,)
            Most probable class; the first one if several are equally probable.
        """
        found = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[found]


def _log(probabilities):
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def _by_class(rows, codes, weights, n):
    """Rows and weights of each class."""
    for code in range(n):
        own = codes == code
        yield rows[own], None if weights is None else weights[own]


def _separate(model, rows, codes, weights, kind):
    """A Gaussian per class, each with its own covariance."""
    found = []
    for label, (own, own_weights) in zip(model.classes_, _by_class(rows, codes, weights, len(model.classes_))):
        try:
            found.append(_mixtures.fit(_mixtures.mixture(model, 1, kind), own, own_weights))
        except ValueError as error:
            raise type(error)(f"class {label}: {error}") from None
    return found


def _mean(rows, weights):
    """The mean of rows, in float64, about the first of them."""
    first = rows[0].astype(np.float64)
    return first + np.average(rows - first, axis=0, weights=weights)


def _pooled(model, rows, codes, weights, kind):
    """A Gaussian per class, all with the pooled covariance within the classes.

    That is the covariance of the differences between the rows and the means of their classes: their moments are taken
    about zero, so that an offset of the data costs no precision, and a class may have fewer rows than columns.
    """
    is_known = codes >= 0
    # The engine reports values that are not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        classes = _by_class(rows, codes, weights, len(model.classes_))
        means = np.array([_mean(own, own_weights) for own, own_weights in classes])
        differences = rows[is_known] - means[codes[is_known]]
    known_weights = None if weights is None else weights[is_known]
    common = _mixtures.fit(_mixtures.mixture(model, 1, kind), differences, known_weights)
    return [_semi_supervised.with_covariance(common, mean, rows.dtype) for mean in means]
