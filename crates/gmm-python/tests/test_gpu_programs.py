"""On a GPU: separate programs that use dispatch, fork, are interrupted, or are unmodified."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import stopped_within_a_second
from gpu import ONLY_THERE, program

pytestmark = ONLY_THERE


DISPATCHED = """
    import sys
    import numpy as np
    from sklearn import config_context
    from sklearn.mixture import GaussianMixture as Original
    from gmm_rs.datasets import make_gmm
    from gmm_rs.mixture import GaussianMixture

    library = sys.argv[1]
    if library == "torch":
        import torch

        put = lambda array: torch.as_tensor(array, device="cuda:0")
        back = lambda array: array.cpu().numpy()
    else:
        import cupy

        put, back = cupy.asarray, cupy.asnumpy
    rows, _ = make_gmm(2000, 3, 3, separation=2.0, random_state=0)
    means = rows[[0, 700, 1500]]
    for kind in ("full", "tied", "diag", "spherical"):
        full = {"full": np.array([np.eye(3)] * 3), "tied": np.eye(3), "diag": np.ones((3, 3)), "spherical": np.ones(3)}
        given = {"weights_init": np.full(3, 1 / 3), "means_init": means, "precisions_init": full[kind]}
        options = {"covariance_type": kind, "max_iter": 20, "tol": 0.0}
        for dtype in ("float64", "float32"):
            X = put(rows.astype(dtype))
            with config_context(array_api_dispatch=True):
                start = {name: put(array.astype(dtype)) for name, array in given.items()}
                # All initial parameters are given, but scikit-learn still checks for k-means without the array API.
                theirs = Original(3, init_params="random", **options, **start).fit(X)
                ours = GaussianMixture(3, **options, **start, device="cuda").fit(X)
                assert ours.engine_ == "cuda:0"
                tolerance = 1e-6 if dtype == "float64" else 2e-2
                compared = [(name, getattr(ours, name), getattr(theirs, name)) for name in (
                    "weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")]
                for method in ("predict_proba", "score_samples", "predict"):
                    compared.append((method, getattr(ours, method)(X), getattr(theirs, method)(X)))
                compared.append(("fit_predict", ours.fit_predict(X), theirs.fit_predict(X)))
                compared += [("sample", a, b) for a, b in zip(ours.sample(7), theirs.sample(7))]
                for name, a, b in compared:
                    case = (library, kind, dtype, name)
                    assert type(a) is type(b), (case, type(a), type(b))
                    assert str(a.device) == str(b.device) and a.shape == b.shape, (case, a.device, b.device)
                    assert a.dtype == b.dtype, (case, a.dtype, b.dtype)
                    a, b = back(a), back(b)
                    if name in ("predict", "fit_predict"):
                        # For rows between two components either label may be right.
                        assert np.mean(a != b) <= tolerance, case
                    elif name != "sample":
                        assert np.abs(a - b).max() <= tolerance * max(1.0, np.abs(b).max()), case
                assert abs(ours.score(X) - float(theirs.score(X))) <= tolerance, (kind, dtype)
                # An estimator whose attributes are on the GPU also predicts for rows on the host.
                assert isinstance(ours.predict(rows.astype(dtype)), np.ndarray)
                ours.set_params(warm_start=True, max_iter=1).fit(X)
            found = GaussianMixture(3, **options, device="cuda").fit(X)
            assert isinstance(found.means_, np.ndarray) and isinstance(found.predict(X), np.ndarray)
    print("all is well")
"""


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_with_dispatch_results_are_what_scikit_learns_are(library):
    pytest.importorskip(library)
    done = program(DISPATCHED, library, SCIPY_ARRAY_API="1")
    assert done.stdout == "all is well\n", done.stderr


FORKED = """
    import os, sys
    import numpy as np
    from gmm_rs import Likelihood, exceptions
    from gmm_rs.datasets import make_gmm
    from gmm_rs.mixture import GaussianMixture

    X, _ = make_gmm(1000, 2, 2, random_state=0)
    want = GaussianMixture(2, random_state=0, device="cuda").fit(X)
    given = (want.weights_, want.means_, want.covariances_)
    likelihood = Likelihood(X, device="cuda")
    value = likelihood.value(*given)
    components = Likelihood(X).components(*given)
    moved = components.update_weights([0.3, 0.7])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: want.predict(X), lambda: want.fit(X), lambda: likelihood.value(*given)):
                try:
                    call()
                except exceptions.DeviceError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("CUDA ran in a forked process")
            assert GaussianMixture(2, random_state=0).fit(X).engine_ == "cpu"
            assert abs(components.update_weights([0.3, 0.7]) - moved) < 1e-9 * abs(moved)
            del components
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert likelihood.value(*given) == value
    assert components.undo() and components.update_weights([0.3, 0.7]) == moved
    assert np.array_equal(GaussianMixture(2, random_state=0, device="cuda").fit(X).means_, want.means_)
    print("all is well")
"""


def test_a_forked_process_is_told_and_its_parent_goes_on():
    done = program(FORKED)
    assert done.stdout == "all is well\n", done.stderr


INTERRUPTED = """
import sys, time, warnings
import numpy as np
from gmm_rs.mixture import GaussianMixture

warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=({n}, {d}))
if {there}:
    import torch

    X = torch.as_tensor(X, device="cuda:0")
GaussianMixture({k}, device="cuda", max_iter=2, init_params="random_from_data").fit(X)
print("begun", flush=True)
try:
    GaussianMixture(
        {k}, device="cuda", tol=0.0, max_iter=10**9, init_params={init!r}, n_init={n_init}, random_state=0
    ).fit(X)
except KeyboardInterrupt:
    print("stopped", time.time(), flush=True)
else:
    sys.exit("the fit ended")
print(GaussianMixture(2, device="cuda", random_state=0).fit(X[:100, :2]).engine_, flush=True)
"""


@pytest.mark.parametrize("there", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "size",
    [
        {"n": 1000, "d": 2, "k": 2, "init": "random_from_data", "n_init": 1},
        {"n": 2_000_000, "d": 16, "k": 64, "init": "random_from_data", "n_init": 1},
        {"n": 1_000_000, "d": 20, "k": 500, "init": "kmeans", "n_init": 1000},
    ],
    ids=["in-short-iterations", "in-long-iterations", "in-initializations"],
)
def test_ctrl_c_stops_a_fit_on_the_gpu_within_a_second(size, there):
    if there:
        pytest.importorskip("torch")
    assert stopped_within_a_second(INTERRUPTED.format(**size, there=there), after=1.5) == "cuda:0\n"


SCRIPT = """
    import numpy as np
    from sklearn.mixture import GaussianMixture

    X = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (500, 2)) for c in (0.0, 9.0)])
    model = GaussianMixture(2, random_state=0).fit(X)
    print(sorted(round(float(m), 1) for m in model.means_[:, 0]), model.predict(X[:1]).shape)
"""


def test_an_unchanged_script_runs_on_the_gpu(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-m", "gmm_rs.accel", str(path)],
        env={**os.environ, "GMM_ACCEL_LOG": "info"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "(1,)" in done.stdout, done.stderr
    assert "fit of 1000 × 2 rows ran on cuda:0" in done.stderr
