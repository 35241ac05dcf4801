"""Programs that fit a mixture by EM from given parameters, each as its users would: the peers of fits_on_gpu.py.

Each takes rows and a start in `load`, fits in `fit`, which is what is timed, and gives weights, means and covariances in `found`.
"""

import os
import sys

# Before anything imports SciPy or JAX: the one asks once, the other would take most of the GPU's memory.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import sklearn
from sklearn.mixture import GaussianMixture as Original

from gmm_rs.mixture import GaussianMixture

ITERATIONS = 20
# scikit-learn on the CPU takes seconds for an iteration.
FEW = 2
REG_COVAR = 1e-6


class Start:
    """Parameters from which all start: the rows' own mixture, its means moved and its covariances wider."""

    def __init__(self, mixture, kind, seed):
        rng = np.random.default_rng(seed)
        k, d = mixture.means_.shape
        matrices = 1.2 * mixture.covariances_
        scale = np.sqrt(np.einsum("kii->ki", matrices))
        self.kind, self.weights = kind, np.full(k, 1.0 / k)
        self.means = mixture.means_ + 0.3 * scale * rng.standard_normal((k, d))
        self.covariances = matrices if kind == "full" else scale**2

    def options(self, dtype, put=np.asarray):
        precisions = np.linalg.inv(self.covariances) if self.kind == "full" else 1.0 / self.covariances
        given = {"weights_init": self.weights, "means_init": self.means, "precisions_init": precisions}
        return {
            "n_components": len(self.weights),
            "covariance_type": self.kind,
            "reg_covar": REG_COVAR,
            "tol": 0.0,
            **{name: put(array.astype(dtype)) for name, array in given.items()},
        }


def as_float64(array):
    """As an array of NumPy's."""
    for way in ("get", "cpu"):
        if hasattr(array, way):
            array = getattr(array, way)()
    return np.asarray(array, dtype=np.float64)


def allowing_float64(jax):
    """Where JAX takes float64 as it is."""
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


class Ours:
    """This package, on rows of NumPy, torch, CuPy or JAX."""

    what, iterations = "gmm_rs", ITERATIONS

    def __init__(self, way, device):
        self.way, self.device = way, device
        if way != "numpy":
            self.module = __import__(way)
        self.note = ""

    def load(self, X, start):
        self.options = start.options(np.float64)
        if self.way == "torch":
            X = self.module.as_tensor(X, device="cuda:0" if self.device != "cpu" else "cpu")
        elif self.way == "cupy":
            X = self.module.asarray(X)
        elif self.way == "jax":
            # Only here: gmmx wants its arrays without.
            with allowing_float64(self.module):
                X = self.module.block_until_ready(self.module.device_put(X, self.module.devices()[0]))
        self.X = X

    def fit(self):
        self.model = GaussianMixture(**self.options, max_iter=self.iterations, device=self.device).fit(self.X)

    def found(self):
        return self.model.weights_, self.model.means_, self.model.covariances_


class OnHost(Ours):
    """The same on the CPU, in float64: what the others are judged by. It is not timed."""

    def __init__(self):
        super().__init__("numpy", "cpu")

    def load(self, X, start):
        super().load(np.asarray(X, dtype=np.float64), start)


class Sklearn:
    """scikit-learn on all cores."""

    what, way, iterations, note = "scikit-learn", "numpy", FEW, "one turn"
    only_one_turn = True

    def load(self, X, start):
        self.X, self.options = X, start.options(X.dtype)

    def fit(self):
        self.model = Original(**self.options, max_iter=self.iterations).fit(self.X)

    def found(self):
        return self.model.weights_, self.model.means_, self.model.covariances_


class SklearnTorch(Sklearn):
    """scikit-learn on torch tensors, by its array API."""

    way, iterations, note = "torch", ITERATIONS, ""
    only_one_turn = False

    def __init__(self, device):
        import torch

        self.torch, self.device = torch, "cpu" if device == "cpu" else "cuda:0"

    def load(self, X, start):
        def put(array):
            return self.torch.as_tensor(array, device=self.device)

        # All is given; but its k-means does not know the array API, and it asks before it looks.
        self.X, self.options = put(X), {**start.options(X.dtype, put), "init_params": "random_from_data"}

    def fit(self):
        with sklearn.config_context(array_api_dispatch=True):
            super().fit()
        finish(self.torch, self.device)


def finish(torch, device):
    if device != "cpu":
        torch.cuda.synchronize()


class TorchEM:
    """EM as one would write it with torch: log densities by factors, moments by products of matrices."""

    what, way, iterations, note = "torch", "torch", ITERATIONS, ""

    def __init__(self, device):
        import torch

        self.torch, self.device = torch, "cpu" if device == "cpu" else "cuda:0"

    def load(self, X, start):
        def put(array):
            return self.torch.as_tensor(array.astype(X.dtype), device=self.device)

        self.X, self.kind = put(X), start.kind
        self.start = [put(array) for array in (start.weights, start.means, start.covariances)]

    def fit(self):
        weights, means, covariances = self.start
        for _ in range(self.iterations):
            weights, means, covariances = self.step(weights, means, covariances)
        self.parameters = weights, means, covariances
        finish(self.torch, self.device)

    def step(self, weights, means, covariances):
        torch, X = self.torch, self.X
        n, d = X.shape
        full = self.kind == "full"
        joint = torch.empty((n, len(weights)), dtype=X.dtype, device=X.device)
        if full:
            factors = torch.linalg.cholesky(covariances)
            identity = torch.eye(d, dtype=X.dtype, device=X.device).expand(len(weights), d, d)
            inverses = torch.linalg.solve_triangular(factors, identity, upper=False)
            halves = torch.log(torch.diagonal(factors, dim1=1, dim2=2)).sum(1)
        else:
            inverses, halves = covariances.rsqrt(), 0.5 * torch.log(covariances).sum(1)
        for c in range(len(weights)):
            z = (X - means[c]) @ inverses[c].T if full else (X - means[c]) * inverses[c]
            joint[:, c] = torch.log(weights[c]) - halves[c] - 0.5 * (z * z).sum(1)
        r = torch.softmax(joint, dim=1)
        sums = r.sum(0)
        means = (r.T @ X) / sums[:, None]
        if full:
            new = []
            for c in range(len(weights)):
                z = X - means[c]
                new.append((r[:, c, None] * z).T @ z / sums[c])
            covariances = torch.stack(new) + REG_COVAR * identity
        else:
            columns = [(r[:, c, None] * (X - means[c]) ** 2).sum(0) / sums[c] for c in range(len(weights))]
            covariances = torch.stack(columns) + REG_COVAR
        return sums / n, means, covariances

    def found(self):
        return self.parameters


class Gmmx:
    """gmmx: EM in JAX, compiled at its first call of a size."""

    what, way, iterations, note = "gmmx", "jax", ITERATIONS, ""

    def __init__(self):
        import gmmx
        import jax

        self.gmmx, self.jax = gmmx, jax

    def load(self, X, start):
        if X.dtype != np.float32:
            raise NotImplementedError("it computes in float32")

        def put(array):
            return self.jax.device_put(array.astype(X.dtype))

        self.X = self.jax.block_until_ready(put(X))
        arrays = [put(array) for array in (start.means, start.covariances, start.weights)]
        self.model = self.gmmx.GaussianMixtureModelJax.from_squeezed(*arrays, covariance_type=start.kind)

    def fit(self):
        fitter = self.gmmx.EMFitter(tol=0.0, max_iter=self.iterations, reg_covar=REG_COVAR)
        self.result = self.jax.block_until_ready(fitter.fit(self.X, self.model))

    def found(self):
        model = self.result.gmm
        k = model.n_components
        return model.weights_numpy.reshape(k), model.means_numpy, np.squeeze(np.asarray(model.covariances.values))


def here(device, only):
    """The programs that can be started."""
    ways = [
        *((f"gmm_rs-{way}", lambda way=way: Ours(way, device)) for way in ("numpy", "torch", "cupy", "jax")),
        ("torch", lambda: TorchEM(device)),
        ("gmmx", Gmmx),
        ("scikit-learn-torch", lambda: SklearnTorch(device)),
        ("scikit-learn", Sklearn),
    ]
    programs = []
    for name, make in ways:
        if only and name not in only:
            continue
        try:
            programs.append(make())
        except ImportError as error:
            print(f"# note: {name} is left out: {error}", file=sys.stderr)
    return programs
