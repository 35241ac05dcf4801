from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmm_rs._core import _Precision, _Rows, _Table

__all__ = ["Resident"]

class Resident:
    device: str
    precision: _Precision | None
    fast: bool
    n_jobs: int | None
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    def __init__(
        self,
        matrix: ArrayLike | _Table,
        *,
        device: str = "auto",
        precision: _Precision | None = None,
        fast: bool = False,
        n_jobs: int | None = None,
    ) -> None: ...
    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, state: dict[str, Any]) -> None: ...
    def matmul(self, b: ArrayLike | _Table) -> _Rows: ...
    def __matmul__(self, b: ArrayLike | _Table) -> _Rows: ...
    def inner(self, questions: ArrayLike | _Table) -> _Rows: ...
    # One question gives a number, many give an array; the static type of an array does not distinguish them.
    def quadratic_form(self, questions: ArrayLike | _Table) -> Any: ...
    def mahalanobis(self, questions: ArrayLike | _Table, mean: ArrayLike | None = None) -> Any: ...
    def top_k(self, questions: ArrayLike | _Table, count: int) -> tuple[NDArray[np.int64], _Rows]: ...
