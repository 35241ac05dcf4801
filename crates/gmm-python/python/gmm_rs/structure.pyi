from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmm_rs._core import _Float, _Kind, _Precision, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["Combination", "Divergence", "Tree", "combine", "distances", "kl", "merge", "split", "split_merge", "tree"]

_Distance = Literal["runnalls", "kl", "bhattacharyya"]
_Labels = NDArray[np.int64]
# A fitted estimator, or weights, means and covariances.
_Mixture = Any | tuple[ArrayLike, ArrayLike, ArrayLike]

class Divergence(NamedTuple):
    variational: float
    upper_bound: float
    monte_carlo: float
    standard_error: float

class Tree:
    linkage: _Float
    values: _Float
    def __init__(self, linkage: _Float, values: _Float, labels: _Labels) -> None: ...
    def clusters(self, count: int) -> _Labels: ...

class Combination:
    n_clusters: int
    clusters: _Labels
    entropy: _Float
    joined_weight: _Float
    elbow: int
    tree: Tree
    def __init__(self, found: dict[str, Any], count: int) -> None: ...
    def predict_proba(self, responsibilities: ArrayLike) -> _Float: ...
    def predict(self, responsibilities: ArrayLike) -> _Labels: ...

def distances(model: _Mixture, criterion: _Distance = "kl", covariance_type: _Kind = "full") -> _Float: ...
def kl(
    f: _Mixture,
    g: _Mixture,
    *,
    covariance_type: _Kind = "full",
    draws: int = 20_000,
    random_state: int | np.random.RandomState | None = 0,
) -> Divergence: ...
def tree(model: _Mixture, criterion: _Distance = "runnalls", covariance_type: _Kind = "full") -> Tree: ...
def merge(
    model: _Mixture,
    n_components: int | None = None,
    X: ArrayLike | _Table | None = None,
    *,
    criterion: _Distance | Literal["bic"] | None = None,
    covariance_type: _Kind = "full",
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Any: ...
def combine(
    model: _Mixture,
    X: ArrayLike | _Table,
    n_clusters: int | None = None,
    *,
    criterion: Literal["entropy", "demp"] = "entropy",
    cutoff: float = 0.025,
    covariance_type: _Kind = "full",
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Combination: ...
def split(
    model: _Mixture,
    component: int | None = None,
    n_components: int | None = None,
    *,
    share: float = 0.5,
    distance: float = 0.5,
    covariance_type: _Kind = "full",
) -> Any: ...
def split_merge(
    model: Any, X: ArrayLike | _Table, *, candidates: int = 5, sample_weight: ArrayLike | None = None
) -> GaussianMixture: ...
