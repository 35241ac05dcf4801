"""Rows known only indirectly: with measurement errors, as linear views or within limits. Their arrays, and the methods."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _evaluation, _gpu, _inputs, _limits, _numbers
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError


class Measured(np.ndarray):
    """Rows known only indirectly; `gmm_rs._core` knows the class by its name.

    `measurement` is (whether NaN is a missing value, deviations (n, m) or None, covariances (n, m, m) or None,
    (measured values (n, m), projections (n, m, d)) or None, and (lower (n, d), upper (n, d), None or the ends of the
    truncation (d,)) or None).
    """

    def __array_finalize__(self, obj):
        self.measurement = getattr(obj, "measurement", None)


def rows(model, X, noise, projection, limits, *, reset, **checks):
    """The validated rows of `X` as :func:`gmm_rs._inputs.rows` has them, with what makes them indirect, if anything."""
    if noise is None and projection is None and limits is None:
        return _inputs.rows(model, X, reset=reset, **checks)
    what = "noise and projection" if limits is None else "limits"
    if limits is not None and not (noise is None and projection is None):
        raise ParameterError("limits cannot be used with noise or projection")
    only_cpu = "limits are" if limits is not None else "projection is" if projection is not None else None
    if only_cpu is not None and model.device not in ("auto", "cpu", "reference"):
        raise ParameterError(f"{only_cpu} for the CPU: device is {model.device!r}")
    if model.missing == "drop":
        either = what.replace("and", "or")
        raise ParameterError(f"missing='drop' does not take {either}: use missing='em', or drop rows before")
    if getattr(model, "noise", None) is not None or hasattr(model, "noise_weight_"):
        what = "the noise of measurements does" if limits is None else "limits do"
        raise ParameterError(f"{what} not go with the noise component of the mixture")
    views, holed, ends = None, model.missing == "em", None
    if projection is None:
        found = np.asarray(_on_host(_inputs.rows(model, X, reset=reset, by_name=not reset, **checks)))
        n, m = found.shape
        if limits is not None:
            found, ends = _limits.of_rows(limits, found)
    else:
        least = checks.get("ensure_min_samples", 1)
        measured = np.asarray(_inputs.array(X, place(model), ensure_min_samples=least), dtype=np.float64, order="C")
        n, m = measured.shape
        views, holed = (measured, _numbers_of(projection, "projection", 3)), False
        found = _points(model, *views, reset)
    deviations, covariances = _errors(noise, n, m)
    found = found.view(Measured)
    found.measurement = (holed, deviations, covariances, views, ends)
    return found


def _points(model, measured, projection, reset):
    """The points that stand for the rows behind the views, with their columns checked."""
    n, m = measured.shape
    if projection.shape[:2] != (n, m):
        raise ParameterError(f"projection has shape {projection.shape}, expected ({n}, {m}, d)")
    d = projection.shape[2]
    if not reset and d != model.n_features_in_:
        raise ParameterError(f"projection has shape {projection.shape}, but the mixture has {model.n_features_in_} columns")
    if reset:
        model.n_features_in_ = d
        model.__dict__.pop("feature_names_in_", None)
    return _core.view_points(measured, projection)


def _errors(noise, n, m):
    """Standard deviations, (n, m), or covariances, (n, m, m); the other is None."""
    if noise is None:
        return None, None
    noise = np.asarray(_gpu.to_host(noise))
    if noise.shape == (n, m):
        return _numbers_of(noise, "noise", 2), None
    if noise.shape == (n, m, m):
        return None, _numbers_of(noise, "noise", 3)
    raise ParameterError(
        f"noise has shape {noise.shape}, expected ({n}, {m}), standard deviations, or ({n}, {m}, {m}), covariances"
    )


def _numbers_of(given, name, dimensions):
    array = np.asarray(_gpu.to_host(given))
    _numbers.check(array, name)
    if array.ndim != dimensions:
        raise ParameterError(f"{name} has shape {array.shape}: it must have {dimensions} dimensions")
    return np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])


def _on_host(found):
    if isinstance(found, _gpu.OnGpu):
        raise ParameterError("noise and limits take rows in host memory: the rows are on a GPU")
    return found


def rows_and_log_likelihood(model, X, noise, projection, limits):
    """The number of rows, and their total log density."""
    if noise is None and projection is None and limits is None:
        return _evaluation.rows_and_log_likelihood(model, X)
    check_is_fitted(model)
    found = rows(model, X, noise, projection, limits, reset=False)
    return len(found), _evaluation.score(model, found) * len(found)


class MeasuredMixture:
    """Predictions for rows known only indirectly."""

    def predict(self, X, *, noise=None, projection=None, limits=None):
        """Predict the component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n,)
            Most probable component of each row, the first one if several are equally probable; -1 for the noise of a
            :class:`GaussianMixture` with `noise`.
        """
        return self._predicted(X, (noise, projection, limits), "labels")

    def predict_proba(self, X, *, noise=None, projection=None, limits=None):
        """Evaluate the probability (responsibility) of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        resp : ndarray of shape (n, k)
            Probability of each component for each row. Each row sums to 1. A :class:`GaussianMixture` with `noise` has a
            further column, the last, for the noise.
        """
        return self._predicted(X, (noise, projection, limits), "responsibilities")

    def score_samples(self, X, *, noise=None, projection=None, limits=None):
        """Compute the log density of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`; the density is that of the noisy row.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        log_prob : ndarray of shape (n,)
            Log density of each row; ``-inf`` if the density of every component underflows.
        """
        return self._predicted(X, (noise, projection, limits), "log_densities")

    def score(self, X, y=None, sample_weight=None, *, noise=None, projection=None, limits=None):
        """Compute the mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        y : Ignored
            Not used, present for API consistency by convention.

        sample_weight : array-like of shape (n,), default=None
            Row weights of the mean.

        noise : array-like of shape (n, d) or (n, d, d), default=None
            Measurement errors of the rows, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        limits : Limits, default=None
            Limits of the values, as for :meth:`fit`.

        Returns
        -------
        log_likelihood : float
            Mean log density.
        """
        if noise is None and projection is None and limits is None:
            return self._mean_log_density(X, sample_weight)
        check_is_fitted(self)
        found = rows(self, X, noise, projection, limits, reset=False)
        return _evaluation.score(self, found, _inputs.weights(sample_weight, found))

    def deconvolve(self, X, noise, projection=None, *, return_cov=False):
        """Estimate the true rows behind noisy ones: their means given these, under the mixture.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Noisy rows; (n, m) with a projection.

        noise : array-like of shape (n, d) or (n, d, d)
            Standard deviations, or covariances, of the measurement errors, as for :meth:`fit`.

        projection : array-like of shape (n, m, d), default=None
            Projections of the rows, as for :meth:`fit`.

        return_cov : bool, default=False
            Whether to return the covariances too.

        Returns
        -------
        means : ndarray of shape (n, d)
            Mean of each true row given the noisy one, the guess of smallest squared error.

        covariances : ndarray of shape (n, d, d)
            Covariance of each true row given the noisy one, if `return_cov`.
        """
        check_is_fitted(self)
        found = _inputs.contiguous(rows(self, X, noise, projection, None, reset=False))
        dtype = _evaluation.width(self, found)
        both = _core.deconvolve(found, _bridge.parameters(self), place(self, found))
        means, covariances = (array.astype(dtype, copy=False) for array in both)
        return (means, covariances) if return_cov else means

    def _predicted(self, X, indirect, what):
        if all(given is None for given in indirect):
            return self._evaluated(X, what)[0]
        check_is_fitted(self)
        return _evaluation.predicted(self, X, rows(self, X, *indirect, reset=False), what)
