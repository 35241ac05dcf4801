from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from gmm_rs._core import _Table
from gmm_rs.mixture import GaussianMixture

__all__ = ["bic", "density", "ellipses", "trace"]

def ellipses(
    model: GaussianMixture,
    X: ArrayLike | _Table | None = None,
    *,
    columns: tuple[int, int] = (0, 1),
    levels: Sequence[float] = (1.0, 2.0),
    ax: Axes | None = None,
) -> Axes: ...
def density(
    model: GaussianMixture,
    *,
    columns: tuple[int, int] = (0, 1),
    limits: tuple[tuple[float, float], tuple[float, float]] | None = None,
    resolution: int = 100,
    ax: Axes | None = None,
) -> Axes: ...
def trace(model: GaussianMixture, *, ax: Axes | None = None) -> Axes: ...
def bic(models: Iterable[GaussianMixture], X: ArrayLike | _Table, *, ax: Axes | None = None) -> Axes: ...
