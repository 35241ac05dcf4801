from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from gmm_rs._core import _Kind, _Precision, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["GaussianMixtureImputer", "Pooled", "pool"]

_Float = NDArray[np.float32] | NDArray[np.float64]

class Pooled(NamedTuple):
    estimate: float
    variance: float
    within: float
    between: float
    degrees_of_freedom: float
    missing_information: float

def pool(estimates: ArrayLike, variances: ArrayLike) -> Pooled: ...

class GaussianMixtureImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    n_components: int
    covariance_type: _Kind
    how: Literal["mean", "mode", "draw"]
    tol: float
    reg_covar: float
    max_iter: int
    n_init: int
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data"]
    random_state: int | np.random.RandomState | None
    device: str
    precision: _Precision | Literal["fast"] | None
    n_jobs: int | None
    init_rows: int | None
    missing: str

    mixture_: GaussianMixture
    n_iter_: int
    converged_: bool
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __sklearn_tags__(self) -> Any: ...
    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: _Kind = "full",
        how: Literal["mean", "mode", "draw"] = "mean",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: Literal["kmeans", "k-means++", "random", "random_from_data"] = "kmeans",
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        precision: _Precision | Literal["fast"] | None = None,
        n_jobs: int | None = None,
        init_rows: int | None = None,
    ) -> None: ...
    def fit(self, X: ArrayLike | _Table, y: object = None, sample_weight: ArrayLike | None = None) -> Self: ...
    def transform(self, X: ArrayLike | _Table) -> _Float: ...
    def set_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
