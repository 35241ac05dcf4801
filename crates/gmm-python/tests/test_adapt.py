"""Adaptation, supervectors and scores against NumPy, with the formulas of their sources."""

import numpy as np
import pytest
from scipy.special import logsumexp

from gmm_rs.adapt import adapt, adapt_many, linear_scores, log_likelihood_ratio, supervectors, top_statistics
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture


def background(k=12, d=3):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(k, 5.0))
    return weights, rng.normal(0, 3, (k, d)), rng.uniform(0.5, 2, (k, d))


def speaker(n, seed, d=3):
    return np.random.default_rng(seed).normal(0.5, 3, (n, d))


def joint(weights, means, variances, X):
    z = (X[:, None] - means) ** 2 / variances
    return np.log(weights) - 0.5 * (z + np.log(2 * np.pi * variances)).sum(-1)


def moments(ubm, X):
    """``n``, ``E(x)`` and ``E(x**2)`` of each component."""
    log = joint(*ubm, X)
    r = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    n = r.sum(0)
    return n, r.T @ X / n[:, None], r.T @ X**2 / n[:, None]


def test_adaptation_follows_reynolds_quatieri_and_dunn():
    ubm, X = background(), speaker(200, 1)
    n, mean, square = moments(ubm, X)
    alpha = (n / (n + 16))[:, None]
    means = alpha * mean + (1 - alpha) * ubm[1]
    variances = alpha * square + (1 - alpha) * (ubm[2] + ubm[1] ** 2) - means**2
    weights = alpha[:, 0] * n / len(X) + (1 - alpha[:, 0]) * ubm[0]
    found = adapt(ubm, X, update=("means", "variances", "weights"), device="cpu")
    np.testing.assert_allclose(found.means, means, rtol=1e-10)
    np.testing.assert_allclose(found.covariances, variances, rtol=1e-9)
    np.testing.assert_allclose(found.weights, weights / weights.sum(), rtol=1e-10)


def test_an_estimator_stays_an_estimator():
    X = speaker(300, 2)
    model = GaussianMixture(4, covariance_type="diag", random_state=0, device="cpu").fit(X)
    adapted = adapt(model, X[:50] + 1, device="cpu")
    assert isinstance(adapted, GaussianMixture)
    assert adapted.score(X[:50] + 1) > model.score(X[:50] + 1)
    np.testing.assert_array_equal(adapted.covariances_, model.covariances_)


def test_many_speakers_are_adapted_in_one_call():
    ubm = background()
    utterances = [speaker(20 + i, i) for i in range(30)]
    means = adapt_many(ubm, utterances, device="cpu")
    for X, found in zip(utterances, means, strict=True):
        np.testing.assert_allclose(found, adapt(ubm, X, device="cpu").means, rtol=1e-10)
    groups = np.repeat(np.arange(30), [len(X) for X in utterances])
    order = np.random.default_rng(0).permutation(len(groups))
    shuffled = adapt_many(ubm, np.concatenate(utterances)[order], groups=groups[order], device="cpu")
    np.testing.assert_allclose(shuffled, means, rtol=1e-9)
    vectors = supervectors(means, ubm)
    np.testing.assert_allclose(vectors, (np.sqrt(ubm[0] / ubm[2].T).T * (means - ubm[1])).reshape(30, -1), rtol=1e-9)
    np.testing.assert_array_equal(supervectors(means, ubm, normalised=False), means.reshape(30, -1))


@pytest.mark.parametrize("top", [1, 4, 12, 30])
def test_ratios_are_those_of_the_largest_components(top):
    ubm = background()
    utterances = [speaker(25, i) for i in range(3)]
    means = adapt_many(ubm, utterances, device="cpu")
    found = log_likelihood_ratio(means, ubm, utterances, top=top)
    for i, own in enumerate(means):
        for j, X in enumerate(utterances):
            log = joint(*ubm, X)
            chosen = np.argsort(-log, axis=1)[:, :top]
            of_own = np.take_along_axis(joint(ubm[0], own, ubm[2], X), chosen, 1)
            want = (logsumexp(of_own, axis=1) - logsumexp(np.take_along_axis(log, chosen, 1), axis=1)).mean()
            assert found[i, j] == pytest.approx(want, rel=1e-9, abs=1e-11)
    trials = log_likelihood_ratio(means, ubm, utterances, top=top, trials=[(2, 0), (0, 1)])
    assert trials.tolist() == [found[2, 0], found[0, 1]]
    one = log_likelihood_ratio((ubm[0], means[0], ubm[2]), ubm, utterances[1], top=top)
    assert one == pytest.approx(found[0, 1], rel=1e-12)


@pytest.mark.parametrize("top", [1, 4, 12, 30])
def test_statistics_share_rows_among_the_largest_components(top):
    ubm = background()
    utterances = [speaker(25 + i, i) for i in range(3)]
    found = top_statistics(ubm, utterances, top=top)
    means = adapt_many(ubm, utterances, top=top)
    for X, one, adapted in zip(utterances, found, means, strict=True):
        log = joint(*ubm, X)
        chosen = np.argsort(-log, axis=1)[:, :top]
        largest = np.full_like(log, -np.inf)
        np.put_along_axis(largest, chosen, np.take_along_axis(log, chosen, 1), 1)
        total = logsumexp(largest, axis=1, keepdims=True)
        r = np.exp(largest - total)
        n = r.sum(0)
        z = X[:, None] - ubm[1]
        np.testing.assert_allclose(one.weight, n, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.first, np.einsum("nk,nkd->kd", r, z), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.second, np.einsum("nk,nkd->kd", r, z**2), rtol=1e-9, atol=1e-9)
        assert one.log_likelihood == pytest.approx(total.sum(), rel=1e-12)
        want = (r.T @ X + 16 * ubm[1]) / (n + 16)[:, None]
        np.testing.assert_allclose(adapted, want, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(adapt(ubm, X, top=top).means, want, rtol=1e-9, atol=1e-11)


def test_linear_scores_follow_bob():
    ubm = background()
    utterances = [speaker(25, i) for i in range(4)]
    means = adapt_many(ubm, utterances[:2], device="cpu")
    scores = linear_scores(means, ubm, utterances, device="cpu")
    for i, own in enumerate(means):
        for j, X in enumerate(utterances):
            n, mean, _ = moments(ubm, X)
            want = ((own - ubm[1]) / ubm[2] * n[:, None] * (mean - ubm[1])).sum() / len(X)
            assert scores[i, j] == pytest.approx(want, rel=1e-9, abs=1e-11)


def test_mixing_up_is_a_start():
    X = speaker(2000, 3)
    model = GaussianMixture(8, covariance_type="diag", init_params="mix-up", device="cpu").fit(X)
    assert model.weights_.shape == (8,)


def test_bad_input_is_an_error_that_says_what():
    ubm, X = background(), speaker(10, 1)
    with pytest.raises(ParameterError, match="update has 'covariances'"):
        adapt(ubm, X, update=("covariances",))
    with pytest.raises(ParameterError, match="relevance is -1"):
        adapt(ubm, X, relevance=-1.0, device="cpu")
    with pytest.raises(ParameterError, match="one array"):
        adapt_many(ubm, X)
    with pytest.raises(ParameterError, match="groups have shape"):
        adapt_many(ubm, X, groups=[1, 2])
    with pytest.raises(ParameterError, match="empty list"):
        adapt_many(ubm, [])
    with pytest.raises(ParameterError, match="top is 0"):
        top_statistics(ubm, [X], top=0)
    with pytest.raises(ParameterError, match="kind is full"):
        adapt_many(([1.0], [[0.0]], [[[1.0]]]), [[[1.0]]], top=1, covariance_type="full")
    with pytest.raises(ParameterError, match="top is 0"):
        log_likelihood_ratio(ubm, ubm, X, top=0)
