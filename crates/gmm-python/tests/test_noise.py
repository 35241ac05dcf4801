"""Uniform noise: fits, predictions, files and pickles."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax, xlogy
from scipy.stats import multivariate_normal

import gmm_rs
from gmm_rs import _rules, select
from gmm_rs.adapt import adapt
from gmm_rs.exceptions import ParameterError
from gmm_rs.files import read
from gmm_rs.mixture import GaussianMixture
from gmm_rs.steps import e_step
from gmm_rs.structure import combine, distances, kl, merge, split, split_merge, tree
from sklearn.base import clone

CHEVRON = read(Path(__file__).parents[3] / "data" / "chevron.csv")


def fitted(**changed):
    options = {"noise": "auto", "tol": 1e-9, "max_iter": 2000, "reg_covar": 0, "device": "cpu", "random_state": 0}
    return GaussianMixture(2, **{**options, **changed}).fit(CHEVRON)


@pytest.fixture(scope="module")
def model():
    return fitted()


def joint(model, X):
    """Log joint densities of components and noise, by SciPy."""
    parts = zip(model.weights_, model.means_, model.covariances_)
    gaussian = [
        np.log((1 - model.noise_weight_) * w) + multivariate_normal(m, c).logpdf(X) for w, m, c in parts
    ]
    uniform = np.full(len(X), np.log(model.noise_weight_) - model.noise_log_volume_)
    return np.stack([*gaussian, uniform], axis=1)


def test_the_fit_is_mclusts(model):
    # mclust 6.0.0: see crates/gmm-host/tests/rules/noise.rs.
    assert model.noise_weight_ == pytest.approx(0.753906378768, abs=1e-4)
    assert model.bic(CHEVRON) == pytest.approx(21141.5096257, abs=1e-4)
    assert model.score(CHEVRON) * 1104 == pytest.approx(-10525.2112939, abs=1e-4)
    assert (np.sort((1 - model.noise_weight_) * model.weights_)).round(3).tolist() == [0.118, 0.128]


def test_every_output_is_that_of_its_definition(model):
    X = np.vstack([CHEVRON, [[1e6, -1e6]]])
    each = joint(model, X)
    total = np.logaddexp.reduce(each, axis=1)
    np.testing.assert_allclose(model.score_samples(X), total, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(each - total[:, None]), atol=1e-12)
    best = each.argmax(axis=1)
    assert (model.predict(X) == np.where(best == 2, -1, best)).all()
    assert model.predict(X[-1:]).tolist() == [-1]
    weights = np.arange(len(X)) % 3
    assert model.score(X, sample_weight=weights) == pytest.approx(np.average(total, weights=weights), rel=1e-12)
    assert (model.fit_predict(CHEVRON) == model.predict(CHEVRON)).all()


def test_draws_have_the_share_of_noise(model):
    X, y = model.sample(5000)
    assert np.mean(y == -1) == pytest.approx(model.noise_weight_, abs=0.02)
    lower, upper = model.noise_region_["lower"], model.noise_region_["upper"]
    assert ((X[y == -1] >= lower) & (X[y == -1] <= upper)).all()


def test_files_and_pickles_keep_the_noise(model, tmp_path):
    for again in [gmm_rs.load(gmm_rs.save(model, tmp_path / "m.json")), pickle.loads(pickle.dumps(model))]:
        assert again.noise_weight_ == model.noise_weight_
        assert again.noise_region_ == model.noise_region_
        assert (again.predict(CHEVRON) == model.predict(CHEVRON)).all()
    assert not hasattr(clone(model), "noise_weight_")


@pytest.mark.filterwarnings("ignore:Best performing initialization did not converge")
def test_the_start_is_a_share_rows_or_the_last_fit():
    flags = np.arange(len(CHEVRON)) >= 350
    for noise in (0.7, flags, flags.tolist()):
        assert fitted(noise=noise).noise_weight_ == pytest.approx(0.7539, abs=1e-3)
    whole = fitted(tol=0, max_iter=9)
    part = fitted(tol=0, max_iter=4, warm_start=True)
    part.set_params(max_iter=5).fit(CHEVRON)
    np.testing.assert_allclose(part.means_, whole.means_, rtol=1e-12)
    assert part.noise_weight_ == pytest.approx(whole.noise_weight_, rel=1e-12)


def test_a_fit_without_noise_forgets_it():
    model = fitted()
    model.set_params(noise=None).fit(CHEVRON)
    assert not hasattr(model, "noise_weight_")
    assert model.predict_proba(CHEVRON).shape == (1104, 2)


def test_a_given_volume_is_mclusts(model):
    found = fitted(noise_volume=16021.8071078)
    assert found.noise_weight_ == pytest.approx(model.noise_weight_, abs=1e-6)
    with pytest.raises(ValueError, match="cannot be drawn"):
        found.sample(3)


def test_bic_chooses_the_two_arms():
    found = select(CHEVRON, [1, 2, 3], noise="auto", n_init=3, tol=1e-6, max_iter=1000, random_state=0, device="cpu")
    assert found.best_params_["n_components"] == 2
    assert found.table["n_parameters"].tolist() == [7, 13, 19]
    assert found.best_estimator_.noise_weight_ == pytest.approx(0.754, abs=0.01)


def test_float32_rows_give_the_same_noise(model):
    single = GaussianMixture(2, noise="auto", tol=1e-7, max_iter=2000, device="cpu", random_state=0)
    single.fit(CHEVRON.astype(np.float32))
    assert single.noise_weight_ == pytest.approx(model.noise_weight_, abs=1e-3)
    assert single.score_samples(CHEVRON.astype(np.float32)).dtype == np.float32


def naive(model, rows):
    """Responsibilities (n, k + 1), of which the last are those of the noise."""
    return softmax(joint(model, rows), axis=1)


def test_splits_merges_and_trees_keep_the_noise(model):
    three = split(model, 0)
    assert len(three.weights_) == 3 and three.noise_weight_ == model.noise_weight_
    assert three.noise_region_ == model.noise_region_
    back = merge(three, 2)
    np.testing.assert_allclose(back.covariances_.sum(axis=0), model.covariances_.sum(axis=0), rtol=1e-10)
    assert back.noise_log_volume_ == model.noise_log_volume_
    assert distances(three).shape == (3, 3)
    assert tree(three).clusters(2).tolist() == [0, 1, 0]
    assert len(merge(three, X=CHEVRON, device="cpu").weights_) == 2


def test_entropies_are_those_of_rows_that_are_not_noise(model):
    three = split(model, 0)
    found = combine(three, CHEVRON, device="cpu")
    all_ = naive(three, CHEVRON)
    rest = all_[:, :3].sum(axis=1)
    of = all_[:, :3] / rest[:, None]

    def entropy(clusters):
        return -(rest[:, None] * xlogy(clusters, clusters)).sum()

    two = np.stack([of[:, 0] + of[:, 2], of[:, 1]], axis=1)
    np.testing.assert_allclose(found.entropy[:2], [entropy(of), entropy(two)], rtol=1e-8)
    labels = found.predict(three.predict_proba(CHEVRON))
    np.testing.assert_array_equal(labels == -1, all_[:, 3] > np.stack([all_[:, 0] + all_[:, 2], all_[:, 1]]).max(axis=0))


def test_adapted_means_share_the_rows_with_the_noise(model):
    weights = np.linspace(0.0, 2.0, len(CHEVRON))
    found = adapt(model, CHEVRON, relevance=16.0, sample_weight=weights, device="cpu")
    r = naive(model, CHEVRON)[:, :2] * weights[:, None]
    counts = r.sum(axis=0)[:, None]
    expected = (r.T @ CHEVRON + 16.0 * model.means_) / (counts + 16.0)
    np.testing.assert_allclose(found.means_, expected, rtol=1e-10)
    assert found.noise_weight_ == model.noise_weight_


def test_imputed_values_are_those_of_a_row_that_is_not_noise(model):
    plain = copy.deepcopy(model)
    _rules.set_noise(plain, None)
    holes = np.array([[40.0, np.nan], [np.nan, 35.0], [60.0, 20.0]])
    np.testing.assert_array_equal(model.impute(holes), plain.impute(holes))


def test_the_bootstrap_fits_the_noise_anew(model):
    found = gmm_rs.bootstrap(model, CHEVRON, replicates=30, random_state=0)
    assert found.noise_weights.shape == (30,)
    spread = found.noise_weights_spread
    assert spread.lower < model.noise_weight_ < spread.upper
    # Of a share of rows whose labels were known, the standard error is binomial; not knowing them adds to it.
    binomial = np.sqrt(model.noise_weight_ * (1 - model.noise_weight_) / len(CHEVRON))
    assert 0.7 * binomial < spread.standard_error < 3 * binomial
    assert gmm_rs.bootstrap(fitted(noise=None), CHEVRON, replicates=3).noise_weights is None


def test_what_does_not_know_noise_refuses_it(model):
    for call in (model.to_sklearn, lambda: kl(model, model), lambda: e_step(CHEVRON, model), lambda: split_merge(model, CHEVRON)):
        with pytest.raises(ParameterError, match="uniform noise"):
            call()
    with pytest.raises(ParameterError, match="noise"):
        GaussianMixture(2, noise="auto").partial_fit(CHEVRON)
    for noise, why in [("yes", "noise"), (1.0, "noise"), (0, "noise"), ([1, 2], "bool"), ([True, False], "bool, of shape")]:
        with pytest.raises(ValueError, match=why):
            fitted(noise=noise)
    with pytest.raises(ValueError, match="noise is None"):
        fitted(noise=None, noise_volume=2.0)
