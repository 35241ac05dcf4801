"""What a fit does beyond maximum likelihood, from the parameters of an estimator, in the form that `gmm_rs._core` takes."""

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from gmm_rs._given import index
from gmm_rs._gpu import to_host
from gmm_rs.exceptions import ParameterError

# The parameters of these rules, and their defaults. scikit-learn's class has none of them.
DEFAULTS = {
    "prior": None,
    "floor": 0.0,
    "floor_relative": 0.0,
    "drop_starved": None,
    "fixed_weights": None,
    "fixed_means": None,
    "fixed_covariances": None,
    "shared_covariances": None,
    "noise": None,
    "noise_volume": None,
    "truncated": None,
    "factors": None,
}

# For a fixed part, the parameter that must give it.
_STARTS = {"fixed_weights": "weights_init", "fixed_means": "means_init", "fixed_covariances": "precisions_init"}

_PRIOR = ("mean", "shrinkage", "degrees_of_freedom", "scale", "concentration")


def rule(model, labels=None, n=None, d=None):
    """The rule of a fit of `n` rows and `d` columns. None as `model` is the plain rule."""
    of = {name: getattr(model, name, default) for name, default in DEFAULTS.items()}
    k = getattr(model, "n_components", 1)
    # A fit that goes on has the parameters of the last one.
    goes_on = getattr(model, "warm_start", False) and hasattr(model, "converged_")
    fixed = []
    for name, start in _STARTS.items():
        fixed.append(_components(of[name], name, k))
        if fixed[-1] and not goes_on and getattr(model, start, None) is None:
            raise ParameterError(f"{name} keeps what {start} gives, which is None: give it")
    return {
        "prior": _prior(of["prior"], model, d),
        "floor": of["floor"],
        "floor_relative": of["floor_relative"],
        "drop_starved": of["drop_starved"],
        "labels": labels,
        "fixed": tuple(fixed),
        "shared": _groups(of["shared_covariances"], k),
        "noise": _noise(of["noise"], of["noise_volume"], n),
        **{name: None if of[name] is None else index(of[name], name, 1) for name in ("truncated", "factors")},
    }


def without_fixed(rule):
    """The rule for finding a start, of which nothing is fixed yet."""
    return {**rule, "fixed": ([], [], [])}


def only_likelihood(model, why):
    """Refuse an estimator whose M-step is not that of maximum likelihood."""
    changed = [name for name, default in DEFAULTS.items() if not _is_default(getattr(model, name, default), default)]
    if getattr(model, "labels", None) is not None:
        changed.append("labels")
    if changed:
        raise ParameterError(f"{why}: {', '.join(changed)} must have the default")


def _is_default(value, default):
    return value is default or (isinstance(value, Real) and value == default)


def _components(value, name, k):
    """Indices of components: a list, or 'all'."""
    if value is None:
        return []
    if isinstance(value, str):
        if value == "all":
            return list(range(k))
        raise ParameterError(f"{name} is {value!r}: it must be a list of component indices, or 'all'")
    found = []
    for c in np.asarray(value).ravel().tolist():
        if isinstance(c, bool) or not isinstance(c, Integral) or not 0 <= c < k:
            raise ParameterError(f"{name} has {c!r}: it must be a component, from 0 to n_components - 1 = {k - 1}")
        found.append(int(c))
    return found


def _groups(value, k):
    """Groups of components that share a covariance: a list of lists, or 'all'."""
    if value is None:
        return []
    if isinstance(value, str):
        return [_components(value, "shared_covariances", k)]
    if not all(isinstance(group, (list, tuple, np.ndarray)) for group in value):
        raise ParameterError(f"shared_covariances is {value!r}: it must be a list of lists of components, or 'all'")
    return [_components(group, "shared_covariances", k) for group in value]


def _prior(value, model, d):
    """None, 'conjugate', or the given parts of the prior as float64."""
    if not isinstance(value, Mapping):
        return value
    unknown = [key for key in value if key not in _PRIOR]
    if unknown:
        raise ParameterError(f"prior has the key {unknown[0]!r}: it must be one of {', '.join(_PRIOR)}")
    kind = model.covariance_type
    shapes = {"mean": (d,), "scale": {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}[kind]}
    found = {}
    for key, part in value.items():
        try:
            array = np.ascontiguousarray(to_host(part), dtype=np.float64).reshape(np.shape(to_host(part)))
        except (TypeError, ValueError):
            raise ParameterError(f"prior[{key!r}] is {part!r}: it must have numbers") from None
        shape = shapes.get(key, ())
        if d is not None and array.shape != shape:
            raise ParameterError(f"prior[{key!r}] has shape {array.shape}, expected {shape} for {d} columns and {kind!r}")
        found[key] = array if key in shapes else float(array)
    return found


def _noise(noise, volume, n):
    """None, or where noise starts and the logarithm of its volume."""
    if noise is None:
        if volume is not None:
            raise ParameterError(f"noise_volume is {volume!r}, but noise is None: set noise='auto'")
        return None
    if isinstance(noise, str):
        if noise != "auto":
            raise ParameterError(f"noise is {noise!r}: it must be 'auto', a share between 0 and 1, or a flag for each row")
        start = None
    elif isinstance(noise, Real) and not isinstance(noise, (bool, np.bool_)):
        start = float(noise)
    else:
        start = np.ascontiguousarray(to_host(noise))
        if start.dtype != bool or (n is not None and start.shape != (n,)):
            raise ParameterError(
                f"noise has shape {start.shape} and type {start.dtype}: flags of rows are bool, of shape (n,) = ({n},)"
            )
    return {"start": start, "log_volume": None if volume is None else math.log(volume)}


def given_noise(text):
    """The rule of noise that is known already, as JSON."""
    return {"start": text, "log_volume": None}


def set_noise(model, text):
    """Set the attributes of noise from its JSON, or remove them."""
    for name in ("noise_weight_", "noise_log_volume_", "noise_region_"):
        model.__dict__.pop(name, None)
    if text is not None:
        found = json.loads(text)
        model.noise_weight_, model.noise_log_volume_ = found["weight"], found["log_volume"]
        model.noise_region_ = found.get("region")


def noise_of(model):
    """The noise of a fitted estimator as JSON, or None."""
    if not hasattr(model, "noise_weight_"):
        return None
    noise = {"weight": float(model.noise_weight_), "log_volume": float(model.noise_log_volume_)}
    if model.noise_region_ is not None:
        noise["region"] = model.noise_region_
    return json.dumps(noise)


def refuse_noise(model, why):
    """Refuse a fitted estimator with noise where only its Gaussian components would count."""
    if hasattr(model, "noise_weight_"):
        raise ParameterError(f"the mixture has uniform noise, {why}: fit it with noise=None")


def noise_terms(model):
    """``ln(w0 / V)`` and ``ln(1 - w0)``."""
    with np.errstate(divide="ignore"):
        return float(np.log(model.noise_weight_) - model.noise_log_volume_), float(np.log1p(-model.noise_weight_))


def beside_noise(model, log_densities):
    """Log densities of rows with noise, and the probabilities of noise, from those of the Gaussian mixture."""
    noise, rest = noise_terms(model)
    both = np.logaddexp(noise, rest + log_densities.astype(np.float64))
    with np.errstate(invalid="ignore"):
        probability = np.exp(noise - both)
    return both, np.where(np.isneginf(both), model.noise_weight_, probability)
