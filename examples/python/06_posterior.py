"""Draws weights, means and covariances of Old Faithful's two components from their posterior, by NUTS.

Run it with `python examples/python/06_posterior.py`. If ArviZ is installed, the draws are converted for it as well.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gmm_rs import mcmc
from gmm_rs.mixture import GaussianMixture

DATA = Path(__file__).resolve().parents[2] / "data" / "old_faithful.csv"
X = np.loadtxt(DATA, delimiter=",", skiprows=1)

# Four chains of 1000 draws after 1000 steps of warm-up. The default prior takes its scales from the columns.
# The order of components is arbitrary; `relabel="order"` sorts those of each draw by the means of the first column.
# So few rows are too little work for a GPU.
draws = mcmc(X, 2, relabel="order", random_state=0, device="cpu")

summary = draws.summary()
print(f"{'':<12}{'mean':>9}{'sd':>9}{'5%':>9}{'95%':>9}{'r_hat':>9}")
for i, name in enumerate(summary["name"]):
    if name.startswith(("weights", "means")):
        numbers = [f"{summary[column][i]:>9.3f}" for column in ("mean", "sd", "q5", "q95", "r_hat")]
        print(f"{name:<12}{''.join(numbers)}")

# The density of a new row, averaged over the posterior.
print(f"log density of a long eruption after a short wait: {draws.score_samples([[4.5, 50.0]])[0]:.2f}")

if find_spec("arviz"):
    data = draws.to_arviz()
    print(f"for ArviZ: means with the dimensions {data.posterior['means'].dims}")
    assert np.array_equal(data.posterior["means"].values, draws.means)
else:
    print("ArviZ is not installed: draws.to_arviz() needs it")

# The chains have mixed, and the posterior means are within a standard deviation of the maximum of the likelihood.
fit = GaussianMixture(2, random_state=0, device="cpu").fit(X)
fitted = fit.means_[np.argsort(fit.means_[:, 0])]
assert (summary["r_hat"] < 1.05).all()
assert (np.abs(draws.means.mean(axis=(0, 1)) - fitted) < draws.means.std(axis=(0, 1))).all()
assert abs(draws.weights[..., 0].mean() - 0.357) < 0.01
