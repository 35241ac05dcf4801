"""Gaussian mixture models on all cores and on NVIDIA GPUs, behind scikit-learn's interface.

Three lines to a fitted model::

    from gmm_rs.mixture import GaussianMixture

    model = GaussianMixture(n_components=3).fit(X)
    labels = model.predict(X)

A program that uses ``sklearn.mixture.GaussianMixture`` need not change: see `gmm_rs.accel`. Samplers and searches keep
rows loaded and move the parameters: see `gmm_rs.Likelihood`. `gmm_rs.mcmc` draws from the posterior, and
`gmm_rs.Resident` keeps a matrix for products. `gmm_rs.select` chooses the number of components; `gmm_rs.load` and
`gmm_rs.save` share model files with the program ``gmm``.
"""

from importlib import import_module

from gmm_rs._core import __version__

_NAMES = {
    "Likelihood": "likelihood",
    "Resident": "products",
    "load": "files",
    "mcmc": "posterior",
    "save": "files",
    "select": "selection",
}

_MODULES = {
    "accel",
    "datasets",
    "exceptions",
    "files",
    "likelihood",
    "mixture",
    "plot",
    "posterior",
    "products",
    "selection",
}

__all__ = [
    "Likelihood",
    "Resident",
    "__version__",
    "accel",
    "datasets",
    "exceptions",
    "files",
    "likelihood",
    "load",
    "mcmc",
    "mixture",
    "plot",
    "posterior",
    "products",
    "save",
    "select",
    "selection",
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
