"""Fixed and shared parts, priors with given parameters, and what files keep."""

import numpy as np
import pytest

import gmm_rs
from gmm_rs import select
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture

X, _, TRUTH = make_gmm(600, 2, 3, separation=5.0, random_state=1, return_mixture=True)
GIVEN = {
    "weights_init": TRUTH.weights_,
    "means_init": TRUTH.means_ + 0.3,
    "precisions_init": np.linalg.inv(TRUTH.covariances_),
}


def fitted(**changed):
    return GaussianMixture(3, device="cpu", random_state=0, **changed).fit(X)


def test_fixed_parts_keep_their_bits():
    found = fitted(**GIVEN, fixed_means=[0, 2], fixed_weights=[1], fixed_covariances="all")
    assert (found.means_[[0, 2]] == GIVEN["means_init"][[0, 2]]).all()
    assert (found.means_[1] != GIVEN["means_init"][1]).all()
    assert found.weights_[1] == GIVEN["weights_init"][1]
    np.testing.assert_allclose(found.covariances_, TRUTH.covariances_, rtol=1e-12)
    # Only what is fixed must be given.
    found = fitted(means_init=GIVEN["means_init"], fixed_means="all", n_init=2)
    assert (found.means_ == GIVEN["means_init"]).all()
    again = fitted(means_init=GIVEN["means_init"], fixed_means="all", n_init=2, warm_start=True).fit(X[:300])
    assert (again.means_ == GIVEN["means_init"]).all()


def test_a_fixed_part_is_one_iteration_of_numpy():
    found = GaussianMixture(3, device="cpu", max_iter=1, reg_covar=0, tol=0, **GIVEN, fixed_means="all").fit(X)
    r = GaussianMixture(3, device="cpu", max_iter=0, **GIVEN).fit(X).predict_proba(X)
    for c, mean in enumerate(GIVEN["means_init"]):
        about = X - mean
        np.testing.assert_allclose(found.covariances_[c], (r[:, c] * about.T) @ about / r[:, c].sum(), rtol=1e-9)


def test_groups_share_a_covariance():
    found = fitted(shared_covariances=[[0, 2]])
    assert (found.covariances_[0] == found.covariances_[2]).all()
    assert (found.covariances_[0] != found.covariances_[1]).any()
    assert (np.ptp(fitted(shared_covariances="all").covariances_, axis=0) == 0).all()


@pytest.mark.parametrize(
    "parameters, why",
    [
        ({"fixed_means": [0]}, "means_init"),
        ({"fixed_weights": "all"}, "weights_init"),
        ({"fixed_covariances": [1]}, "precisions_init"),
        ({**GIVEN, "fixed_means": [3]}, "from 0 to n_components"),
        ({**GIVEN, "fixed_means": [0.5]}, "from 0 to n_components"),
        ({**GIVEN, "fixed_means": "some"}, "fixed_means"),
        ({"shared_covariances": [0, 1]}, "list of lists"),
        ({"shared_covariances": [[0, 1], [1, 2]]}, "component 1 twice"),
        ({"shared_covariances": [[0, 1]], "covariance_type": "tied"}, "tied"),
    ],
)
def test_parts_that_cannot_be_are_errors(parameters, why):
    with pytest.raises(ValueError, match=why):
        fitted(**parameters)


def test_given_parts_of_a_prior_are_those_of_its_formula():
    # Fraley and Raftery 2007, table 2, for one component: all rows belong to it.
    mean, kappa, nu = np.array([1.0, -2.0]), 7.5, 9.0
    scale = np.array([[2.0, 0.3], [0.3, 1.0]])
    prior = {"mean": mean, "shrinkage": kappa, "degrees_of_freedom": nu, "scale": scale}
    found = GaussianMixture(1, prior=prior, reg_covar=0, device="cpu").fit(X)
    n, average = len(X), X.mean(axis=0)
    np.testing.assert_allclose(found.means_[0], (n * average + kappa * mean) / (n + kappa), rtol=1e-10)
    about, far = X - average, average - mean
    sums = scale + kappa * n / (n + kappa) * np.outer(far, far) + about.T @ about
    np.testing.assert_allclose(found.covariances_[0], sums / (nu + n + 2 + 2), rtol=1e-10)


def test_the_parts_that_are_not_given_are_the_defaults():
    whole = fitted(prior="conjugate")
    np.testing.assert_array_equal(fitted(prior={}).means_, whole.means_)
    np.testing.assert_array_equal(fitted(prior={"shrinkage": 0.01, "concentration": 1}).means_, whole.means_)
    even = fitted(prior={"concentration": 1e5})
    np.testing.assert_allclose(even.weights_, 1 / 3, atol=0.01)
    for kind, scale in [("diag", [0.5, 0.25]), ("spherical", 0.5), ("tied", np.eye(2))]:
        fitted(prior={"scale": scale}, covariance_type=kind)


@pytest.mark.parametrize(
    "prior, why",
    [
        ({"men": 0}, "unknown|one of mean"),
        ({"mean": [0.0]}, "shape"),
        ({"scale": 1.0}, "shape"),
        ({"scale": [[1.0, 2.0], [2.0, 1.0]]}, "positive definite"),
        ({"shrinkage": -1}, "shrinkage"),
        ({"degrees_of_freedom": 0.5}, "degrees of freedom"),
        ({"concentration": 0.5}, "concentration"),
        ({"mean": "x"}, "numbers"),
    ],
)
def test_priors_that_cannot_be_are_errors(prior, why):
    with pytest.raises(ValueError, match=why):
        fitted(prior=prior)


def test_a_selection_has_the_prior_in_every_candidate():
    rows = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)
    found = select(rows, [1, 2, 3], prior="conjugate", reg_covar=0, device="cpu")
    assert (found.table["error"] == "").all()
    alone = GaussianMixture(2, prior="conjugate", reg_covar=0, device="cpu", random_state=0)
    chosen = select(X, [2], prior="conjugate", random_state=0, reg_covar=0, device="cpu").best_estimator_
    np.testing.assert_array_equal(chosen.means_, alone.fit(X).means_)
    assert chosen.prior == "conjugate"
    least = select(X, [3], covariance_type="diag", floor=4.0, device="cpu").best_estimator_
    assert least.covariances_.min() >= 4.0


def test_files_keep_clusters_and_thresholds(tmp_path):
    model = fitted()
    model.clusters_ = np.array([0, 1, 0])
    path = gmm_rs.save(model, tmp_path / "m.json")
    again = gmm_rs.load(path)
    assert again.clusters_.tolist() == [0, 1, 0]
    assert gmm_rs.load(gmm_rs.save(again, tmp_path / "n.safetensors")).clusters_.tolist() == [0, 1, 0]
    detector = gmm_rs.outliers.GaussianMixtureDetector(2, contamination=0.1, device="cpu").fit(X)
    path = gmm_rs.save(gmm_rs.load(gmm_rs.save(detector, tmp_path / "d.json")), tmp_path / "e.json")
    assert gmm_rs.outliers.GaussianMixtureDetector.load(path).offset_ == detector.offset_
    # They belong to the mixture that was read, not to the next one.
    assert not hasattr(again.fit(X), "clusters_")
    model.clusters_ = np.array([0, 2, 0])
    with pytest.raises(ValueError, match="clusters"):
        gmm_rs.save(model, tmp_path / "x.json")


@pytest.mark.parametrize("cls", ["GaussianMixture", "BayesianGaussianMixture"])
def test_a_warm_start_of_another_kind_is_refused(cls):
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = getattr(gmm_rs.mixture, cls)(n_components=2, warm_start=True, random_state=0, device="cpu").fit(X)
    with pytest.raises(ValueError, match="warm_start=True.*covariance_type='diag'"):
        model.set_params(covariance_type="diag").fit(X)
