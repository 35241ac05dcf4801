from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.mixture import GaussianMixture as _Original

from gmm_rs._bayesian import BayesianGaussianMixture
from gmm_rs._core import _Kind, _Precision, _Table

__all__ = ["BayesianGaussianMixture", "GaussianMixture", "Limits"]

_Float = NDArray[np.float32] | NDArray[np.float64]

_Ends = tuple[ArrayLike | None, ArrayLike | None]

class Limits:
    censored: _Ends | None
    rounded: ArrayLike | None
    truncated: _Ends | None
    upper: ArrayLike | None

    def __init__(
        self,
        *,
        censored: _Ends | None = None,
        rounded: ArrayLike | None = None,
        truncated: _Ends | None = None,
        upper: ArrayLike | None = None,
    ) -> None: ...

class GaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    n_components: int
    covariance_type: _Kind
    tol: float
    reg_covar: float
    max_iter: int
    n_init: int
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data", "tree", "best", "mix-up"]
    weights_init: ArrayLike | None
    means_init: ArrayLike | None
    precisions_init: ArrayLike | None
    random_state: int | np.random.RandomState | None
    warm_start: bool
    verbose: int | bool
    verbose_interval: int
    device: str
    precision: _Precision | Literal["fast"] | None
    n_jobs: int | None
    init_rows: int | None
    callback: Callable[[int, float], object] | None
    prior: Literal["conjugate"] | dict[str, ArrayLike] | None
    floor: float
    floor_relative: float
    drop_starved: float | None
    labels: Literal["y"] | None
    fixed_weights: ArrayLike | Literal["all"] | None
    fixed_means: ArrayLike | Literal["all"] | None
    fixed_covariances: ArrayLike | Literal["all"] | None
    shared_covariances: Sequence[ArrayLike] | Literal["all"] | None
    noise: Literal["auto"] | float | ArrayLike | None
    noise_volume: float | None
    missing: Literal["error", "em", "drop"]
    truncated: int | None
    factors: int | None

    weights_: _Float
    means_: _Float
    covariances_: _Float
    precisions_: _Float
    precisions_cholesky_: _Float
    converged_: bool
    n_iter_: int
    lower_bound_: float
    lower_bounds_: list[float]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    engine_: str
    fast_loss_: dict[str, float] | None
    loadings_: _Float
    uniquenesses_: _Float
    noise_weight_: float
    noise_log_volume_: float
    noise_region_: dict[str, Any] | None
    clusters_: NDArray[np.integer[Any]]

    def __sklearn_tags__(self) -> Any: ...
    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: _Kind = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: Literal["kmeans", "k-means++", "random", "random_from_data", "tree", "best", "mix-up"] = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int | bool = 0,
        verbose_interval: int = 10,
        device: str = "auto",
        precision: _Precision | Literal["fast"] | None = None,
        n_jobs: int | None = None,
        init_rows: int | None = None,
        callback: Callable[[int, float], object] | None = None,
        prior: Literal["conjugate"] | dict[str, ArrayLike] | None = None,
        floor: float = 0.0,
        floor_relative: float = 0.0,
        drop_starved: float | None = None,
        labels: Literal["y"] | None = None,
        fixed_weights: ArrayLike | Literal["all"] | None = None,
        fixed_means: ArrayLike | Literal["all"] | None = None,
        fixed_covariances: ArrayLike | Literal["all"] | None = None,
        shared_covariances: Sequence[ArrayLike] | Literal["all"] | None = None,
        noise: Literal["auto"] | float | ArrayLike | None = None,
        noise_volume: float | None = None,
        missing: Literal["error", "em", "drop"] = "error",
        truncated: int | None = None,
        factors: int | None = None,
    ) -> None: ...
    def fit(
        self,
        X: ArrayLike | _Table,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> Self: ...
    def partial_fit(self, X: ArrayLike | _Table, y: object = None, sample_weight: ArrayLike | None = None) -> Self: ...
    def fit_predict(
        self,
        X: ArrayLike | _Table,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> NDArray[np.int64]: ...
    def predict(
        self,
        X: ArrayLike | _Table,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> NDArray[np.int64]: ...
    def predict_proba(
        self,
        X: ArrayLike | _Table,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> _Float: ...
    def score_samples(
        self,
        X: ArrayLike | _Table,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> _Float: ...
    def score(
        self,
        X: ArrayLike | _Table,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> float: ...
    @overload
    def deconvolve(
        self,
        X: ArrayLike | _Table,
        noise: ArrayLike | None,
        projection: ArrayLike | None = None,
        *,
        return_cov: Literal[False] = False,
    ) -> NDArray[np.float64]: ...
    @overload
    def deconvolve(
        self,
        X: ArrayLike | _Table,
        noise: ArrayLike | None,
        projection: ArrayLike | None = None,
        *,
        return_cov: Literal[True],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...
    def bic(
        self,
        X: ArrayLike | _Table,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> float: ...
    def aic(
        self,
        X: ArrayLike | _Table,
        *,
        noise: ArrayLike | None = None,
        projection: ArrayLike | None = None,
        limits: Limits | None = None,
    ) -> float: ...
    def set_fit_request(
        self,
        *,
        limits: bool | str | None = ...,
        noise: bool | str | None = ...,
        projection: bool | str | None = ...,
        sample_weight: bool | str | None = ...,
    ) -> Self: ...
    def set_predict_request(
        self,
        *,
        limits: bool | str | None = ...,
        noise: bool | str | None = ...,
        projection: bool | str | None = ...,
    ) -> Self: ...
    def set_predict_proba_request(
        self,
        *,
        limits: bool | str | None = ...,
        noise: bool | str | None = ...,
        projection: bool | str | None = ...,
    ) -> Self: ...
    def set_partial_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
    def set_score_request(
        self,
        *,
        limits: bool | str | None = ...,
        noise: bool | str | None = ...,
        projection: bool | str | None = ...,
        sample_weight: bool | str | None = ...,
    ) -> Self: ...
    def impute(
        self, X: ArrayLike | _Table, how: Literal["mean", "mode", "draw"] = "mean", n_draws: int | None = None
    ) -> NDArray[np.float64]: ...
    def to_sklearn(self) -> _Original: ...
    def to_onnx(
        self, path: str | PathLike[str] | None = None, *, precision: Literal["f32", "f64"] = "f32"
    ) -> bytes | None: ...
    @classmethod
    def from_sklearn(cls, estimator: _Original, **parameters: Any) -> Self: ...
