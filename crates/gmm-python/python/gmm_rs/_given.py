"""Parameters of mixtures as they are given to a likelihood and come from it."""

from numbers import Integral
from typing import NamedTuple

import numpy as np

from gmm_rs.exceptions import ParameterError


class Parameters(NamedTuple):
    """A mixture.

    Attributes
    ----------
    weights : ndarray of shape (k,)
    means : ndarray of shape (k, d)
    covariances : ndarray
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class Gradient(NamedTuple):
    """The gradient of a log-likelihood.

    Attributes
    ----------
    log_weights : ndarray of shape (k,)
        With respect to ``a``, where the weights are ``softmax(a)``, at ``a = log(weights)``. Sums to 0.

    means : ndarray of shape (k, d)
        With respect to the means.

    scales : ndarray
        'full' (k, d, d) and 'tied' (d, d): with respect to the entries of the lower Cholesky factors ``L`` of the
        covariances ``L @ L.T``, 0 above the diagonal. 'diag' (k, d) and 'spherical' (k,): with respect to the
        logarithms of the standard deviations.
    """

    log_weights: np.ndarray
    means: np.ndarray
    scales: np.ndarray


def float64(array):
    array = np.asarray(array)
    if array.dtype.kind == "c":
        raise ParameterError("complex parameters are not supported")
    return array.astype(np.float64, copy=False)


def axes(array, axes):
    """`array` with this many axes, one or two; a single point is also many of them."""
    array = float64(array)
    if axes == 2 and array.ndim == 1:
        array = array[None]
    if array.ndim != axes:
        expected = "one axis" if axes == 1 else "one axis or two"
        raise ParameterError(f"an array has shape {array.shape}, expected {expected}")
    return array


def index(value, name, least):
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name} is {value!r}: it must be an integer of at least {least}")
    return int(value)
