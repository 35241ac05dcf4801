"""Ctrl-C stops a fit within a second and leaves Python usable."""

import subprocess
import sys
import textwrap

import pytest
from conftest import stopped_within_a_second

# A fit that never ends by itself, then a second fit, to check that the state is intact after the first.
PROGRAM = """
import sys, time
import numpy as np
from gmm_rs.mixture import GaussianMixture

X = np.random.default_rng(0).normal(size=({n}, {d}))
print("begun", flush=True)
try:
    GaussianMixture({k}, device="cpu", tol=0.0, max_iter=10**9, init_params={init!r}, random_state=0).fit(X)
except KeyboardInterrupt:
    print("stopped", time.time(), flush=True)
else:
    sys.exit("the fit ended")
print(GaussianMixture(2, device="cpu", random_state=0).fit(X[:100, :2]).converged_, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize(
    "size",
    [
        {"n": 1000, "d": 2, "k": 2, "init": "kmeans"},
        # An initialisation that takes many seconds, without any iteration.
        {"n": 300_000, "d": 20, "k": 200, "init": "kmeans"},
    ],
    ids=["in-many-short-iterations", "in-a-long-initialization"],
)
def test_ctrl_c_stops_a_fit_within_a_second(size):
    assert stopped_within_a_second(PROGRAM.format(**size), after=0.7) == "True\n"


def test_other_python_threads_run_during_a_fit():
    program = """
        import threading, time
        import numpy as np
        from gmm_rs.mixture import GaussianMixture

        X = np.random.default_rng(0).normal(size=(200_000, 10))
        one = GaussianMixture(20, device="cpu", tol=0.0, max_iter=30, init_params="random_from_data", random_state=0)
        fit = threading.Thread(target=one.fit, args=(X,))
        fit.start()
        turns = 0
        while fit.is_alive():
            turns += 1
            time.sleep(0.001)
        print(turns)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert int(done.stdout) > 20, done.stderr
