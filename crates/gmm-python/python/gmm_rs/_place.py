"""Where to compute, as `gmm_rs._core` takes it."""

from joblib import effective_n_jobs


def place(model):
    """Where to compute."""
    n_jobs = getattr(model, "n_jobs", None)
    return {
        "device": getattr(model, "device", "auto"),
        # 0 stands for all cores that the process may use.
        "threads": 0 if n_jobs is None or n_jobs == -1 else effective_n_jobs(n_jobs),
        "precision": getattr(model, "precision", None),
    }
