from collections.abc import Iterable, Mapping
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from gmm_rs._core import _Kind, _Precision, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["GaussianMixtureClassifier"]

_Float = NDArray[np.float64]
_Components = int | Iterable[int] | Literal["bic"] | Mapping[object, int | Iterable[int]]

class GaussianMixtureClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    n_components: _Components
    covariance_type: _Kind | Iterable[_Kind]
    priors: ArrayLike | None
    unlabelled: object
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

    classes_: NDArray[np.generic]
    mixtures_: list[GaussianMixture]
    priors_: _Float
    proportions_: _Float
    log_likelihood_: float
    n_parameters_: int
    bic_: float
    n_iter_: int
    converged_: bool
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_components: _Components = 1,
        *,
        covariance_type: _Kind | Iterable[_Kind] = "full",
        priors: ArrayLike | None = None,
        unlabelled: object = None,
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
    def predict_log_proba(self, X: ArrayLike | _Table) -> _Float: ...
    def predict_proba(self, X: ArrayLike | _Table) -> _Float: ...
    def predict(self, X: ArrayLike | _Table) -> NDArray[np.generic]: ...
    def set_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
    def set_score_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...
