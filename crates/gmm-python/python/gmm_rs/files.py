"""Model files: those of the program `gmm`, read and written."""

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
    """Read a model file, JSON or safetensors, as an estimator that is fitted.

    Parameters
    ----------
    path : path
        As ``gmm fit -o`` and :func:`save` write it; the content says which form it has.
    **parameters
        Parameters of the estimator, such as ``device="cpu"``. `tol` and `reg_covar` are otherwise those of the fit.

    Returns
    -------
    model : GaussianMixture
        `weights_`, `means_` and `covariances_` have the bits of the file. `feature_names_in_` is there where the file has
        names; `converged_`, `n_iter_`, `lower_bound_`, `lower_bounds_` and `engine_` where it has the record of a fit.

    Raises
    ------
    OSError
        Where the file cannot be read: `FileNotFoundError`, `PermissionError`, ..
    FileError
        A `ValueError` for a file that holds no model; it names the field, or the byte.

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
    """Write a fitted estimator as a model file, which ``gmm predict`` and the other commands read.

    The file appears whole or not at all. Numbers are written to the last bit. Attributes that are float32 are written as
    they are, except that weights are divided by their sum.

    Parameters
    ----------
    model : GaussianMixture
        Of :mod:`gmm_rs.mixture` or scikit-learn's own. The record of the fit goes along where this package fitted or
        read the model.

    path : path
        Ends in .json or .safetensors.

    Returns
    -------
    path : path
        As given.

    Raises
    ------
    OSError
        Where the file cannot be written.
    ParameterError
        A `ValueError` for another extension, and for parameters that are no mixture.
    """
    if not isinstance(model, (GaussianMixture, Original)):
        raise TypeError(f"expected a GaussianMixture, got {type(model).__name__}")
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    _core.write_model(os.fspath(path), _given(model), names, _fitted.record_of(model))
    return path


def _given(model):
    """Kind, weights, means and covariances, which are looked at beside the factors that predictions rest on."""
    arrays = [to_host(getattr(model, name)) for name in ("weights_", "means_", "covariances_", "precisions_cholesky_")]
    weights, means, covariances, factors = (np.ascontiguousarray(array, dtype=np.float64) for array in arrays)
    given = (model.covariance_type, weights, means, covariances)
    # float32 has rounded either one.
    if all(np.asarray(array).dtype == np.float64 for array in arrays):
        _check_factors(given, factors)
    return given


def _check_factors(given, factors):
    """Refuse covariances that are not those of the factors, which were set without them."""
    kind = given[0]
    ours = _core.mixture(given)["precision_factors"]
    if ours.shape == factors.shape:
        if kind in ("full", "tied"):
            ours, theirs = (array @ array.swapaxes(-1, -2) for array in (ours, factors))
            scale = np.sqrt(np.einsum("...i,...j->...ij", *[np.einsum("...ii->...i", ours)] * 2))
        else:
            ours, theirs = ours**2, factors**2
            scale = ours
        # Precisions of covariances near to singular differ by more than rounding; those of other ones by far more.
        if (np.abs(ours - theirs) <= 0.1 * scale).all():
            return
    raise ParameterError(
        "covariances_ and precisions_cholesky_ are not of one mixture: predictions rest on precisions_cholesky_, a file "
        "holds covariances; set both"
    )
