"""The class that stands in for ``sklearn.mixture.GaussianMixture``."""

import copy
import copyreg

from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import _fit_context
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _inputs
from gmm_rs._gpu import is_on_gpu
from gmm_rs.accel import logger
from gmm_rs.exceptions import NumericalError

_KNOWN = frozenset(Original().get_params())


class GaussianMixture(Original):
    """scikit-learn's class, whose work is done by this package's engines where they can do it."""

    # A parameter that scikit-learn adds later is not ours to interpret.
    _understood = frozenset(
        "n_components covariance_type tol reg_covar max_iter n_init init_params weights_init means_init "
        "precisions_init random_state warm_start verbose verbose_interval".split()
    )

    def fit(self, X, y=None):
        if self._is_left("fit", X):
            return super().fit(X, y)
        if self._fit(X) is None:
            # Not its `fit`, which would begin with the method below.
            super().fit_predict(X, y)
        return self

    def fit_predict(self, X, y=None):
        if self._is_left("fit_predict", X):
            return super().fit_predict(X, y)
        rows = self._fit(X)
        return super().fit_predict(X, y) if rows is None else _bridge.labels(self, rows)

    def predict(self, X):
        if self._is_left("predict", X):
            return super().predict(X)
        return _bridge.labels(self, self._rows(X))

    def predict_proba(self, X):
        if self._is_left("predict_proba", X):
            return super().predict_proba(X)
        return _bridge.responsibilities(self, self._rows(X))

    def score_samples(self, X):
        if self._is_left("score_samples", X):
            return super().score_samples(X)
        return _bridge.log_densities(self, self._rows(X))

    def score(self, X, y=None):
        if self._is_left("score", X):
            return super().score(X, y)
        return float(_bridge.score(self, self._rows(X)))

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(self, X):
        """The rows that were fitted; None where scikit-learn is to say what comes of a singular covariance."""
        rows = _inputs.rows(self, X, reset=True, ensure_min_samples=2)
        generator = check_random_state(self.random_state)
        state = generator.get_state()
        try:
            engine = _bridge.fit(self, rows)
        except NumericalError as error:
            # Whether its rounding leaves a variance above 0 is its own matter. It cannot read what lies on a GPU.
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

    def _is_left(self, method, X):
        """Whether scikit-learn itself should run this, for a reason that is logged."""
        reason = self._reason(X)
        if reason:
            logger.info("%s is left to scikit-learn: %s", method, reason)
        return bool(reason)

    def _reason(self, X):
        if type(self) is not GaussianMixture:
            return f"{type(self).__name__} is a subclass, which may have methods of its own"
        unknown = _KNOWN - self._understood
        if unknown:
            return f"this scikit-learn has parameters that are not known here: {', '.join(sorted(unknown))}"
        if self.init_params not in _bridge.STARTS:
            return f"init_params={self.init_params!r} is not known here"
        if issparse(X):
            return "the input is sparse"
        if get_config().get("array_api_dispatch"):
            return "array API dispatch is on"
        return None

    def _get_doc_link(self):
        # The page is that of the class it stands in for; subclasses are the user's own.
        return self._plain()._get_doc_link() if type(self) is GaussianMixture else super()._get_doc_link()

    def _plain(self):
        plain = Original.__new__(Original)
        plain.__dict__.update(self.__dict__)
        return plain

    def __reduce_ex__(self, protocol):
        # Subclasses are the user's own, and pickle as they are.
        if type(self) is not GaussianMixture:
            return super().__reduce_ex__(protocol)
        # pickle refuses the usual constructor for an object of another class; this one takes any.
        return copyreg._reconstructor, (Original, object, None), self._plain().__getstate__()

    def __copy__(self):
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin
