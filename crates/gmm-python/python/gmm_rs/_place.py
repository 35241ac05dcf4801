"""Where to compute, as `gmm_rs._core` takes it."""

from joblib import effective_n_jobs

from gmm_rs._gpu import OnGpu


def place(model, X=None):
    """Where to compute; 'auto' is the GPU that `X` lies on, if it is rows on one."""
    n_jobs = getattr(model, "n_jobs", None)
    found = {
        "device": getattr(model, "device", "auto"),
        # 0 stands for all cores that the process may use.
        "threads": 0 if n_jobs is None or n_jobs == -1 else effective_n_jobs(n_jobs),
        "precision": getattr(model, "precision", None),
    }
    return X.place(found) if isinstance(X, OnGpu) else found
