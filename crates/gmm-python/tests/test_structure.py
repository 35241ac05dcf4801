"""Divergences, merges, combinations and splits, against NumPy and SciPy."""

import numpy as np
import pytest
from conftest import KINDS, model
from scipy.cluster.hierarchy import fcluster, is_valid_linkage
from scipy.stats import multivariate_normal

import gmm_rs
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture
from gmm_rs.structure import combine, distances, kl, merge, split, split_merge, tree


def covariances(fitted):
    """Covariance of each component, (k, d, d)."""
    k, d = fitted.means_.shape
    given = fitted.covariances_
    if fitted.covariance_type == "full":
        return given
    if fitted.covariance_type == "tied":
        return np.broadcast_to(given, (k, d, d))
    if fitted.covariance_type == "diag":
        return np.array([np.diag(row) for row in given])
    return np.array([np.eye(d) * value for value in given])


def whole(fitted):
    """Mean and covariance of a mixture, by the law of total covariance."""
    mean = fitted.weights_ @ fitted.means_
    delta = fitted.means_ - mean
    within = np.einsum("c,cij->ij", fitted.weights_, covariances(fitted))
    return mean, within + np.einsum("c,ci,cj->ij", fitted.weights_, delta, delta)


def held(kind, covariance):
    if kind in ("full", "tied"):
        return covariance
    return np.diag(covariance) if kind == "diag" else np.trace(covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_merges_and_splits_keep_the_moments(rows, kind):
    fitted = model(4, kind, random_state=0, max_iter=500).fit(rows)
    mean, covariance = whole(fitted)
    for changed, k in [(merge(fitted, 2), 2), (split(fitted, 1), 5), (split(fitted, n_components=7), 7)]:
        assert isinstance(changed, GaussianMixture) and changed.n_components == k == len(changed.weights_)
        assert changed.predict(rows).max() < k
        found = whole(changed)
        assert np.allclose(found[0], mean, rtol=1e-12, atol=1e-12)
        assert np.allclose(held(kind, found[1]), held(kind, covariance), rtol=1e-12, atol=1e-12)


def test_divergences_are_those_of_numpy(rows):
    fitted = model(3, "full", random_state=0).fit(rows)
    sigma, mu = covariances(fitted), fitted.means_

    def divergence(i, j):
        inverse, delta = np.linalg.inv(sigma[j]), mu[i] - mu[j]
        dets = np.linalg.slogdet(sigma[j])[1] - np.linalg.slogdet(sigma[i])[1]
        return 0.5 * (dets - len(delta) + np.trace(inverse @ sigma[i]) + delta @ inverse @ delta)

    wanted = [[divergence(i, j) + divergence(j, i) for j in range(3)] for i in range(3)]
    assert np.allclose(distances(fitted), wanted, rtol=1e-9, atol=1e-9)
    one = [([1.0], mu[[c]], sigma[[c]]) for c in range(2)]
    found = kl(*one)
    assert np.isclose(found.variational, divergence(0, 1), rtol=1e-9)
    assert np.isclose(found.upper_bound, divergence(0, 1), rtol=1e-9)
    assert abs(found.monte_carlo - divergence(0, 1)) < 5 * found.standard_error
    middle = 0.5 * (sigma[0] + sigma[1])
    overlap = np.exp(-distances(fitted, "bhattacharyya")[0, 1])
    half = [np.linalg.slogdet(s)[1] for s in (sigma[0], sigma[1], middle)]
    delta = mu[0] - mu[1]
    exact = np.exp(0.25 * half[0] + 0.25 * half[1] - 0.5 * half[2] - 0.125 * delta @ np.linalg.inv(middle) @ delta)
    assert np.isclose(overlap, exact, rtol=1e-9)


def test_a_tree_is_a_linkage_of_scipy(rows):
    fitted = model(5, "full", random_state=0).fit(rows)
    found = tree(fitted)
    assert is_valid_linkage(found.linkage) and found.linkage[-1, 3] == 5
    for count in range(1, 6):
        labels = fcluster(found.linkage, count, "maxclust")
        ours = found.clusters(count)
        assert len(set(zip(labels, ours))) == len(set(labels)) == len(set(ours)) == count


def clust_combi(z):
    """Baudry et al. 2010: entropies with k, .., 1 clusters."""

    def x_ln_x(t):
        return np.where(t > 0, t * np.log(np.where(t > 0, t, 1.0)), 0.0).sum()

    entropies = [-x_ln_x(z)]
    while z.shape[1] > 1:
        pairs = [(i, j) for i in range(z.shape[1]) for j in range(i + 1, z.shape[1])]
        joined = [np.column_stack([np.delete(z, (i, j), 1), z[:, i] + z[:, j]]) for i, j in pairs]
        z = min(joined, key=lambda t: -x_ln_x(t))
        entropies.append(-x_ln_x(z))
    return entropies


def test_a_combination_is_that_of_the_definition(rows):
    fitted = model(5, "full", random_state=0).fit(rows)
    found = combine(fitted, rows)
    proba = fitted.predict_proba(rows)
    assert np.allclose(found.entropy, clust_combi(proba), rtol=1e-9, atol=1e-9)
    assert found.n_clusters == found.elbow
    sums = found.predict_proba(proba)
    assert sums.shape == (len(rows), found.n_clusters) and np.allclose(sums.sum(axis=1), 1.0)
    assert (found.predict(proba) == sums.argmax(axis=1)).all()
    assert combine(fitted, rows, 2).n_clusters == 2
    assert combine(fitted, rows, criterion="demp", cutoff=1.0).n_clusters == 5
    assert combine(fitted, rows, criterion="demp", cutoff=0.0).n_clusters == 1
    twice = combine(fitted, rows, sample_weight=np.full(len(rows), 2.0))
    assert np.allclose(twice.entropy, 2 * found.entropy)


def test_bic_merges_what_one_component_describes():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 20.0])
    fitted = GaussianMixture(6, random_state=0, max_iter=500).fit(X)
    assert len(merge(fitted, X=X).weights_) == 2
    assert len(merge(fitted, 3, X).weights_) == 3


def test_splits_and_merges_leave_the_local_maxima_of_iris():
    from sklearn.datasets import load_iris

    X = load_iris().data
    for seed in range(4):
        fitted = GaussianMixture(3, init_params="random_from_data", random_state=seed, max_iter=500).fit(X)
        better = split_merge(fitted, X)
        assert better is not fitted and better.score(X) >= fitted.score(X)
        # mclust's summary(mclustBIC(iris[, -5], G = 3)) prints -580.8399 for VVV, as published outputs of it show (not its
        # own documentation): a log-likelihood of -180.19.
        assert np.isclose(150 * better.score(X), -180.19, atol=0.02)
        assert np.isclose(better.bic(X), 580.84, atol=0.04)


def test_a_tuple_gives_a_tuple_and_scikit_learns_estimators_count(rows):
    from sklearn.mixture import GaussianMixture as Original

    theirs = Original(4, random_state=0).fit(rows)
    made = merge(theirs, 2)
    assert isinstance(made, GaussianMixture) and made.n_features_in_ == rows.shape[1]
    parts = merge((theirs.weights_, theirs.means_, theirs.covariances_), 2)
    assert (parts.means == made.means_).all()
    density = sum(
        w * multivariate_normal(m, c).pdf(rows) for w, m, c in zip(parts.weights, parts.means, parts.covariances)
    )
    assert np.allclose(np.log(density), made.score_samples(rows), rtol=1e-9, atol=1e-9)
    assert gmm_rs.structure.split is split


def test_what_cannot_be_done_says_why(rows):
    fitted = model(3, "full", random_state=0).fit(rows)
    for call, why in [
        (lambda: merge(fitted), "give a number or X"),
        (lambda: merge(fitted, 4), "3 components"),
        (lambda: merge(fitted, 2, criterion="ward"), "unknown criterion 'ward'"),
        (lambda: merge(fitted, 2, criterion="bic"), "needs the rows"),
        (lambda: combine(fitted, rows[:, :1]), "columns"),
        (lambda: combine(fitted, rows, 0), "n_clusters|count"),
        (lambda: split(fitted), "either component or n_components"),
        (lambda: split(fitted, 3), "component"),
        (lambda: split(fitted, n_components=2), "k is 2"),
        (lambda: split(fitted, 0, distance=1.0), "distance"),
        (lambda: kl(fitted, ([1.0], [[0.0]], [[[1.0]]])), "shape"),
        (lambda: kl(fitted, fitted, draws=1), "draws"),
    ]:
        with pytest.raises(ParameterError, match=why):
            call()
