from gmm_rs import accel as accel
from gmm_rs import adapt as adapt
from gmm_rs import classification as classification
from gmm_rs import dask as dask
from gmm_rs import datasets as datasets
from gmm_rs import exceptions as exceptions
from gmm_rs import files as files
from gmm_rs import imputation as imputation
from gmm_rs import likelihood as likelihood
from gmm_rs import many as many
from gmm_rs import mixture as mixture
from gmm_rs import outliers as outliers
from gmm_rs import plot as plot
from gmm_rs import posterior as posterior
from gmm_rs import products as products
from gmm_rs import regression as regression
from gmm_rs import resampling as resampling
from gmm_rs import selection as selection
from gmm_rs import steps as steps
from gmm_rs import structure as structure
from gmm_rs._core import __version__ as __version__
from gmm_rs.classification import GaussianMixtureClassifier as GaussianMixtureClassifier
from gmm_rs.files import load as load
from gmm_rs.files import save as save
from gmm_rs.imputation import GaussianMixtureImputer as GaussianMixtureImputer
from gmm_rs.likelihood import Likelihood as Likelihood
from gmm_rs.outliers import GaussianMixtureDetector as GaussianMixtureDetector
from gmm_rs.posterior import mcmc as mcmc
from gmm_rs.products import Resident as Resident
from gmm_rs.regression import GaussianMixtureRegressor as GaussianMixtureRegressor
from gmm_rs.resampling import bootstrap as bootstrap
from gmm_rs.selection import select as select
from gmm_rs.steps import Statistics as Statistics

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

def __dir__() -> list[str]: ...
