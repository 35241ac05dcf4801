"""Connects estimators with scikit-learn's parameters and attributes to the engines of `gmm_rs._core`.

All functions take an estimator, so that the class of `gmm_rs.mixture` and the replacement class of `gmm_rs.accel` share
them.
"""

import contextlib
import numbers
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gmm_rs import _core, _numbers, _rules
from gmm_rs._gpu import to_host
from gmm_rs._inputs import all_like, contiguous
from gmm_rs._place import place
from gmm_rs._progress import Progress
from gmm_rs.exceptions import DataError, DataWarning, NumericalError, ParameterError

# scikit-learn's names of initialisation methods, and the engines' names.
STARTS = {
    "kmeans": "kmeans",
    "k-means++": "kmeans++",
    "random": "random",
    "random_from_data": "random-rows",
    "tree": "tree",
    "best": "best",
    "mix-up": "mix-up",
}

_ILL_DEFINED = (
    "Fitting the mixture model failed because some components have ill-defined empirical covariance (for instance "
    "caused by singleton or collapsed samples). Try to decrease the number of components, increase reg_covar, or scale "
    "the input data."
)

# The attributes that are arrays.
_ARRAYS = ("weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_")

# Those of a mixture of factor analysers.
_FACTORS = ("loadings_", "uniquenesses_")

# Stack levels from `_warn` to the user's program: `fit` here, `_fit`, the public method, and scikit-learn's wrapper.
_CALLER = 6

_NOT_CONVERGED = (
    "Best performing initialization did not converge. Try different init parameters, or increase max_iter, tol, or "
    "check for degenerate data."
)


def fit(model, X, sample_weight=None, labels=None):
    """Fit `model` to `X` and set its attributes.

    Parameters
    ----------
    model : estimator
        Estimator with scikit-learn's parameters, already validated.
    X : ndarray of shape (n, d), float32 or float64, or OnGpu
    sample_weight : ndarray of shape (n,), float64, or None
    labels : ndarray of shape (n,), int64, or None
        Known components; -1 is unknown.

    Returns
    -------
    engine : str
        Name of the engine that ran.
    """
    n_features = X.shape[1]
    _check_enough(model, X)
    run = _Run(model, X, sample_weight, labels)
    if model.warm_start and hasattr(model, "converged_"):
        check_same(model)
        found = run.go_on()
    else:
        given = _given(model, n_features)
        if all(part is None for part in given):
            found = run.start(STARTS[model.init_params])
        elif any(part is None for part in given):
            found = run.start_partly(given)
        else:
            found = run.start(given)
    run.progress.end()
    # No convergence warning if the callback stopped the fit, or if max_iter=0 requested only the initial parameters.
    is_ended = found["converged"] or run.progress.is_stopped or model.max_iter == 0
    _warn(found["warnings"], converged=is_ended)
    forget(model)
    set_parameters(model, found, X.dtype)
    _rules.set_noise(model, found["noise"])
    model.converged_ = found["converged"]
    model.n_iter_ = found["iterations"]
    model.lower_bounds_ = found["trace"]
    model.fast_loss_ = found["fast_loss"]
    # For gmm_rs.save.
    model._fit_record = found["record"]
    model.lower_bound_ = found["trace"][-1] if found["trace"] else -np.inf
    # A later `partial_fit` begins from this fit.
    model.__dict__.pop("_online", None)
    return found["engine"]


def partial_fit(model, X, sample_weight=None):
    """Make a step of online EM with the rows `X`, and set the attributes of `model`; takes and returns as :func:`fit`."""
    _rules.only_likelihood(model, "partial_fit makes steps of maximum likelihood")
    run = _Run(model, X, sample_weight)
    state = getattr(model, "_online", None)
    if state is not None or hasattr(model, "converged_"):
        found = run.step(parameters(model), state)
    else:
        _check_enough(model, X)
        found = run.step(run.first(_given(model, X.shape[1])), None)
    _warn(found["warnings"], converged=True)
    forget(model)
    bounds = [*model.lower_bounds_, found["mean_log_likelihood"]] if state is not None else [found["mean_log_likelihood"]]
    set_parameters(model, found, X.dtype)
    model.converged_ = False
    model.n_iter_ = len(bounds)
    model.lower_bounds_ = bounds
    model.lower_bound_ = bounds[-1]
    model.fast_loss_ = None
    model._fit_record = None
    model._online = found["state"]
    return found["engine"]


def check_same(model):
    """Raise if the last fit had other parameters, with which a warm start cannot go on."""
    k, d = model.means_.shape
    shape = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[model.covariance_type]
    if np.shape(model.covariances_) != shape:
        raise ParameterError(
            f"warm_start=True, but the covariances of the last fit have shape {np.shape(model.covariances_)}, not that of "
            f"covariance_type={model.covariance_type!r}: fit with warm_start=False"
        )


def _check_enough(model, X):
    if len(X) < model.n_components:
        raise ParameterError(
            f"Expected n_samples >= n_components but got n_components = {model.n_components}, n_samples = {len(X)}"
        )


class _Run:
    """One call of `fit`: the data, the options, and the kinds of initialisation."""

    def __init__(self, model, X, sample_weight, labels=None):
        self.model = model
        self.rule = _rules.rule(model, labels, *X.shape)
        self.rows = contiguous(X)
        self.weights = sample_weight
        self.place = place(model, X)
        self.seed = seed(model.random_state)
        self.progress = Progress(model)

    def start(self, init, **changed):
        """Fit from a named method, from `(weights, means, covariances)`, or from `parameters(model)`."""
        progress = self.progress
        options = {**self.options(), **changed}
        with _scikit_learns_message():
            return _core.fit(self.rows, options, self.place, init, self.weights, progress.follow, progress.waits)

    def many(self, ends):
        """Fit each group of the rows, of which `ends` are the ends."""
        given = _given(self.model, self.rows.shape[1])
        missing = [part is None for part in given]
        if any(missing) and not all(missing):
            raise ParameterError("fit_many needs weights_init, means_init and precisions_init together, or none of them")
        init = STARTS[self.model.init_params] if all(missing) else given
        return _core.fit_many(self.rows, ends, self.options(), self.place, init, self.weights)

    def step(self, init, state):
        """Make a step of online EM from `state`, or from the same kinds of `init` as :meth:`start`."""
        with _scikit_learns_message():
            return _core.partial_fit(self.rows, self.options(), self.place, init, state, self.weights)

    def first(self, given):
        """The `init` of an online fit whose start is partly or wholly given, or not at all."""
        word = STARTS[self.model.init_params]
        if all(part is None for part in given):
            return word
        if any(part is None for part in given):
            return self._filled(given, self.start(word, max_iter=0, n_init=1))
        return given

    def options(self):
        model = self.model
        return {
            "n_components": model.n_components,
            "covariance_type": model.covariance_type,
            "n_init": model.n_init,
            # scikit-learn's class does not have this parameter.
            "init_rows": getattr(model, "init_rows", None),
            "tol": model.tol,
            "max_iter": model.max_iter,
            "reg_covar": model.reg_covar,
            "seed": self.seed,
            "rule": self.rule,
        }

    @staticmethod
    def _filled(given, found):
        """`given` with its missing parts from an initialisation."""
        rest = (found["weights"], found["means"], found["covariances"])
        return tuple(r if g is None else g for g, r in zip(given, rest))

    def start_partly(self, given):
        """Fit from partly given parameters, once for each initialisation of the others; the best fit is kept."""
        best = None
        word = STARTS[self.model.init_params]
        for restart in range(self.model.n_init):
            self.progress.restart = restart
            seed = (self.seed + restart) % 2**64
            found = self.start(word, max_iter=0, n_init=1, seed=seed, rule=_rules.without_fixed(self.rule))
            found = self.start(self._filled(given, found))
            if best is None or _reached(found) > _reached(best):
                best = found
            if self.progress.is_stopped:
                break
        return best

    def go_on(self):
        """Continue the last fit; the first iteration is checked for convergence against the last fit's lower bound."""
        model = self.model
        start = (*parameters(model), *factors(model))
        noise = _rules.noise_of(model)
        if noise is not None and self.rule["noise"] is not None:
            self.rule = {**self.rule, "noise": _rules.given_noise(noise)}
        if model.max_iter > 0:
            with self.progress.silence():
                first = self.start(start, max_iter=1)
            change = first["trace"][0] - model.lower_bound_
            first["converged"] = abs(change) < model.tol
            if first["converged"] or model.max_iter == 1:
                self.progress.tell(0, 1, first["trace"][0], change)
                return first
        return self.start(start)


def labels_of(model, y, n):
    """The known component of each row, int64 of shape (n,) with -1 where it is unknown; None if labels are not used."""
    if model.labels is None:
        return None
    if y is None:
        raise ParameterError("labels='y', but y is None: give the component of each row, -1 where it is unknown")
    given = np.asarray(to_host(y))
    if given.shape != (n,):
        raise ParameterError(f"y has shape {given.shape}, expected ({n},): the component of each row")
    if given.dtype.kind not in "iufb" or not np.isfinite(given).all() or (given != np.floor(given)).any():
        raise ParameterError("y must have whole numbers: the component of each row from 0, -1 where it is unknown")
    outside = (given < -1) | (given >= model.n_components)
    if outside.any():
        at = int(np.argmax(outside))
        raise ParameterError(
            f"y[{at}] is {given[at]}: it must be a component from 0 to n_components - 1 = {model.n_components - 1}, or "
            "-1 where it is unknown"
        )
    return given.astype(np.int64)


@contextlib.contextmanager
def _scikit_learns_message():
    """Put scikit-learn's message, which programs may look for, before the details of a numerical error."""
    try:
        yield
    except NumericalError as error:
        raise NumericalError(f"{_ILL_DEFINED} Here: {error}") from None


def _reached(found):
    """The value by which restarts are compared: the last lower bound, or the initial likelihood without iterations."""
    return found["trace"][-1] if found["trace"] else found["log_likelihood"]


def _given(model, n_features):
    """Weights, means and covariances given by the user, float64 or None each."""
    k, d = model.n_components, n_features
    weights = _checked(model.weights_init, "weights", (k,))
    means = _checked(model.means_init, "means", (k, d))
    if weights is not None:
        outside = (weights < 0) | (weights > 1)
        if outside.any():
            raise ParameterError(
                "The parameter 'weights' should be in the range [0, 1], but got max value "
                f"{weights.max():.5f}, min value {weights.min():.5f} (component {np.argmax(outside)})"
            )
        # A sum of float32 weights is as close to 1 as float32 allows.
        if abs(weights.sum() - 1.0) > 1e-6:
            raise ParameterError(
                f"The parameter 'weights' should be normalized, but got sum(weights) = {weights.sum():.5f}"
            )
    kind = model.covariance_type
    shape = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[kind]
    precisions = _checked(model.precisions_init, f"{kind} precision", shape)
    if precisions is None:
        return weights, means, None
    try:
        return weights, means, _core.covariances_of_precisions(kind, precisions, k, d)
    except ParameterError as error:
        should = "symmetric, positive-definite" if kind in ("full", "tied") else "positive"
        raise ParameterError(f"'{kind} precision' should be {should}: {error}") from None


def _checked(given, name, shape):
    """`given` as a finite float64 array of this shape; None stays None. Messages are scikit-learn's."""
    if given is None:
        return None
    array = to_host(given)
    try:
        _numbers.check(array, f"the parameter '{name}'")
    except DataError as error:
        raise ParameterError(str(error)) from None
    array = np.asarray(array)
    if array.dtype.kind == "c":
        raise ParameterError(f"The parameter '{name}': complex data not supported")
    try:
        array = np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])
    except (TypeError, ValueError) as error:
        raise ParameterError(f"The parameter '{name}': {error}") from None
    if array.shape != shape:
        raise ParameterError(f"The parameter '{name}' should have the shape of {shape}, but got {array.shape}")
    if not np.isfinite(array).all():
        at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ParameterError(f"The parameter '{name}' contains NaN or infinity, first at {at}")
    return array


def set_parameters(model, found, dtype):
    """Set the attributes of the mixture, with the dtype of the data."""
    factors = found["precision_factors"]
    if model.covariance_type in ("full", "tied"):
        precisions = factors @ factors.swapaxes(-1, -2)
    else:
        precisions = factors**2
    arrays = (found["weights"], found["means"], found["covariances"], factors, precisions)
    for name, array in zip(_ARRAYS, arrays):
        setattr(model, name, array.astype(dtype, copy=False))
    for name in _FACTORS:
        array = found.get(name.rstrip("_"))
        if array is None:
            model.__dict__.pop(name, None)
        else:
            setattr(model, name, array.astype(dtype, copy=False))


def factors(model):
    """Loadings and uniquenesses in float64, if the mixture has factors; else nothing."""
    if not hasattr(model, "loadings_"):
        return ()
    return tuple(np.ascontiguousarray(to_host(getattr(model, name)), dtype=np.float64) for name in _FACTORS)


def forget(model):
    """Remove what belongs to the mixture before: clusters of components, the threshold of outliers, noise."""
    for name in ("clusters_", "_outliers", "noise_weight_", "noise_log_volume_", "noise_region_"):
        model.__dict__.pop(name, None)


def as_given(model, X):
    """Move the attributes of the mixture to the array library and device of `X` if scikit-learn would."""
    for name, array in zip(_ARRAYS, all_like(X, [getattr(model, name) for name in _ARRAYS])):
        setattr(model, name, array)


def _warn(found, *, converged):
    for kind, text in found:
        if kind == "not-converged":
            continue
        category = DataWarning if kind in ("regularisation", "spikes", "unobserved") else ConvergenceWarning
        warnings.warn(text, category, stacklevel=_CALLER)
    if not converged:
        warnings.warn(_NOT_CONVERGED, ConvergenceWarning, stacklevel=_CALLER)


def parameters(model):
    """The attributes that predictions use, the same as in scikit-learn, in the form that `gmm_rs._core` takes.

    float32 and float64 arrays in row-major order are not copied: the factors can be most of the data that a prediction
    reads.
    """
    arrays = (model.weights_, model.means_, model.precisions_cholesky_)
    return (model.covariance_type, *(_plain(np.asarray(to_host(a))) for a in arrays))


def _plain(array):
    """`array` itself if the engines can read it, else a copy that they can."""
    is_known = array.dtype in (np.float32, np.float64) and array.dtype.isnative
    return np.require(array, array.dtype if is_known else np.float64, ["C_CONTIGUOUS", "ALIGNED"])


def seed(random_state):
    """The seed for the engines: the integer itself, else one drawn from the generator."""
    if isinstance(random_state, numbers.Integral) and random_state >= 0:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**63 - 1, dtype=np.int64))
