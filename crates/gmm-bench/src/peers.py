"""Other programs, driven by JSON lines: one request on stdin, one answer on stdout, one line first when it is ready.

The first argument names the program. A fit is one call from given parameters, as a user would write it, and ends when its
result is there; a score is the log-likelihood of all rows. What a program cannot do is an error in its answer.
"""

import importlib.metadata
import json
import os
import platform
import sys
import time
import warnings

NAME = sys.argv[1]
os.environ.setdefault("SCIPY_ARRAY_API", "1" if NAME == "scikit-learn-cuda" else "0")


class Sklearn:
    """scikit-learn's GaussianMixture, on NumPy arrays."""

    def __init__(self):
        global np
        import numpy as np
        import sklearn
        from sklearn.mixture import GaussianMixture

        self.GaussianMixture = GaussianMixture
        self.version = sklearn.__version__
        self.details = f"numpy {np.__version__}"

    def array(self, values):
        return np.asarray(values, dtype=self.X.dtype)

    def load(self, X):
        self.X = X

    def start(self, kind, reg_covar, weights, means, covariances):
        full = kind in ("full", "tied")
        precisions = np.linalg.inv(covariances) if full else 1 / covariances
        self.options = {
            "n_components": len(weights),
            "covariance_type": kind,
            "reg_covar": reg_covar,
            "tol": 0.0,
            "weights_init": self.array(weights / weights.sum()),
            "means_init": self.array(means),
            "precisions_init": self.array(precisions),
        }
        model = self.GaussianMixture(**self.options)
        model.weights_, model.means_ = self.array(weights), self.array(means)
        model.covariances_ = self.array(covariances)
        if full:
            # The upper factor of a precision: of the covariance's lower factor it is the inverse, transposed.
            factors = np.swapaxes(np.linalg.inv(np.linalg.cholesky(covariances)), -1, -2)
        else:
            factors = np.sqrt(precisions)
        model.precisions_cholesky_ = self.array(factors)
        self.model = model

    def fit(self, iterations):
        return float(self.GaussianMixture(max_iter=iterations, **self.options).fit(self.X).lower_bound_)

    def score(self):
        return float(np.sum(self.model.score_samples(self.X), dtype=np.float64))


class SklearnCuda(Sklearn):
    """The same on torch tensors that lie on a GPU, by the array API."""

    def __init__(self):
        super().__init__()
        import sklearn
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
        sklearn.set_config(array_api_dispatch=True)
        self.torch = torch
        self.details += f", torch {torch.__version__}, {torch.cuda.get_device_name()}"

    def array(self, values):
        return self.torch.as_tensor(np.asarray(values), dtype=self.X.dtype, device="cuda")

    def load(self, X):
        self.X = self.torch.as_tensor(X, device="cuda")

    def fit(self, iterations):
        bound = super().fit(iterations)
        self.torch.cuda.synchronize()
        return bound

    def score(self):
        return float(self.torch.sum(self.model.score_samples(self.X), dtype=self.torch.float64))


class Torch:
    """torch.distributions: log-likelihoods of diagonal and full mixtures. It has no EM."""

    device = "cpu"

    def __init__(self):
        global np
        import numpy as np
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
        self.torch, self.version, self.details = torch, torch.__version__, self.device
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    def load(self, X):
        self.X = self.torch.as_tensor(X, device=self.device)

    def start(self, kind, reg_covar, weights, means, covariances):
        def tensor(values):
            return self.torch.as_tensor(np.asarray(values), dtype=self.X.dtype, device=self.device)

        d = self.torch.distributions
        if kind == "diag":
            components = d.Independent(d.Normal(tensor(means), tensor(np.sqrt(covariances))), 1)
        elif kind == "full":
            components = d.MultivariateNormal(tensor(means), covariance_matrix=tensor(covariances))
        else:
            raise NotImplementedError(f"no {kind} covariances")
        self.mixture = d.MixtureSameFamily(d.Categorical(tensor(weights)), components)

    def fit(self, iterations):
        raise NotImplementedError("it has no EM")

    def score(self):
        with self.torch.no_grad():
            return float(self.mixture.log_prob(self.X).sum(dtype=self.torch.float64))


class TorchCuda(Torch):
    """The same on a GPU."""

    device = "cuda"


class Gmmx:
    """gmmx: EM in JAX, compiled at its first call of a size."""

    def __init__(self):
        global np
        import gmmx
        import jax
        import numpy as np

        self.gmmx, self.jax = gmmx, jax
        self.version = importlib.metadata.version("gmmx")
        self.details = f"jax {jax.__version__} on {jax.devices()[0]}"

    def load(self, X):
        if X.dtype != np.float32:
            raise NotImplementedError("it computes in float32")
        self.X = self.jax.numpy.asarray(X)

    def start(self, kind, reg_covar, weights, means, covariances):
        if kind not in ("full", "diag"):
            raise NotImplementedError(f"no {kind} covariances here")
        arrays = [self.jax.numpy.asarray(a, dtype=self.X.dtype) for a in (means, covariances, weights)]
        self.reg_covar = reg_covar
        self.model = self.gmmx.GaussianMixtureModelJax.from_squeezed(*arrays, covariance_type=kind)

    def fit(self, iterations):
        fitter = self.gmmx.EMFitter(tol=0.0, max_iter=iterations, reg_covar=self.reg_covar)
        result = self.jax.block_until_ready(fitter.fit(self.X, self.model))
        return float(result.log_likelihood)

    def score(self):
        return float(self.jax.numpy.sum(self.model.log_prob(self.X)))


CLASSES = {
    "scikit-learn": Sklearn,
    "scikit-learn-cuda": SklearnCuda,
    "torch": Torch,
    "torch-cuda": TorchCuda,
    "gmmx": Gmmx,
}


def versions(peer, _):
    return {"name": NAME, "version": peer.version, "details": f"python {platform.python_version()}, {peer.details}"}


def load(peer, request):
    peer.load(np.ascontiguousarray(np.load(request["path"]), dtype=request["dtype"]))
    return {}


def start(peer, request):
    weights = np.array(request["weights"])
    means = np.array(request["means"]).reshape(len(weights), -1)
    covariances = np.array(request["covariances"]).reshape(request["shape"])
    peer.start(request["kind"], request["reg_covar"], weights, means, covariances)
    return {}


def fit(peer, request):
    begin = time.perf_counter()
    bound = peer.fit(request["max_iter"])
    return {"seconds": time.perf_counter() - begin, "lower_bound": bound}


def score(peer, request):
    seconds = []
    while len(seconds) < request["at_least"] or (sum(seconds) < request["seconds"] and len(seconds) < request["at_most"]):
        begin = time.perf_counter()
        value = peer.score()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": sum(seconds) / len(seconds), "log_likelihood": value}


def answer(work):
    try:
        result = work()
    except Exception as error:  # the driver reports it
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)


PEER = None


def ready():
    global PEER
    PEER = CLASSES[NAME]()
    return {}


# Every fit here stops at max_iter.
warnings.simplefilter("ignore")
answer(ready)
REQUESTS = {f.__name__: f for f in (versions, load, start, fit, score)}
for line in sys.stdin:
    request = json.loads(line)
    answer(lambda: REQUESTS[request.pop("do")](PEER, request))
