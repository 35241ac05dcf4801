"""Missing values: fits, predictions, imputation and scikit-learn's requirements."""

import numpy as np
import pandas as pd
import pytest
from conftest import KINDS
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import gmm_rs
from gmm_rs.datasets import make_gmm
from gmm_rs.exceptions import DataError, DataWarning, ParameterError
from gmm_rs.imputation import GaussianMixtureImputer, pool
from gmm_rs.mixture import GaussianMixture


def mixture(k=2, **parameters):
    return GaussianMixture(k, **{"device": "cpu", "random_state": 0, "missing": "em", **parameters})


def holes(X, share=0.2, seed=0):
    """A copy of `X` in which values are missing at random."""
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def rows(n=600, d=4, k=2):
    return make_gmm(n, d, k, separation=5.0, random_state=1)


def marginal_log_density(model, x):
    """By the definition: the density of the observed values."""
    seen = ~np.isnan(x)
    terms = []
    for weight, mean, covariance in zip(model.weights_, model.means_, model.covariances_):
        z, a = x[seen] - mean[seen], covariance[np.ix_(seen, seen)]
        terms.append(np.log(weight) - 0.5 * (z @ np.linalg.solve(a, z) + np.linalg.slogdet(2 * np.pi * a)[1]))
    return np.logaddexp.reduce(terms)


@parametrize_with_checks([GaussianMixtureImputer(device="cpu"), GaussianMixture(device="cpu", missing="em")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_default_refuses_nan():
    X = holes(rows()[0])
    with pytest.raises(DataError, match="is NaN.*missing='em' or missing='drop'"):
        mixture(missing="error").fit(X)
    with pytest.raises(ValueError, match="missing"):
        mixture(missing="median").fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_with_holes_find_the_components(kind):
    X, y = rows()
    model = mixture(covariance_type=kind).fit(holes(X))
    labels = model.predict(X)
    assert max((labels == y).mean(), (labels != y).mean()) > 0.98
    assert model.converged_ and np.diff(model.lower_bounds_).min() > -1e-9


@pytest.mark.parametrize("init", ["tree", "best"])
def test_a_tree_and_the_best_of_several_starts_take_holes(init):
    X, y = rows()
    model = mixture(init_params=init).fit(holes(X))
    labels = model.predict(X)
    assert max((labels == y).mean(), (labels != y).mean()) > 0.98


def test_densities_are_those_of_the_observed_values():
    X = holes(rows()[0], 0.4)
    X[5] = np.nan
    with pytest.warns(DataWarning, match="no observed value"):
        model = mixture().fit(X)
    log_prob = model.score_samples(X)
    assert log_prob[5] == 0.0
    for i in range(40):
        if i != 5:
            assert log_prob[i] == pytest.approx(marginal_log_density(model, X[i]), rel=1e-9)
    assert model.score(X) == pytest.approx(log_prob.mean())
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(proba[5], model.weights_)


def test_without_holes_the_fit_is_the_same():
    X, _ = rows()
    found = [mixture(missing=missing).fit(X) for missing in ("error", "em", "drop")]
    for model in found[1:]:
        np.testing.assert_array_equal(model.means_, found[0].means_)
        np.testing.assert_array_equal(model.score_samples(X), found[0].score_samples(X))


def test_drop_leaves_rows_out_of_the_fit_with_their_weights():
    X, _ = rows()
    holed, weights = holes(X, 0.1), np.arange(len(X)) % 3 + 1.0
    kept = ~np.isnan(holed).any(axis=1)
    model = mixture(missing="drop").fit(holed, sample_weight=weights)
    other = mixture(missing="error").fit(X[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(model.means_, other.means_)
    with pytest.raises(DataError, match="is NaN"):
        model.predict(holed)
    with pytest.raises(ParameterError, match="no label"):
        mixture(missing="drop").fit_predict(holed)
    with pytest.raises(DataError, match="each of the 3 rows"):
        mixture(missing="drop").fit(np.full((3, 2), np.nan))


def test_frames_and_tables_with_nulls_are_read():
    X = holes(rows()[0])
    want = mixture().fit(X)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = mixture().fit(frame)
    np.testing.assert_array_equal(model.means_, want.means_)
    pa = pytest.importorskip("pyarrow")
    table = pa.table({name: pa.array(X[:, j], from_pandas=True) for j, name in enumerate("abcd")})
    assert table.column("a").null_count > 0
    np.testing.assert_array_equal(mixture().fit(table).means_, want.means_)
    with pytest.raises(DataError, match="missing value"):
        mixture(missing="error").fit(table)


def test_a_column_never_observed_is_an_error():
    X = rows()[0]
    X[:, 2] = np.nan
    for init in ("kmeans", "tree"):
        with pytest.raises(DataError, match="column 2 has no observed value"):
            mixture(init_params=init).fit(X)


def test_imputed_values_are_near_the_true_ones_and_observed_ones_stay():
    X, _ = rows()
    holed = holes(X)
    model = mixture().fit(holed)
    missing = np.isnan(holed)
    for how in ("mean", "mode", "draw"):
        filled = model.impute(holed, how)
        np.testing.assert_array_equal(filled[~missing], holed[~missing])
        errors = (filled - X)[missing]
        assert np.sqrt((errors**2).mean()) < 0.8 * X[missing].std()
    draws = model.impute(holed, n_draws=200)
    assert draws.shape == (200, *X.shape)
    np.testing.assert_array_equal(draws[0], model.impute(holed, "draw"))
    # The mean of the draws is the conditional mean, within four standard errors.
    deviations = draws.std(axis=0)[missing]
    far = np.abs(draws.mean(axis=0) - model.impute(holed))[missing] > 4 * deviations / np.sqrt(200)
    assert far.mean() < 0.005
    with pytest.raises(ParameterError, match="how is 'median'"):
        model.impute(holed, "median")


def test_one_component_imputes_by_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    X = np.column_stack([x, 2 * x + 1 + 0.1 * rng.normal(size=500)])
    X[::5, 1] = np.nan
    imputer = GaussianMixtureImputer(device="cpu", reg_covar=0.0, tol=1e-12, max_iter=1000).fit(X)
    seen = ~np.isnan(X[:, 1])
    slope, intercept = np.polyfit(X[seen, 0], X[seen, 1], 1)
    np.testing.assert_allclose(imputer.transform(X)[~seen, 1], intercept + slope * X[~seen, 0], rtol=1e-6)
    assert list(imputer.get_feature_names_out(["a", "b"])) == ["a", "b"]
    assert imputer.fit_transform(X.astype(np.float32)).dtype == np.float32


def test_rubins_rules():
    estimates, variances = [10.0, 12.0, 11.0, 13.0], [4.0, 5.0, 4.5, 4.5]
    found = pool(estimates, variances)
    between = np.var(estimates, ddof=1)
    assert found.estimate == 11.5 and found.within == 4.5 and found.between == pytest.approx(between)
    total = 4.5 + 1.25 * between
    r = 1.25 * between / 4.5
    nu = 3 * (1 + 1 / r) ** 2
    assert found.variance == pytest.approx(total) and found.degrees_of_freedom == pytest.approx(nu)
    assert found.missing_information == pytest.approx((r + 2 / (nu + 3)) / (r + 1))
    with pytest.raises(ValueError, match="at least 2"):
        pool([1.0], [1.0])


def test_selection_takes_missing_values():
    X = holes(rows(k=3)[0])
    found = gmm_rs.select(X, [1, 2, 3, 4], missing="em", random_state=0, device="cpu")
    assert found.best_estimator_.n_components == 3
    assert found.best_estimator_.predict(X).shape == (len(X),)


def test_the_checks_hold_for_other_estimators_of_imputation():
    results = check_estimator(GaussianMixtureImputer(device="cpu", how="mode", covariance_type="diag"), on_fail=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


def test_results_have_the_wider_dtype_of_rows_and_model():
    X = np.random.default_rng(0).normal(size=(60, 2))
    noise = np.full(X.shape, 0.1)
    for dtype in (np.float32, np.float64):
        rows = X.astype(dtype)
        model = GaussianMixture(2, missing="em", random_state=0, device="cpu").fit(rows)
        holes = rows.copy()
        holes[3, 1] = np.nan
        filled = model.impute(holes)
        assert filled.dtype == model.impute(holes, n_draws=2).dtype == dtype
        np.testing.assert_array_equal(filled[:3], rows[:3])
        assert all(array.dtype == dtype for array in model.deconvolve(rows, noise, return_cov=True))
