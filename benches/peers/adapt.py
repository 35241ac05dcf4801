"""Adaptation and log-likelihood ratios of many utterances against NumPy; the answers are compared before they are timed.

Usage: python benches/peers/adapt.py [--quick] [--utterances 1000] [--top 30] [--precision f32]

Default: 1000 utterances of 1000 x 39, K = 1024 diagonal, 30 components per row, float32. Both programs have all cores and
run in turns, a piece of the utterances at a time. NumPy runs in two forms: utterance by utterance with BLAS on all cores,
and utterances on as many Python threads with BLAS on one core each. It needs `pip install threadpoolctl` and this package.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from gmm_rs.adapt import adapt_many, log_likelihood_ratio, top_statistics

RELEVANCE = 16.0
CORES = len(os.sched_getaffinity(0))


def features(X):
    return np.concatenate([X, X * X], axis=1)


def coefficients(weights, means, variances, dtype):
    """Log joint densities are linear in ``x`` and ``x**2``: a constant, and a matrix of shape (2 d, k)."""
    constant = np.log(weights) - 0.5 * (np.log(2 * np.pi * variances) + means**2 / variances).sum(1)
    return constant.astype(dtype), np.concatenate([means / variances, -0.5 / variances], axis=1).T.astype(dtype)


def selected(log, top):
    """Of each row the components of largest density, their densities relative to the largest, and that."""
    chosen = np.argpartition(log, log.shape[1] - top, axis=1)[:, -top:]
    values = np.take_along_axis(log, chosen, 1)
    largest = values.max(1, keepdims=True)
    return chosen, np.exp(values - largest), largest[:, 0]


def numpy_adapt(X, background, means, top):
    """Two products of matrices; the responsibilities of the other components are 0."""
    constant, matrix = background
    rows = features(X)
    log = rows @ matrix
    log += constant
    chosen, r, _ = selected(log, top)
    r /= r.sum(1, keepdims=True)
    log.fill(0)
    np.put_along_axis(log, chosen, r, 1)
    # First and second moments, as top_statistics has them.
    moments = log.T @ rows
    n = log.sum(0)[:, None]
    return (moments[:, : X.shape[1]] + RELEVANCE * means) / (n + RELEVANCE)


def numpy_ratio(X, background, own, top):
    log = features(X) @ background[1] + background[0]
    chosen, r, largest = selected(log, top)
    # A product for all components is faster in NumPy than gathered ones for thirty.
    values = np.take_along_axis(features(X) @ own[1] + own[0], chosen, 1)
    most = values.max(1)
    of_own = most + np.log(np.exp(values - most[:, None]).sum(1))
    return (of_own - largest - np.log(r.sum(1))).mean()


def in_threads(run, utterances):
    with threadpool_limits(1), ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(run, utterances))


def busy():
    """Seconds that all processes have used, of all cores together."""
    ticks = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def timed(run):
    """Wall and CPU seconds, and those of other processes."""
    wall, own, all_ = time.perf_counter(), time.process_time(), busy()
    run()
    own = time.process_time() - own
    return np.array([time.perf_counter() - wall, own, max(busy() - all_ - own, 0.0)])


def contest(name, count, pieces, programs):
    """Prints seconds for `count` utterances of each program, timed in turns on every piece."""
    rounds = np.array([[timed(lambda: run(piece)) for run in programs.values()] for piece in pieces])
    scale = count / sum(len(piece) for piece in pieces)
    totals = rounds.sum(0) * scale
    ours = totals[0]
    for (program, _), (wall, cpu, others) in zip(programs.items(), totals, strict=True):
        share = others / (wall * CORES)
        ratio = f"{wall / ours[0]:5.1f} times, of CPU time {cpu / ours[1]:5.1f}"
        print(f"{name:10} {program:22} {wall:8.3f} s, CPU {cpu:8.3f} s  {ratio}  others {100 * share:.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--utterances", type=int, default=1000)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--precision", choices=["f32", "f64"], default="f32")
    parser.add_argument("--quick", action="store_true", help="60 utterances, for busy machines")
    given = parser.parse_args()
    k, d, n, top = 1024, 39, 1000, given.top
    count = 60 if given.quick else given.utterances
    dtype = np.float32 if given.precision == "f32" else np.float64
    rng = np.random.default_rng(0)
    ubm = rng.dirichlet(np.full(k, 5.0)), rng.normal(0, 1, (k, d)), rng.uniform(0.3, 1, (k, d))
    utterances = [rng.normal(0, 1.2, (n, d)).astype(dtype) for _ in range(count)]
    background, means = coefficients(*ubm, dtype), ubm[1].astype(dtype)

    some = utterances[: min(count, 10)]
    exact = coefficients(*ubm, float)
    adapted = adapt_many(ubm, some, top=top)
    want = np.array([numpy_adapt(X.astype(float), exact, ubm[1], top) for X in some])
    # Where the 30th and 31st component are equal but for rounding, the two programs may select either.
    tolerance = 1e-3 if given.precision == "f32" else 1e-9
    assert np.abs(adapted - want).max() < tolerance, np.abs(adapted - want).max()
    ratios = log_likelihood_ratio(adapted, ubm, some, top=top, trials=[(i, i) for i in range(len(some))])
    own = coefficients(ubm[0], adapted[0], ubm[2], dtype)
    exactly = [coefficients(ubm[0], m, ubm[2], float) for m in adapted]
    want = [numpy_ratio(X.astype(float), exact, m, top) for X, m in zip(some, exactly, strict=True)]
    assert np.abs(ratios - want).max() < tolerance, np.abs(ratios - want).max()

    # A few pieces, so that other activity on the machine affects all programs alike.
    pieces = [utterances[i::4] for i in range(4)]
    shape = f"{count} utterances of {n} x {d}, K = {k}, top {top}, {given.precision}"
    print(f"{shape}, {CORES} cores; load {os.getloadavg()[0]:.1f}")

    def one(X):
        return numpy_adapt(X, background, means, top)

    contest(
        "adapt",
        count,
        pieces,
        {
            "gmm_rs, top": lambda piece: adapt_many(ubm, piece, top=top),
            "NumPy, BLAS on cores": lambda piece: [one(X) for X in piece],
            "NumPy, threads": lambda piece: in_threads(one, piece),
            "gmm_rs, all components": lambda piece: adapt_many(ubm, piece, device="cpu"),
        },
    )
    contest("statistics", count, pieces, {"gmm_rs, top": lambda piece: top_statistics(ubm, piece, top=top)})

    def ratio(X):
        return numpy_ratio(X, background, own, top)

    contest(
        "ratio",
        count,
        pieces,
        {
            "gmm_rs, top": lambda piece: log_likelihood_ratio(adapted[:1], ubm, piece, top=top),
            "NumPy, BLAS on cores": lambda piece: [ratio(X) for X in piece],
            "NumPy, threads": lambda piece: in_threads(ratio, piece),
        },
    )


if __name__ == "__main__":
    main()
