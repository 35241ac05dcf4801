"""Standard errors and intervals of a fitted model's parameters by the bootstrap, as ``gmm bootstrap`` computes them."""

import sys
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _fitted, _inputs, _rules
from gmm_rs._given import index
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError

__all__ = ["Bootstrap", "Spread", "bootstrap"]

_WORDS = ("nonparametric", "weighted")


class Spread(NamedTuple):
    """Standard errors and interval ends, each in the shape of the parameters."""

    standard_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Bootstrap:
    """Result of :func:`bootstrap`.

    Attributes
    ----------
    weights : ndarray of shape (replicates, K)
        Weights of all replicates.

    means : ndarray of shape (replicates, K, d)

    covariances : ndarray
        In the shape of the model's ``covariances_``, after an axis for the replicates.

    level : float
        Level of the intervals.

    weights_spread, means_spread, covariances_spread : Spread
        Standard errors (with divisor replicates − 1) and percentile intervals.

    noise_weights : ndarray of shape (replicates,) or None
        Weights of the noise, if the model has some. Its volume is the same in all replicates.

    noise_weights_spread : Spread or None
    """

    def __init__(self, weights, means, covariances, level, noise_weights=None):
        self.noise_weights = noise_weights
        self.noise_weights_spread = None if noise_weights is None else _spread(noise_weights, level)
        self.weights = weights
        self.means = means
        self.covariances = covariances
        self.level = level
        self.weights_spread, self.means_spread, self.covariances_spread = (
            _spread(draws, level) for draws in (weights, means, covariances)
        )


def bootstrap(
    model,
    X,
    *,
    replicates=999,
    resampling="nonparametric",
    level=0.95,
    tol=1e-6,
    max_iter=1000,
    random_state=None,
    sample_weight=None,
    progress=False,
):
    """Fit a fitted model anew to resampled rows, and return standard errors and intervals of all parameters.

    Each fit starts from the model's parameters, so components keep their order.

    Parameters
    ----------
    model : GaussianMixture
        Fitted model. Its `reg_covar`, prior, floors, fixed and shared parts, `factors`, noise, `device`, `precision` and `n_jobs`
        are used. What a fit also depends on, but the model does not hold, is refused: measurement errors, limits, labels,
        and the rule of a fit that was read from a file.

    X : array-like of shape (n, d)
        The rows that it was fitted to.

    replicates : int, default=999

    resampling : {'nonparametric', 'weighted'}, default='nonparametric'
        Rows drawn with replacement, or all rows with exponential weights (the weighted-likelihood bootstrap).

    level : float, default=0.95
        Level of the percentile intervals.

    tol : float, default=1e-6

    max_iter : int, default=1000

    random_state : int, RandomState instance or None, default=None

    sample_weight : array-like of shape (n,), default=None

    progress : bool, default=False
        Whether to print the number of completed fits to standard error.

    Returns
    -------
    found : Bootstrap

    Raises
    ------
    ValueError
        If data or parameters are invalid, or the fits would not be those of the model.

    Examples
    --------
    >>> from gmm_rs import bootstrap
    >>> from gmm_rs.datasets import make_gmm
    >>> from gmm_rs.mixture import GaussianMixture
    >>> X, y = make_gmm(400, 2, 3, separation=6.0, random_state=0)
    >>> model = GaussianMixture(3, random_state=0).fit(X)
    >>> bootstrap(model, X, replicates=50, random_state=0).means_spread.standard_error.shape
    (3, 2)
    """
    if resampling not in _WORDS:
        raise ParameterError(f"unknown resampling {resampling!r}: choose one of {', '.join(_WORDS)}")
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}: it must be a number between 0 and 1")
    replicates = index(replicates, "replicates", 2)
    check_is_fitted(model)
    rows = _inputs.rows(model, X, reset=False, ensure_min_samples=2)
    k, kind = len(model.weights_), model.covariance_type
    options = {
        "n_components": k,
        "covariance_type": kind,
        "n_init": 1,
        "init_rows": None,
        "tol": tol,
        "max_iter": index(max_iter, "max_iter", 0),
        "reg_covar": model.reg_covar,
        "seed": _bridge.seed(random_state),
        "rule": _rules.rule(model, None, *rows.shape),
    }
    noise = _rules.noise_of(model)
    if noise is not None:
        options["rule"]["noise"] = _rules.given_noise(noise)
    found = _core.bootstrap(
        _inputs.contiguous(rows),
        options,
        place(model, rows),
        (*_bridge.parameters(model), *_bridge.factors(model)),
        replicates,
        resampling,
        _fitted.rules_of(model),
        _inputs.weights(sample_weight, rows),
        _told if progress else None,
    )
    if progress:
        print(file=sys.stderr)
    if found["not_converged"]:
        text = f"{found['not_converged']} of {replicates} replicates did not converge: raise max_iter or tol"
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    arrays = (
        found[name].reshape(replicates, *np.shape(getattr(model, f"{name}_")))
        for name in ("weights", "means", "covariances")
    )
    return Bootstrap(*arrays, level, None if noise is None else found["noise_weights"])


def _spread(draws, level):
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Spread(draws.std(axis=0, ddof=1), lower, upper)


def _told(done, fits):
    print(f"\r{done} of {fits} fits", end="", file=sys.stderr, flush=True)
