from os import PathLike
from typing import Any, TypeVar

from sklearn.mixture import GaussianMixture as _Original

from gmm_rs.mixture import GaussianMixture

__all__ = ["load", "save"]

_Path = TypeVar("_Path", bound=str | PathLike[str])

def load(path: str | PathLike[str], **parameters: Any) -> GaussianMixture: ...
def save(model: GaussianMixture | _Original, path: _Path) -> _Path: ...
