"""Finds rows that do not fit: those whose log density is below a low quantile of that of ordinary rows.

Run it with `python examples/python/03_anomaly_scores.py`.
"""

from pathlib import Path

import numpy as np

from gmm_rs.mixture import GaussianMixture

DATA = Path(__file__).resolve().parents[2] / "data" / "old_faithful.csv"
X = np.loadtxt(DATA, delimiter=",", skiprows=1)

# The model and the threshold come from one half of the rows, the test from the other.
learned, ordinary = X[::2], X[1::2]
model = GaussianMixture(n_components=2, random_state=0).fit(learned)
threshold = np.quantile(model.score_samples(learned), 0.01)
print(f"threshold: log density {threshold:.2f}, the 1% quantile of {len(learned)} rows")

# Outliers: long eruptions with a short wait after them. Each value alone is an ordinary one.
rng = np.random.default_rng(0)
outliers = np.column_stack([rng.normal(4.3, 0.4, 20), rng.normal(54.0, 6.0, 20)])

# `score_samples` is the log density of each row; low is unusual.
scores = model.score_samples(np.vstack([ordinary, outliers]))
is_outlier = np.arange(len(scores)) >= len(ordinary)
is_flagged = scores < threshold

found = int((is_flagged & is_outlier).sum())
false_alarms = int((is_flagged & ~is_outlier).sum())
print(f"found {found} of {len(outliers)} outliers")
print(f"false alarms: {false_alarms} of {len(ordinary)} ordinary rows")

print("the most unusual rows:")
for i in np.argsort(scores)[:3]:
    eruption, waiting = outliers[i - len(ordinary)] if is_outlier[i] else ordinary[i]
    print(f"  eruption {eruption:.2f}, waiting {waiting:.1f}: log density {scores[i]:.1f}")

# The area under the ROC curve does not depend on the threshold.
area = (scores[is_outlier][:, None] < scores[~is_outlier]).mean()
print(f"area under the ROC curve: {area:.4f}")

assert found >= 17 and false_alarms <= 7
assert area > 0.98
