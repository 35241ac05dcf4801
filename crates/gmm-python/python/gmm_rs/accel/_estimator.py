"""The classes that replace those of ``sklearn.mixture``."""

import copy
import copyreg

from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import _fit_context
from sklearn.mixture._bayesian_mixture import BayesianGaussianMixture as OriginalBayesian
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bayes, _bridge, _evaluation, _inputs
from gmm_rs._gpu import is_on_gpu
from gmm_rs.accel import logger
from gmm_rs.exceptions import NumericalError


class Accelerated:
    """What the classes have in common; scikit-learn's class follows in the order of bases."""

    # Only the classes themselves set these, and subclasses, which belong to the user, do not.
    _original: type
    # All parameters of scikit-learn's class.
    _known: frozenset
    # Parameters that are supported; with one that scikit-learn adds later, the work is left to scikit-learn.
    _understood: frozenset

    def fit(self, X, y=None):
        if self._is_left("fit", X):
            return super().fit(X, y)
        if self._fit(X) is None:
            # Not `super().fit`, which would call `self.fit_predict` and start again.
            super().fit_predict(X, y)
        return self

    def fit_predict(self, X, y=None):
        if self._is_left("fit_predict", X):
            return super().fit_predict(X, y)
        rows = self._fit(X)
        return super().fit_predict(X, y) if rows is None else _evaluation.labels(self._e_step_mixture()[0], rows)

    def predict(self, X):
        if self._is_left("predict", X):
            return super().predict(X)
        rows = self._rows(X)
        return _evaluation.labels(self._e_step_mixture()[0], rows)

    def predict_proba(self, X):
        if self._is_left("predict_proba", X):
            return super().predict_proba(X)
        rows = self._rows(X)
        return _evaluation.responsibilities(self._e_step_mixture()[0], rows)

    def score_samples(self, X):
        if self._is_left("score_samples", X):
            return super().score_samples(X)
        rows = self._rows(X)
        mixture, log_scale = self._e_step_mixture()
        found = _evaluation.log_densities(mixture, rows)
        if log_scale:
            found += log_scale
        return found

    def score(self, X, y=None):
        if self._is_left("score", X):
            return super().score(X, y)
        rows = self._rows(X)
        mixture, log_scale = self._e_step_mixture()
        return float(_evaluation.score(mixture, rows) + log_scale)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(self, X):
        """Fit and return the rows; None if a covariance is singular, so that scikit-learn fits instead."""
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        generator = check_random_state(self.random_state)
        state = generator.get_state()
        try:
            engine = self._run(rows)
        except NumericalError as error:
            # With scikit-learn's rounding the variance may stay positive. It cannot read arrays on a GPU.
            if is_on_gpu(X):
                raise
            logger.info("fit is left to scikit-learn: %s", error)
            generator.set_state(state)
            return None
        logger.info("fit of %d × %d rows ran on %s, %d iterations", *rows.shape, engine, self.n_iter_)
        return rows

    def _rows(self, X):
        check_is_fitted(self)
        return _inputs.rows(self, X, reset=False)

    def _is_own(self):
        return "_original" in vars(type(self))

    def _is_left(self, method, X):
        """Whether scikit-learn itself should run this method; logs the reason."""
        reason = self._reason(X)
        if reason:
            logger.info("%s is left to scikit-learn: %s", method, reason)
        return bool(reason)

    def _reason(self, X):
        if not self._is_own():
            return f"{type(self).__name__} is a subclass, which may override methods"
        unknown = self._known - self._understood
        if unknown:
            return f"this version of scikit-learn has unsupported parameters: {', '.join(sorted(unknown))}"
        if self.init_params not in _bridge.STARTS:
            return f"init_params={self.init_params!r} is not supported"
        if issparse(X):
            return "the input is sparse"
        if get_config().get("array_api_dispatch"):
            return "array API dispatch is on"
        return None

    def _get_doc_link(self):
        # The page of scikit-learn's class, which this class replaces; subclasses belong to the user.
        return self._plain()._get_doc_link() if self._is_own() else super()._get_doc_link()

    def _plain(self):
        plain = self._original.__new__(self._original)
        plain.__dict__.update(self.__dict__)
        return plain

    def __reduce_ex__(self, protocol):
        # Subclasses belong to the user and are pickled unchanged.
        if not self._is_own():
            return super().__reduce_ex__(protocol)
        # pickle rejects the usual constructor for an object of another class; this one accepts any class.
        return copyreg._reconstructor, (self._original, object, None), self._plain().__getstate__()

    def __copy__(self):
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin


class GaussianMixture(Accelerated, Original):
    """scikit-learn's class, computed by this package's engines where they support it."""

    _original = Original
    _known = frozenset(Original().get_params())
    _understood = frozenset(
        "n_components covariance_type tol reg_covar max_iter n_init init_params weights_init means_init "
        "precisions_init random_state warm_start verbose verbose_interval".split()
    )

    def _run(self, rows):
        return _bridge.fit(self, rows)

    def _e_step_mixture(self):
        return self, 0.0


class BayesianGaussianMixture(Accelerated, OriginalBayesian):
    """scikit-learn's class, computed by this package's engines where they support it."""

    _original = OriginalBayesian
    _known = frozenset(OriginalBayesian().get_params())
    _understood = frozenset(
        "n_components covariance_type tol reg_covar max_iter n_init init_params weight_concentration_prior_type "
        "weight_concentration_prior mean_precision_prior mean_prior degrees_of_freedom_prior covariance_prior "
        "random_state warm_start verbose verbose_interval".split()
    )

    def _run(self, rows):
        return _bayes.fit(self, rows)

    def _e_step_mixture(self):
        expectation = _bayes.Expectation(self)
        return expectation, expectation.log_scale


CLASSES = (GaussianMixture, BayesianGaussianMixture)
