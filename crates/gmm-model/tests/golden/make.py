"""Computes reference values for gmm-model with numpy and scipy; writes golden.json beside this file.

    python3 -m venv venv && venv/bin/pip install numpy scipy && venv/bin/python make.py

Log densities come from scipy.stats.multivariate_normal and scipy.special.logsumexp; the M-step is written out in two
passes (means first, then squares about them), in extended precision, so that it shares nothing with the library.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

REG_COVAR = 1e-3
K, N = 3, 16


def matrix(kind, covariances, c, d):
    return {
        "full": lambda: covariances[c],
        "tied": lambda: covariances,
        "diag": lambda: np.diag(covariances[c]),
        "spherical": lambda: covariances[c] * np.eye(d),
    }[kind]()


def m_step(kind, rows, row_weights, r):
    x, r = rows.astype(np.longdouble), (r * row_weights[:, None]).astype(np.longdouble)
    d, mass = x.shape[1], r.sum(axis=0)
    means = (r.T @ x) / mass[:, None]
    scatter = np.stack([((x - m) * r[:, [c]]).T @ (x - m) for c, m in enumerate(means)])
    full = scatter / mass[:, None, None] + REG_COVAR * np.eye(d)
    covariances = {
        "full": full,
        "tied": scatter.sum(axis=0) / mass.sum() + REG_COVAR * np.eye(d),
        "diag": np.stack([np.diag(a) for a in full]),
        "spherical": np.array([np.trace(a) / d for a in full]),
    }[kind]
    return mass / mass.sum(), means, covariances


def case(kind, d, rng):
    weights = rng.dirichlet(np.full(K, 5.0))
    means = rng.normal(scale=2.0, size=(K, d))
    factors = np.tril(rng.normal(size=(K, d, d)) / np.sqrt(d)) + np.eye(d)
    covariances = {
        "full": factors @ factors.transpose(0, 2, 1),
        "tied": factors[0] @ factors[0].T,
        "diag": rng.uniform(0.3, 3.0, size=(K, d)),
        "spherical": rng.uniform(0.3, 3.0, size=K),
    }[kind]
    # Rows around the means, so that each component gets some, with 1.5 times unit standard deviation.
    rows = means[rng.integers(K, size=N)] + rng.normal(scale=1.5, size=(N, d))
    row_weights = rng.uniform(0.0, 3.0, size=N)
    joint = np.stack(
        [np.log(weights[c]) + multivariate_normal(means[c], matrix(kind, covariances, c, d)).logpdf(rows) for c in range(K)],
        axis=1,
    ).reshape(N, K)
    log_densities = logsumexp(joint, axis=1)
    responsibilities = np.exp(joint - joint.max(axis=1, keepdims=True))
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    new = m_step(kind, rows, row_weights, responsibilities)
    flat = lambda a: np.asarray(a, dtype=np.float64).ravel().tolist()
    return {
        "kind": kind, "k": K, "d": d, "n": N, "reg_covar": REG_COVAR,
        "weights": flat(weights), "means": flat(means), "covariances": flat(covariances),
        "rows": flat(rows), "row_weights": flat(row_weights),
        "log_densities": flat(log_densities), "responsibilities": flat(responsibilities),
        "new_weights": flat(new[0]), "new_means": flat(new[1]), "new_covariances": flat(new[2]),
    }


def main():
    rng = np.random.default_rng(20240101)
    cases = [case(kind, d, rng) for kind in ("full", "tied", "diag", "spherical") for d in (1, 2, 5, 13)]
    out = {"made_with": {"numpy": np.__version__, "scipy": scipy.__version__}, "cases": cases}
    pathlib.Path(__file__).with_name("golden.json").write_text(json.dumps(out, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
