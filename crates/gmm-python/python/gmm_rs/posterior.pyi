from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmm_rs._core import _Float, _Kind, _Precision, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["Draws", "mcmc"]

class _Summary(TypedDict):
    name: NDArray[np.str_]
    mean: _Float
    sd: _Float
    q5: _Float
    q95: _Float
    ess_bulk: _Float
    ess_tail: _Float
    r_hat: _Float

def mcmc(
    X: ArrayLike | _Table,
    n_components: int,
    *,
    covariance_type: _Kind = "full",
    sampler: Literal["nuts", "rwm"] = "nuts",
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 1000,
    thin: int = 1,
    target_accept: float = 0.8,
    prior: Mapping[str, Mapping[str, Any]] | str | PathLike[str] | None = None,
    start: Literal["fit", "each"] = "fit",
    relabel: str = "none",
    random_state: int | np.random.RandomState | None = None,
    sample_weight: ArrayLike | None = None,
    checkpoint: bytes | None = None,
    progress: bool = False,
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Draws: ...

class Draws:
    covariance_type: _Kind
    weights: _Float
    means: _Float
    covariances: _Float
    sample_stats: dict[str, NDArray[Any]]
    checkpoint: bytes | None
    feature_names: list[str] | None
    n_chains: int
    n_draws: int
    def __init__(
        self,
        covariance_type: _Kind,
        weights: ArrayLike,
        means: ArrayLike,
        covariances: ArrayLike,
        sample_stats: dict[str, ArrayLike],
        *,
        checkpoint: bytes | None = None,
        feature_names: Iterable[str] | None = None,
    ) -> None: ...
    def summary(self) -> _Summary: ...
    def concerns(self) -> list[str]: ...
    def mixture(self, i: int | tuple[int, int]) -> GaussianMixture: ...
    def score_samples(self, X: ArrayLike | _Table, *, n_draws: int = 200) -> _Float: ...
    def predict_proba(self, X: ArrayLike | _Table, *, n_draws: int = 200) -> _Float: ...
    def predict(self, X: ArrayLike | _Table, *, n_draws: int = 200) -> NDArray[np.int64]: ...
    def to_frame(self) -> Any: ...
    def log_likelihood(self, X: ArrayLike | _Table) -> _Float: ...
    def to_arviz(self, X: ArrayLike | _Table | None = None) -> Any: ...
    def save(self, path: str | PathLike[str]) -> Self: ...
    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self: ...
