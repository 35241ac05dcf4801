"""Parameters and gradients of mixtures, and checks of arguments."""

from numbers import Integral
from typing import NamedTuple

import numpy as np

from gmm_rs.exceptions import ParameterError


class Parameters(NamedTuple):
    """Parameters of a mixture.

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
        Gradient with respect to ``a``, where the weights are ``softmax(a)``, at ``a = log(weights)``. Sums to 0.

    means : ndarray of shape (k, d)
        Gradient with respect to the means.

    scales : ndarray
        For 'full' (k, d, d) and 'tied' (d, d), the gradient with respect to the entries of the lower Cholesky factors
        ``L`` of the covariances ``L @ L.T``, 0 above the diagonal. For 'diag' (k, d) and 'spherical' (k,), the gradient
        with respect to the logarithms of the standard deviations.
    """

    log_weights: np.ndarray
    means: np.ndarray
    scales: np.ndarray


def float64(array):
    array = np.asarray(array)
    if array.dtype.kind == "c":
        raise ParameterError("complex parameters are not supported")
    # Arrays from a network or a file may lie anywhere in a buffer.
    return np.require(array.astype(np.float64, copy=False), requirements=["ALIGNED"])


def axes(array, axes):
    """`array` as float64 with one or two axes, as given; for two axes, a single point becomes a batch of one."""
    array = float64(array)
    if axes == 2 and array.ndim == 1:
        array = array[None]
    if array.ndim != axes:
        expected = "one axis" if axes == 1 else "one axis or two"
        raise ParameterError(f"an array has shape {array.shape}, expected {expected}")
    return array


def index(value, name, least):
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value < 2**63:
        raise ParameterError(f"{name} is {value!r}: it must be an integer of at least {least}, and below 2**63")
    return int(value)
