from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmm_rs._core import _Float, _Kind, _Precision, _Table as _Arrow
from gmm_rs.mixture import GaussianMixture, Limits

__all__ = ["Selection", "Start", "Test", "select"]

_Criterion = Literal["bic", "aic", "icl", "icl-labels", "blrt"]

class _Table(TypedDict):
    k: NDArray[np.int64]
    covariance_type: NDArray[np.str_]
    log_likelihood: _Float
    n_parameters: NDArray[np.int64]
    bic: _Float
    aic: _Float
    icl: _Float
    iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]
    seconds: _Float
    error: NDArray[np.str_]

def select(
    X: ArrayLike | _Arrow,
    k: int | Iterable[int] = ...,
    *,
    covariance_type: _Kind | Iterable[_Kind] = "full",
    criterion: _Criterion = "bic",
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data", "tree", "best", "mix-up"] = "kmeans",
    n_init: int = 1,
    tol: float = 1e-3,
    max_iter: int = 100,
    reg_covar: float = 1e-6,
    random_state: int | np.random.RandomState | None = None,
    sample_weight: ArrayLike | None = None,
    progress: bool = False,
    device: str = "auto",
    precision: _Precision | Literal["fast"] | None = None,
    n_jobs: int | None = None,
    init_rows: int | None = None,
    replicates: int = 99,
    level: float = 0.05,
    prior: Literal["conjugate"] | dict[str, ArrayLike] | None = None,
    floor: float = 0.0,
    floor_relative: float = 0.0,
    drop_starved: float | None = None,
    noise: Literal["auto"] | float | ArrayLike | None = None,
    noise_volume: float | None = None,
    missing: Literal["error", "em", "drop"] = "error",
    row_noise: ArrayLike | None = None,
    projection: ArrayLike | None = None,
    limits: Limits | None = None,
) -> Selection: ...

class Test(NamedTuple):
    k: int
    statistic: float
    p_value: float
    replicates: _Float

class Start(NamedTuple):
    restart: int
    start: str
    mean_log_likelihood: float
    iterations: int
    converged: bool
    short: bool

class Selection:
    criterion: _Criterion
    table: _Table
    best_index_: int
    best_estimator_: GaussianMixture
    best_params_: dict[str, Any]
    labels_icl_: _Float
    tests_: list[Test]
    starts_: list[list[Start]]
    def __init__(
        self,
        criterion: _Criterion,
        table: _Table,
        best_index: int,
        best_estimator: GaussianMixture,
    ) -> None: ...
    def to_frame(self) -> Any: ...
