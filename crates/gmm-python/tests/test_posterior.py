"""Draws of the posterior."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pandas as pd
import pytest
from conftest import KINDS

from gmm_rs import exceptions, mcmc
from gmm_rs.datasets import make_gmm
from gmm_rs.posterior import Draws

# Runs this short do not mix, and issue warnings.
pytestmark = pytest.mark.filterwarnings("ignore::gmm_rs.exceptions.DataWarning")

SHORT = {"chains": 2, "draws": 60, "warmup": 60, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def line():
    """150 rows of one column, from two components far apart."""
    return make_gmm(150, 1, 2, separation=6.0, random_state=3)[0]


@pytest.fixture(scope="module")
def draws(line):
    return mcmc(line, 2, chains=4, draws=500, warmup=500, relabel="order", random_state=1, device="cpu")


@pytest.mark.parametrize("sampler", ["nuts", "rwm"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_draws_of_its_shapes(rows, kind, sampler):
    found = mcmc(rows, 3, covariance_type=kind, sampler=sampler, **SHORT)
    shapes = {"full": (3, 3, 3), "tied": (3, 3), "diag": (3, 3), "spherical": (3,)}
    assert found.weights.shape == (2, 60, 3) and found.means.shape == (2, 60, 3, 3)
    assert found.covariances.shape == (2, 60) + shapes[kind]
    np.testing.assert_allclose(found.weights.sum(-1), 1.0, rtol=1e-12)
    nuts = ["diverging", "n_steps", "step_size", "tree_depth", "energy"] if sampler == "nuts" else []
    assert list(found.sample_stats) == ["lp", "acceptance_rate", *nuts]
    assert all(values.shape == (2, 60) for values in found.sample_stats.values())


def test_means_of_groups_far_apart_are_those_of_their_rows(line, draws):
    # With groups this far apart, the posterior of a mean is nearly Student's t around the mean of the group.
    middle = draws.means.mean(axis=(0, 1, 3)).mean()
    groups = [line[line < middle], line[line > middle]]
    for c, group in enumerate(groups):
        error = group.std() / np.sqrt(len(group))
        assert abs(draws.means[:, :, c].mean() - group.mean()) < error
        assert draws.means[:, :, c].std() == pytest.approx(error, rel=0.3)
    assert draws.concerns() == []


def test_what_should_be_seen_is_said(line, draws):
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(2, 50, 1, 1)) + np.array([0.0, 9.0]).reshape(2, 1, 1, 1)
    stats = {"lp": rng.normal(size=(2, 50)), "diverging": np.arange(100).reshape(2, 50) < 3}
    made = Draws("spherical", np.ones((2, 50, 1)), apart, np.ones((2, 50, 1)), stats)
    mixed, few, diverging = made.concerns()
    assert mixed.startswith("r_hat is above 1.01 for 1 of ") and "means[0,0])" in mixed and "relabel='pivot'" in mixed
    assert "effective sample size below 200" in few and few.endswith("; take more draws")
    assert diverging.startswith("3 of 100 draws diverged") and "target_accept" in diverging


def test_a_seed_fixes_the_draws(line):
    one, same, other = (mcmc(line, 2, **{**SHORT, "random_state": seed}) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.means, same.means)
    assert (one.means != other.means).any()


def test_a_prior_is_a_dictionary_or_a_file(line, tmp_path):
    tight = {"means": {"prior": "normal", "mean": np.array([50.0]), "sd": 1e-3}}
    (tmp_path / "prior.toml").write_text("[means]\nprior = 'normal'\nmean = [50.0]\nsd = 1e-3\n")
    found = mcmc(line, 1, prior=tight, **SHORT)
    assert np.abs(found.means - 50.0).max() < 0.1
    same = mcmc(line, 1, prior=tmp_path / "prior.toml", **SHORT)
    np.testing.assert_array_equal(found.means, same.means)


def test_a_checkpoint_goes_on_to_the_draws_of_the_longer_run(line):
    options = {**SHORT, "sampler": "rwm"}
    long = mcmc(line, 2, **{**options, "draws": 90})
    half = mcmc(line, 2, **options)
    more = mcmc(line, 2, **{**options, "draws": 90, "random_state": None}, checkpoint=half.checkpoint)
    np.testing.assert_array_equal(more.means, long.means)
    with pytest.raises(exceptions.ParameterError, match="other rows"):
        mcmc(line[1:], 2, **options, checkpoint=half.checkpoint)
    with pytest.raises(exceptions.ParameterError, match="precision f64, not f32"):
        mcmc(line, 2, **options, precision="f32", checkpoint=half.checkpoint)
    with pytest.raises(exceptions.ParameterError, match="corrupt"):
        mcmc(line, 2, **options, checkpoint=half.checkpoint[:-1])


def test_the_summary_makes_a_table(draws):
    table = pd.DataFrame(draws.summary()).set_index("name")
    assert list(table.index)[:2] == ["weights[0]", "weights[1]"] and table.index[-1] == "lp"
    assert table.loc["means[1,0]", "mean"] == pytest.approx(draws.means[:, :, 1, 0].mean())
    assert table.loc["means[1,0]", "sd"] == pytest.approx(draws.means[:, :, 1, 0].std(ddof=1))
    assert table.loc["means[1,0]", "q5"] == pytest.approx(np.quantile(draws.means[:, :, 1, 0], 0.05), rel=1e-3)
    assert (table["r_hat"] < 1.01).all()


def test_arviz_agrees_with_the_summary(draws):
    az = pytest.importorskip("arviz")
    data = draws.to_arviz()
    assert data.posterior["means"].shape == (4, 500, 2, 1)
    assert set(data.sample_stats) >= {"lp", "diverging", "tree_depth"}
    ours = dict(zip(draws.summary()["name"], zip(draws.summary()["ess_bulk"], draws.summary()["r_hat"])))
    ess, r_hat = az.ess(data)["means"].values, az.rhat(data)["means"].values
    for c in range(2):
        assert ours[f"means[{c},0]"] == pytest.approx((ess[c, 0], r_hat[c, 0]), rel=1e-6)


def test_draws_predict(line, draws):
    one = draws.mixture((1, 7))
    np.testing.assert_allclose(one.means_, draws.means[1, 7])
    np.testing.assert_array_equal(draws.mixture(507).means_, one.means_)
    assert one.predict(line).shape == (150,)
    few = Draws("full", draws.weights[:, :5], draws.means[:, :5], draws.covariances[:, :5], {})
    densities = [np.exp(few.mixture(i).score_samples(line)) for i in range(20)]
    np.testing.assert_allclose(few.score_samples(line), np.log(np.mean(densities, axis=0)), rtol=1e-10)
    proba = few.predict_proba(line, n_draws=4)
    np.testing.assert_allclose(proba, np.mean([few.mixture(i).predict_proba(line) for i in (0, 5, 10, 15)], axis=0))
    np.testing.assert_array_equal(few.predict(line, n_draws=4), proba.argmax(1))
    with pytest.raises(exceptions.ParameterError, match="n_draws is 0"):
        few.predict(line, n_draws=0)


def test_what_is_saved_is_loaded(draws, tmp_path):
    assert draws.save(tmp_path / "draws.npz") is draws
    found = Draws.load(tmp_path / "draws.npz")
    assert found.covariance_type == "full" and repr(found) == repr(draws)
    for name in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(found, name), getattr(draws, name))
    assert found.sample_stats.keys() == draws.sample_stats.keys()
    for name, values in draws.sample_stats.items():
        np.testing.assert_array_equal(found.sample_stats[name], values)
        assert found.sample_stats[name].dtype == values.dtype
    draws.save(str(tmp_path / "draws.parquet"))
    assert len(pd.read_parquet(tmp_path / "draws.parquet")) == 2000
    with pytest.raises(exceptions.ParameterError, match="npz, parquet"):
        draws.save(tmp_path / "draws.csv")
    with pytest.raises(OSError, match="missing"):
        draws.save(tmp_path / "missing" / "draws.npz")
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(exceptions.ParameterError, match="does not contain draws"):
        Draws.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": "gibbs"}, "unknown sampler 'gibbs': choose one of nuts, rwm"),
        ({"covariance_type": "round"}, "choose one of full, tied, diag, spherical"),
        ({"start": "here"}, "choose one of fit, each"),
        ({"chains": 0}, "chains is 0"),
        ({"draws": 1.5}, "draws is 1.5"),
        ({"warmup": 3}, "at least 20 for NUTS"),
        ({"target_accept": 1.0}, "below 1"),
        ({"relabel": "sideways"}, "none, order, order:COLUMN, pivot"),
        ({"relabel": "order:1"}, "column"),
        ({"prior": {"means": {"prior": "cauchy"}}}, "cauchy"),
        ({"prior": {"mean": {}}}, "unknown table prior.'mean'"),
        ({"prior": {"weights": {"prior": "dirichlet", "concentration": -1.0}}}, "concentration"),
        ({"prior": {"weights": {"prior": "dirichlet", "concentration": float("nan")}}}, "prior"),
        ({"prior": 3}, "prior is int"),
        ({"prior": {"means": {"prior": "normal", "sd": "x"}}}, "expected one number, or a list with a number for each"),
        ({"n_components": 0}, "n_components is 0"),
        ({"checkpoint": b"none"}, "checkpoint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_told(line, options, words):
    options = {"n_components": 2, **SHORT, **options}
    with pytest.raises(exceptions.ParameterError, match=words):
        mcmc(line, **options)


def test_rows_and_draws_that_cannot_be_are_told(line):
    with pytest.raises(exceptions.DataError, match="row 2, column 0"):
        mcmc(np.array([[1.0], [2.0], [np.nan]]), 1, **SHORT)
    with pytest.raises(exceptions.ParameterError, match="weights have shape"):
        Draws("full", np.ones((1, 2, 3)), np.ones((1, 2, 2, 1)), np.ones((1, 2, 2, 1, 1)), {})
    with pytest.raises(exceptions.ParameterError, match="lp has shape"):
        Draws("diag", np.ones((1, 2, 1)), np.ones((1, 2, 1, 1)), np.ones((1, 2, 1, 1)), {"lp": np.ones(3)})


def test_chains_that_have_not_mixed_are_told_of(line):
    with pytest.warns(exceptions.DataWarning, match="r_hat|effective sample size"):
        mcmc(line, 3, **{**SHORT, "draws": 30, "warmup": 20, "sampler": "rwm"})


def test_draws_too_few_to_judge_are_told_of(line):
    with pytest.warns(exceptions.DataWarning, match="3 draws per chain are too few.*take more draws"):
        mcmc(line, 1, **{**SHORT, "draws": 3})


def test_progress_goes_to_standard_error(line, capfd):
    mcmc(line, 2, **{**SHORT, "draws": 3000}, progress=True)
    out, err = capfd.readouterr()
    assert not out and "of 6120 steps" in err and err.endswith("\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize("sampler", ["nuts", "rwm"])
def test_ctrl_c_stops_within_a_second_and_keeps_the_chains(sampler):
    program = f"""
        import time
        from gmm_rs import mcmc
        from gmm_rs.datasets import make_gmm

        X, _ = make_gmm(2000, 2, 2, random_state=0)
        try:
            mcmc(X, 2, draws=200_000, sampler={sampler!r}, warmup=20, random_state=0, device="cpu", progress=True)
        except KeyboardInterrupt as stopped:
            print("stopped", time.time(), type(stopped).__name__, len(stopped.checkpoint) > 100, flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # Wait until the warm-up is over and the first draws are made.
    told = b""
    while not any(int(steps) > 1000 for steps in re.findall(rb"(\d+) of", told)):
        told += (more := os.read(child.stderr.fileno(), 4096))
        assert more, told
    sent = time.time()
    child.send_signal(signal.SIGINT)
    word, at, kind, holds = child.stdout.readline().decode().split()
    assert word == "stopped" and float(at) - sent < 1.0
    assert (kind, holds) == ("SamplingInterrupted", "True")
    assert child.wait(60) == 0
