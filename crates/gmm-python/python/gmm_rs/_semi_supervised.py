"""EM over rows of known and unknown class, and densities of all classes."""

from copy import deepcopy

import numpy as np

from gmm_rs import _bridge, _core, _evaluation, _mixtures


def log_densities(mixtures, rows):
    """Log density of each row in each class, `(n, c)`."""
    return np.stack([_evaluation.log_densities(mixture, rows).astype(np.float64) for mixture in mixtures], axis=1)


def log_sum_exp(values):
    """``ln Σ exp(v)`` of each row; -inf if all values are."""
    top = values.max(axis=1)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return base + np.log(np.exp(values - base[:, None]).sum(axis=1))


def log_posterior(mixtures, rows, log_priors):
    """Log probability of each class, `(n, c)`; the log priors where all densities underflow."""
    return log_posterior_of(log_densities(mixtures, rows) + log_priors, log_priors)


def fit(model, rows, codes, weights):
    """Continue a fit to the labelled rows by EM over all rows, in which labelled rows keep their class (codes >= 0).

    The E-step gives each unlabelled row the posterior probability of each class. The M-step of a class is that of its
    mixture on its labelled rows and on all unlabelled ones, weighted by these probabilities: together they are the EM of
    the mixture of all components with partly known labels (McLachlan and Peel 2000, section 2.19).
    """
    unknown = codes < 0
    weights = np.ones(len(rows)) if weights is None else weights
    n_classes = len(model.mixtures_)
    previous = -np.inf
    model.converged_ = False
    for iteration in range(model.max_iter):
        with np.errstate(divide="ignore"):
            log_proportions = np.log(model.proportions_)
        responsibilities, value = _expectation(model, rows, codes, weights, log_proportions)
        model.n_iter_ = iteration
        if abs(value - previous) < model.tol:
            model.converged_ = True
            return
        previous = value
        shares = np.empty(n_classes)
        for code in range(n_classes):
            own = unknown | (codes == code)
            own_weights = weights[own] * responsibilities[own, code]
            shares[code] = own_weights.sum()
            # A class that no row belongs to any more keeps its mixture.
            if shares[code] > 0:
                _m_step(model.mixtures_[code], rows[own], own_weights)
        model.proportions_ = shares / shares.sum()
        if model._is_pooled:
            _pool(model)
        model.n_iter_ = iteration + 1


def _expectation(model, rows, codes, weights, log_proportions):
    """Responsibilities of the classes, `(n, c)`, and the mean log-likelihood of rows and known labels."""
    joint = log_densities(model.mixtures_, rows) + log_proportions
    labelled = np.flatnonzero(codes >= 0)
    each = log_sum_exp(joint)
    each[labelled] = joint[labelled, codes[labelled]]
    found = np.zeros_like(joint)
    unlabelled = codes < 0
    found[unlabelled] = np.exp(log_posterior_of(joint[unlabelled], log_proportions))
    found[labelled, codes[labelled]] = 1.0
    return found, weights @ each / weights.sum()


def log_posterior_of(joint, log_priors):
    """As :func:`log_posterior`, of joint log densities."""
    joint = np.where(np.isneginf(joint).all(axis=1, keepdims=True), log_priors, joint)
    # Far from all classes the logs are large: without this their rounding would remain in the probabilities.
    joint = joint - joint.max(axis=1, keepdims=True)
    return joint - log_sum_exp(joint)[:, None]


def _m_step(mixture, rows, weights):
    """One iteration of EM of a mixture from its parameters."""
    run = _bridge._Run(mixture, rows, weights)
    found = run.start(_bridge.parameters(mixture), max_iter=1, n_init=1)
    _bridge.set_parameters(mixture, found, rows.dtype)


def _pool(model):
    """Give all classes the average of their covariances, weighted by their shares."""
    common = np.average([m.covariances_ for m in model.mixtures_], axis=0, weights=model.proportions_)
    for code, mixture in enumerate(model.mixtures_):
        kind, weights, means, _ = _mixtures.given(mixture)
        found = _core.mixture((kind, weights, means, np.ascontiguousarray(common, dtype=np.float64)))
        _bridge.set_parameters(model.mixtures_[code], found, mixture.means_.dtype)


def with_covariance(estimator, mean, dtype):
    """A copy of a fitted Gaussian with another mean, `(d,)`."""
    kind, weights, _, covariances = _mixtures.given(estimator)
    found = _core.mixture((kind, weights, np.ascontiguousarray(mean[None, :]), covariances))
    copy = deepcopy(estimator)
    _bridge.set_parameters(copy, found, dtype)
    return copy
