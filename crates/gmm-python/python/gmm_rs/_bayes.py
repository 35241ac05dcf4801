"""Connects estimators with the parameters and attributes of scikit-learn's ``BayesianGaussianMixture`` to the engines.

All functions take an estimator, as those of `gmm_rs._bridge`, which they build on.
"""

import numpy as np

from gmm_rs import _bridge, _core, _rules
from gmm_rs._inputs import contiguous
from gmm_rs._place import place
from gmm_rs._progress import Progress
from gmm_rs.exceptions import ParameterError

# scikit-learn's names of the families of the weights' prior, and the engines' names.
FAMILIES = {"dirichlet_process": "dp", "dirichlet_distribution": "dirichlet"}

# The attributes that a fit sets beside those of a mixture.
POSTERIOR = (
    "weight_concentration_prior_",
    "weight_concentration_",
    "mean_precision_prior_",
    "mean_precision_",
    "mean_prior_",
    "degrees_of_freedom_prior_",
    "degrees_of_freedom_",
    "covariance_prior_",
)


def fit(model, X, sample_weight=None):
    """Fit `model` to `X` and set its attributes; takes and returns as :func:`gmm_rs._bridge.fit`."""
    _bridge._check_enough(model, X)
    run = _Run(model, X, sample_weight)
    is_warm = model.warm_start and hasattr(model, "converged_")
    if is_warm:
        _bridge.check_same(model)
    found = run.start(run.last() if is_warm else _bridge.STARTS[model.init_params])
    run.progress.end()
    is_ended = found["converged"] or run.progress.is_stopped or model.max_iter == 0
    _bridge._warn(found["warnings"], converged=is_ended)
    _bridge.set_parameters(model, found, X.dtype)
    set_posterior(model, found["posterior"])
    model.converged_ = found["converged"]
    model.n_iter_ = found["iterations"]
    model.lower_bounds_ = [bound * run.total for bound in found["trace"]]
    model.lower_bound_ = model.lower_bounds_[-1] if found["trace"] else -np.inf
    # For gmm_rs.save, and so that a warm start knows by what to judge its first iteration.
    model._fit_record = found["record"]
    return found["engine"]


class _Run(_bridge._Run):
    """One call of `fit`. scikit-learn's `tol` is a change of the bound, that of the engines one per row."""

    def __init__(self, model, X, sample_weight):
        self.model = model
        self.prior = _prior(model, X.shape[1])
        self.rule = {**_rules.rule(None), "bayes": self.prior}
        self.rows = contiguous(X)
        self.weights = sample_weight
        self.total = float(len(X) if sample_weight is None else sample_weight.sum())
        self.place = place(model, X)
        self.seed = _bridge.seed(model.random_state)
        self.progress = _Progress(model, self.total)

    def options(self):
        # Without rows of positive weight the engine refuses them.
        return {**super().options(), "tol": self.model.tol / max(self.total, 1e-300)}

    def last(self):
        """The posterior of the last fit, and its bound per row if a fit of this package found it."""
        model = self.model
        is_known = getattr(model, "_fit_record", None) is not None and np.isfinite(model.lower_bound_)
        return posterior(model), model.lower_bound_ / self.total if is_known else None


class _Progress(Progress):
    """Progress whose bounds are those of all rows."""

    def __init__(self, model, total):
        super().__init__(model)
        self.total = total

    def tell(self, restart, iteration, mean, change):
        return super().tell(restart, iteration, mean * self.total, change * self.total)


def _prior(model, d):
    """The parameters of the prior, checked with scikit-learn's messages; None where the data decide."""
    freedom = model.degrees_of_freedom_prior
    has_matrix = model.covariance_type in ("full", "tied")
    # Gamma distributions, of diag and spherical, exist for any positive number.
    if freedom is not None and has_matrix and not freedom > d - 1.0:
        raise ParameterError(
            f"The parameter 'degrees_of_freedom_prior' should be greater than {d - 1}, but got {freedom:.3f}."
        )
    return {
        "family": FAMILIES[model.weight_concentration_prior_type],
        "concentration": model.weight_concentration_prior,
        "mean": _bridge._checked(model.mean_prior, "means", (d,)),
        "mean_precision": model.mean_precision_prior,
        "degrees_of_freedom": freedom,
        "scale": _scale(model, d),
        "moves": bool(getattr(model, "moves", False)),
    }


def _scale(model, d):
    kind = model.covariance_type
    shape = {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}[kind]
    scale = _bridge._checked(model.covariance_prior, f"{kind} covariance_prior", shape)
    if scale is None:
        return None
    if kind in ("diag", "spherical"):
        if not (scale > 0).all():
            raise ParameterError(f"'{kind} covariance_prior' should be positive")
        return scale
    try:
        if not np.allclose(scale, scale.T):
            raise np.linalg.LinAlgError
        np.linalg.cholesky(scale)
    except np.linalg.LinAlgError:
        raise ParameterError(f"'{kind} covariance_prior' should be symmetric, positive-definite") from None
    return scale


def set_posterior(model, found):
    """Set the attributes of :data:`POSTERIOR`, in scikit-learn's shapes."""
    prior = found["prior"]
    model.weight_concentration_prior_ = prior["concentration"]
    model.mean_precision_prior_ = prior["mean_precision"]
    model.mean_prior_ = prior["mean"]
    model.degrees_of_freedom_prior_ = prior["degrees_of_freedom"]
    scale = prior["scale"]
    model.covariance_prior_ = scale if scale.ndim else scale[()]
    concentration = found["weight_concentration"]
    is_process = prior["family"] == "dp"
    model.weight_concentration_ = tuple(concentration.T.copy()) if is_process else concentration
    model.mean_precision_ = found["mean_precision"]
    freedom = found["degrees_of_freedom"]
    # The engines count the rows of all components, scikit-learn their mean.
    model.degrees_of_freedom_ = freedom[0] / len(model.means_) if model.covariance_type == "tied" else freedom


def posterior(model):
    """The posterior in the form that `gmm_rs._core` takes, from the attributes."""
    def array(value):
        return np.require(_bridge.to_host(value), np.float64, ["C_CONTIGUOUS", "ALIGNED"])

    is_process = isinstance(model.weight_concentration_, tuple)
    concentration, freedom = model.weight_concentration_, np.atleast_1d(model.degrees_of_freedom_)
    return {
        "prior": {
            "family": "dp" if is_process else "dirichlet",
            "concentration": model.weight_concentration_prior_,
            "mean": array(model.mean_prior_),
            "mean_precision": model.mean_precision_prior_,
            "degrees_of_freedom": model.degrees_of_freedom_prior_,
            "scale": array(model.covariance_prior_),
        },
        "covariance_type": model.covariance_type,
        "means": array(model.means_),
        "covariances": array(model.covariances_),
        "weight_concentration": array(np.stack(concentration, axis=1) if is_process else concentration),
        "mean_precision": array(model.mean_precision_),
        "degrees_of_freedom": array(freedom * len(model.means_) if model.covariance_type == "tied" else freedom),
    }


class Expectation:
    """The mixture whose responsibilities are those of the posterior, with the attributes that predictions use.

    Attributes
    ----------
    log_scale : float
        To be added to each row's log density: the sum is the logarithm of ``sum_c exp(E ln(weight_c density_c))``.
    """

    def __init__(self, model):
        self.weights_, self.log_scale = _core.posterior_expectation(posterior(model))
        self.means_, self.precisions_cholesky_ = model.means_, model.precisions_cholesky_
        self.covariance_type = model.covariance_type
        for name in ("device", "precision", "n_jobs"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))


def parameters(found, record):
    """The parameters of an estimator for a model file with a posterior: `tol` and `reg_covar` of the record of the fit,
    where they are known, and those of the prior."""
    prior, scale = found["posterior"]["prior"], found["posterior"]["prior"]["scale"]
    given = {
        "weight_concentration_prior": prior["concentration"],
        "mean_precision_prior": prior["mean_precision"],
        "mean_prior": prior["mean"],
        "degrees_of_freedom_prior": prior["degrees_of_freedom"],
        "covariance_prior": scale if scale.ndim else scale[()],
    }
    if "tol" in record:
        # The record has it per row; rounded, it is the number that was given.
        given["tol"] = float(f"{record['tol'] * _total_weight(found['posterior']):.12g}")
    return {**record, **given}


def family(found):
    """The parameter of an estimator that a model file with a posterior decides."""
    names = {engine: name for name, engine in FAMILIES.items()}
    return {"weight_concentration_prior_type": names[found["posterior"]["prior"]["family"]]}


def set_bounds(model, found):
    """Turn the bounds per row, which a record has, into those of all rows."""
    model.__dict__.pop("fast_loss_", None)
    if hasattr(model, "lower_bounds_"):
        total = _total_weight(found["posterior"])
        model.lower_bounds_ = [bound * total for bound in model.lower_bounds_]
        model.lower_bound_ = model.lower_bounds_[-1] if model.lower_bounds_ else -np.inf


def _total_weight(found):
    """The total row weight of a fit, from its posterior: a whole number if it is one up to rounding."""
    concentration = found["weight_concentration"]
    is_process = concentration.ndim == 2
    total = (concentration[:, 0] - 1 if is_process else concentration - found["prior"]["concentration"]).sum()
    return round(total) if abs(total - round(total)) <= 1e-9 * total else total
