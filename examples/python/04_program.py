"""A program that knows only scikit-learn; 04_accelerate.py runs it on gmm_rs as it is.

Run it with `python examples/python/04_program.py` or `python -m gmm_rs.accel examples/python/04_program.py`.
"""

from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.mixture import GaussianMixture

DATA = Path(__file__).resolve().parents[2] / "data" / "old_faithful.csv"

# Each of the 272 rows 50 times, with noise of the size of the rounding: 13600 rows.
X = np.repeat(np.loadtxt(DATA, delimiter=",", skiprows=1), 50, axis=0)
X += np.random.default_rng(0).uniform(-0.5, 0.5, X.shape) * [0.05, 1.0]

begin = perf_counter()
model = GaussianMixture(n_components=2, n_init=3, tol=1e-6, random_state=0).fit(X)
seconds = perf_counter() - begin

print(f"class: {type(model).__module__}")
print(f"seconds: {seconds:.3f}")
print(f"mean log-likelihood: {model.score(X):.6f}")
weight = model.weights_[np.argmin(model.means_[:, 0])]
print(f"weight of short eruptions: {weight:.6f}")
print(f"rows of short eruptions: {np.bincount(model.predict(X)).min()}")

assert abs(model.score(X) + 4.158) < 2e-3 and abs(weight - 0.356) < 2e-3
