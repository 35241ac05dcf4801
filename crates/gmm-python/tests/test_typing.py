"""The stubs match the modules, and the docstrings match the signatures."""

import inspect
import os
import subprocess
import sys
import textwrap

import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc

import gmm_rs
from gmm_rs import (
    accel,
    classification,
    dask,
    datasets,
    files,
    likelihood,
    mixture,
    outliers,
    plot,
    posterior,
    products,
    regression,
    selection,
    steps,
    structure,
)

PROGRAM = """
    import numpy as np
    from numpy.typing import NDArray
    from pathlib import Path
    from gmm_rs import Likelihood, Resident, load, mcmc, save, select
    from gmm_rs.datasets import make_gmm
    from gmm_rs.mixture import GaussianMixture
    from gmm_rs.steps import Statistics, e_step, m_step

    X, y, truth = make_gmm(100, 2, return_mixture=True)
    model = GaussianMixture(3, covariance_type="diag", n_jobs=2).fit(X, sample_weight=np.ones(100))
    labels: NDArray[np.int64] = model.predict(X)
    value, gradient = Likelihood(X).value_and_gradient(truth.weights_, truth.means_, truth.covariances_)
    total: float = value + gradient.means.sum() + model.bic(X)
    indices, values = Resident(X).top_k(X[:3], 2)
    first: int = int(indices[0, 0])
    ends: NDArray[np.float64] = mcmc(X, 2, draws=20, warmup=20).summary()["r_hat"]
    again: GaussianMixture = load(save(model, Path("model.json")), device="cpu")
    best: GaussianMixture = select(X, range(1, 4), covariance_type=("full", "diag")).best_estimator_
    densities: NDArray[np.float64] = mcmc(X, 2, prior={"means": {"prior": "flat"}}).log_likelihood(X)
    sums: Statistics = e_step(X, model) + e_step(X, (truth.weights_, truth.means_, truth.covariances_), "full")
    means: NDArray[np.float64] = m_step(sums, model, reg_covar=0.0).means
    m_step(3, model)  # E: arg-type
    select(X, criterion="dic")  # E: arg-type
    select(X, covariance_type=("full", "round"))  # E: arg-type
    load(3)  # E: arg-type
    Likelihood(X, "round")  # E: arg-type
    mcmc(X, 2, sampler="gibbs")  # E: arg-type
    GaussianMixture(3, covariance_type=1)  # E: arg-type
    model.fit()  # E: call-arg
"""


# Untyped dependencies of the modules. Only the stubs are checked here, not the modules.
UNTYPED = """
[mypy]
strict = True
[mypy-dask.*,distributed.*,joblib.*,pandas.*,scipy.*,sklearn.*,threadpoolctl]
ignore_missing_imports = True
"""


def mypy(*arguments, cwd, module="mypy"):
    # In the source folder, mypy would use the sources instead of the installed package.
    environment = {**os.environ, "MYPY_CACHE_DIR": str(cwd / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_modules(tmp_path):
    (tmp_path / "mypy.ini").write_text(UNTYPED)
    # Private classes whose metaclasses come from untyped base classes.
    accelerated = [f"gmm_rs.accel._estimator.{name}" for name in ("GaussianMixture", "BayesianGaussianMixture")]
    (tmp_path / "allowed").write_text("\n".join([*accelerated, "gmm_rs._threads.Controller"]))
    options = ["--mypy-config-file", "mypy.ini", "--allowlist", "allowed"]
    code, output = mypy(*options, "gmm_rs", cwd=tmp_path, module="mypy.stubtest")
    assert code == 0, output


def test_a_program_that_is_checked_strictly_gets_its_types(tmp_path):
    program = textwrap.dedent(PROGRAM).strip()
    (tmp_path / "program.py").write_text(program)
    _, output = mypy("--strict", "program.py", cwd=tmp_path)
    lines = program.splitlines()
    wanted = [f"program.py:{i}: [{line.split('# E: ')[1]}]" for i, line in enumerate(lines, 1) if "# E: " in line]
    found = [line for line in output.splitlines() if ": error: " in line]
    shown = [f"{line.split(':')[0]}:{line.split(':')[1]}: [{line.rsplit('[', 1)[1]}" for line in found]
    assert shown == wanted, output


def documented():
    modules = (accel, classification, dask, datasets, files, likelihood, mixture, outliers, plot, posterior, products)
    for module in (*modules, regression, selection, steps, structure):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def methods():
    for name, one in documented():
        if inspect.isclass(one):
            ours = ((key, value) for key, value in vars(one).items() if inspect.isfunction(value))
            yield from ((f"{name}.{key}", value) for key, value in ours if not key.startswith("_"))
        else:
            yield name, one


@pytest.mark.parametrize(
    ("name", "function"), list(methods()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_function_documents_its_parameters_and_what_it_returns(name, function):
    doc = FunctionDoc(function)
    # `**parameters` is documented with its asterisks, `self` is not documented.
    taken = [str(one).split("=")[0] for one in inspect.signature(function).parameters.values() if one.name != "self"]
    assert [one.name for one in doc["Parameters"]] == taken
    assert all(one.type or one.name.startswith("*") for one in doc["Parameters"])
    assert doc["Returns"] or name in ("gmm_rs.accel.install", "gmm_rs.accel.uninstall")


@pytest.mark.parametrize("one", [mixture.GaussianMixture, regression.GaussianMixtureRegressor, classification.GaussianMixtureClassifier, outliers.GaussianMixtureDetector, dask.GaussianMixture, steps.PassRows, likelihood.Likelihood, products.Resident, posterior.Draws, selection.Selection], ids=lambda one: one.__name__)
def test_a_class_documents_its_parameters_and_attributes(one):
    doc = ClassDoc(one)
    taken = [name for name in inspect.signature(one).parameters]
    assert [parameter.name for parameter in doc["Parameters"]] == taken
    assert all(attribute.desc for attribute in doc["Attributes"])


def test_the_package_offers_what_it_lists():
    for name in gmm_rs.__all__:
        assert getattr(gmm_rs, name) is not None
    assert set(dir(gmm_rs)) == set(gmm_rs.__all__)
    with pytest.raises(AttributeError, match="'mixtures'"):
        gmm_rs.mixtures
