from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.mixture import BayesianGaussianMixture as _OriginalBayesian
from sklearn.mixture import GaussianMixture as _Original

from gmm_rs.mixture import BayesianGaussianMixture, GaussianMixture
from gmm_rs.outliers import GaussianMixtureDetector

__all__ = ["gather", "load", "read", "save"]

_Rows = NDArray[np.float32] | NDArray[np.float64]
_Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
_Path = TypeVar("_Path", bound=str | PathLike[str])

# A `BayesianGaussianMixture` if the file has a posterior, which a type checker cannot know.
def load(path: str | PathLike[str], **parameters: Any) -> GaussianMixture | Any: ...
def save(
    model: GaussianMixture | BayesianGaussianMixture | GaussianMixtureDetector | _Original | _OriginalBayesian,
    path: _Path,
) -> _Path: ...
@overload
def read(
    paths: _Paths,
    *,
    columns: Iterable[str | int] | None = None,
    memory: int | str | None = None,
    return_names: Literal[False] = False,
) -> _Rows: ...
@overload
def read(
    paths: _Paths,
    *,
    columns: Iterable[str | int] | None = None,
    memory: int | str | None = None,
    return_names: Literal[True],
) -> tuple[_Rows, list[str] | None]: ...
def gather(arrays: Iterable[ArrayLike], *, memory: int | str | None = None) -> _Rows: ...
