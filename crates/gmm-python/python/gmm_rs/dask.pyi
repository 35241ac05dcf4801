from typing import Any, Self

from gmm_rs import mixture

__all__ = ["GaussianMixture"]

# A dask.array, a dask.dataframe, a list of Delayed, or what the class of one machine takes. Results are lazy for the
# first three.
_Lazy = Any

class GaussianMixture(mixture.GaussianMixture):
    def fit(self, X: _Lazy, y: object = None, sample_weight: _Lazy | None = None) -> Self: ...  # type: ignore[override]
    def fit_predict(self, X: _Lazy, y: object = None, sample_weight: _Lazy | None = None) -> Any: ...  # type: ignore[override]
    def predict(self, X: _Lazy) -> Any: ...  # type: ignore[override]
    def predict_proba(self, X: _Lazy) -> Any: ...  # type: ignore[override]
    def score_samples(self, X: _Lazy) -> Any: ...  # type: ignore[override]
    def score(self, X: _Lazy, y: object = None, sample_weight: _Lazy | None = None) -> float: ...  # type: ignore[override]
    def bic(self, X: _Lazy) -> float: ...  # type: ignore[override]
    def aic(self, X: _Lazy) -> float: ...  # type: ignore[override]
    def set_fit_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...  # type: ignore[override]
    def set_score_request(self, *, sample_weight: bool | str | None = ...) -> Self: ...  # type: ignore[override]
    def set_predict_request(self) -> Self: ...  # type: ignore[override]
    def set_predict_proba_request(self) -> Self: ...  # type: ignore[override]
