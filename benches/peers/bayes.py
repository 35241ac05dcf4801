"""Variational Bayes against scikit-learn's; the answers are compared before they are timed.

    python benches/peers/bayes.py --out benches/record --commit "$(git rev-parse --short HEAD)"
    python benches/peers/bayes.py --quick             # small sizes, and the record only on standard output

Both programs start from the same posterior, that of one iteration of scikit-learn from random rows, make the same number
of iterations (`tol=0`), and have all cores. For `diag` and `spherical` scikit-learn's E-step takes the expected log
precision of a Wishart distribution; here it gets that of the Gamma distributions which these models have, as gmm_rs, so
that the answers can be compared. The workload `columns` fits each column of a table by itself. `rdt` is SDV's
ClusterBasedNormalizer on such columns, before and after `gmm_rs.accel.install()`, with its own start; its answer is the
table itself, after transform and reverse_transform.
"""

import argparse
import importlib.metadata
import statistics
import sys
import warnings
from pathlib import Path

import numpy as np
import record
from record import timed
from scipy.special import digamma
from sklearn.mixture import BayesianGaussianMixture as Peer

from gmm_rs import accel
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import BayesianGaussianMixture

KINDS = ("full", "tied", "diag", "spherical")
FAMILIES = {"dp": "dirichlet_process", "dirichlet": "dirichlet_distribution"}
POSTERIOR = ("weight_concentration_", "mean_precision_", "means_", "degrees_of_freedom_", "covariances_")
# Differences of parameters, relative to the largest of their array: some iterations amplify rounding.
TOLERANCE = 1e-6
SEED = 31
COLUMNS = "workload,covariance,n,k,d,iterations,status,ms,peer_ms,ratio,ratio_min,ratio_max,error,others,note"


class Gamma(Peer):
    """scikit-learn's class, with the expected log precision of the Gamma distributions of diag and spherical."""

    def _estimate_log_prob(self, X, **namespace):
        found = super()._estimate_log_prob(X, **namespace)
        d, nu = X.shape[1], self.degrees_of_freedom_
        wishart = digamma(0.5 * (nu - np.arange(d)[:, None])).sum(0)
        if self.covariance_type == "diag":
            return found + 0.5 * (d * digamma(0.5 * nu) - wishart)
        if self.covariance_type == "spherical":
            return found + 0.5 * (d * (digamma(0.5 * d * nu) - np.log(d)) - wishart)
        return found


def start(X, options):
    """The posterior after one iteration, as a fitted estimator of scikit-learn."""
    return Gamma(**options, max_iter=1, init_params="random_from_data", random_state=SEED).fit(X)


def peer_fit(X, first, iterations):
    model = Gamma(**{**first.get_params(), "max_iter": iterations, "warm_start": True})
    for name in (*POSTERIOR, "precisions_", "precisions_cholesky_", "converged_", "lower_bound_"):
        setattr(model, name, getattr(first, name))
    return model.fit(X)


def our_fit(X, first, iterations):
    # from_sklearn takes scikit-learn's own class.
    plain = Peer(**first.get_params())
    vars(plain).update(vars(first))
    model = BayesianGaussianMixture.from_sklearn(plain, device="cpu")
    return model.set_params(max_iter=iterations, warm_start=True).fit(X)


def difference(one, other):
    """The largest difference of the posteriors, relative to the largest number of each array."""
    worst = 0.0
    for name in POSTERIOR:
        for a, b in zip(np.atleast_1d(getattr(one, name)), np.atleast_1d(getattr(other, name)), strict=True):
            worst = max(worst, np.abs(a - b).max() / np.abs(b).max())
    return worst


def contest(ours, theirs, turns):
    """The fields from ms to ratio_max, and others, of turns of both."""
    pairs = [(timed(theirs), timed(ours)) for _ in range(turns)]
    peer, own = ([pair[i][0] for pair in pairs] for i in range(2))
    ratios = [a / b for a, b in zip(peer, own, strict=True)]
    others = max(share for pair in pairs for _, _, share in pair)
    numbers = [f"{statistics.median(own):.2f}", f"{statistics.median(peer):.2f}"]
    return [*numbers, *(f"{f(ratios):.2f}" for f in (statistics.median, min, max))], others


def row(name, what, kind, shape, iterations, error, measured, note=""):
    """A line of the record. Without `measured` the answers differ."""
    times, others = measured or ([""] * 5, 0.0)
    status = "wrong" if measured is None else "disturbed" if others > 0.1 else "ok"
    n, k, d = shape
    workload = f"{name} {what} {kind} {n} x {d} k={k}"
    print(f"{workload}: {status}, error {error:.1e}, {times}", file=sys.stderr, flush=True)
    numbers = [*map(str, shape), str(iterations), status, *times, f"{error:.1e}", f"{others:.2f}"]
    return ",".join([workload, kind, *numbers, note])


def fits(sizes, iterations, turns):
    for n, k, d in sizes:
        X, _ = make_gmm(n, n_components=k, n_features=d, separation=1.5, random_state=SEED)
        for kind in KINDS:
            options = {"n_components": k, "covariance_type": kind, "tol": 0.0}
            for family in FAMILIES if kind == "full" else ("dp",):
                first = start(X, {**options, "weight_concentration_prior_type": FAMILIES[family]})
                error = difference(our_fit(X, first, iterations), peer_fit(X, first, iterations))
                right = error < TOLERANCE
                run = lambda fit: lambda: fit(X, first, iterations)  # noqa: E731
                measured = contest(run(our_fit), run(peer_fit), turns) if right else None
                yield row("fit", family, kind, (n, k, d), iterations, error, measured)


def table(n, columns):
    """Columns of three groups each, with heavy tails."""
    rng = np.random.default_rng(SEED)
    component = rng.integers(0, 3, (n, columns))
    means = rng.normal(0, 20, (3, columns))[component, np.arange(columns)]
    return means + rng.gamma(2, 1, (n, columns)) * rng.normal(size=(n, columns))


def columns(n, k, count, iterations, turns):
    X = table(n, count)
    each = [np.ascontiguousarray(X[:, j : j + 1]) for j in range(count)]
    first = [start(x, {"n_components": k, "tol": 0.0}) for x in each]

    def all_of(fit):
        return [fit(x, one, iterations) for x, one in zip(each, first, strict=True)]

    error = max(difference(a, b) for a, b in zip(all_of(our_fit), all_of(peer_fit), strict=True))
    right = error < TOLERANCE
    measured = contest(lambda: all_of(our_fit), lambda: all_of(peer_fit), turns) if right else None
    return row("columns", "dp", "full", (n, k, 1), iterations, error, measured, f"{count} columns one after another")


def normalizer(n, count, turns):
    """rdt's transformer; its fit has ten components, one start, and 100 iterations unless it converges."""
    try:
        import pandas
        from rdt.transformers import numerical
    except ImportError:
        return None
    data = pandas.DataFrame(table(n, count), columns=[f"c{j}" for j in range(count)])

    def transformed():
        for name in data:
            one = numerical.ClusterBasedNormalizer()
            one.set_random_state(np.random.RandomState(SEED), "fit")
            there = one.fit_transform(data[[name]], name)
            yield np.abs(one.reverse_transform(there)[name] - data[name]).max() / np.abs(data[name]).max()

    def run():
        return max(transformed())

    def accelerated():
        accel.install()
        try:
            return run()
        finally:
            accel.uninstall()

    # Values beyond four standard deviations of their component are clipped, in both.
    error, clipped = accelerated(), run()
    measured = contest(accelerated, run, turns) if error < 2 * clipped + 1e-9 else None
    version = importlib.metadata.version("rdt")
    return row("rdt", "ClusterBasedNormalizer", "full", (n, 10, 1), "", error, measured, f"{count} columns; rdt {version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="folder for MACHINE/DATE-bayes.csv; default: standard output")
    parser.add_argument("--commit", default="unknown", help="for the head of the record")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    sizes, iterations = ([(2000, 3, 4)], 5) if given.quick else ([(100_000, 8, 13), (100_000, 30, 30)], 10)
    lines = list(fits(sizes, iterations, given.turns))
    n, count = (2000, 5) if given.quick else (100_000, 100)
    lines.append(columns(n, 10, count, iterations, 2 if given.quick else 3))
    lines += filter(None, [normalizer(n, count if given.quick else 10, 2 if given.quick else 3)])
    notes = [
        f"medians of {given.turns} turns (columns and rdt: {2 if given.quick else 3}), scikit-learn first",
        "error is the largest difference of the posteriors after all iterations, relative to the largest number of its "
        "array; of rdt that of the table after transform and reverse_transform",
    ]
    what = "milliseconds of a fit by variational Bayes, beside scikit-learn's"
    command = f"bayes.py --turns {given.turns}{' --quick' * given.quick}"
    record.write("bayes", what, command, given, ("numpy", "scikit-learn", "gmm_rs"), notes, COLUMNS, lines)
    sys.exit(any(",wrong," in line for line in lines))


if __name__ == "__main__":
    main()
