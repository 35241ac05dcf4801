"""Adaptation and log-likelihood ratios of many utterances against NumPy; the answers are compared before they are timed.

    python benches/peers/adapt.py --out benches/record --commit "$(git rev-parse --short HEAD)"
    python benches/peers/adapt.py --quick             # 60 utterances, for busy machines; prints the record

Utterances of 1000 x 39, K = 1024 diagonal, 30 components per row. Both programs have all cores and run in turns, a piece of
the utterances at a time. NumPy runs in two forms: utterance by utterance with BLAS on all cores, and utterances on as many
Python threads with BLAS on one core each. `densities alone` is the product of matrices of that second form, without what
follows it. It needs `pip install threadpoolctl` and this package.
"""

import argparse
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import record
from record import CORES, timed
from threadpoolctl import threadpool_limits

from gmm_rs.adapt import adapt_many, log_likelihood_ratio

RELEVANCE = 16.0
K, D, N = 1024, 39, 1000
# Where the 30th and 31st component are equal but for rounding, the two programs may select either.
TOLERANCES = {"f32": 1e-3, "f64": 1e-9}
COLUMNS = (
    "workload,program,precision,utterances,n,k,d,top,status,ms,cpu_ms,ratio,ratio_min,ratio_max,cpu_ratio,error,others,note"
)


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


def contest(workload, given, precision, pieces, programs, error):
    """The lines of the programs, ours first: medians over the pieces, for all utterances."""
    turns = [{name: timed(lambda run=run, piece=piece: run(piece)) for name, run in programs.items()} for piece in pieces]
    ours = next(iter(programs))
    count = sum(len(piece) for piece in pieces)
    right = error < TOLERANCES[precision]
    for name in programs:
        wall, cpu = ([turn[name][i] for turn in turns] for i in range(2))
        ratios = [turn[name][0] / turn[ours][0] for turn in turns]
        others = max(max(turn[name][2], turn[ours][2]) for turn in turns)
        status = "wrong" if not right else "disturbed" if others > 0.1 else "ok"
        of_ours = statistics.median(turn[ours][1] for turn in turns)
        numbers = [
            *(f"{statistics.median(each) * len(pieces):.1f}" for each in (wall, cpu)),
            *(f"{f(ratios):.2f}" for f in (statistics.median, min, max)),
            f"{statistics.median(cpu) / of_ours:.2f}",
        ]
        shape = f"{count},{N},{K},{D},{given.top}"
        line = [f"{workload} {precision}: {name}", name, precision, shape, status, *(numbers if right else [""] * 6)]
        line = ",".join([*line, f"{error:.1e}", f"{others:.2f}", ""])
        print(line, file=sys.stderr, flush=True)
        yield line


def lines(given, precision, count):
    top, dtype = given.top, np.float32 if precision == "f32" else np.float64
    rng = np.random.default_rng(0)
    ubm = rng.dirichlet(np.full(K, 5.0)), rng.normal(0, 1, (K, D)), rng.uniform(0.3, 1, (K, D))
    utterances = [rng.normal(0, 1.2, (N, D)).astype(dtype) for _ in range(count)]
    background, means = coefficients(*ubm, dtype), ubm[1].astype(dtype)

    some = utterances[:10]
    exact = coefficients(*ubm, float)
    adapted = adapt_many(ubm, some, top=top)
    want = np.array([numpy_adapt(X.astype(float), exact, ubm[1], top) for X in some])
    off = np.abs(adapted - want).max()
    ratios = log_likelihood_ratio(adapted, ubm, some, top=top, trials=[(i, i) for i in range(len(some))])
    own = coefficients(ubm[0], adapted[0], ubm[2], dtype)
    exactly = [coefficients(ubm[0], m, ubm[2], float) for m in adapted]
    want = [numpy_ratio(X.astype(float), exact, m, top) for X, m in zip(some, exactly, strict=True)]
    off_ratios = np.abs(ratios - want).max()

    def one(X):
        return numpy_adapt(X, background, means, top)

    def densities(X):
        # The product is not kept: its memory is used again, as in numpy_adapt.
        features(X) @ background[1]

    def ratio(X):
        return numpy_ratio(X, background, own, top)

    # A few pieces, so that other activity on the machine affects all programs alike.
    pieces = [utterances[i :: given.turns] for i in range(given.turns)]
    programs = {
        "gmm_rs top": lambda piece: adapt_many(ubm, piece, top=top, device="cpu"),
        "NumPy BLAS on cores": lambda piece: [one(X) for X in piece],
        "NumPy threads": lambda piece: in_threads(one, piece),
        "NumPy threads densities alone": lambda piece: in_threads(densities, piece),
        "gmm_rs all components": lambda piece: adapt_many(ubm, piece, device="cpu"),
    }
    yield from contest("adapt", given, precision, pieces, programs, off)
    programs = {
        "gmm_rs top": lambda piece: log_likelihood_ratio(adapted[:1], ubm, piece, top=top),
        "NumPy BLAS on cores": lambda piece: [ratio(X) for X in piece],
        "NumPy threads": lambda piece: in_threads(ratio, piece),
    }
    yield from contest("ratio", given, precision, pieces, programs, off_ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="folder for MACHINE/DATE-adapt.csv; default: standard output")
    parser.add_argument("--commit", default="unknown", help="for the head of the record")
    parser.add_argument("--utterances", type=int, default=1000, help="of which each turn has a share")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="60 utterances, f32 only")
    given = parser.parse_args()
    count = 60 if given.quick else given.utterances
    found = [line for precision in (["f32"] if given.quick else ["f32", "f64"]) for line in lines(given, precision, count)]
    what = "milliseconds to adapt a background model to all utterances, and to score them, beside NumPy"
    options = f"--utterances {given.utterances} --turns {given.turns} --top {given.top}{' --quick' * given.quick}"
    notes = [
        f"medians of {given.turns} turns, each with a share of the utterances, times their number",
        "ratio is the wall time beside gmm_rs in the same turn, cpu_ratio that of the CPU times of all threads",
        "error is the largest difference of means or ratios of some utterances from NumPy in f64",
    ]
    packages = ("numpy", "threadpoolctl", "gmm_rs")
    record.write("adapt", what, f"adapt.py {options}", given, packages, notes, COLUMNS, found)
    sys.exit(any(",wrong," in line for line in found))


if __name__ == "__main__":
    main()
