"""Mixtures of factor analysers."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import FactorAnalysis

import gmm_rs
from gmm_rs import bootstrap, select
from gmm_rs.exceptions import ParameterError
from gmm_rs.many import fit_many
from gmm_rs.mixture import GaussianMixture


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    loadings = rng.normal(size=(2, 8, 2))
    classes = rng.integers(0, 2, 1500)
    noise = 0.5 * rng.normal(size=(1500, 8))
    X = np.einsum("nde,ne->nd", loadings[classes], rng.normal(size=(1500, 2))) + noise
    X[:, 0] += 8 * classes
    return X


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("h", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_one_component_is_scikit_learns_factor_analysis(load, h):
    X = load().data
    X = (X - X.mean(0)) / X.std(0)
    theirs = FactorAnalysis(h, tol=1e-12, max_iter=100_000, svd_method="lapack").fit(X)
    ours = GaussianMixture(1, factors=h, reg_covar=0, tol=1e-12, max_iter=5000, device="cpu").fit(X)
    # On iris uniquenesses go to 0, where scikit-learn's iteration has not converged after 100,000 steps.
    assert ours.score(X) >= theirs.score(X) - 1e-5
    if load is load_wine:
        assert ours.score(X) == pytest.approx(theirs.score(X), abs=1e-7)
        np.testing.assert_allclose(ours.covariances_[0], theirs.get_covariance(), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attributes_are_the_factors_of_the_covariances(rows, dtype):
    X = rows.astype(dtype)
    model = GaussianMixture(2, factors=2, random_state=0, tol=1e-6, max_iter=300, device="cpu").fit(X)
    assert model.loadings_.shape == (2, 8, 2) and model.uniquenesses_.shape == (2, 8)
    assert model.loadings_.dtype == model.uniquenesses_.dtype == dtype
    made = model.loadings_ @ model.loadings_.swapaxes(1, 2)
    made[:, np.arange(8), np.arange(8)] += model.uniquenesses_
    np.testing.assert_allclose(made, model.covariances_, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(model.uniquenesses_, 0.25, rtol=0.3)
    # 15 loadings that count, 8 uniquenesses and 8 means, for each component; and a weight.
    assert model.bic(X) == pytest.approx(63 * np.log(len(X)) - 2 * model.score(X) * len(X), rel=1e-6)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.loadings_, model.loadings_)
    assert clone(model).factors == 2
    # Another fit without them has none.
    model.set_params(factors=None).fit(X)
    assert not hasattr(model, "loadings_")


@pytest.mark.filterwarnings("ignore")
def test_a_fit_goes_on_where_it_stopped(rows):
    given = dict(factors=2, random_state=0, tol=0, device="cpu")
    whole = GaussianMixture(2, max_iter=12, **given).fit(rows)
    parts = GaussianMixture(2, max_iter=6, warm_start=True, **given).fit(rows).fit(rows)
    np.testing.assert_allclose(parts.loadings_, whole.loadings_, atol=1e-6)


def test_files_keep_factors(rows, tmp_path):
    model = GaussianMixture(2, factors=2, random_state=0, device="cpu").fit(rows)
    for name in ("m.json", "m.safetensors"):
        found = gmm_rs.load(gmm_rs.save(model, tmp_path / name))
        assert found.factors == 2
        np.testing.assert_array_equal(found.loadings_, model.loadings_)
        np.testing.assert_array_equal(found.uniquenesses_, model.uniquenesses_)
        assert found.bic(rows) == model.bic(rows)


def test_select_finds_the_number_of_factors(rows):
    kinds = ("full", "diag", "factors:1", "factors:2", "factors:3")
    found = select(rows, [1, 2, 3], covariance_type=kinds, max_iter=200, random_state=0, device="cpu")
    assert found.best_params_ == {"n_components": 2, "covariance_type": "full", "factors": 2}
    assert set(found.table["covariance_type"]) == set(kinds)
    best = found.best_estimator_
    assert best.loadings_.shape == (2, 8, 2)
    assert best.bic(rows) == pytest.approx(found.table["bic"][found.best_index_], rel=1e-9)
    for wrong in ("factors", "factors:0", "factors:-1", "factors:1.5"):
        with pytest.raises(ParameterError, match="factors:H"):
            select(rows, [1], covariance_type=wrong)


def test_the_bootstrap_fits_factors_too(rows):
    model = GaussianMixture(2, factors=2, random_state=0, tol=1e-6, max_iter=500, device="cpu").fit(rows)
    found = bootstrap(model, rows, replicates=20, random_state=0)
    for c in range(2):
        # A covariance of two factors less its diagonal has rank 2 beside it: the replicates obey the structure.
        for drawn in found.covariances[:3, c]:
            alone = GaussianMixture(1, factors=2, means_init=[np.zeros(8)], weights_init=[1.0],
                                    precisions_init=[np.linalg.inv(drawn)], max_iter=0, device="cpu")
            alone.fit(rows)
            np.testing.assert_allclose(alone.covariances_[0], drawn, atol=2e-2)


def test_what_has_no_factors_is_refused(rows):
    for wrong, match in [
        ({"factors": 0}, "factors"),
        ({"factors": 8}, "number of factors is 8"),
        ({"factors": 1, "covariance_type": "diag"}, "full"),
        ({"factors": 1, "fixed_covariances": "all", "means_init": rows[:2], "weights_init": [0.5, 0.5],
          "precisions_init": [np.eye(8)] * 2}, "fixed covariances"),
    ]:
        with pytest.raises(ValueError, match=match):
            GaussianMixture(2, device="cpu", **wrong).fit(rows)
    with pytest.raises(ValueError, match="factors"):
        GaussianMixture(2, factors=1).partial_fit(rows)
    with pytest.raises(ValueError, match="factors"):
        fit_many(rows[None], 2, factors=1)
