from typing import Any, Self

from numpy.typing import ArrayLike

from gmm_rs import _core
from gmm_rs._core import _Float, _Kind, _Precision, _Table
from gmm_rs.likelihood import Parameters

__all__ = ["PassRows", "Statistics", "e_step", "m_step"]

class Statistics:
    def __init__(self, core: _core.Statistics) -> None: ...
    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self: ...
    def to_bytes(self) -> bytes: ...
    @property
    def covariance_type(self) -> _Kind: ...
    @property
    def centres(self) -> _Float: ...
    @property
    def weight(self) -> _Float: ...
    @property
    def first(self) -> _Float: ...
    @property
    def second(self) -> _Float: ...
    @property
    def log_likelihood(self) -> float: ...
    @property
    def total_weight(self) -> float: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def mean_log_likelihood(self) -> float: ...
    def __add__(self, other: Statistics) -> Statistics: ...
    def __radd__(self, other: int) -> Statistics: ...
    def __eq__(self, other: object) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

class PassRows:
    device: str
    precision: _Precision | None
    n_jobs: int | None

    def __init__(
        self,
        X: ArrayLike | _Table,
        shift: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        device: str = "auto",
        precision: _Precision | None = None,
        n_jobs: int | None = None,
    ) -> None: ...
    def e_step(self, model: _Mixture, covariance_type: _Kind = "full") -> Statistics: ...

# A fitted estimator, or weights, means and covariances.
_Mixture = Any | tuple[ArrayLike, ArrayLike, ArrayLike]

def e_step(
    X: ArrayLike | _Table,
    model: _Mixture,
    covariance_type: _Kind = "full",
    *,
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Statistics: ...
def m_step(statistics: Statistics, model: _Mixture, *, reg_covar: float = 1e-6) -> Parameters: ...
