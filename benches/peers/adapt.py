"""Adaptation and log-likelihood ratios of many utterances against NumPy; the answers are compared before they are timed.

Usage: python benches/peers/adapt.py [UTTERANCES]
Default: 1000 utterances of 1000 x 39, K = 1024 diagonal, 30 components per row, float32.
"""

import sys
import time

import numpy as np

from gmm_rs.adapt import adapt_many, log_likelihood_ratio

K, D, N, TOP = 1024, 39, 1000, 30


def features(X):
    return np.concatenate([X, X * X], axis=1)


def coefficients(weights, means, variances):
    """Log joint densities are linear in ``x`` and ``x**2``."""
    constant = np.log(weights) - 0.5 * (np.log(2 * np.pi * variances) + means**2 / variances).sum(1)
    return constant, np.concatenate([means / variances, -0.5 / variances], axis=1).T


def log_sum(values):
    top = values.max(1, keepdims=True)
    return (top + np.log(np.exp(values - top).sum(1, keepdims=True)))[:, 0]


def numpy_ratio(ubm, own, X):
    constant, matrix = coefficients(*ubm)
    log = features(X) @ matrix + constant
    chosen = np.argpartition(log, K - TOP, axis=1)[:, K - TOP :]
    constant, matrix = coefficients(ubm[0], own, ubm[2])
    # A product of matrices for all components is faster in NumPy than gathered ones for thirty.
    of_own = features(X) @ matrix + constant
    return (log_sum(np.take_along_axis(of_own, chosen, 1)) - log_sum(np.take_along_axis(log, chosen, 1))).mean()


def numpy_adapt(ubm, X, relevance=16.0):
    constant, matrix = coefficients(*ubm)
    log = features(X) @ matrix + constant
    r = np.exp(log - log_sum(log)[:, None])
    n = r.sum(0)[:, None]
    return (r.T @ X + relevance * ubm[1]) / (n + relevance)


def timed(run):
    started = time.perf_counter()
    found = run()
    return time.perf_counter() - started, found


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(0)
    ubm = rng.dirichlet(np.full(K, 5.0)), rng.normal(0, 1, (K, D)), rng.uniform(0.3, 1, (K, D))
    utterances = [rng.normal(0, 1.2, (N, D)).astype(np.float32) for _ in range(count)]
    some = utterances[: min(count, 20)]

    means = adapt_many(ubm, some, device="cpu")
    want = np.array([numpy_adapt(ubm, X.astype(float)) for X in some])
    assert np.abs(means - want).max() < 1e-3, np.abs(means - want).max()
    pairs = [(i, i) for i in range(len(some))]
    found = log_likelihood_ratio(means, ubm, some, top=TOP, trials=pairs)
    want = np.array([numpy_ratio(ubm, own, X.astype(float)) for own, X in zip(means, some, strict=True)])
    assert np.abs(found - want).max() < 1e-3, np.abs(found - want).max()

    ours, means = timed(lambda: adapt_many(ubm, utterances, device="cpu"))
    theirs, _ = timed(lambda: [numpy_adapt(tuple(np.float32(v) for v in ubm), X) for X in some])
    theirs *= count / len(some)
    print(f"adapt  gmm_rs {ours:.3f} s, NumPy {theirs:.3f} s, {theirs / ours:.1f} times")
    pairs = [(i, i) for i in range(count)]
    ours, _ = timed(lambda: log_likelihood_ratio(means, ubm, utterances, top=TOP, trials=pairs))
    narrow = tuple(np.float32(v) for v in ubm)
    theirs, _ = timed(lambda: [numpy_ratio(narrow, np.float32(m), X) for m, X in zip(means, some, strict=False)])
    theirs *= count / len(some)
    print(f"ratio  gmm_rs {ours:.3f} s, NumPy {theirs:.3f} s, {theirs / ours:.1f} times")


if __name__ == "__main__":
    main()
