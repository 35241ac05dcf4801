"""Sets the attributes of a fit on an estimator from a record, read from a file or made by a selection."""

import json

import numpy as np


def set_record(model, record):
    """Set the attributes of a fit from its record, JSON made by `_core`; None sets nothing.

    The record itself is stored on the estimator, for `gmm_rs.save`.
    """
    if record is None:
        return
    model._fit_record = record
    found = json.loads(record)
    model.converged_ = found["converged"]
    model.n_iter_ = found["iterations"]
    # JSON has no NaN; it is written as null.
    model.lower_bounds_ = [np.nan if value is None else value for value in found["trace"]]
    model.lower_bound_ = model.lower_bounds_[-1] if model.lower_bounds_ else -np.inf
    model.engine_ = found["engine"]
    model.fast_loss_ = None


def record_of(model):
    """The record of an estimator's fit as JSON, or None."""
    text = getattr(model, "_fit_record", None)
    if text is None:
        return None
    record = json.loads(text)
    # A warm start may have converged against the previous fit, which the record of the last call does not show.
    record["converged"] = bool(model.converged_)
    return json.dumps(record)


def rules_of(model):
    """What an estimator's fit did beyond maximum likelihood, a line each; None if that is not known."""
    text = getattr(model, "_fit_record", None)
    return None if text is None else json.loads(text).get("rules", [])
