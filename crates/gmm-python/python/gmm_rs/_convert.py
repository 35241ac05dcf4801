"""Conversion of estimators from and to scikit-learn's class."""

import copy

from sklearn.mixture._gaussian_mixture import GaussianMixture as Original

from gmm_rs import _rules

# The attributes that a fit sets on scikit-learn's class.
FITTED = (
    "weights_",
    "means_",
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "converged_",
    "n_iter_",
    "lower_bound_",
    "lower_bounds_",
    "n_features_in_",
    "feature_names_in_",
)


def to_sklearn(model):
    """`model` as scikit-learn's class; arrays are copied."""
    _rules.refuse_noise(model, "which scikit-learn's class does not have")
    known = Original().get_params()
    out = Original(**{name: value for name, value in model.get_params().items() if name in known})
    return _with_fit(out, model)


def from_sklearn(cls, estimator, parameters):
    """`estimator`, of scikit-learn's class, as `cls`; arrays are copied."""
    if not isinstance(estimator, Original):
        raise TypeError(f"expected a sklearn.mixture.GaussianMixture, got {type(estimator).__name__}")
    known = cls().get_params()
    given = {name: value for name, value in estimator.get_params().items() if name in known}
    return _with_fit(cls(**{**given, **parameters}), estimator)


def _with_fit(to, model):
    for name in FITTED:
        if hasattr(model, name):
            setattr(to, name, copy.deepcopy(getattr(model, name)))
    return to
