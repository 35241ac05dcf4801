"""Helpers shared by several tests."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from gmm_rs import _core, _gpu
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: runs on an NVIDIA GPU, and is skipped where there is none")


def has_gpu():
    """Whether 'auto' selects a GPU."""
    name, _, _ = _core.engine({"device": "auto", "threads": 1, "precision": None})
    return name.startswith("cuda")


KINDS = ["full", "tied", "diag", "spherical"]


@pytest.fixture(scope="session")
def rows():
    """300 rows in 3 columns from 3 well-separated components."""
    return make_gmm(300, 3, 3, separation=3.0, random_state=0)[0]


@pytest.fixture
def stays(monkeypatch):
    """Fail if rows are copied to the host."""

    def refuse(*_):
        raise AssertionError("rows came to the host")

    monkeypatch.setattr(_gpu.OnGpu, "on_host", refuse)


def start(X, k, kind, seed=0):
    """Weights, means and precisions from which EM on `X` makes progress."""
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    means = X[rng.choice(len(X), k, replace=False)].astype(np.float64)
    precision = np.linalg.inv(np.cov(X.T.astype(np.float64)).reshape(d, d) + 1e-6 * np.eye(d))
    precisions = {
        "full": np.array([precision] * k),
        "tied": precision,
        "diag": np.array([np.diag(precision)] * k),
        "spherical": np.full(k, np.diag(precision).mean()),
    }[kind]
    return {"weights_init": np.full(k, 1.0 / k), "means_init": means, "precisions_init": precisions}


def model(k=3, kind="full", **parameters):
    """An estimator that always uses the CPU."""
    return GaussianMixture(k, covariance_type=kind, device="cpu", **parameters)


def stopped_within_a_second(program, after):
    """Run `program`, send Ctrl-C `after` seconds after it prints "begun", and return its output after "stopped TIME".

    A shared machine may pause for longer than one second, so the best of three tries counts: code that is slow is slow
    each time.
    """
    for _ in range(3):
        late, rest = _stopped(program, after)
        if late < 1.0:
            return rest
    raise AssertionError(f"stopped {late:.1f} s after Ctrl-C")


def _stopped(program, after):
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(after)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    word, at = child.stdout.readline().split()
    assert word == "stopped"
    rest = child.stdout.read()
    assert child.wait(60) == 0
    return float(at) - sent, rest
