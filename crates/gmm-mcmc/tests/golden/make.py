"""Writes diagnostics.json: draws of chains, and their diagnostics by ArviZ 0.23.4 (NumPy 2).

    pip install 'arviz==0.23.4' && python make.py
"""

import json
from pathlib import Path

import arviz as az
import numpy as np

rng = np.random.default_rng(20261121)


def autoregressive(chains, draws, rho, offset=0.0, spread=1.0):
    x = np.empty((chains, draws))
    for c in range(chains):
        value = rng.normal()
        for i in range(draws):
            value = rho * value + np.sqrt(1 - rho**2) * rng.normal()
            x[c, i] = value
    x += offset * np.arange(chains)[:, None]
    return x * (1 + (spread - 1) * np.arange(chains)[:, None])


cases = {
    "independent": rng.normal(size=(4, 100)),
    "slow": autoregressive(4, 200, 0.95),
    "antithetic": autoregressive(3, 120, -0.7),
    "odd number of draws": autoregressive(2, 101, 0.5),
    "one chain": autoregressive(1, 150, 0.6),
    "chains apart": autoregressive(4, 80, 0.3, offset=1.0),
    "chains of different spread": autoregressive(4, 80, 0.3, spread=2.0),
    "heavy tails": rng.standard_cauchy(size=(4, 90)),
    "few values": rng.integers(0, 4, size=(4, 60)).astype(float),
    "a trend": rng.normal(size=(2, 60)) + np.linspace(0, 3, 60),
    "short": rng.normal(size=(2, 8)),
}
golden = []
for name, x in cases.items():
    # Three decimals: the same numbers in JSON, and some ties.
    x = np.round(x, 3)
    expected = {
        "r_hat": az.rhat(x, method="rank"),
        "ess_bulk": az.ess(x, method="bulk"),
        "ess_tail": az.ess(x, method="tail"),
    }
    # ArviZ gives no R-hat for a single chain.
    expected = {k: None if np.isnan(v) else float(v) for k, v in expected.items()}
    golden.append({"name": name, "chains": x.tolist(), **expected})
Path(__file__).with_name("diagnostics.json").write_text(json.dumps(golden) + "\n")
