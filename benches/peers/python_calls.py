"""Times of calls of gmm_rs from Python: fit, predict and predict_proba of NumPy arrays, and of torch's on a GPU.

    python_calls.py --rows-cpu N --rows-gpu N --columns D -k K --iterations I --runs R --device cpu|cuda

Prints one JSON object per call: {what, way, device, n, d, k, seconds: [..], error} or, if it is not possible, {what,
way, device, missing}. Before a call is timed, its answer for a few thousand rows is compared: predictions and
probabilities with NumPy's own computation in float64, the log-likelihood after a few iterations with scikit-learn's
from the same start.
"""

import argparse
import json
import time
import warnings

import numpy as np
import sklearn.mixture
from gmm_rs.mixture import GaussianMixture

CHECKED = 4096


def log_densities(X, model):
    """Of each row and component, (n, k), in float64, by the definition."""
    means, covariances = np.asarray(model.means_, float), np.asarray(model.covariances_, float)
    out = np.empty((len(X), len(means)))
    for c, (weight, mean, covariance) in enumerate(zip(np.asarray(model.weights_, float), means, covariances)):
        factor = np.linalg.cholesky(covariance)
        z = np.linalg.solve(factor, (X.astype(float) - mean).T)
        constant = np.log(weight) - np.log(np.diagonal(factor)).sum() - 0.5 * len(mean) * np.log(2 * np.pi)
        out[:, c] = constant - 0.5 * (z * z).sum(0)
    return out


def probabilities(X, model):
    joint = log_densities(X, model)
    joint = np.exp(joint - joint.max(1, keepdims=True))
    return joint / joint.sum(1, keepdims=True)


def host(array):
    return array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)


def from_start(cls, X, options, **more):
    """A fit from given parameters: the first rows as means, equal weights, unit covariances."""
    k, d = options["n_components"], X.shape[1]
    start = {
        "weights_init": np.full(k, 1 / k, X.dtype),
        "means_init": X[:k].copy(),
        "precisions_init": np.broadcast_to(np.eye(d, dtype=X.dtype), (k, d, d)).copy(),
    }
    return cls(**options, **start, **more)


class Calls:
    """The calls with arrays of one library on one device."""

    def __init__(self, way, device, put, rows, arguments):
        self.way, self.device, self.put, self.rows, self.arguments = way, device, put, rows, arguments
        self.wait = getattr(put, "wait", lambda: None)
        self.options = {"n_components": arguments.k, "max_iter": arguments.iterations, "tol": 0.0, "random_state": 0}

    def check(self):
        """Errors of the three answers for the first rows: of the log-likelihood, relative; of labels, as the share of
        different ones where the best two probabilities differ by more than 1e-3; of probabilities, absolute."""
        few = self.rows[:CHECKED]
        options = {**self.options, "max_iter": 5}
        # In float64, as a float32 sum of scikit-learn's would be the larger error.
        doubles = few.astype(float)
        # scikit-learn refuses its own default start under array API dispatch, even if all parameters are given.
        with sklearn.config_context(array_api_dispatch=False):
            wanted = from_start(sklearn.mixture.GaussianMixture, doubles, options, reg_covar=1e-3).fit(doubles)
        model = from_start(GaussianMixture, few, options, reg_covar=1e-3, device=self.device).fit(self.put(few))
        bound = abs(float(model.lower_bound_) - wanted.lower_bound_) / abs(wanted.lower_bound_)
        plain = NumpyModel(model)
        expected = probabilities(few, plain)
        proba = host(model.predict_proba(self.put(few)))
        best = np.sort(expected, 1)
        clear = best[:, -1] - best[:, -2] > 1e-3
        labels = host(model.predict(self.put(few)))
        wrong = float(np.mean(labels[clear] != expected.argmax(1)[clear]))
        return {"fit": bound, "predict": wrong, "predict_proba": float(np.abs(proba - expected).max())}

    def run(self):
        errors = self.check()
        tolerance = {"fit": 1e-4, "predict": 0.0, "predict_proba": 2e-3}
        X = self.put(self.rows)
        model = GaussianMixture(**self.options, device=self.device)
        calls = {
            "fit": lambda: model.fit(X),
            "predict": lambda: model.predict(X),
            "predict_proba": lambda: model.predict_proba(X),
        }
        for what, call in calls.items():
            # A NaN is wrong.
            if not errors[what] <= tolerance[what]:
                self.tell(what, error=errors[what], wrong=True)
                if what == "fit":
                    return
                continue
            call()
            self.tell(what, error=errors[what], seconds=[timed(call, self.wait) for _ in range(self.arguments.runs)])

    def tell(self, what, **more):
        n, d = self.rows.shape
        key = {"what": what, "way": self.way, "device": self.device, "n": n, "d": d, "k": self.arguments.k}
        print(json.dumps({**key, **more}), flush=True)


class NumpyModel:
    """A fitted model's parameters as NumPy arrays."""

    def __init__(self, model):
        self.weights_, self.means_, self.covariances_ = map(host, (model.weights_, model.means_, model.covariances_))


def timed(call, wait):
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def ways(arguments):
    """Library, device, what puts an array there, number of rows; or library, device and why it is missing."""
    if arguments.device == "cpu":
        yield "NumPy", "cpu", lambda X: X, arguments.rows_cpu
        return
    yield "NumPy", arguments.device, lambda X: X, arguments.rows_gpu
    try:
        import torch

        if not torch.cuda.is_available():
            raise ModuleNotFoundError("torch finds no GPU")
    except ModuleNotFoundError as error:
        yield "torch", arguments.device, None, str(error)
        return

    def put(X):
        array = torch.from_numpy(X).cuda()
        torch.cuda.synchronize()
        return array

    # A call may return before its result is there.
    put.wait = torch.cuda.synchronize
    yield "torch", arguments.device, put, arguments.rows_gpu


def draw(n, d, k):
    """Rows of overlapping components, float32."""
    random = np.random.default_rng(7)
    means = 2.0 * random.standard_normal((k, d), np.float32) / np.sqrt(np.float32(d) / 4)
    rows = random.standard_normal((n, d), np.float32)
    rows += means[random.integers(0, k, n)]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--rows-cpu", "--rows-gpu", "--columns", "--iterations", "--runs", "-k"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--device", required=True)
    arguments = parser.parse_args()
    # Every fit here stops at max_iter.
    warnings.simplefilter("ignore")
    for way, device, put, rows in ways(arguments):
        if put is None:
            for what in ("fit", "predict", "predict_proba"):
                print(json.dumps({"what": what, "way": way, "device": device, "missing": rows}), flush=True)
            continue
        with sklearn.config_context(array_api_dispatch=way == "torch"):
            Calls(way, device, put, draw(rows, arguments.columns, arguments.k), arguments).run()


if __name__ == "__main__":
    main()
