"""Gaussian mixture models on all cores and on NVIDIA GPUs, behind scikit-learn's interface.

Three lines to a fitted model::

    from gmm_rs.mixture import GaussianMixture

    model = GaussianMixture(n_components=3).fit(X)
    labels = model.predict(X)

A program that uses ``sklearn.mixture.GaussianMixture`` need not change: see `gmm_rs.accel`.
"""

from importlib import import_module

from gmm_rs._core import __version__

__all__ = ["__version__", "accel", "datasets", "exceptions", "mixture", "plot"]

_MODULES = {"accel", "datasets", "exceptions", "mixture", "plot"}


def __getattr__(name):
    # scikit-learn takes a second to import, so it waits for whoever needs it.
    if name in _MODULES:
        return import_module(f"gmm_rs.{name}")
    raise AttributeError(f"module 'gmm_rs' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
