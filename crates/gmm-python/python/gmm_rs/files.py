"""Reads and writes the model files of the program `gmm`, and reads tables of rows, which may be larger than memory."""

import json
import os
import warnings

import numpy as np
from sklearn.mixture._bayesian_mixture import BayesianGaussianMixture as OriginalBayesian
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bayes, _bridge, _core, _fitted, _inputs, _rules
from gmm_rs._gpu import to_host
from gmm_rs.exceptions import DataWarning, ParameterError
from gmm_rs.mixture import BayesianGaussianMixture, GaussianMixture

__all__ = ["gather", "load", "read", "save"]


def load(path, **parameters):
    """Read a model file, JSON or safetensors, as a fitted estimator.

    Parameters
    ----------
    path : path
        File written by ``gmm fit -o`` or :func:`save`. The format is detected from the content.
    **parameters
        Parameters of the estimator, such as ``device="cpu"``. By default, `tol`, `reg_covar` and the
        parameters of a Bayesian prior are those of the fit.

    Returns
    -------
    model : GaussianMixture or BayesianGaussianMixture
        The latter if the file has a posterior. `weights_`, `means_` and `covariances_` are exactly those of the file.
        `feature_names_in_` is set if the file has names; `converged_`, `n_iter_`, `lower_bound_`, `lower_bounds_` and
        `engine_` if it has the record of a fit; `clusters_`, the cluster of each component, if ``gmm merge`` combined
        components; and the attributes of noise. A threshold of outliers is kept for :func:`save`;
        :meth:`gmm_rs.outliers.GaussianMixtureDetector.load` uses it.

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
    if found["loadings"] is not None:
        given["factors"] = found["loadings"].shape[-1]
    is_bayesian = found["posterior"] is not None
    if is_bayesian:
        known, given = _bayes.parameters(found, known), {**given, **_bayes.family(found)}
    for name, value in given.items():
        if parameters.get(name, value) != value:
            raise ParameterError(f"{name} is {parameters[name]!r}: the file has {value!r}")
    cls = BayesianGaussianMixture if is_bayesian else GaussianMixture
    model = cls(**{**known, **parameters, **given})
    _bridge.set_parameters(model, found, np.float64)
    model.n_features_in_ = d
    if found["feature_names"] is not None:
        model.feature_names_in_ = np.array(found["feature_names"], dtype=object)
    _fitted.set_record(model, found["record"])
    if found["clusters"] is not None:
        model.clusters_ = np.array(found["clusters"])
    if found["outliers"] is not None:
        model._outliers = found["outliers"]
    if is_bayesian:
        _bayes.set_posterior(model, found["posterior"])
        _bayes.set_bounds(model, found)
        return model
    _rules.set_noise(model, found["noise"])
    if found["noise"] is not None and model.noise is None:
        # A fit that continues has noise too.
        model.noise = "auto"
    return model


def save(model, path):
    """Write a fitted estimator to a model file, for ``gmm predict`` and the other commands.

    The file is written atomically, and numbers are preserved exactly; only float32 weights are divided by their sum.

    Parameters
    ----------
    model : GaussianMixture, BayesianGaussianMixture or GaussianMixtureDetector
        Fitted estimator of :mod:`gmm_rs.mixture` or scikit-learn, whose posterior is written too if it has one, or a
        detector of :mod:`gmm_rs.outliers`, whose threshold is written too. The record of the fit is included if this
        package fitted or read the model, and so are noise, clusters and a threshold that were read. An attribute
        `clusters_`, of shape (k,), may also be set.

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
    from gmm_rs.outliers import GaussianMixtureDetector

    is_bayesian = isinstance(model, (BayesianGaussianMixture, OriginalBayesian))
    if not is_bayesian and not isinstance(model, (GaussianMixture, GaussianMixtureDetector, Original)):
        raise TypeError(f"expected a GaussianMixture, got {type(model).__name__}")
    check_is_fitted(model)
    outliers = getattr(model, "_outliers", None)
    names = _names(model)
    if isinstance(model, GaussianMixtureDetector):
        outliers, model = model._threshold(), model.mixture_
    posterior = _bayes.posterior(model) if is_bayesian else None
    _core.write_model(os.fspath(path), *_content(model, names, outliers), posterior)
    return path


def to_onnx(model, path, precision):
    """See :meth:`gmm_rs.mixture.GaussianMixture.to_onnx`."""
    check_is_fitted(model)
    content = _content(model, _names(model), getattr(model, "_outliers", None))
    return _core.to_onnx(None if path is None else os.fspath(path), precision, *content)


def _names(model):
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _content(model, names, outliers):
    """The mixture of a fitted estimator, and what a file has beside it."""
    clusters = getattr(model, "clusters_", None)
    clusters = None if clusters is None else [int(cluster) for cluster in clusters]
    return _given(model), names, _fitted.record_of(model), outliers, clusters, _rules.noise_of(model)


def read(paths, *, columns=None, memory=None, return_names=False):
    """Read the rows of one or several files as one array.

    csv, tsv and txt (also compressed by gzip or zstd), npy, npz, parquet and Arrow files are read, as by the program
    ``gmm``. Columns of several files are matched by name; rows are in the order of the files.

    Parameters
    ----------
    paths : path or list of paths
        Files, folders (all tables in them, in the order of their names), or patterns such as ``"part-*.parquet"``.
    columns : list of str, optional
        Columns to read, in this order: names, indices from 0, ranges (``"a..f"``) or exclusions (``"!id"``).
    memory : int or str, optional
        Bytes that the array may take in memory, for example ``"8GiB"``. A larger one is written to a temporary file
        without a name, in the folder of the environment variable TMPDIR. By default, half of the free memory.
    return_names : bool, default=False
        Whether to return the column names too.

    Returns
    -------
    X : ndarray of shape (n, d)
        float32 if all columns fit that type, else float64. Read-only if it views a file: the temporary file, or a
        C-contiguous npy file of 1 MiB or more, which is mapped into memory whatever its size. ``fit``, ``predict`` and
        ``score`` on a CPU read such an array where it is, without a copy of it in memory if it is large.
    names : list of str or None
        Only if `return_names` is True.

    Raises
    ------
    OSError
        If a file cannot be read, or the disk has no room for the temporary file.
    FileError
        A `ValueError`, if a file is invalid or its columns differ from those of the first; the message names the place.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gmm_rs.files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         np.savetxt(os.path.join(folder, f"part-{i}.csv"), [[i, 0.5], [i, 1.5]], delimiter=",")
    ...     X = gmm_rs.files.read(os.path.join(folder, "part-*.csv"), memory="1GiB")
    >>> X[:, 0].tolist()
    [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    """
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not paths:
        raise ParameterError("paths is empty: give at least one file")
    columns = None if columns is None else [str(column) for column in columns]
    X, names, said = _core.read_tables(paths, columns, _bytes(memory))
    for line in said:
        warnings.warn(line, DataWarning, stacklevel=2)
    return (X, names) if return_names else X


def gather(arrays, *, memory=None):
    """Gather arrays that arrive one after another, such as the batches of a generator, into one array.

    Parameters
    ----------
    arrays : iterable of array-like of shape (n_i, d)
        Consumed one by one, so that no more than one of them is in memory.
    memory : int or str, optional
        As for :func:`read`: what exceeds it goes to a temporary file.

    Returns
    -------
    X : ndarray of shape (n, d)
        float32 if all arrays are, else float64. Read-only if it views a temporary file.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs.files import gather
    >>> X = gather((np.full((1000, 2), float(i)) for i in range(20)), memory="100K")
    >>> X.shape, X.flags.writeable
    ((20000, 2), False)
    """
    gatherer, d = _core.Gatherer(_bytes(memory)), None
    for array in arrays:
        rows = _inputs.array(array, ensure_min_samples=0)
        if d is not None and rows.shape[1] != d:
            raise ParameterError(f"an array has {rows.shape[1]} columns, but those before have {d}")
        d = rows.shape[1]
        gatherer.push(rows)
    if d is None:
        raise ParameterError("there are no arrays to gather")
    return gatherer.finish()


def _bytes(memory):
    """The argument `memory` in bytes, or None."""
    if memory is None:
        return None
    if isinstance(memory, str):
        return _core.memory_size(memory)
    if isinstance(memory, bool) or not isinstance(memory, (int, np.integer)) or memory < 1:
        raise ParameterError(f"memory is {memory!r}: it must be a number of bytes, or a size such as '8GiB'")
    return min(int(memory), 2**64 - 1)


def _given(model):
    """Covariance type, weights, means and covariances, checked against the factors that predictions use."""
    arrays = [to_host(getattr(model, name)) for name in ("weights_", "means_", "covariances_", "precisions_cholesky_")]
    weights, means, covariances, factors = (np.ascontiguousarray(array, dtype=np.float64) for array in arrays)
    given = (model.covariance_type, weights, means, covariances)
    # In float32 both are rounded, so they cannot be compared.
    if all(np.asarray(array).dtype == np.float64 for array in arrays):
        _check_factors(given, factors)
    return (*given, *_bridge.factors(model))


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
