"""scikit-learn's GaussianMixture, driven by JSON lines: one request on stdin, one answer on stdout.

An iteration is what GaussianMixture.fit_predict does in its loop: _e_step, _m_step, _compute_lower_bound. A score is
score_samples, as a user calls it.
"""

import json
import platform
import sys
import time

import numpy as np
import scipy
import sklearn
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky
from threadpoolctl import threadpool_info

X = None
GM = None


def versions(_):
    blas = next(pool for pool in threadpool_info() if pool["user_api"] == "blas")
    return {
        "name": "scikit-learn",
        "version": sklearn.__version__,
        "details": f"python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"{blas['internal_api']} {blas['version']} ({blas.get('architecture')}, {blas['num_threads']} threads)",
    }


def load(request):
    global X
    X = np.load(request["path"]).astype(request["dtype"])
    return {}


def start(request):
    global GM
    kind, weights = request["kind"], np.array(request["weights"], dtype=X.dtype)
    GM = GaussianMixture(len(weights), covariance_type=kind, reg_covar=request["reg_covar"], tol=0.0)
    GM.weights_ = weights
    GM.means_ = np.array(request["means"], dtype=X.dtype).reshape(len(weights), -1)
    GM.covariances_ = np.array(request["covariances"], dtype=X.dtype).reshape(request["shape"])
    GM.precisions_cholesky_ = _compute_precision_cholesky(GM.covariances_, kind)
    return {}


def turn(request, work):
    seconds = []
    while not seconds or (sum(seconds) < request["seconds"] and len(seconds) < request["at_most"]):
        begin = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begin)
    return sum(seconds) / len(seconds), result


def iteration():
    log_prob_norm, log_resp = GM._e_step(X)
    GM._m_step(X, log_resp)
    GM._compute_lower_bound(log_resp, log_prob_norm)


def iterate(request):
    return {"seconds": turn(request, iteration)[0]}


def score(request):
    seconds, log_densities = turn(request, lambda: GM.score_samples(X))
    return {"seconds": seconds, "log_likelihood": float(np.sum(log_densities, dtype=np.float64))}


def parameters(_):
    arrays = {"weights": GM.weights_, "means": GM.means_, "covariances": GM.covariances_}
    return {name: np.asarray(a, dtype=np.float64).ravel().tolist() for name, a in arrays.items()}


REQUESTS = {f.__name__: f for f in (versions, load, start, iterate, score, parameters)}

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = REQUESTS[request.pop("do")](request)
    except Exception as error:  # the driver reports it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
