"""Fits two components to the eruptions of Old Faithful, labels the rows, and saves and loads the model.

Run it with `python examples/python/01_fit.py`. It writes old_faithful.json to the current folder.
"""

from pathlib import Path

import numpy as np

import gmm_rs
from gmm_rs.mixture import GaussianMixture

DATA = Path(__file__).resolve().parents[2] / "data" / "old_faithful.csv"

# Shape (272, 2): minutes that an eruption lasts, minutes until the next eruption.
X = np.loadtxt(DATA, delimiter=",", skiprows=1)

# As in scikit-learn: full covariances, a start by k-means. The GPU is used if there is one, otherwise the CPU.
model = GaussianMixture(n_components=2, random_state=0).fit(X)
print(f"{model.n_iter_} iterations on {model.engine_}, converged: {model.converged_}")
for weight, (eruption, waiting) in zip(model.weights_, model.means_):
    print(f"weight {weight:.4f}: eruptions of {eruption:.3f} minutes, {waiting:.2f} minutes to the next")

# `score` is the mean log-likelihood of the rows.
log_likelihood = model.score(X) * len(X)
print(f"log-likelihood {log_likelihood:.3f}, BIC {model.bic(X):.3f}")

labels = model.predict(X)
print(f"components of the first rows: {labels[:6].tolist()}")
print(f"probabilities of the components in the first row: {model.predict_proba(X[:1]).round(4).tolist()[0]}")

# `gmm predict`, `gmm show` and the other commands of the program read the same file.
path = gmm_rs.save(model, "old_faithful.json")
again = gmm_rs.load(path)
print(f"saved to {path} and loaded: {again}")

assert abs(log_likelihood + 1130.264) < 1e-3
assert np.allclose(np.sort(model.weights_), [0.3559, 0.6441], atol=1e-4)
# A long eruption, a short one, a long one.
assert labels[0] == labels[2] == np.argmax(model.means_[:, 0]) != labels[1]
assert np.array_equal(again.means_, model.means_) and np.array_equal(again.predict(X), labels)
