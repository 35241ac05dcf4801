"""Priors from Python: their tables, and errors in Python syntax."""

import re

import numpy as np
import pandas as pd
import pytest

from gmm_rs import exceptions, mcmc

# Runs this short do not mix, and issue warnings.
pytestmark = pytest.mark.filterwarnings("ignore::gmm_rs.exceptions.DataWarning")

SHORT = {"chains": 1, "draws": 20, "warmup": 20, "random_state": 0, "device": "cpu"}

X = np.random.default_rng(0).normal(size=(40, 2))


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"means": {"prior": "normal", "sd": "x"}}, "prior['means']['sd']: invalid type: string \"x\", expected one number"),
        ({"means": {"prior": "normal", "sd": [1.0, "y"]}}, "prior['means']['sd'] is [1.0, 'y']: it must be one number"),
        ({"means": {"prior": "normal", "sd": [[1.0], [2.0]]}}, "prior['means']['sd']: invalid type: sequence"),
        ({"means": {"prior": "normal", "sd": True}}, "prior['means']['sd']: invalid type: boolean"),
        ({"means": {"prior": "normal", "sd": 1j}}, "prior['means']['sd'] is 1j: it must be one number"),
        ({"means": {"prior": "normal", "sd": {"a": 1}}}, "prior['means']['sd'] is {'a': 1}: it must be one number"),
        ({"means": {"prior": "normal", "sd": 0.0}}, "prior['means']['sd'] is 0: it must be positive and finite"),
        ({"means": {"prior": "normal", "sd": [1, 2, 3]}}, "prior['means']['sd'] has 3 numbers, expected 2"),
        ({"means": {"prior": "normal", "mean": [np.nan, 0]}}, "prior['means']['mean'] is [nan, 0]: it must be finite"),
        ({"means": {"prior": "normal", "sigma": 1.0}}, "prior['means']['sigma']: unknown field `sigma`, expected `mean` or `sd`"),
        ({"means": {"prior": "cauchy"}}, "prior['means']['prior']: unknown variant `cauchy`, expected `flat` or `normal`"),
        ({"means": {"prior": 3}}, "prior['means']['prior']"),
        ({"means": {"sd": 1.0}}, "prior['means']: missing field `prior`"),
        ({"means": {}}, "prior['means']: missing field `prior`"),
        ({"means": "normal"}, "prior['means'] is str: it must be a dict"),
        ({"means": None}, "prior['means'] is NoneType: it must be a dict"),
        ({"means": {"prior": "flat"}}, "prior['means']: flat is improper"),
        ({"means": {1: 2}}, "prior['means'] has the key 1: keys must be str"),
        ({"mean": {"prior": "flat"}}, "unknown table prior['mean']: the tables of a prior are 'weights', 'means', 'covariances'"),
        ({3: {}}, "unknown table prior[3]"),
        ({"weights": {"prior": "dirichlet", "alpha": 1}}, "prior['weights']['alpha']: unknown field `alpha`"),
        ({"weights": {"prior": "dirichlet", "concentration": -1}}, "prior['weights']['concentration'] is -1: it must be"),
        ({"weights": {"prior": "dirichlet", "concentration": [1, 2]}}, "prior['weights']['concentration']: invalid type"),
        ({"weights": {"prior": "dirichlet", "concentration": np.inf}}, "prior['weights']['concentration'] is inf: it must be"),
        ({"covariances": {"prior": "lkj", "eta": 0.0}}, "prior['covariances']['eta'] is 0: it must be positive"),
        ({"covariances": {"prior": "flat"}}, "prior['covariances']: flat is improper"),
        ({"covariances": {"prior": "half-normal"}}, "prior['covariances']: half-normal is not for full covariances"),
        (
            {"covariances": {"prior": "inverse-wishart", "degrees_of_freedom": 0.5}},
            "prior['covariances']['degrees_of_freedom'] is 0.5: it must be above d - 1 = 1",
        ),
        ([1], "prior is list: it must be a dict or the path of a TOML file"),
    ],
    ids=str,
)
def test_a_fault_of_a_dict_names_its_key_as_python_does(prior, words):
    with pytest.raises(exceptions.ParameterError) as error:
        mcmc(X, 2, prior=prior, **SHORT)
    assert str(error.value).startswith(words) and " line " not in str(error.value)


def test_a_column_that_gives_no_default_names_the_key_to_give():
    constant = np.column_stack([X[:, 0], np.ones(40)])
    with pytest.raises(exceptions.ParameterError, match=re.escape("prior['means']['sd']: column 1 gives no default")):
        mcmc(constant, 2, **SHORT)


def test_a_fault_of_a_file_names_the_file_and_the_line(tmp_path):
    path = tmp_path / "prior.toml"
    path.write_text("[means]\nprior = 'normal'\nsd = 'x'\n")
    with pytest.raises(exceptions.ParameterError, match=re.escape(f"{path}: line 3, column 1: means: sd: ")):
        mcmc(X, 2, prior=path, **SHORT)
    path.write_bytes(b"[means]\nprior = '\xff'\n")
    with pytest.raises(exceptions.ParameterError, match="byte 17 is not valid UTF-8"):
        mcmc(X, 2, prior=str(path), **SHORT)
    with pytest.raises(FileNotFoundError):
        mcmc(X, 2, prior=tmp_path / "none.toml", **SHORT)


@pytest.mark.parametrize(
    "values",
    [3, 3.0, np.float32(3), np.int64(3), [3, 3.0], (3, 3), np.array([3, 3]), pd.Series([3.0, 3.0])],
    ids=lambda value: type(value).__name__,
)
def test_numbers_come_in_every_form(values):
    found = mcmc(X, 1, prior={"means": {"prior": "normal", "sd": values}}, **SHORT)
    same = mcmc(X, 1, prior={"means": {"prior": "normal", "sd": 3.0}}, **SHORT)
    np.testing.assert_array_equal(found.means, same.means)


def documented():
    """The rows of the table in the docstring: table, prior, key and default."""
    lines = mcmc.__doc__.split("default\n")[1].splitlines()
    rule = [match.span() for match in re.finditer("=+", lines[0])]
    body = lines[1 : next(i for i, line in enumerate(lines[1:], 1) if "====" in line)]
    cells = [[line[start : end + 1].strip() for start, end in rule] for line in body]
    return [(table, prior, key, default.strip("`")) for table, prior, key, _, default in cells]


@pytest.mark.parametrize(("table", "prior", "key", "default"), documented(), ids=str)
def test_a_default_of_the_documentation_is_the_default(table, prior, key, default):
    kinds = ("diag", "spherical") if prior in ("inverse-gamma", "half-normal") else ("full", "tied")
    for kind in kinds:
        k = 1 if prior == "flat" else 2
        given = {"prior": prior}
        # A short random walk depends continuously on its prior; NUTS may take another path after a last-bit change.
        short = {**SHORT, "sampler": "rwm"}
        alone = mcmc(X, k, covariance_type=kind, prior={table: given}, **short)
        if not key:
            assert len(alone.means)
            continue
        v = X.var(axis=0)
        v = v if kind != "spherical" else v.mean(keepdims=True)
        names = {"v": v, "s": np.sqrt(v), "d": 2, "k": k}
        words = {"middle of the range": (X.min(0) + X.max(0)) / 2, "range": np.ptp(X, axis=0)}
        value = words[default] if default in words else eval(default, names)
        value = value if np.ndim(value) == 0 or len(value) > 1 else float(value[0])
        same = mcmc(X, k, covariance_type=kind, prior={table: {**given, key: value}}, **short)
        np.testing.assert_allclose(same.means, alone.means, rtol=1e-6)
        other = mcmc(X, k, covariance_type=kind, prior={table: {**given, key: 1.5 * np.asarray(value) + 1}}, **short)
        assert np.abs(other.means - alone.means).max() > 1e-9


def test_what_is_left_out_is_the_first_of_each_pair():
    for kind, prior in [("full", "inverse-wishart"), ("tied", "inverse-wishart"), ("diag", "inverse-gamma"), ("spherical", "inverse-gamma")]:
        given = {"weights": {"prior": "dirichlet"}, "means": {"prior": "normal"}, "covariances": {"prior": prior}}
        ones = (mcmc(X, 2, covariance_type=kind, prior=one, **SHORT).means for one in (None, {}, given))
        first, *rest = ones
        for other in rest:
            np.testing.assert_array_equal(first, other)
