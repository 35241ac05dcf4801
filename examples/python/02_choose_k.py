"""Chooses the number of components and the kind of covariance for Old Faithful by BIC.

Run it with `python examples/python/02_choose_k.py`.
"""

from pathlib import Path

import numpy as np

from gmm_rs import select

DATA = Path(__file__).resolve().parents[2] / "data" / "old_faithful.csv"
X = np.loadtxt(DATA, delimiter=",", skiprows=1)

# Each number of components with each kind: ten candidates. Each is fitted from five starts, and the best fit is kept.
# EM goes on until the mean log-likelihood changes by less than `tol`; the default is 1e-3.
found = select(X, range(1, 6), covariance_type=("full", "tied"), n_init=5, tol=1e-5, max_iter=500, random_state=0)

# The star marks the lowest BIC.
print(found)

best = found.best_estimator_
print(f"lowest {found.criterion}: {found.best_params_}")
print(f"weights {best.weights_.round(3)}, components of the first rows: {best.predict(X[:6])}")

# Other criteria may choose another candidate. The table has them for every candidate.
for criterion in ("aic", "icl"):
    i = np.nanargmin(found.table[criterion])
    print(f"lowest {criterion}: {found.table['k'][i]} components, {found.table['covariance_type'][i]}")

assert found.best_params_ == {"n_components": 3, "covariance_type": "tied"}
lowest = found.table["bic"][found.best_index_]
assert lowest == np.nanmin(found.table["bic"]) and abs(lowest - 2314.3) < 0.1
assert np.isclose(best.bic(X), lowest)
