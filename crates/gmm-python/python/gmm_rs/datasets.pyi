from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from gmm_rs._core import _Kind
from gmm_rs.mixture import GaussianMixture

__all__ = ["make_gmm"]

@overload
def make_gmm(
    n_samples: int = 1000,
    n_features: int = 2,
    n_components: int = 3,
    *,
    covariance_type: _Kind = "full",
    separation: float = 2.0,
    concentration: float = 10.0,
    degrees_of_freedom: float | None = None,
    scale: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
    return_mixture: Literal[False] = False,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...
@overload
def make_gmm(
    n_samples: int = 1000,
    n_features: int = 2,
    n_components: int = 3,
    *,
    covariance_type: _Kind = "full",
    separation: float = 2.0,
    concentration: float = 10.0,
    degrees_of_freedom: float | None = None,
    scale: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
    return_mixture: Literal[True],
) -> tuple[NDArray[np.float64], NDArray[np.int64], GaussianMixture]: ...
