from collections.abc import Hashable, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from gmm_rs._core import _Float, _Kind, _Precision
from gmm_rs.steps import Statistics

__all__ = ["adapt", "adapt_many", "linear_scores", "log_likelihood_ratio", "supervectors", "top_statistics"]

# A fitted estimator, or weights, means and covariances.
_Mixture = Any | tuple[ArrayLike, ArrayLike, ArrayLike]
# The rows of each utterance, or all rows.
_Utterances = Sequence[Any] | ArrayLike
_Groups = Sequence[Hashable] | ArrayLike | None

def adapt(
    model: _Mixture,
    X: Any,
    *,
    relevance: float = 16.0,
    update: Sequence[Literal["means", "variances", "weights"]] = ("means",),
    rule: Literal["reynolds", "kaldi"] = "reynolds",
    top: int | None = None,
    covariance_type: _Kind = "diag",
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Any: ...
def adapt_many(
    model: _Mixture,
    X: _Utterances,
    *,
    groups: _Groups = None,
    relevance: float = 16.0,
    top: int | None = None,
    covariance_type: _Kind = "diag",
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> _Float: ...
def top_statistics(
    model: _Mixture,
    X: _Utterances,
    *,
    top: int = 30,
    groups: _Groups = None,
    covariance_type: _Kind = "diag",
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> list[Statistics]: ...
def supervectors(
    means: ArrayLike, model: _Mixture, *, normalised: bool = True, covariance_type: _Kind = "diag"
) -> _Float: ...
def log_likelihood_ratio(
    model: _Mixture | ArrayLike,
    background: _Mixture,
    X: _Utterances,
    *,
    top: int = 30,
    trials: Sequence[tuple[int, int]] | None = None,
    groups: _Groups = None,
    covariance_type: _Kind = "diag",
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> Any: ...
def linear_scores(
    means: ArrayLike,
    background: _Mixture,
    X: _Utterances,
    *,
    groups: _Groups = None,
    per_row: bool = True,
    covariance_type: _Kind = "diag",
    device: str = "auto",
    precision: _Precision | None = None,
    n_jobs: int | None = None,
) -> _Float: ...
