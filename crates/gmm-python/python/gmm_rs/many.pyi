from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmm_rs._core import _Float
from gmm_rs.mixture import GaussianMixture

__all__ = ["ManyMixtures", "fit_many"]

_Groups = Sequence[Hashable] | ArrayLike | None

def fit_many(
    X: Any,
    n_components: int = 1,
    *,
    groups: _Groups = None,
    sample_weight: Any = None,
    **parameters: Any,
) -> ManyMixtures: ...

class ManyMixtures:
    groups_: NDArray[Any]
    weights_: _Float
    means_: _Float
    covariances_: _Float
    precisions_cholesky_: _Float
    n_components_: NDArray[np.int64]
    converged_: NDArray[np.bool_]
    n_iter_: NDArray[np.int64]
    lower_bound_: NDArray[np.float64]
    log_likelihood_: NDArray[np.float64]
    errors: list[Exception | None]
    n_features_in_: int
    engine_: str
    def __init__(self, template: GaussianMixture, table: Any, found: dict[str, Any]) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> GaussianMixture: ...
    def of(self, label: Any) -> GaussianMixture: ...
    def predict(self, X: Any, groups: _Groups = None) -> Any: ...
    def score_samples(self, X: Any, groups: _Groups = None) -> Any: ...
