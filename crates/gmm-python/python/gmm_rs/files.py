"""Reads and writes the model files of the program `gmm`."""

import json
import os

import numpy as np
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _fitted
from gmm_rs._gpu import to_host
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture

__all__ = ["load", "save"]


def load(path, **parameters):
    """Read a model file, JSON or safetensors, as a fitted estimator.

    Parameters
    ----------
    path : path
        File written by ``gmm fit -o`` or :func:`save`. The format is detected from the content.
    **parameters
        Parameters of the estimator, such as ``device="cpu"``. By default, `tol` and `reg_covar` are those of the fit.

    Returns
    -------
    model : GaussianMixture
        `weights_`, `means_` and `covariances_` are exactly those of the file. `feature_names_in_` is set if the file
        has names; `converged_`, `n_iter_`, `lower_bound_`, `lower_bounds_` and `engine_` if it has the record of a fit.

    Raises
    ------
    OSError
        If the file cannot be read: `FileNotFoundError`, `PermissionError`, ..
    FileError
        A `ValueError`, if the file does not contain a valid model; the message names the field or the byte.

    Examples
    --------
    >>> import os, tempfile
    >>> import gmm_rs
    >>> from gmm_rs.mixture import GaussianMixture
    >>> model = GaussianMixture(n_components=2, random_state=0).fit([[0.0], [0.1], [0.3], [5.0], [5.1], [5.4]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.json")
    ...     again = gmm_rs.load(gmm_rs.save(model, path))
    >>> bool((again.means_ == model.means_).all()), again.converged_
    (True, True)
    """
    found = _core.read_model(path)
    kept = {} if found["record"] is None else json.loads(found["record"])
    known = {name: kept[name] for name in ("tol", "reg_covar") if kept.get(name) is not None}
    k, d = found["means"].shape
    given = {"n_components": k, "covariance_type": found["covariance_type"]}
    for name, value in given.items():
        if parameters.get(name, value) != value:
            raise ParameterError(f"{name} is {parameters[name]!r}: the file has {value!r}")
    model = GaussianMixture(**{**known, **parameters, **given})
    _bridge.set_parameters(model, found, np.float64)
    model.n_features_in_ = d
    if found["feature_names"] is not None:
        model.feature_names_in_ = np.array(found["feature_names"], dtype=object)
    _fitted.set_record(model, found["record"])
    return model


def save(model, path):
    """Write a fitted estimator to a model file, for ``gmm predict`` and the other commands.

    The file is written atomically, and numbers are preserved exactly; only float32 weights are divided by their sum.

    Parameters
    ----------
    model : GaussianMixture
        Fitted estimator of :mod:`gmm_rs.mixture` or scikit-learn. The record of the fit is included if this package
        fitted or read the model.

    path : path
        Path with the extension .json or .safetensors.

    Returns
    -------
    path : path
        The argument `path`.

    Raises
    ------
    OSError
        If the file cannot be written.
    ParameterError
        A `ValueError`, if the extension is unknown or the parameters are not a valid mixture.
    """
    if not isinstance(model, (GaussianMixture, Original)):
        raise TypeError(f"expected a GaussianMixture, got {type(model).__name__}")
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    _core.write_model(os.fspath(path), _given(model), names, _fitted.record_of(model))
    return path


def _given(model):
    """Covariance type, weights, means and covariances, checked against the factors that predictions use."""
    arrays = [to_host(getattr(model, name)) for name in ("weights_", "means_", "covariances_", "precisions_cholesky_")]
    weights, means, covariances, factors = (np.ascontiguousarray(array, dtype=np.float64) for array in arrays)
    given = (model.covariance_type, weights, means, covariances)
    # In float32 both are rounded, so they cannot be compared.
    if all(np.asarray(array).dtype == np.float64 for array in arrays):
        _check_factors(given, factors)
    return given


def _check_factors(given, factors):
    """Raise if the covariances do not match the factors, as after setting only one of the attributes."""
    kind = given[0]
    ours = _core.mixture(given)["precision_factors"]
    if ours.shape == factors.shape:
        if kind in ("full", "tied"):
            ours, theirs = (array @ array.swapaxes(-1, -2) for array in (ours, factors))
            scale = np.sqrt(np.einsum("...i,...j->...ij", *[np.einsum("...ii->...i", ours)] * 2))
        else:
            ours, theirs = ours**2, factors**2
            scale = ours
        # Precisions of nearly singular covariances may differ by more than rounding; those of another mixture by far
        # more.
        if (np.abs(ours - theirs) <= 0.1 * scale).all():
            return
    raise ParameterError(
        "covariances_ and precisions_cholesky_ do not match: predictions use precisions_cholesky_, files contain "
        "covariances_; set both"
    )
