from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gmm_rs._core import _Float, _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["Bootstrap", "Spread", "bootstrap"]

class Spread(NamedTuple):
    standard_error: _Float
    lower: _Float
    upper: _Float

class Bootstrap:
    weights: _Float
    means: _Float
    covariances: _Float
    level: float
    weights_spread: Spread
    means_spread: Spread
    covariances_spread: Spread
    noise_weights: _Float | None
    noise_weights_spread: Spread | None
    def __init__(
        self, weights: _Float, means: _Float, covariances: _Float, level: float, noise_weights: _Float | None = None
    ) -> None: ...

def bootstrap(
    model: GaussianMixture,
    X: ArrayLike | _Table,
    *,
    replicates: int = 999,
    resampling: Literal["nonparametric", "weighted"] = "nonparametric",
    level: float = 0.95,
    tol: float = 1e-6,
    max_iter: int = 1000,
    random_state: int | np.random.RandomState | None = None,
    sample_weight: ArrayLike | None = None,
    progress: bool = False,
) -> Bootstrap: ...
