"""The engines, with NumPy arrays in and out. Private: use `gmm_rs.mixture`.

``rows`` are ``(n, d)`` arrays of float32 or float64, aligned and in native byte order, not copied where C-contiguous.
``n``, ``k`` and ``d`` are rows, components and dimensions.
"""

from collections.abc import Callable
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

__version__: str

_Float = NDArray[np.float64]
_Rows = NDArray[np.float32] | NDArray[np.float64]
_Kind = Literal["full", "tied", "diag", "spherical"]
_Parameters = tuple[str, _Float, _Float, _Float]

class Place(TypedDict):
    device: str
    threads: int
    precision: Literal["f32", "f64"] | None

class Options(TypedDict):
    n_components: int
    covariance_type: _Kind
    n_init: int
    tol: float
    max_iter: int
    reg_covar: float
    seed: int

class Fit(TypedDict):
    weights: _Float
    means: _Float
    covariances: _Float
    precision_factors: _Float
    log_likelihood: float
    iterations: int
    converged: bool
    trace: list[float]
    engine: str
    precision: str
    warnings: list[tuple[str, str]]

def engine(place: Place) -> tuple[str, str, str]: ...
def fit(
    rows: _Rows,
    options: Options,
    place: Place,
    init: str | tuple[_Float, _Float, _Float] | _Parameters,
    weights: _Float | None = None,
    follow: Callable[[int, int, float, float], Any] | None = None,
) -> Fit: ...
def log_densities(rows: _Rows, parameters: _Parameters, place: Place) -> _Float: ...
def responsibilities(rows: _Rows, parameters: _Parameters, place: Place) -> _Float: ...
def labels(rows: _Rows, parameters: _Parameters, place: Place) -> NDArray[np.int64]: ...
def score(
    rows: _Rows, parameters: _Parameters, place: Place, weights: _Float | None = None
) -> tuple[float, float]: ...
def sample(parameters: _Parameters, n: int, seed: int) -> tuple[_Float, NDArray[np.int64]]: ...
def synthetic(k: int, d: int, kind: _Kind, seed: int, options: dict[str, float | None]) -> dict[str, _Float]: ...
def covariances_of_precisions(kind: _Kind, precisions: _Float, k: int, d: int) -> _Float: ...
