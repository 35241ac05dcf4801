from typing import Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from gmm_rs._core import _Kind, _Precision, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["Conditional", "GaussianMixtureRegressor"]

_Float = NDArray[np.float64]

class Conditional(NamedTuple):
    weights: _Float
    means: _Float
    covariances: _Float

class GaussianMixtureRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    n_components: int
    covariance_type: _Kind
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

    mixture_: GaussianMixture
    n_iter_: int
    converged_: bool
    n_features_in_: int
    n_targets_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: _Kind = "full",
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
    def fit(self, X: ArrayLike | _Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self: ...
    @overload
    def predict(self, X: ArrayLike | _Table, return_std: Literal[False] = False) -> _Float: ...
    @overload
    def predict(self, X: ArrayLike | _Table, return_std: Literal[True]) -> tuple[_Float, _Float]: ...
    def sample_y(
        self, X: ArrayLike | _Table, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> _Float: ...
    def log_density(self, X: ArrayLike | _Table, y: ArrayLike) -> _Float: ...
    def conditional(self, X: ArrayLike | _Table) -> Conditional: ...
    def set_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
    def set_predict_request(self, *, return_std: bool | str | None = ...) -> Self: ...
    def set_score_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
