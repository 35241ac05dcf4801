"""Fits by the Python package and by scikit-learn, driven by JSON lines: one request on stdin, one answer on stdout.

A fit is a call of GaussianMixture(..).fit(X) from given parameters, as a user would write it.
"""

import json
import platform
import sys
import time
import warnings

import gmm_rs
import numpy as np
import sklearn
import sklearn.mixture
from gmm_rs.mixture import GaussianMixture

X = None
START = {}


def versions(_):
    return {
        "name": "gmm_rs",
        "version": gmm_rs.__version__,
        "details": f"python {platform.python_version()}, numpy {np.__version__}, scikit-learn {sklearn.__version__}",
    }


def load(request):
    global X
    X = np.ascontiguousarray(np.load(request["path"]), dtype=request["dtype"])
    return {}


def start(request):
    kind, weights = request["kind"], np.array(request["weights"])
    covariances = np.array(request["covariances"]).reshape(request["shape"])
    START.update(
        n_components=len(weights),
        covariance_type=kind,
        reg_covar=request["reg_covar"],
        weights_init=weights / weights.sum(),
        means_init=np.array(request["means"]).reshape(len(weights), -1),
        precisions_init=np.linalg.inv(covariances) if kind in ("full", "tied") else 1 / covariances,
        tol=0.0,
    )
    return {}


def fit(request):
    options = {**START, "max_iter": request["max_iter"]}
    if request["by"] == "sklearn":
        model = sklearn.mixture.GaussianMixture(**options)
    else:
        model = GaussianMixture(**options, device=request["by"], n_jobs=request["threads"])
    begin = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "lower_bound": float(model.lower_bound_)}


REQUESTS = {f.__name__: f for f in (versions, load, start, fit)}
# Every fit here stops at max_iter.
warnings.simplefilter("ignore")

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = REQUESTS[request.pop("do")](request)
    except Exception as error:  # the driver reports it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
