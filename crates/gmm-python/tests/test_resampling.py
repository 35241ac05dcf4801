"""Standard errors, the choices of `select` that resample, and the starts `tree` and `best`."""

import numpy as np
import pytest

import gmm_rs
from gmm_rs import bootstrap, select
from gmm_rs.datasets import make_gmm
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture


@pytest.fixture(scope="module")
def rows():
    return make_gmm(300, 2, 3, separation=6.0, random_state=0)[0]


def fitted(X, **options):
    return GaussianMixture(3, tol=1e-8, max_iter=1000, random_state=0, device="cpu", **options).fit(X)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("resampling", ["nonparametric", "weighted"])
def test_spreads_have_the_shapes_of_the_attributes(rows, kind, resampling):
    model = fitted(rows, covariance_type=kind)
    found = bootstrap(model, rows, replicates=30, resampling=resampling, random_state=1)
    for name in ("weights", "means", "covariances"):
        value, spread = getattr(model, f"{name}_"), getattr(found, f"{name}_spread")
        assert getattr(found, name).shape == (30, *value.shape)
        assert spread.standard_error.shape == value.shape
        assert (spread.lower <= spread.upper).all()


def test_the_standard_error_of_one_mean_is_that_of_theory(rows):
    model = GaussianMixture(1, covariance_type="diag", reg_covar=0, device="cpu").fit(rows)
    found = bootstrap(model, rows, replicates=400, random_state=0)
    want = np.sqrt(model.covariances_[0] / len(rows))
    # Four times 1/sqrt(2 * 400).
    np.testing.assert_allclose(found.means_spread.standard_error[0], want, rtol=0.15)


def test_replicates_are_fits_of_the_same_kind_as_the_model(rows, tmp_path):
    plain = bootstrap(fitted(rows), rows, replicates=10, random_state=0)
    for rule, holds in [
        ({"floor": 4.0}, lambda found: (np.linalg.eigvalsh(found.covariances) >= 4.0 - 1e-9).all()),
        ({"prior": "conjugate"}, lambda found: not np.allclose(found.covariances, plain.covariances, rtol=1e-3)),
        ({"shared_covariances": "all"}, lambda found: (found.covariances[:, :1] == found.covariances).all()),
    ]:
        model = fitted(rows, **rule)
        found = bootstrap(model, rows, replicates=10, random_state=0)
        assert holds(found)
        path = gmm_rs.save(model, tmp_path / "m.json")
        # A file has the rule as text only.
        with pytest.raises(ValueError, match="rule of the model's fit"):
            bootstrap(gmm_rs.load(path), rows, replicates=10)
    with pytest.raises(ValueError, match="rule of the model's fit"):
        bootstrap(fitted(rows).fit(rows, noise=np.full(rows.shape, 0.1)), rows, replicates=10)
    with pytest.raises(ValueError, match="starved"):
        bootstrap(fitted(rows, drop_starved=1), rows, replicates=10)


def test_invalid_arguments_are_refused(rows):
    model = fitted(rows)
    for wrong in ({"replicates": 1}, {"level": 1.0}, {"resampling": "jackknife"}):
        with pytest.raises(ValueError):
            bootstrap(model, rows, **wrong)
    with pytest.raises(ParameterError, match="one kind"):
        select(rows, [1, 2], criterion="blrt", covariance_type=("full", "diag"), device="cpu")


def test_tests_find_the_number_of_separate_groups(rows):
    found = select(rows, range(1, 5), criterion="blrt", init_params="tree", replicates=19, tol=1e-6, device="cpu")
    assert found.best_params_["n_components"] == 3
    assert [test.k for test in found.tests_] == [1, 2, 3]
    assert [test.p_value <= 0.05 for test in found.tests_] == [True, True, False]


def test_icl_by_labels_is_that_of_the_definition(rows):
    found = select(rows, [2, 3], criterion="icl-labels", device="cpu")
    model = found.best_estimator_
    want = model.bic(rows) - 2 * np.log(model.predict_proba(rows).max(axis=1)).sum()
    assert found.labels_icl_[found.best_index_] == pytest.approx(want, rel=1e-9)


def test_select_says_what_each_start_reached(rows):
    found = select(rows, [2, 3], init_params="best", random_state=0, device="cpu")
    for starts in found.starts_:
        assert [one.start for one in starts] == ["tree", "kmeans", *["random-rows"] * 8, "best"]
        assert starts[-1].mean_log_likelihood >= max(one.mean_log_likelihood for one in starts) - 1e-12


@pytest.mark.parametrize("start", ["tree", "best"])
def test_a_start_from_a_tree_finds_separate_groups(rows, start):
    model = GaussianMixture(3, init_params=start, random_state=0, device="cpu").fit(rows)
    assert sorted(np.bincount(model.predict(rows))) == sorted(np.bincount(fitted(rows).predict(rows)))
