"""scikit-learn's own tests of its classes and its estimator checks, run on this package's classes."""

import os
import subprocess
import sys

import pytest

# The reasons for skipping tests of scikit-learn. All others pass.
OF_BOTH = {
    "test_check_weights": "its message has maximum and minimum the wrong way round",
    "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": "counts calls of a private function",
}
LEFT_OUT = {
    "accel": OF_BOTH,
    "plain": {
        **OF_BOTH,
        "test_gaussian_mixture_precisions_init": "calls the private methods _initialize and _set_parameters",
        "test_gaussian_mixture_setting_best_params": "without reg_covar, a component on one row is an error here",
    },
    "accel bayesian": {},
    "plain bayesian": {
        "test_compare_covar_type": "calls the private methods _check_parameters and _initialize_parameters",
    },
}

# Loaded by pytest before the tests import the class.
PLUGINS = {
    "accel": "import gmm_rs\ngmm_rs.accel.install()\n",
    "plain": """
import gmm_rs, sklearn.mixture
sklearn.mixture.GaussianMixture = gmm_rs.mixture.GaussianMixture
sklearn.mixture.BayesianGaussianMixture = gmm_rs.mixture.BayesianGaussianMixture
""",
}

# Names must match exactly: a longer name with the same prefix is another test.
SELECTION = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if (item.originalname in {names}) is {wanted}]
"""


def own_tests(how, tmp_path, names, wanted):
    """Run the scikit-learn tests with these names, or all others."""
    way, _, bayesian = how.partition(" ")
    module = "sklearn.mixture.tests." + ("test_bayesian_mixture" if bayesian else "test_gaussian_mixture")
    (tmp_path / "ours_instead.py").write_text(PLUGINS[way] + SELECTION.format(names=names, wanted=wanted))
    arguments = ["-p", "ours_instead", "-p", "no:cacheprovider", "-q"]
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--pyargs", module],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("how", LEFT_OUT)
def test_scikit_learns_own_tests_pass(how, tmp_path):
    done = own_tests(how, tmp_path, list(LEFT_OUT[how]), wanted=False)
    assert done.returncode == 0, done.stdout
    least = 15 if "bayesian" in how else 40
    assert int(done.stdout.rsplit(" passed", 1)[0].split()[-1]) > least, done.stdout


@pytest.mark.parametrize("how", [how for how, left_out in LEFT_OUT.items() if left_out])
def test_what_is_left_out_of_them_fails(how, tmp_path):
    done = own_tests(how, tmp_path, list(LEFT_OUT[how]), wanted=True)
    for name in LEFT_OUT[how]:
        assert f"{name}" in done.stdout.split("short test summary")[-1], done.stdout
    assert " passed" not in done.stdout.splitlines()[-1], done.stdout


@pytest.mark.parametrize("name", ["GaussianMixture", "BayesianGaussianMixture"])
def test_scikit_learns_checks_pass_under_accel(name):
    program = f"""
import gmm_rs
gmm_rs.accel.install()
from sklearn.mixture import {name} as Ours
from sklearn.utils.estimator_checks import check_estimator

assert Ours.__module__ == "gmm_rs.accel._estimator"
for kind in ("full", "tied", "diag", "spherical"):
    results = check_estimator(Ours(covariance_type=kind, max_iter=5), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] in ("failed", "xfail")]
    assert len(results) > 40 and failed == [], failed
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
