"""Extreme deconvolution against its authors' C program, astroML's XDGMM, pyGMMis and NumPy; the answers are compared before they are
timed.

Usage: python benches/peers/deconvolution.py [--rows 20000] [--columns 6] [--components 16] [--iterations 5] [--turns 3]

All programs start from the same mixture and make the same number of iterations of EM over the same rows with independent errors;
NumPy runs the formulas of Bovy, Hogg and Roweis (2011) over all rows of a component at once. Programs that are not installed are
left out: `pip install astroML pygmmis`; extreme-deconvolution is built from its repository, jobovy/extreme-deconvolution on GitHub
(it needs GSL), and its folder is named in PYTHONPATH. It needs this package.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import record

from gmm_rs.mixture import GaussianMixture

# A few rounding errors of single sums, over the iterations.
TOLERANCE = 1e-6

# Above this share of all cores other processes disturb a time.
BUSY = 0.05

COLUMNS = "engine,covariance,precision,n,d,k,status,ms,ratio,difference"


def rows(n, d, k, seed=0):
    """Noisy rows, the deviations of their errors, and a start."""
    rng = np.random.default_rng(seed)
    means = 4.0 * rng.normal(size=(k, d))
    truth = means[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    noise = rng.uniform(0.0, 2.0, size=(n, d))
    start = (np.full(k, 1.0 / k), means + rng.normal(size=(k, d)), np.tile(2.0 * np.eye(d), (k, 1, 1)))
    return truth + noise * rng.normal(size=(n, d)), noise, start


def in_numpy(X, noise, start, iterations):
    weights, means, covariances = (array.copy() for array in start)
    d = X.shape[1]
    S = np.einsum("ij,jk->ijk", noise**2, np.eye(d))
    for _ in range(iterations):
        log, b, B = [], [], []
        for weight, mean, V in zip(weights, means, covariances):
            T, z = V + S, X - mean
            gain = np.linalg.solve(T, np.broadcast_to(V, T.shape)).swapaxes(1, 2)
            solved = np.linalg.solve(T, z[:, :, None])[:, :, 0]
            log.append(np.log(weight) - 0.5 * (np.linalg.slogdet(2 * np.pi * T)[1] + (z * solved).sum(1)))
            b.append(mean + (gain @ z[:, :, None])[:, :, 0])
            B.append(V - gain @ V)
        log = np.array(log)
        r = np.exp(log - np.logaddexp.reduce(log, axis=0))
        weights = r.sum(1) / len(X)
        for c in range(len(weights)):
            means[c] = r[c] @ b[c] / r[c].sum()
            z = b[c] - means[c]
            covariances[c] = (np.einsum("i,ij,ik->jk", r[c], z, z) + np.einsum("i,ijk->jk", r[c], B[c])) / r[c].sum()
    return weights, means, covariances


def in_gmm_rs(X, noise, start, iterations):
    weights, means, covariances = start
    model = GaussianMixture(
        len(weights), device="cpu", tol=0.0, max_iter=iterations, reg_covar=0.0,
        weights_init=weights, means_init=means, precisions_init=np.linalg.inv(covariances),
    )  # fmt: skip
    model.fit(X, noise=noise)
    return model.weights_, model.means_, model.covariances_


def in_astroml(X, noise, start, iterations):
    from astroML.density_estimation import XDGMM

    model = XDGMM(len(start[0]), max_iter=iterations, tol=-np.inf)
    model.alpha, model.mu, model.V = (array.copy() for array in start)
    S = np.einsum("ij,jk->ijk", noise**2, np.eye(X.shape[1]))
    for _ in range(iterations):
        model._EMstep(X, S)
    return model.alpha, model.mu, model.V


def in_pygmmis(X, noise, start, iterations):
    import pygmmis

    model = pygmmis.GMM(K=len(start[0]), D=X.shape[1])
    model.amp[:], model.mean[:], model.covar[:] = start
    S = np.einsum("ij,jk->ijk", noise**2, np.eye(X.shape[1]))
    pygmmis.fit(model, X, covar=S, init_method="none", tol=0.0, maxiter=iterations, cutoff=None)
    return model.amp, model.mean, model.covar


def in_extreme_deconvolution(X, noise, start, iterations):
    from extreme_deconvolution import extreme_deconvolution

    weights, means, covariances = (array.copy() for array in start)
    extreme_deconvolution(X, noise**2, weights, means, covariances, tol=1e-300, maxiter=iterations)
    return weights, means, covariances


def difference(found, wanted):
    return max(float(np.abs(a - b).max()) for a, b in zip(found, wanted, strict=True))


def contest(asked):
    """A line for each program: its best time of an iteration, beside that of gmm_rs in the same turns."""
    X, noise, start = rows(asked.rows, asked.columns, asked.components)
    wanted = in_gmm_rs(X, noise, start, asked.iterations)
    programs = {}
    for run in (in_gmm_rs, in_numpy, in_extreme_deconvolution, in_astroml, in_pygmmis):
        try:
            error = difference(run(X, noise, start, asked.iterations), wanted)
        except ImportError as why:
            print(f"{run.__name__} left out: {why}", file=sys.stderr)
            continue
        programs[run] = error, []
    for _ in range(asked.turns):
        for run, (_, taken) in programs.items():
            taken.append(record.timed(lambda run=run: run(X, noise, start, asked.iterations)))
    ours = [wall for wall, _, _ in programs[in_gmm_rs][1]]
    shape = f"{asked.rows},{asked.columns},{asked.components}"
    for run, (error, taken) in programs.items():
        status = "ok" if error < TOLERANCE else "another answer"
        if max(others for *_, others in taken) > BUSY:
            status += "; disturbed"
        walls = [wall for wall, *_ in taken]
        ratio = np.median([wall / own for wall, own in zip(walls, ours, strict=True)])
        name = run.__name__.removeprefix("in_")
        line = f"{name},full,f64,{shape},{status},{min(walls) / asked.iterations:.2f},{ratio:.1f},{error:.1e}"
        print(line, file=sys.stderr, flush=True)
        yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="folder for MACHINE/DATE-deconvolution.csv; default: standard output")
    parser.add_argument("--commit", default="unknown", help="for the head of the record")
    for name, value in (("rows", 20000), ("columns", 6), ("components", 16), ("iterations", 5), ("turns", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    # So few iterations do not converge.
    warnings.simplefilter("ignore")
    found = list(contest(asked))
    options = " ".join(f"--{name} {getattr(asked, name)}" for name in ("rows", "columns", "components", "iterations", "turns"))
    what = "milliseconds for an EM iteration over rows with measurement errors, beside other programs"
    notes = [
        "ms is the best of the turns, ratio the median of the times beside gmm_rs in the same turn",
        "difference is the largest of any parameter from gmm_rs after the iterations, from the same start",
    ]
    packages = ("numpy", "astroML", "pygmmis", "gmm_rs")
    record.write("deconvolution", what, f"deconvolution.py {options}", asked, packages, notes, COLUMNS, found)


if __name__ == "__main__":
    main()
