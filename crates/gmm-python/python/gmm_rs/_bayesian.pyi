from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.mixture import BayesianGaussianMixture as _OriginalBayesian

from gmm_rs._core import _Kind, _Precision, _Table
from gmm_rs._given import Parameters

__all__ = ["BayesianGaussianMixture"]

_Float = NDArray[np.float32] | NDArray[np.float64]

class BayesianGaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    n_components: int
    covariance_type: _Kind
    tol: float
    reg_covar: float
    max_iter: int
    n_init: int
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data", "tree", "best", "mix-up"]
    weight_concentration_prior_type: Literal["dirichlet_process", "dirichlet_distribution"]
    weight_concentration_prior: float | None
    mean_precision_prior: float | None
    mean_prior: ArrayLike | None
    degrees_of_freedom_prior: float | None
    covariance_prior: ArrayLike | None
    random_state: int | np.random.RandomState | None
    warm_start: bool
    verbose: int | bool
    verbose_interval: int
    device: str
    precision: _Precision | None
    n_jobs: int | None
    init_rows: int | None
    callback: Callable[[int, float], object] | None
    moves: bool

    weights_: _Float
    means_: _Float
    covariances_: _Float
    precisions_: _Float
    precisions_cholesky_: _Float
    converged_: bool
    n_iter_: int
    lower_bound_: float
    lower_bounds_: list[float]
    weight_concentration_prior_: float
    weight_concentration_: tuple[NDArray[np.float64], NDArray[np.float64]] | NDArray[np.float64]
    mean_precision_prior_: float
    mean_precision_: NDArray[np.float64]
    mean_prior_: NDArray[np.float64]
    degrees_of_freedom_prior_: float
    degrees_of_freedom_: NDArray[np.float64] | float
    covariance_prior_: NDArray[np.float64] | float
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    engine_: str

    def __init__(
        self,
        *,
        n_components: int = 1,
        covariance_type: _Kind = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: Literal["kmeans", "k-means++", "random", "random_from_data", "tree", "best", "mix-up"] = "kmeans",
        weight_concentration_prior_type: Literal["dirichlet_process", "dirichlet_distribution"] = "dirichlet_process",
        weight_concentration_prior: float | None = None,
        mean_precision_prior: float | None = None,
        mean_prior: ArrayLike | None = None,
        degrees_of_freedom_prior: float | None = None,
        covariance_prior: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int | bool = 0,
        verbose_interval: int = 10,
        device: str = "auto",
        precision: _Precision | None = None,
        n_jobs: int | None = None,
        init_rows: int | None = None,
        callback: Callable[[int, float], object] | None = None,
        moves: bool = False,
    ) -> None: ...
    def fit(self, X: ArrayLike | _Table, y: object = None, sample_weight: ArrayLike | None = None) -> Self: ...
    def fit_predict(
        self, X: ArrayLike | _Table, y: object = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int64]: ...
    def predict(self, X: ArrayLike | _Table) -> NDArray[np.int64]: ...
    def predict_proba(self, X: ArrayLike | _Table) -> _Float: ...
    def score_samples(self, X: ArrayLike | _Table) -> _Float: ...
    def predictive_log_density(self, X: ArrayLike | _Table) -> NDArray[np.float64]: ...
    def score(self, X: ArrayLike | _Table, y: object = None, sample_weight: ArrayLike | None = None) -> float: ...
    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...
    def sample_posterior(self, n_draws: int = 1) -> Parameters: ...
    def set_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
    def set_score_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
    def to_sklearn(self) -> _OriginalBayesian: ...
    @classmethod
    def from_sklearn(cls, estimator: _OriginalBayesian, **parameters: Any) -> Self: ...
