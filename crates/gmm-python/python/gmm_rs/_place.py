"""Where to compute: device, threads and precision, in the form that `gmm_rs._core` takes."""

from gmm_rs._gpu import OnGpu
from gmm_rs._threads import threads


def place(model, X=None):
    """Where to compute; if `X` is on a GPU, 'auto' means that GPU."""
    found = {
        "device": getattr(model, "device", "auto"),
        "threads": threads(getattr(model, "n_jobs", None)),
        "precision": getattr(model, "precision", None),
    }
    # GPUs pass over rows with measurement errors only when they are named.
    if found["device"] == "auto" and getattr(X, "measurement", None) is not None:
        found["device"] = "cpu"
    return X.place(found) if isinstance(X, OnGpu) else found
