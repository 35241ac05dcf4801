"""Where to compute, as `gmm_rs._core` takes it."""

from gmm_rs._gpu import OnGpu
from gmm_rs._threads import threads


def place(model, X=None):
    """Where to compute; 'auto' is the GPU that `X` lies on, if it is rows on one."""
    found = {
        "device": getattr(model, "device", "auto"),
        "threads": threads(getattr(model, "n_jobs", None)),
        "precision": getattr(model, "precision", None),
    }
    return X.place(found) if isinstance(X, OnGpu) else found
