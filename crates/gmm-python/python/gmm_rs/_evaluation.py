"""What a fitted mixture says of rows: densities, responsibilities, labels and scores, with noise if it has some."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _core, _rules
from gmm_rs._bridge import parameters
from gmm_rs._gpu import Output, to_host
from gmm_rs._inputs import contiguous, converted, like, output, rows
from gmm_rs._place import place


def predicted(model, X, rows, what):
    """What ``gmm_rs._core`` calls `what` of each of `rows`, the validated rows of `X`.

    The result is an array of the library and on the device of `X` if scikit-learn would return it there: see
    :func:`gmm_rs._inputs.like`. Results for rows on a GPU then never leave it.
    """
    if hasattr(model, "noise_weight_"):
        of = {"labels": labels, "log_densities": log_densities, "responsibilities": responsibilities}
        return like(X, of[what](model, rows))
    shape = (len(rows), model.means_.shape[0]) if what == "responsibilities" else (len(rows),)
    # The engines write labels as 32-bit numbers; int32 has the same bits.
    out = output(X, rows, shape, "int32" if what == "labels" else "float64")
    if out is None:
        of = {"labels": labels, "log_densities": log_densities, "responsibilities": responsibilities}
        return like(X, of[what](model, rows))
    _core.evaluate_there(contiguous(rows), parameters(model), place(model, rows), what, Output(out))
    return converted(X, out, "int64" if what == "labels" else width(model, rows).name)


def log_densities(model, X):
    """Log density of each row, `(n,)`, in the wider dtype of rows and parameters."""
    found = _core.log_densities(contiguous(X), parameters(model), place(model, X))
    if hasattr(model, "noise_weight_"):
        found = _rules.beside_noise(model, found)[0]
    return found.astype(width(model, X), copy=False)


def discounted(model, X, weights, where):
    """Row weights times the probability that each row is not noise of `model`; as they are if it has no noise.

    Sums over the responsibilities of the Gaussian components are then those of the mixture with noise.
    """
    if not hasattr(model, "noise_weight_"):
        return weights
    rest = 1.0 - _rules.beside_noise(model, _core.log_densities(X, parameters(model), where))[1]
    found = rest if weights is None else weights * rest
    # Below this a weight is no float32 of full precision.
    return np.where(found < np.finfo(np.float32).tiny, 0.0, found)


def responsibilities(model, X):
    """Responsibilities, `(n, k)`, in the wider dtype of rows and parameters; with noise `(n, k + 1)`, the noise last."""
    has_noise = hasattr(model, "noise_weight_")
    single = width(model, X) == np.float32 and not has_noise
    found = _core.responsibilities(contiguous(X), parameters(model), place(model, X), single)
    if has_noise:
        densities = _core.log_densities(contiguous(X), parameters(model), place(model, X))
        noise = _rules.beside_noise(model, densities)[1][:, None]
        found = np.hstack([found * (1.0 - noise), noise])
    return found.astype(width(model, X), copy=False)


def labels(model, X):
    """Component of largest responsibility, `(n,)`; -1 for noise."""
    if hasattr(model, "noise_weight_"):
        found = responsibilities(model, X)
        best = found.argmax(axis=1)
        return np.where(best == found.shape[1] - 1, -1, best)
    return _core.labels(contiguous(X), parameters(model), place(model, X))


def score(model, X, sample_weight=None):
    """Mean log density, weighted if weights are given."""
    if hasattr(model, "noise_weight_"):
        densities = _core.log_densities(contiguous(X), parameters(model), place(model, X))
        densities = _rules.beside_noise(model, densities)[0]
        present = slice(None) if sample_weight is None else sample_weight > 0
        return float(np.average(densities[present], weights=None if sample_weight is None else sample_weight[present]))
    total, weight = _core.score(contiguous(X), parameters(model), place(model, X), sample_weight)
    return total / weight


def rows_and_log_likelihood(model, X):
    """The number of rows, and their total log density."""
    check_is_fitted(model)
    X = rows(model, X, reset=False, by_name=True)
    return len(X), score(model, X) * len(X)


def n_parameters(model):
    """The number of free parameters of the mixture."""
    k, d = model.means_.shape
    full = d * (d + 1) // 2
    if hasattr(model, "loadings_"):
        # Uniquenesses, and loadings less the rotations of the factors.
        h = model.loadings_.shape[-1]
        full = min(full, d + d * h - h * (h - 1) // 2)
    free = {"full": k * full, "tied": full, "diag": k * d, "spherical": k}
    # As mclust counts: the weight of the noise, and its volume.
    noise = 2 if hasattr(model, "noise_weight_") else 0
    return free[model.covariance_type] + k * d + k - 1 + noise


def width(model, X):
    """The wider dtype of rows and parameters: that of results."""
    return np.result_type(X.dtype, np.asarray(to_host(model.means_)).dtype)
