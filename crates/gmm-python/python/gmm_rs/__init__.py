"""Gaussian mixture models on all cores and on NVIDIA GPUs, behind scikit-learn's interface.

Three lines to a fitted model::

    from gmm_rs.mixture import GaussianMixture

    model = GaussianMixture(n_components=3).fit(X)
    labels = model.predict(X)

A program that uses ``sklearn.mixture.GaussianMixture`` need not change: see `gmm_rs.accel`. Samplers and searches keep
rows loaded and move the parameters: see `gmm_rs.Likelihood`. `gmm_rs.mcmc` draws from the posterior, and
`gmm_rs.Resident` keeps a matrix for products.
"""

from importlib import import_module

from gmm_rs._core import __version__

_NAMES = {"Likelihood": "likelihood", "Resident": "products", "mcmc": "posterior"}

_MODULES = {"accel", "datasets", "exceptions", "likelihood", "mixture", "plot", "posterior", "products"}

__all__ = [
    "Likelihood",
    "Resident",
    "__version__",
    "accel",
    "datasets",
    "exceptions",
    "likelihood",
    "mcmc",
    "mixture",
    "plot",
    "posterior",
    "products",
]


def __getattr__(name):
    # scikit-learn takes a second to import, so it waits for whoever needs it.
    if name in _MODULES:
        return import_module(f"gmm_rs.{name}")
    if name in _NAMES:
        return getattr(import_module(f"gmm_rs.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'gmm_rs' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
