"""Fits rows that lie on an NVIDIA GPU, as an array of torch or CuPy, without a copy to the host.

Run it with `python examples/python/05_gpu_arrays.py`. Without a GPU it says so, and runs the same code on NumPy arrays.
"""

from importlib.util import find_spec

import numpy as np

from gmm_rs import Likelihood
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture

# Float32 rows of a known mixture of four components, whose means are far apart.
X, _, truth = make_gmm(100_000, 8, 4, separation=6.0, random_state=0, return_mixture=True)
X = X.astype(np.float32)


def on_gpu(X):
    """A copy of `X` on the first GPU by torch or CuPy; None if neither can make one."""
    if find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            return torch.as_tensor(X, device="cuda:0")
    if find_spec("cupy"):
        import cupy

        return cupy.asarray(X)
    return None


# `device="auto"`, the default, takes a GPU if gmm_rs can use one. `engine_` says what ran.
from_host = GaussianMixture(4, n_init=5, random_state=0).fit(X)
has_gpu = from_host.engine_.startswith("cuda")
rows = on_gpu(X) if has_gpu else None
if rows is None:
    missing = "torch with CUDA, nor CuPy" if has_gpu else "GPU that gmm_rs can use"
    print(f"No {missing} here: the rows stay a NumPy array.")
    rows = X

# The same code for rows on a GPU and on the host. Labels, densities and attributes are NumPy arrays.
model = GaussianMixture(4, n_init=5, random_state=0).fit(rows)
print(f"rows: {type(rows).__module__}.{type(rows).__name__}, fitted on {model.engine_} in {model.n_iter_} iterations")
print(f"labels: {type(model.predict(rows)).__name__}, rows of each component {np.bincount(model.predict(rows))}")
value = Likelihood(rows).value(truth.weights_, truth.means_, truth.covariances_) / len(X)
print(f"mean log-likelihood: {model.score(rows):.5f} of the fit, {value:.5f} of the mixture that made the rows")

assert np.array_equal(model.means_, from_host.means_)
assert value < model.score(rows) < value + 0.01
