"""Gaussian mixture models on multi-core CPUs and NVIDIA GPUs, with scikit-learn's interface.

A fitted model in three lines::

    from gmm_rs.mixture import GaussianMixture

    model = GaussianMixture(n_components=3).fit(X)
    labels = model.predict(X)

`gmm_rs.accel` speeds up programs that use ``sklearn.mixture.GaussianMixture`` without changing them.
`gmm_rs.Likelihood` evaluates the likelihood of fixed rows under many parameters, for samplers and optimisers.
`gmm_rs.mcmc` draws from the posterior, and `gmm_rs.Resident` multiplies batches of vectors by a fixed matrix.
`gmm_rs.regression`, `gmm_rs.classification` and `gmm_rs.outliers` predict with mixtures; `gmm_rs.imputation` fills in
missing values.
`gmm_rs.select` chooses the number of components, and `gmm_rs.bootstrap` gives standard errors.
`gmm_rs.load` and `gmm_rs.save` read and write the model files of the
program ``gmm``. `gmm_rs.dask` fits data on a cluster, and `gmm_rs.steps` has the steps of which it is made.
`gmm_rs.many` makes many fits in one call.
`gmm_rs.structure` merges, combines and splits components, and `gmm_rs.adapt` adapts background models to speakers.
"""

from importlib import import_module

from gmm_rs._core import __version__

_NAMES = {
    "GaussianMixtureClassifier": "classification",
    "GaussianMixtureDetector": "outliers",
    "GaussianMixtureImputer": "imputation",
    "GaussianMixtureRegressor": "regression",
    "Likelihood": "likelihood",
    "Resident": "products",
    "Statistics": "steps",
    "bootstrap": "resampling",
    "load": "files",
    "mcmc": "posterior",
    "save": "files",
    "select": "selection",
}

_MODULES = {
    "accel",
    "adapt",
    "classification",
    "dask",
    "datasets",
    "exceptions",
    "files",
    "imputation",
    "likelihood",
    "many",
    "mixture",
    "outliers",
    "plot",
    "posterior",
    "products",
    "regression",
    "resampling",
    "selection",
    "steps",
    "structure",
}

__all__ = [
    "GaussianMixtureClassifier",
    "GaussianMixtureDetector",
    "GaussianMixtureImputer",
    "GaussianMixtureRegressor",
    "Likelihood",
    "Resident",
    "Statistics",
    "__version__",
    "accel",
    "adapt",
    "bootstrap",
    "classification",
    "dask",
    "datasets",
    "exceptions",
    "files",
    "imputation",
    "likelihood",
    "load",
    "many",
    "mcmc",
    "mixture",
    "outliers",
    "plot",
    "posterior",
    "products",
    "regression",
    "resampling",
    "save",
    "select",
    "selection",
    "steps",
    "structure",
]


def __getattr__(name):
    # Importing scikit-learn takes a second, so modules that need it are imported on first use.
    if name in _MODULES:
        return import_module(f"gmm_rs.{name}")
    if name in _NAMES:
        return getattr(import_module(f"gmm_rs.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'gmm_rs' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
