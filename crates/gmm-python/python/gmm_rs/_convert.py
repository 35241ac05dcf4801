"""Conversion of estimators from and to scikit-learn's classes."""

import copy

from sklearn.mixture._bayesian_mixture import BayesianGaussianMixture as OriginalBayesian
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original

from gmm_rs import _rules
from gmm_rs._bayes import POSTERIOR

# The attributes that a fit sets on scikit-learn's classes.
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


def to_sklearn(model, original=Original):
    """`model` as scikit-learn's class; arrays are copied."""
    _rules.refuse_noise(model, "which scikit-learn's class does not have")
    known = original().get_params()
    out = original(**{name: value for name, value in model.get_params().items() if name in known})
    return _with_fit(out, model)


def from_sklearn(cls, estimator, parameters, original=Original):
    """`estimator`, of scikit-learn's class, as `cls`; arrays are copied."""
    if not isinstance(estimator, original):
        raise TypeError(f"expected a sklearn.mixture.{original.__name__}, got {type(estimator).__name__}")
    known = cls().get_params()
    given = {name: value for name, value in estimator.get_params().items() if name in known}
    return _with_fit(cls(**{**given, **parameters}), estimator)


def to_sklearn_bayesian(model):
    """As :func:`to_sklearn`, for fits by variational Bayes."""
    return to_sklearn(model, OriginalBayesian)


def from_sklearn_bayesian(cls, estimator, parameters):
    """As :func:`from_sklearn`, for fits by variational Bayes."""
    return from_sklearn(cls, estimator, parameters, OriginalBayesian)


def _with_fit(to, model):
    for name in (*FITTED, *POSTERIOR):
        if hasattr(model, name):
            setattr(to, name, copy.deepcopy(getattr(model, name)))
    return to
