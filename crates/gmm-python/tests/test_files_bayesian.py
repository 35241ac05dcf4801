"""Model files with a posterior: what Python writes, Python and the program read, and the other way round."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import KINDS
from sklearn.mixture import BayesianGaussianMixture as Original
from test_bayesian import FAMILIES, FITTED, blobs, equal
from test_files import gmm

import gmm_rs
from gmm_rs.mixture import BayesianGaussianMixture, GaussianMixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RECORD = ["converged_", "n_iter_", "engine_", "n_features_in_"]


def fitted(kind, family, **parameters):
    rows = pd.DataFrame(blobs(2), columns=["a", "b"])
    return BayesianGaussianMixture(
        n_components=4,
        covariance_type=kind,
        weight_concentration_prior_type=family,
        device="cpu",
        random_state=0,
        **parameters,
    ).fit(rows)


@pytest.mark.parametrize("form", ["json", "safetensors"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_posterior_is_loaded(kind, family, form, tmp_path):
    before = fitted(kind, family, tol=1e-2, reg_covar=1e-5, degrees_of_freedom_prior=3.5)
    after = gmm_rs.load(gmm_rs.save(before, tmp_path / f"m.{form}"), device="cpu")
    assert type(after) is BayesianGaussianMixture
    # For tied, scikit-learn's degrees of freedom are those of the file over k.
    equal(after, before, rtol=1e-15 if kind == "tied" else 0)
    assert [getattr(after, name) for name in RECORD] == [getattr(before, name) for name in RECORD]
    np.testing.assert_allclose(after.lower_bounds_, before.lower_bounds_, rtol=1e-15)
    assert (after.tol, after.reg_covar, after.weight_concentration_prior_type) == (1e-2, 1e-5, family)
    assert after.degrees_of_freedom_prior == 3.5 and after.feature_names_in_.tolist() == ["a", "b"]
    X = pd.DataFrame(blobs(2, seed=1), columns=["a", "b"])
    np.testing.assert_allclose(after.score_samples(X), before.score_samples(X), rtol=1e-13)
    # It goes on where the fit before it ended.
    after.set_params(warm_start=True, max_iter=3, tol=0).fit(pd.DataFrame(blobs(2), columns=["a", "b"]))
    assert after.lower_bounds_[0] >= before.lower_bound_ - 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_python_reads_the_posterior_that_the_program_writes(kind, tmp_path):
    np.save(tmp_path / "rows.npy", blobs(2))
    options = ["--seed", "5", "--device", "cpu", "--threads", "2", "--covariance", kind, "--max-iter", "20", "--tol", "0"]
    gmm("fit", "rows.npy", "-k", "4", "--bayes", "dp", "-o", "m.json", *options, cwd=tmp_path)
    found = gmm_rs.load(tmp_path / "m.json", device="cpu", n_jobs=2)
    ours = BayesianGaussianMixture(
        n_components=4, covariance_type=kind, random_state=5, device="cpu", n_jobs=2, max_iter=20, tol=0
    )
    ours.fit(blobs(2))
    equal(found, ours, rtol=1e-15)
    # The program evaluates at the end of the fit; the estimator's bound is that of the last E-step.
    bound = json.loads((tmp_path / "m.json").read_text())["fit"]["lower_bound"]
    assert found.lower_bound_ == pytest.approx(ours.lower_bound_, rel=1e-14)
    assert bound >= found.lower_bound_


def test_the_program_predicts_with_what_python_writes(tmp_path):
    one = fitted("full", FAMILIES[0])
    gmm_rs.save(one, tmp_path / "m.json")
    np.save(tmp_path / "rows.npy", blobs(2))
    said = gmm("predict", "m.json", "rows.npy", "--device", "cpu", cwd=tmp_path)
    labels = [int(line) for line in said.split() if line.isdigit()]
    assert (np.array(labels) == one.predict(pd.DataFrame(blobs(2), columns=["a", "b"]))).mean() > 0.97


def test_scikit_learns_estimator_is_saved_with_its_posterior(tmp_path):
    theirs = Original(n_components=3, random_state=0).fit(blobs(2))
    ours = gmm_rs.load(gmm_rs.save(theirs, tmp_path / "m.json"), device="cpu")
    equal(ours, theirs, rtol=1e-14)
    np.testing.assert_allclose(ours.score_samples(blobs(2)), theirs.score_samples(blobs(2)), rtol=1e-10)
    assert not hasattr(ours, "converged_")


def test_a_file_without_a_posterior_is_loaded_as_before(tmp_path):
    one = GaussianMixture(2, random_state=0, device="cpu").fit(blobs(2))
    assert type(gmm_rs.load(gmm_rs.save(one, tmp_path / "m.json"))) is GaussianMixture


def test_another_family_than_that_of_the_file_is_refused(tmp_path):
    gmm_rs.save(fitted("full", FAMILIES[0]), tmp_path / "m.json")
    with pytest.raises(ValueError, match="weight_concentration_prior_type is 'dirichlet_distribution': the file has"):
        gmm_rs.load(tmp_path / "m.json", weight_concentration_prior_type="dirichlet_distribution")
