"""Other programs, driven by JSON lines: one line on stdout when ready, then one answer on stdout per request on stdin.

The first argument names the program. A fit is one call from given parameters, as a user would write it, timed until its
result is complete; a score is the log-likelihood of all rows. An unsupported request is answered with an error.
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
            # Unused, since all parameters are given; with the array API a supported method must still be named.
            "init_params": "random",
            "weights_init": self.array(weights / weights.sum()),
            "means_init": self.array(means),
            "precisions_init": self.array(precisions),
        }
        model = self.GaussianMixture(**self.options)
        model.weights_, model.means_ = self.array(weights), self.array(means)
        model.covariances_ = self.array(covariances)
        if full:
            # The precision's upper Cholesky factor: the transposed inverse of the covariance's lower factor.
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
    """scikit-learn's GaussianMixture on torch tensors on a GPU, through the array API."""

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
    """Log-likelihoods with torch.distributions, and a plain EM in torch, in the array's precision."""

    device = "cpu"

    def __init__(self):
        global np
        import numpy as np
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
        self.torch, self.version, self.details = torch, torch.__version__, self.device
        if self.device == "cuda":
            self.details = torch.cuda.get_device_name()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    def tensor(self, values):
        return self.torch.as_tensor(np.asarray(values), dtype=self.X.dtype, device=self.device)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def load(self, X):
        self.X = self.torch.as_tensor(X, device=self.device)

    def start(self, kind, reg_covar, weights, means, covariances):
        d, tensor = self.torch.distributions, self.tensor
        if kind == "diag":
            components = d.Independent(d.Normal(tensor(means), tensor(np.sqrt(covariances))), 1)
        elif kind == "full":
            components = d.MultivariateNormal(tensor(means), covariance_matrix=tensor(covariances))
        else:
            raise NotImplementedError(f"no {kind} covariances")
        self.mixture = d.MixtureSameFamily(d.Categorical(tensor(weights)), components)
        self.kind, self.reg_covar = kind, reg_covar
        self.given = tensor(weights), tensor(means), tensor(covariances)

    def log_densities(self, weights, means, covariances):
        torch, X = self.torch, self.X
        if self.kind == "full":
            factors = torch.linalg.cholesky(covariances)
            # (k, d, n): each component's rows, whitened.
            white = torch.linalg.solve_triangular(factors, X.T - means[:, :, None], upper=False)
            distances = (white * white).sum(1).T
            logdets = 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        else:
            differences = X[:, None] - means
            distances = (differences * differences / covariances).sum(-1)
            logdets = covariances.log().sum(-1)
        return weights.log() - 0.5 * (X.shape[1] * np.log(2 * np.pi) + logdets + distances)

    def fit(self, iterations):
        torch, X = self.torch, self.X
        weights, means, covariances = self.given
        for _ in range(iterations):
            joint = self.log_densities(weights, means, covariances)
            rows = torch.logsumexp(joint, 1)
            r = (joint - rows[:, None]).exp()
            sums = r.sum(0) + 10 * torch.finfo(X.dtype).eps
            weights, means = sums / X.shape[0], r.T @ X / sums[:, None]
            differences = X - means[:, None]
            if self.kind == "full":
                covariances = (r.T[:, :, None] * differences).mT @ differences / sums[:, None, None]
                covariances.diagonal(dim1=-2, dim2=-1).add_(self.reg_covar)
            else:
                covariances = torch.einsum("nk,knd->kd", r, differences**2) / sums[:, None] + self.reg_covar
        bound = float(rows.mean(dtype=torch.float64))
        self.wait()
        return bound

    def score(self):
        with self.torch.no_grad():
            return float(self.mixture.log_prob(self.X).sum(dtype=self.torch.float64))

    def factors(self, a, b):
        self.a, self.b = self.torch.as_tensor(a), self.torch.as_tensor(b)
        if self.device == "cpu":
            return []
        self.at = self.a.cuda(), self.b.cuda()
        return ["resident", "device"]

    def product(self, part):
        if self.device == "cpu":
            self.c = self.a @ self.b
        elif part == "whole":
            self.c = (self.a.cuda() @ self.b.cuda()).cpu()
        elif part == "resident":
            self.c = (self.at[0] @ self.b.cuda()).cpu()
        else:
            self.c = self.at[0] @ self.at[1]
            self.wait()

    def entries(self, rows, columns):
        return self.c[rows, columns].tolist()


class TorchCuda(Torch):
    """torch on a GPU."""

    device = "cuda"


class Gmmx:
    """gmmx: EM in JAX, compiled at the first call of each size."""

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


class Numpy:
    """NumPy's matrix product, computed by its BLAS."""

    def __init__(self):
        global np
        import numpy as np

        self.version = np.__version__
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        self.details = f"{blas['name']} {blas['version']}"

    def factors(self, a, b):
        self.a, self.b = a, b
        return []

    def product(self, part):
        self.c = self.a @ self.b

    def entries(self, rows, columns):
        return self.c[rows, columns].tolist()


class Cupy(Numpy):
    """CuPy's matrix product, on a GPU."""

    def __init__(self):
        super().__init__()
        import cupy

        self.cupy, self.version = cupy, cupy.__version__
        self.details = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def factors(self, a, b):
        self.a, self.b = a, b
        self.at = self.cupy.asarray(a), self.cupy.asarray(b)
        return ["resident", "device"]

    def product(self, part):
        if part == "whole":
            self.c = self.cupy.asnumpy(self.cupy.asarray(self.a) @ self.cupy.asarray(self.b))
        elif part == "resident":
            self.c = self.cupy.asnumpy(self.at[0] @ self.cupy.asarray(self.b))
        else:
            self.c = self.at[0] @ self.at[1]
            self.cupy.cuda.Device().synchronize()


CLASSES = {
    "scikit-learn": Sklearn,
    "scikit-learn-cuda": SklearnCuda,
    "torch": Torch,
    "torch-cuda": TorchCuda,
    "gmmx": Gmmx,
    "numpy": Numpy,
    "cupy": Cupy,
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


def turn(request, call):
    seconds = []
    while not seconds or (sum(seconds) < request["seconds"] and len(seconds) < request["at_most"]):
        begin = time.perf_counter()
        value = call()
        seconds.append(time.perf_counter() - begin)
    return sum(seconds) / len(seconds), value


def score(peer, request):
    seconds, value = turn(request, peer.score)
    return {"seconds": seconds, "log_likelihood": value}


def factors(peer, request):
    a, b = (np.ascontiguousarray(np.load(request[name]), dtype=request["dtype"]) for name in "ab")
    if not hasattr(peer, "factors"):
        raise NotImplementedError("it multiplies no matrices here")
    return {"parts": peer.factors(a, b)}


def product(peer, request):
    return {"seconds": turn(request, lambda: peer.product(request["part"]))[0]}


def entries(peer, request):
    rows, columns = np.array(request["places"]).T
    return {"values": peer.entries(rows, columns)}


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
REQUESTS = {f.__name__: f for f in (versions, load, start, fit, score, factors, product, entries)}
for line in sys.stdin:
    request = json.loads(line)
    answer(lambda: REQUESTS[request.pop("do")](PEER, request))
