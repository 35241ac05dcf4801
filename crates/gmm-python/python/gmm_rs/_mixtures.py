"""What the estimators that are made of mixtures share: parameters, their constraints, and arrays for `gmm_rs._core`."""

import numpy as np
from sklearn.utils.validation import _check_y

from gmm_rs import _bridge, _inputs
from gmm_rs._gpu import to_host
from gmm_rs._place import place
from gmm_rs.exceptions import DataError
from gmm_rs.mixture import GaussianMixture

# The parameters of `GaussianMixture` that these estimators pass on unchanged.
_PASSED = (
    "tol",
    "reg_covar",
    "max_iter",
    "n_init",
    "init_params",
    "random_state",
    "device",
    "precision",
    "n_jobs",
    "init_rows",
)

CONSTRAINTS = {name: GaussianMixture._parameter_constraints[name] for name in _PASSED}


def mixture(model, n_components, covariance_type, **changed):
    """An estimator of a mixture with the parameters of `model`."""
    passed = {name: getattr(model, name) for name in _PASSED}
    return GaussianMixture(n_components, covariance_type=covariance_type, **{**passed, **changed})


def fit(estimator, X, sample_weight=None):
    """Fit a mixture to checked rows, and return it."""
    present = np.ones(len(X), dtype=bool) if sample_weight is None else sample_weight > 0
    if isinstance(X, np.ndarray) and present.sum() == 1 and estimator.n_components == 1:
        # The engines refuse a single row, which two of half the weight are: its covariance is `reg_covar`.
        weight = 1.0 if sample_weight is None else sample_weight[present][0]
        X, sample_weight = np.repeat(X[present], 2, axis=0), np.full(2, weight / 2)
    estimator.n_features_in_ = X.shape[1]
    estimator.engine_ = _bridge.fit(estimator, X, sample_weight)
    return estimator


def target(model, y, **checks):
    """`y` checked by scikit-learn."""
    if y is None:
        raise DataError(f"{type(model).__name__} requires y to be passed, but the target y is None")
    return _check_y(y, estimator=model, **checks)


def host_rows(model, X, *, reset, **checks):
    """Checked rows of `X` as a NumPy array."""
    rows = _inputs.rows(model, X, reset=reset, by_name=not reset, **checks)
    return _inputs.on_host(rows, place(model))


def given(estimator):
    """Covariance type, weights, means and covariances of a fitted mixture in float64."""
    arrays = (to_host(getattr(estimator, name)) for name in ("weights_", "means_", "covariances_"))
    weights, means, covariances = (np.ascontiguousarray(array, dtype=np.float64) for array in arrays)
    # float32 weights may sum to 1 only within their rounding.
    return estimator.covariance_type, weights / weights.sum(), means, covariances
