"""Rows that are known only within limits: censored, rounded and truncated ones."""

import numpy as np

from gmm_rs import _gpu, _numbers
from gmm_rs.exceptions import ParameterError


class Limits:
    """What is known of rows whose values are not exact: censored, rounded or truncated ones.

    :meth:`GaussianMixture.fit` with ``limits=`` then finds the mixture of the true rows. The limits must have been fixed
    without regard to the values, as a detection limit is.

    Parameters
    ----------
    censored : pair of array-like, default=None
        ``(low, high)``: a value at or below `low` is somewhere below it, one at or above `high` somewhere above. Each is a
        number, an array of shape (d,) or (n, d), or None; NaN and infinities are no limit.

    rounded : float or array-like of shape (d,) or (n, d), default=None
        Steps to whose multiples values are rounded: the true value is within half a step. 0 is exact. Values at or beyond
        a limit of `censored` are censored instead.

    truncated : pair of array-like, default=None
        ``(low, high)``, numbers, arrays of shape (d,), or None: no row outside of this box was recorded, and nobody knows
        how many there were. Infinities are no limit. Densities then are those of recorded rows.

    upper : array-like of shape (n, d), default=None
        Upper ends of intervals of which the rows `X` are the lower ends. Equal ends are an exact value. NaN and infinities
        are open ends; a value of which both ends are open is a missing one. Not with `censored` and `rounded`.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.mixture import GaussianMixture, Limits
    >>> X = np.random.default_rng(0).normal(size=(1000, 1))
    >>> seen = np.maximum(X, -0.5)
    >>> model = GaussianMixture(tol=1e-8, max_iter=1000).fit(seen, limits=Limits(censored=(-0.5, None)))
    >>> bool(abs(model.means_[0, 0]) < 0.1 < abs(seen.mean()))
    True
    """

    def __init__(self, *, censored=None, rounded=None, truncated=None, upper=None):
        if upper is not None and not (censored is None and rounded is None):
            raise ParameterError("upper has the limits of all values: leave censored and rounded out")
        self.censored = censored
        self.rounded = rounded
        self.truncated = truncated
        self.upper = upper

    def __repr__(self):
        given = {name: value for name, value in vars(self).items() if value is not None}
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def of_rows(limits, X):
    """The values of the rows `X`, (n, d), and `(lower, upper, truncation)`: their limits, float64, and the ends of the box.

    Limits have the precision of the rows, so that a value which was written as the limit is at the limit.
    """
    if not isinstance(limits, Limits):
        raise ParameterError(f"limits is {type(limits).__name__}: it must be gmm_rs.mixture.Limits")
    box = _pair(limits.truncated, "truncated", X, [(X.shape[1],)], -np.inf, np.inf)
    if box is not None:
        box = tuple(np.array(np.broadcast_to(end, X.shape[1:]), np.float64) for end in box)
    if limits.upper is not None:
        values, lower, upper = _intervals(limits.upper, X)
    else:
        values, (lower, upper) = X, _around(limits, X)
    return values, (*(np.ascontiguousarray(ends, np.float64) for ends in (lower, upper)), box)


def _around(limits, X):
    """Lower and upper ends of rounded and censored values; a missing value has none."""
    per_column, per_value = (X.shape[1],), X.shape
    missing = np.isnan(X)
    lower, upper = (np.where(missing, end, X).astype(np.float64) for end in (-np.inf, np.inf))
    if limits.rounded is not None:
        step = _ends(limits.rounded, "rounded", X, [per_column, per_value]).astype(np.float64)
        if not (np.isfinite(step).all() and (step >= 0.0).all()):
            raise ParameterError("rounded must have finite steps that are not negative")
        lower, upper = lower - 0.5 * step, upper + 0.5 * step
    ends = _pair(limits.censored, "censored", X, [per_column, per_value], -np.inf, np.inf)
    if ends is not None:
        low, high = (np.broadcast_to(end, X.shape) for end in ends)
        crossed = low >= high
        if crossed.any():
            row, column = np.argwhere(crossed)[0].tolist()
            at = f"row {row}, column {column}: {low[row, column]} and {high[row, column]}"
            raise ParameterError(f"the low limit of censored must be below the high one, at {at}")
        below, above = (X <= low) & (low > -np.inf), (X >= high) & (high < np.inf)
        lower, upper = np.where(below, -np.inf, lower), np.where(below, low, upper)
        lower, upper = np.where(above, high, lower), np.where(above, np.inf, upper)
    return lower, upper


def _intervals(upper, X):
    """Values within the intervals from the rows to `upper`, and the ends."""
    upper = _ends(upper, "upper", X, [X.shape])
    lower, upper = np.where(np.isnan(X), -np.inf, X), np.where(np.isnan(upper), np.inf, upper)
    # A finite end; of a value of which nothing is known NaN.
    values = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, np.nan)).astype(X.dtype)
    return values, lower, upper


def _pair(given, name, X, shapes, *open_ends):
    """Two arrays of ends in the precision of `X`, or None."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ParameterError(f"{name} must be a pair (low, high), of which each may be None")
    ends = []
    for end, open_end in zip(given, open_ends):
        end = np.array(open_end) if end is None else _ends(end, name, X, shapes)
        ends.append(np.where(np.isnan(end), open_end, end))
    return tuple(ends)


def _ends(given, name, X, shapes):
    """`given` in the precision of `X`, a number or an array of one of `shapes`."""
    array = np.asarray(_gpu.to_host(given))
    _numbers.check(array, name)
    if array.shape not in [(), *shapes] or (array.shape == () and name == "upper"):
        expected = " or ".join(map(str, shapes))
        raise ParameterError(f"{name} has shape {array.shape}, expected {expected}")
    return array.astype(X.dtype)
