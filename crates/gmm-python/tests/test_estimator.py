"""The requirements of scikit-learn on estimators."""

import io
import pickle

import joblib
import numpy as np
import pytest
from conftest import KINDS, model, start
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture as Original
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from gmm_rs.datasets import make_gmm
from gmm_rs import _rules
from gmm_rs.mixture import GaussianMixture


@parametrize_with_checks([GaussianMixture(device="cpu", max_iter=5, n_init=2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_checks_for_every_kind(kind):
    results = check_estimator(GaussianMixture(device="cpu", covariance_type=kind), on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] in ("failed", "xfail")] == []


def test_the_parameters_are_scikit_learns_and_those_of_engines_and_rules():
    ours, theirs = GaussianMixture().get_params(), Original().get_params()
    assert {name: ours[name] for name in theirs} == theirs
    more = {"device", "precision", "n_jobs", "init_rows", "callback", "missing"}
    rule = {*_rules.DEFAULTS, "labels"}
    assert set(ours) - set(theirs) == more | rule


def test_the_fast_precision_is_f32_where_nothing_is_faster(rows):
    fast, single = (model(random_state=0, precision=precision).fit(rows) for precision in ("fast", "f32"))
    np.testing.assert_array_equal(fast.means_, single.means_)
    np.testing.assert_array_equal(fast.predict(rows), single.predict(rows))
    assert fast.fast_loss_ is None


def test_a_fit_leaves_scikit_learns_attributes_and_the_engine(rows):
    theirs = vars(Original(3, random_state=0).fit(rows))
    ours = vars(model(random_state=0).fit(rows))
    fitted = {name for name in theirs if name.endswith("_")}
    assert fitted <= set(ours)
    assert {name for name in ours if name.endswith("_")} - fitted == {"engine_", "fast_loss_"}
    assert ours["engine_"] == "cpu"
    assert ours["fast_loss_"] is None
    for name in fitted:
        assert type(ours[name]) is type(theirs[name]) or np.isscalar(ours[name]), name


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_predicts_as_before(rows, protocol):
    before = model(random_state=0).fit(rows)
    after = pickle.loads(pickle.dumps(before, protocol))
    np.testing.assert_array_equal(before.score_samples(rows), after.score_samples(rows))


def test_joblib_stores_and_loads(rows):
    before, file = model(random_state=0).fit(rows), io.BytesIO()
    joblib.dump(before, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).means_, before.means_)


def test_a_clone_is_not_fitted(rows):
    with pytest.raises(NotFittedError):
        clone(model(random_state=0).fit(rows)).predict(rows)


def test_it_works_in_a_pipeline_and_a_search(rows):
    search = GridSearchCV(make_pipeline(StandardScaler(), model(1)), {"gaussianmixture__n_components": [1, 3]}, cv=3)
    assert search.fit(rows).best_params_ == {"gaussianmixture__n_components": 3}


def test_weights_are_routed(rows):
    with config_context(enable_metadata_routing=True):
        one = model().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(one, {"n_components": [1, 3]}, cv=3)
        search.fit(rows, sample_weight=np.ones(len(rows)))
    assert search.best_params_ == {"n_components": 3}


def test_it_has_a_page_in_notebooks():
    assert "GaussianMixture" in model()._repr_html_()


def test_a_fit_that_does_not_converge_warns(rows):
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model(max_iter=1, tol=1e-12, random_state=0).fit(rows)


def test_parameters_that_were_set_by_hand_are_used(rows):
    fitted = model(random_state=0).fit(rows)
    by_hand = model()
    by_hand.weights_, by_hand.means_ = fitted.weights_, fitted.means_
    # Any square root of the precision is valid; many programs set a lower factor.
    by_hand.precisions_cholesky_ = np.linalg.cholesky(fitted.precisions_)
    by_hand.n_features_in_ = 3
    np.testing.assert_allclose(by_hand.score_samples(rows), fitted.score_samples(rows), rtol=1e-9)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    by_hand.precisions_cholesky_ = fitted.precisions_cholesky_ @ rotation
    np.testing.assert_allclose(by_hand.score_samples(rows), fitted.score_samples(rows), rtol=1e-9)


def test_a_change_of_an_attribute_in_place_counts(rows):
    one = model(random_state=0).fit(rows)
    before = one.score(rows)
    one.means_[0] += 1.0
    assert one.score(rows) < before


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_twin_scores_alike_both_ways(rows, kind):
    ours = model(3, kind, random_state=0).fit(rows)
    theirs = ours.to_sklearn()
    assert type(theirs) is Original
    np.testing.assert_allclose(theirs.score_samples(rows), ours.score_samples(rows), rtol=1e-9)
    back = GaussianMixture.from_sklearn(theirs, device="cpu")
    np.testing.assert_array_equal(back.means_, ours.means_)
    assert back.get_params() == ours.get_params()
    assert not hasattr(model().to_sklearn(), "means_")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_the_mixture(kind):
    _, _, truth = make_gmm(10, 2, 2, covariance_type=kind, random_state=1, return_mixture=True)
    X, y = truth.sample(40_000)
    assert X.shape == (40_000, 2) and y.dtype == np.int64
    np.testing.assert_allclose(np.bincount(y) / len(y), truth.weights_, atol=0.02)
    np.testing.assert_allclose(X.mean(axis=0), truth.weights_ @ truth.means_, atol=0.1)


def test_made_data_are_the_same_everywhere():
    X, y, truth = make_gmm(4, 2, random_state=0, return_mixture=True)
    again, _ = make_gmm(400, 2, random_state=0)
    np.testing.assert_array_equal(X, again[:4])
    assert np.isfinite(truth.score(X)) and set(y) <= {0, 1, 2}


@pytest.mark.parametrize("parameters", [{}, {"max_iter": 1}, {"max_iter": 3, "n_init": 4}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lower_bounds_are_scikit_learns(rows, parameters):
    given = start(rows, 3, "full")
    ours = model(random_state=0, **given, **parameters).fit(rows)
    theirs = Original(3, random_state=0, **given, **parameters).fit(rows)
    np.testing.assert_allclose(ours.lower_bounds_, theirs.lower_bounds_, rtol=1e-9)
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=1e-9)
    assert (ours.n_iter_, ours.converged_) == (theirs.n_iter_, theirs.converged_)


def test_without_iterations_there_is_no_lower_bound(rows):
    ours, theirs = (cls(3, random_state=0, max_iter=0, n_init=2).fit(rows) for cls in (GaussianMixture, Original))
    for one in (ours, theirs):
        assert (one.lower_bound_, one.lower_bounds_, one.n_iter_, one.converged_) == (-np.inf, [], 0, False)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", [{}, {"weights_init": [0.2, 0.3, 0.5]}], ids=["drawn", "partly-given"])
def test_the_lower_bound_is_that_of_the_best_start(rows, given):
    """More initialisations never lower it, for any number of iterations."""
    for max_iter in (1, 2, 5):
        for seed in range(8):
            one, many = (
                model(random_state=seed, init_params="random", max_iter=max_iter, n_init=n, **given).fit(rows)
                for n in (1, 6)
            )
            assert many.lower_bound_ >= one.lower_bound_
            assert many.lower_bounds_[-1] == many.lower_bound_ and len(many.lower_bounds_) == many.n_iter_


def test_two_threads_fit_at_once(rows):
    found = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(lambda seed: model(random_state=seed).fit(rows).lower_bound_)(seed) for seed in [0, 0, 0, 0]
    )
    assert len(set(found)) == 1


def test_k_means_of_many_rows_looks_at_a_sample_unless_told_otherwise():
    rng = np.random.default_rng(0)
    centre = np.repeat([0.0, 12.0, 24.0], 25_000)
    X = rng.normal(size=(75_000, 2)) + centre[:, None]
    means = {}
    for init_rows in [None, 75_000, 500]:
        model = GaussianMixture(3, init_rows=init_rows, max_iter=0, random_state=0, device="cpu").fit(X)
        means[init_rows] = np.sort(model.means_[:, 0])
    # The components are computed from the clusters of all rows, also if k-means ran on a sample.
    for found in means.values():
        np.testing.assert_allclose(found, [0, 12, 24], atol=0.05)
    with pytest.raises(ValueError, match="init_rows"):
        GaussianMixture(3, init_rows=2, device="cpu").fit(X)
    with pytest.raises(ValueError, match="init_rows"):
        GaussianMixture(3, init_rows=0).fit(X)
