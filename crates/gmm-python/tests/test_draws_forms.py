"""Conversion of draws to pandas, HTML and ArviZ."""

import html
import pickle

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
def frame():
    """150 rows of two named columns."""
    return pd.DataFrame(make_gmm(150, 2, 2, separation=6.0, random_state=3)[0], columns=["length <b>", "width"])


@pytest.fixture(scope="module")
def draws(frame):
    return mcmc(frame, 2, chains=4, draws=400, warmup=400, relabel="order", random_state=1, device="cpu")


@pytest.mark.parametrize("sampler", ["nuts", "rwm"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_frame_is_what_is_written_to_parquet(frame, kind, sampler, tmp_path):
    found = mcmc(frame, 2, covariance_type=kind, sampler=sampler, **SHORT)
    found.save(tmp_path / "draws.parquet")
    pd.testing.assert_frame_equal(found.to_frame(), pd.read_parquet(tmp_path / "draws.parquet"))


def test_a_row_of_the_frame_is_a_draw(draws):
    table = draws.to_frame()
    assert len(table) == 1600 and list(table.columns[:5]) == ["chain", "draw", "weights[0]", "weights[1]", "means[0,0]"]
    at = table[(table["chain"] == 2) & (table["draw"] == 7)].iloc[0]
    assert at["means[0,1]"] == draws.means[2, 7, 0, 1] and at["covariances[1,0,1]"] == draws.covariances[2, 7, 1, 0, 1]
    assert at["energy"] == draws.sample_stats["energy"][2, 7]


def test_a_notebook_shows_the_summary_and_escapes_names(draws):
    page = draws._repr_html_()
    assert "4 chains of 400 draws, 2 components in 2 columns (length &lt;b&gt;, width)" in page and "<b>" not in page
    assert page.count("<tr>") == 1 + len(draws.summary()["name"])
    assert "<td>means[1,0]</td>" in page and "<th>r_hat</th>" in page
    # And the warnings.
    few = Draws("full", draws.weights[:, :5], draws.means[:, :5], draws.covariances[:, :5], {})
    assert html.escape(few.concerns()[0]) in few._repr_html_()
    none = Draws("diag", np.ones((1, 0, 1)), np.ones((1, 0, 1, 1)), np.ones((1, 0, 1, 1)), {})
    assert "1 chain of 0 draws, 1 component in 1 column<" in none._repr_html_()


def test_a_notebook_shows_a_part_of_a_long_summary():
    rng = np.random.default_rng(0)
    many = Draws("spherical", np.full((2, 9, 40), 1 / 40), rng.normal(size=(2, 9, 40, 3)), np.ones((2, 9, 40)), {})
    page = many._repr_html_()
    assert page.count("<tr>") == 61 and f"and {40 * 5 + 1 - 60} more lines" in page


def test_arviz_has_named_dimensions(frame, draws):
    az = pytest.importorskip("arviz")
    posterior = draws.to_arviz().posterior
    assert posterior["weights"].dims == ("chain", "draw", "component")
    assert posterior["means"].dims == ("chain", "draw", "component", "feature")
    assert posterior["covariances"].dims == ("chain", "draw", "component", "feature", "feature_b")
    assert posterior["feature"].values.tolist() == ["length <b>", "width"] == posterior["feature_b"].values.tolist()
    one = posterior["covariances"].sel(component=1, feature="width", feature_b="length <b>")
    np.testing.assert_array_equal(one.values, draws.covariances[:, :, 1, 1, 0])
    assert "width" in "".join(map(str, az.summary(draws.to_arviz(), var_names=["means"]).index))


@pytest.mark.parametrize("kind", KINDS)
def test_arviz_has_the_dimensions_of_every_kind(frame, kind):
    pytest.importorskip("arviz")
    found = mcmc(frame, 3, covariance_type=kind, **SHORT).to_arviz().posterior
    wanted = {
        "full": ("component", "feature", "feature_b"),
        "tied": ("feature", "feature_b"),
        "diag": ("component", "feature"),
        "spherical": ("component",),
    }
    assert found["covariances"].dims == ("chain", "draw", *wanted[kind])


def test_names_that_are_not_there_or_stand_twice_are_numbers(draws):
    pytest.importorskip("arviz")
    arrays = (draws.weights, draws.means, draws.covariances, {})
    for names in (None, ["x", "x"]):
        found = Draws("full", *arrays, feature_names=names).to_arviz()
        assert found.posterior["feature"].values.tolist() == [0, 1]


def test_arviz_has_the_stats_by_its_names_and_bfmi_from_the_energy(draws):
    az = pytest.importorskip("arviz")
    data = draws.to_arviz()
    names = {"lp", "acceptance_rate", "diverging", "n_steps", "step_size", "tree_depth", "energy"}
    assert set(data.sample_stats.data_vars) == names
    energy = draws.sample_stats["energy"]
    bfmi = np.square(np.diff(energy)).mean(axis=1) / np.var(energy, axis=1)
    # It is about 1 for a nearly normal posterior.
    assert ((bfmi > 0.5) & (bfmi < 2.0)).all()
    found = az.bfmi(data)
    found = found if isinstance(found, np.ndarray) else found["energy"].values
    np.testing.assert_allclose(found, bfmi, rtol=0.02)
    # The energy is the negative log density plus the kinetic energy.
    assert (energy + draws.sample_stats["lp"] > 0).all()


def test_a_row_has_its_log_likelihood_at_each_draw(frame, draws):
    found = draws.log_likelihood(frame[:20])
    assert found.shape == (4, 400, 20)
    for at in [(0, 0), (3, 399), (1, 17)]:
        np.testing.assert_allclose(found[at], draws.mixture(at).score_samples(frame[:20].to_numpy()), rtol=1e-10)
    np.testing.assert_array_equal(draws.log_likelihood(frame[:20].to_numpy()), found)


def test_loo_of_rows_is_near_their_predictive_density(frame, draws):
    az = pytest.importorskip("arviz")
    data = draws.to_arviz(frame)
    assert data.log_likelihood["rows"].dims == ("chain", "draw", "row")
    loo = az.loo(data)
    elpd, p = [getattr(loo, name, None) for name in ("elpd_loo", "p_loo")]
    if elpd is None:
        elpd, p = loo.elpd, loo.p
    inside = draws.score_samples(frame.to_numpy(), n_draws=1600).sum()
    # Left-out rows are less likely, by about the effective number of parameters, 11.
    assert elpd == pytest.approx(inside - p, rel=1e-6) and 6 < p < 16


def test_rows_of_other_columns_are_refused(frame, draws):
    with pytest.raises(exceptions.ParameterError, match="3 columns, but the draws have 2"):
        draws.log_likelihood(np.ones((4, 3)))
    with pytest.raises(exceptions.ParameterError, match="columns \\['width', 'length <b>'\\]"):
        draws.to_arviz(frame[["width", "length <b>"]])
    with pytest.raises(exceptions.DataError, match="NaN"):
        draws.log_likelihood([[1.0, np.nan]])


def test_more_rows_than_memory_are_refused_before_any_is_taken(draws):
    rows = np.broadcast_to(np.zeros((1, 2)), (1, 2)).repeat(40_000, axis=0)
    many = Draws("full", *(array.repeat(500, axis=1) for array in (draws.weights, draws.means, draws.covariances)), {})
    with pytest.raises(exceptions.OutOfMemoryError, match="log-likelihood of each row at each draw"):
        many.log_likelihood(rows)


def test_names_are_as_many_as_columns_and_go_with_a_pickle(draws):
    assert draws.feature_names == ["length <b>", "width"]
    assert pickle.loads(pickle.dumps(draws)).feature_names == draws.feature_names
    with pytest.raises(exceptions.ParameterError, match="1 feature_names for 2 columns"):
        Draws("full", draws.weights, draws.means, draws.covariances, {}, feature_names=["x"])
    assert mcmc(np.ones((9, 1)) * np.arange(9)[:, None], 1, **SHORT).feature_names is None


def test_draws_of_random_walks_have_no_energy(frame):
    assert "energy" not in mcmc(frame, 1, sampler="rwm", **SHORT).sample_stats
