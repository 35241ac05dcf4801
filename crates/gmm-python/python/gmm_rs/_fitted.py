"""What a fit leaves on an estimator, where it was not the estimator that fitted: the record of a file or of a selection."""

import json

import numpy as np


def set_record(model, record):
    """The attributes of a fit from its record, JSON as `_core` gives it; None sets none.

    The record itself stays with the estimator, for `gmm_rs.save`.
    """
    if record is None:
        return
    model._fit_record = record
    found = json.loads(record)
    model.converged_ = found["converged"]
    model.n_iter_ = found["iterations"]
    # JSON has no NaN.
    model.lower_bounds_ = [np.nan if value is None else value for value in found["trace"]]
    model.lower_bound_ = model.lower_bounds_[-1] if model.lower_bounds_ else -np.inf
    model.engine_ = found["engine"]
    model.fast_loss_ = None


def record_of(model):
    """The record of an estimator's fit, as JSON, or None where there is none."""
    text = getattr(model, "_fit_record", None)
    if text is None:
        return None
    record = json.loads(text)
    # A warm start may have converged where the engine's last fit alone did not know it.
    record["converged"] = bool(model.converged_)
    return json.dumps(record)
