"""The engines, with NumPy arrays as input and output. Private: use `gmm_rs.mixture`.

``rows`` are ``(n, d)`` arrays of float32 or float64, aligned and in native byte order; C-contiguous arrays are not copied.
``n``, ``k`` and ``d`` are the numbers of rows, components and columns.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal, Protocol, TypedDict, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Components",
    "DeviceArray",
    "Dlpack",
    "Gatherer",
    "Likelihood",
    "ManyFits",
    "PassRows",
    "Resident",
    "Statistics",
    "Unconstrained",
    "__version__",
    "adapted",
    "adapted_means",
    "bootstrap",
    "check_pointwise_memory",
    "concerns",
    "covariances_of_precisions",
    "distances_of",
    "divergence",
    "engine",
    "evaluate_many",
    "evaluate_there",
    "first_moments",
    "fit",
    "fit_many",
    "deconvolve",
    "impute",
    "labels",
    "linear",
    "log_densities",
    "mcmc",
    "memory_size",
    "merged",
    "mixture",
    "outlier_threshold",
    "partial_fit",
    "pooled",
    "posterior_draws",
    "posterior_expectation",
    "posterior_predictive",
    "ratios",
    "read_model",
    "read_tables",
    "region_threshold",
    "regress_components",
    "regress_draws",
    "regress_log_densities",
    "regress_moments",
    "responsibilities",
    "sample",
    "score",
    "select",
    "split_merge",
    "split_of",
    "storage",
    "summary",
    "supervectors",
    "synthetic",
    "table",
    "view_points",
    "to_onnx",
    "top_statistics",
    "tree",
    "tree_of_rows",
    "write_draws",
    "write_model",
]

__version__: str

_Float = NDArray[np.float64]
_Rows = NDArray[np.float32] | NDArray[np.float64]
_Kind = Literal["full", "tied", "diag", "spherical"]
_Precision = Literal["f32", "f64"]
_Parameters = tuple[str, _Float, _Float, _Float]
# Covariance type, weights, means, and factors of the precisions.
_Attributes = tuple[str, _Rows, _Rows, _Rows]

class _Table(Protocol):
    """A table with Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _Place(TypedDict):
    device: str
    threads: int
    precision: _Precision | Literal["fast"] | None

class _Options(TypedDict):
    n_components: int
    covariance_type: _Kind
    n_init: int
    init_rows: int | None
    tol: float
    max_iter: int
    reg_covar: float
    seed: int

class _Moments(TypedDict):
    weights: _Float
    means: _Float
    covariances: _Float

class _Mixture(_Moments):
    precision_factors: _Float

class _Asked(TypedDict):
    n_components: int
    covariance_type: _Kind
    sampler: str
    chains: int
    draws: int
    warmup: int
    thin: int
    target_accept: float
    prior: tuple[bool, str] | None
    start: str
    relabel: str
    seed: int | None

class _Drawn(_Moments):
    stats: dict[str, NDArray[Any]]
    checkpoint: bytes
    improper: str | None
    moved: str | None

# Covariance type, weights, means, covariances, and the log density of each draw.
_Draws = tuple[str, _Float, _Float, _Float, _Float]
# Precision and shift of stored rows.
_Storage = tuple[_Precision, _Float]
_Line = tuple[str, float, float, float, float, float, float, float]

# Log density, contamination and level.
_Outliers = tuple[float, float | None, float | None]
class _Regression(Protocol):
    @property
    def mixture(self) -> _Parameters: ...
    @property
    def given(self) -> list[int]: ...
    @property
    def targets(self) -> list[int]: ...

class _Model(_Mixture):
    covariance_type: _Kind
    feature_names: list[str] | None
    record: str | None
    outliers: _Outliers | None
    clusters: list[int] | None
    noise: str | None

class _Candidate(TypedDict):
    n_components: int
    covariance_type: _Kind
    n_parameters: int
    record: str | None
    seconds: float | None
    error: str | None

class _Maximised(_Mixture):
    empty: list[int]

class _Fit(_Mixture):
    record: str
    log_likelihood: float
    iterations: int
    converged: bool
    trace: list[float]
    engine: str
    precision: str
    fast_loss: dict[str, float] | None
    warnings: list[tuple[str, str]]
    storage: _Storage
    noise: str | None

class _Selected(TypedDict):
    candidates: list[_Candidate]
    best: int
    labels_icl: list[float]
    tests: list[tuple[int, float, float, list[float]]]
    fit: _Fit

def engine(place: _Place) -> tuple[str, str, str]: ...
def fit(
    rows: _Rows | DeviceArray,
    options: _Options,
    place: _Place,
    init: str | tuple[_Float, _Float, _Float] | _Attributes,
    weights: _Float | None = None,
    follow: Callable[[int, int, float, float], Any] | None = None,
    wait: bool = False,
) -> _Fit: ...
def partial_fit(
    rows: _Rows | DeviceArray,
    options: _Options,
    place: _Place,
    init: str | tuple[_Float, _Float, _Float] | _Attributes,
    state: tuple[str, bytes, int] | None = None,
    weights: _Float | None = None,
) -> dict[str, Any]: ...
def select(
    rows: _Rows | DeviceArray,
    options: _Options,
    place: _Place,
    init: str,
    components: list[int],
    kinds: list[_Kind],
    criterion: str,
    tests: tuple[int, float],
    weights: _Float | None = None,
    follow: Callable[[int, int], Any] | None = None,
) -> _Selected: ...
def bootstrap(
    rows: _Rows | DeviceArray,
    options: _Options,
    place: _Place,
    parameters: tuple[Any, ...],
    replicates: int,
    resampling: str,
    rules: list[str] | None = None,
    weights: _Float | None = None,
    follow: Callable[[int, int], Any] | None = None,
) -> dict[str, Any]: ...
def read_model(path: str | PathLike[str]) -> _Model: ...
def write_model(
    path: str | PathLike[str],
    given: _Parameters,
    feature_names: list[str] | None = None,
    record: str | None = None,
    outliers: _Outliers | None = None,
    clusters: list[int] | None = None,
    noise: str | None = None,
    posterior: dict[str, Any] | None = None,
) -> None: ...
def to_onnx(
    path: str | PathLike[str] | None,
    precision: str,
    given: _Parameters,
    feature_names: list[str] | None = None,
    record: str | None = None,
    outliers: _Outliers | None = None,
    clusters: list[int] | None = None,
    noise: str | None = None,
) -> bytes | None: ...
def posterior_expectation(posterior: dict[str, Any]) -> tuple[_Float, float]: ...
def posterior_predictive(rows: _Rows, posterior: dict[str, Any], place: _Place) -> _Float: ...
def posterior_draws(posterior: dict[str, Any], n: int, seed: int) -> list[dict[str, _Float]]: ...
def regress_moments(rows: _Rows, regression: _Regression, place: _Place) -> tuple[_Float, _Float]: ...
def regress_draws(rows: _Rows, regression: _Regression, place: _Place, count: int, seed: int) -> _Float: ...
def regress_log_densities(rows: _Rows, regression: _Regression, place: _Place) -> _Float: ...
def regress_components(rows: _Rows, regression: _Regression, place: _Place) -> tuple[_Float, _Float, _Float]: ...
def outlier_threshold(log_densities: _Float, contamination: float, weights: _Float | None = None) -> float: ...
def region_threshold(given: _Parameters, level: float, seed: int, place: _Place) -> float: ...
def log_densities(rows: _Rows | DeviceArray, parameters: _Attributes, place: _Place) -> _Float: ...
def responsibilities(
    rows: _Rows | DeviceArray, parameters: _Attributes, place: _Place, single: bool
) -> _Float: ...
def labels(rows: _Rows | DeviceArray, parameters: _Attributes, place: _Place) -> NDArray[np.int64]: ...
def evaluate_there(rows: DeviceArray, parameters: _Attributes, place: _Place, what: str, out: Any) -> None: ...
def score(
    rows: _Rows | DeviceArray, parameters: _Attributes, place: _Place, weights: _Float | None = None
) -> tuple[float, float]: ...
def impute(
    rows: _Rows, parameters: _Attributes, place: _Place, how: str, seed: int, draw: int
) -> NDArray[np.float64]: ...
def deconvolve(rows: _Rows, parameters: _Attributes, place: _Place) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def view_points(measured: NDArray[np.float64], projections: NDArray[np.float64]) -> NDArray[np.float64]: ...
def pooled(estimates: _Float, variances: _Float) -> dict[str, float]: ...
def sample(
    parameters: _Attributes, n: int, seed: int, noise: str | None = None
) -> tuple[_Float, NDArray[np.int64]]: ...
def synthetic(k: int, d: int, kind: _Kind, seed: int, options: dict[str, float | None]) -> _Mixture: ...
def covariances_of_precisions(kind: _Kind, precisions: _Float, k: int, d: int) -> _Float: ...
def mixture(given: _Parameters) -> _Mixture: ...
def mcmc(
    rows: _Rows,
    asked: _Asked,
    place: _Place,
    weights: _Float | None = None,
    checkpoint: bytes | None = None,
    follow: Callable[[int, int, int], Any] | None = None,
) -> _Drawn: ...
def summary(draws: _Draws) -> list[_Line]: ...
def concerns(draws: _Draws, diverging: int) -> list[tuple[Literal["unjudged", "apart", "few", "diverging"], str]]: ...
def check_pointwise_memory(bytes: int) -> None: ...
def write_draws(path: str | PathLike[str], draws: _Draws, stats: dict[str, NDArray[Any]]) -> None: ...
def adapted(
    rows: _Rows,
    given: _Parameters,
    place: _Place,
    relevance: tuple[float | None, float | None, float | None],
    rule_and_top: tuple[str, int | None],
    weights: _Float | None = None,
) -> _Mixture: ...
def adapted_means(
    rows: _Rows, given: _Parameters, place: _Place, ends: list[int], relevance_and_top: tuple[float, int | None]
) -> _Float: ...
def top_statistics(
    rows: _Rows, given: _Parameters, place: _Place, ends: list[int], top: int
) -> list[Statistics]: ...
def first_moments(rows: _Rows, given: _Parameters, place: _Place, ends: list[int]) -> tuple[_Float, _Float]: ...
def ratios(
    rows: _Rows,
    given: _Parameters,
    place: _Place,
    ends: list[int],
    speakers: tuple[_Float | None, list[_Parameters]],
    trials: tuple[list[tuple[int, int]], int],
) -> _Float: ...
def supervectors(given: _Parameters, means: _Float, normalised: bool) -> _Float: ...
def linear(given: _Parameters, means: _Float, first: _Float, totals: _Float | None = None) -> _Float: ...
def fit_many(
    rows: _Rows,
    ends: list[int],
    options: _Options,
    place: _Place,
    init: str | tuple[_Float, _Float, _Float],
    weights: _Float | None = None,
) -> dict[str, Any]: ...
def evaluate_many(
    rows: _Rows, ends: list[int], parameters: list[_Attributes], place: _Place, labels: bool
) -> NDArray[Any]: ...
def distances_of(given: _Parameters, by: str) -> _Float: ...
def divergence(f: _Parameters, g: _Parameters, draws: int, seed: int) -> tuple[float, float, float, float]: ...
def tree(given: _Parameters, by: str) -> dict[str, Any]: ...
def merged(given: _Parameters, clusters: list[int]) -> _Mixture: ...
def split_of(given: _Parameters, component: int | None, k: int, share: float, distance: float) -> _Mixture: ...
def split_merge(
    rows: _Rows,
    given: _Parameters,
    options: _Options,
    place: _Place,
    candidates: int,
    weights: _Float | None = None,
) -> _Fit: ...
def tree_of_rows(
    rows: _Rows, given: _Parameters, place: _Place, by: str, weights: _Float | None = None
) -> dict[str, Any]: ...
def storage(parameters: _Parameters, precision: _Precision) -> _Storage: ...
def table(stream: object, columns: list[str] | None = None, nulls: bool = False) -> tuple[_Rows, list[str] | None]: ...

def read_tables(
    paths: list[str | PathLike[str]], columns: list[str] | None = None, memory: int | None = None
) -> tuple[_Rows, list[str] | None, list[str]]: ...
def memory_size(text: str) -> int: ...

@final
class ManyFits:
    def fit(self, group: int) -> _Fit | None: ...

@final
class Gatherer:
    def __new__(cls, memory: int | None = None) -> Gatherer: ...
    def push(self, rows: _Rows) -> None: ...
    def finish(self) -> _Rows: ...

@final
class DeviceArray:
    def __new__(
        cls, owner: object, address: int, shape: tuple[int, int], precision: _Precision, stream: int | None
    ) -> DeviceArray: ...
    def fetch(self, place: _Place) -> _Rows: ...

@final
class Dlpack:
    def __new__(cls, capsule: object) -> Dlpack: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> tuple[int, int, int]: ...
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int] | None: ...

@final
class Likelihood:
    def __new__(cls, rows: _Rows | DeviceArray, place: _Place, weights: _Float | None = None) -> Likelihood: ...
    def value(self, parameters: _Parameters) -> float: ...
    def batch(self, parameters: _Parameters) -> _Float: ...
    def log_densities(self, parameters: _Parameters) -> _Float: ...
    def value_and_gradient(self, parameters: _Parameters) -> tuple[float, _Float, _Float, _Float]: ...
    def at_points(self, map: Unconstrained, points: _Float) -> _Float: ...
    def at_point_with_gradient(self, map: Unconstrained, point: _Float) -> tuple[float, _Float]: ...

@final
class PassRows:
    def __new__(
        cls,
        rows: _Rows | DeviceArray,
        place: _Place,
        storage: _Storage,
        passes: float,
        weights: _Float | None = None,
    ) -> PassRows: ...
    def e_step(self, parameters: _Parameters) -> Statistics: ...

@final
class Statistics:
    @staticmethod
    def from_bytes(bytes: bytes) -> Statistics: ...
    @staticmethod
    def zero(parameters: _Parameters) -> Statistics: ...
    def to_bytes(self) -> bytes: ...
    def plus(self, other: Statistics) -> Statistics: ...
    def equals(self, other: Statistics) -> bool: ...
    def maximise(self, previous: _Parameters, reg_covar: float) -> _Maximised: ...
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

@final
class Resident:
    def __new__(cls, matrix: _Rows, place: _Place, fast: bool) -> Resident: ...
    def matmul(self, b: _Rows) -> _Rows: ...
    def inner(self, questions: _Rows) -> _Rows: ...
    def quadratic_form(self, questions: _Rows) -> _Float: ...
    def mahalanobis(self, questions: _Rows, mean: _Float | None = None) -> _Float: ...
    def top_k(self, questions: _Rows, count: int) -> tuple[NDArray[np.int64], _Rows]: ...

@final
class Components:
    def __new__(cls, likelihood: Likelihood, parameters: _Parameters) -> Components: ...
    def value(self) -> float: ...
    def parameters(self) -> _Moments: ...
    def log_densities(self) -> _Float: ...
    def update(self, parameters: _Parameters) -> float: ...
    def update_component(
        self, c: int, weights: _Float | None = None, mean: _Float | None = None, covariance: _Float | None = None
    ) -> float: ...
    def update_weights(self, weights: _Float) -> float: ...
    def undo(self) -> bool: ...

@final
class Unconstrained:
    def __new__(cls, kind: _Kind, k: int, d: int) -> Unconstrained: ...
    @property
    def n_dim(self) -> int: ...
    def point(self, parameters: _Parameters) -> _Float: ...
    def parameters(self, point: _Float) -> _Moments: ...
    def log_jacobian(self, points: _Float) -> _Float: ...
    def log_jacobian_gradient(self, point: _Float) -> _Float: ...
