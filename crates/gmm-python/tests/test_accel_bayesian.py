"""Unmodified programs that use scikit-learn's ``BayesianGaussianMixture`` run on this package."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sklearn.mixture
from sklearn.mixture._bayesian_mixture import BayesianGaussianMixture as Original

from gmm_rs import accel, mixture

FAMILIES = ["dirichlet_process", "dirichlet_distribution"]
KINDS = ["full", "tied", "diag", "spherical"]


@pytest.fixture
def accelerated():
    accel.install()
    yield sklearn.mixture.BayesianGaussianMixture
    accel.uninstall()


def same(one, other):
    assert vars(one).keys() >= {name for name in vars(other) if name.endswith("_")}
    for name, value in vars(other).items():
        if name.endswith("_"):
            np.testing.assert_array_equal(getattr(one, name), value, err_msg=name)


def test_it_is_replaced_and_restored():
    accel.install()
    assert sklearn.mixture.BayesianGaussianMixture is not Original and accel.is_installed()
    accel.uninstall()
    assert sklearn.mixture.BayesianGaussianMixture is Original and not accel.is_installed()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_that_of_this_packages_class(accelerated, rows, kind, family):
    parameters = {"n_components": 4, "covariance_type": kind, "weight_concentration_prior_type": family}
    theirs = accelerated(random_state=0, **parameters).fit(rows)
    ours = mixture.BayesianGaussianMixture(random_state=0, **parameters).fit(rows)
    del ours.engine_
    same(theirs, ours)
    for name in ("predict", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(theirs, name)(rows), getattr(ours, name)(rows))
    assert theirs.score(rows) == ours.score(rows)
    np.testing.assert_array_equal(accelerated(random_state=0, **parameters).fit_predict(rows), ours.predict(rows))
    assert isinstance(theirs, Original) and theirs.sample(3)[0].shape == (3, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_pickles_hold_scikit_learns_class_and_copies_ours(accelerated, rows, family, tmp_path):
    one = accelerated(n_components=3, random_state=0, weight_concentration_prior_type=family).fit(rows)
    assert type(copy.copy(one)) is type(copy.deepcopy(one)) is type(sklearn.base.clone(one)) is accelerated
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is Original
    same(again, one)
    # scikit-learn predicts as this package does.
    np.testing.assert_allclose(again.score_samples(rows), one.score_samples(rows), rtol=1e-10)
    # The file can be loaded without this package.
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(one))
    program = """
        import pickle, sys
        sys.modules["gmm_rs"] = None
        model = pickle.load(open(sys.argv[1], "rb"))
        print(type(model).__module__, model.predict([[9.0, 9.0, 9.0]]).shape, model.set_params(warm_start=True).n_iter_)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), str(tmp_path / "model.pkl")],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["sklearn.mixture._bayesian_mixture", "(1,)", str(one.n_iter_)], done.stderr


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_subclass_is_left_to_scikit_learn(accelerated, rows):
    class Mine(accelerated):
        pass

    parameters = {"n_components": 3, "random_state": 0}
    np.testing.assert_array_equal(Mine(**parameters).fit(rows).means_, Original(**parameters).fit(rows).means_)


def test_a_wrong_parameter_fails_in_scikit_learns_words(accelerated, rows):
    for cls in (accelerated, Original):
        with pytest.raises(ValueError, match="degrees_of_freedom_prior' should be greater than 2, but got 2.000"):
            cls(degrees_of_freedom_prior=2.0).fit(rows)
        with pytest.raises(ValueError, match="should have the shape of"):
            cls(mean_prior=[0.0]).fit(rows)


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_workers_of_joblib_are_accelerated(backend, tmp_path):
    (tmp_path / "work.py").write_text("def fitted(estimator, rows):\n    return type(estimator.fit(rows)), estimator\n")
    program = f"""
        import joblib, numpy as np
        from sklearn.mixture import BayesianGaussianMixture
        from work import fitted

        if __name__ == "__main__":
            X = np.random.default_rng(0).normal(size=(200, 2))
            one = BayesianGaussianMixture(n_components=2)
            with joblib.parallel_config({backend!r}, n_jobs=2):
                for there, back in joblib.Parallel()(joblib.delayed(fitted)(one, X) for _ in range(4)):
                    assert there is type(back) is BayesianGaussianMixture and back.n_iter_ > 0
            print(BayesianGaussianMixture.__module__)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-m", "gmm_rs.accel", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["gmm_rs.accel._estimator"], done.stderr


@pytest.mark.filterwarnings("ignore")
def test_rdt_normalises_columns_with_it(accelerated):
    """The transformer of SDV that fits a Bayesian mixture to each column."""
    transformers = pytest.importorskip("rdt.transformers.numerical")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    data = pandas.DataFrame({"a": np.concatenate([rng.normal(size=300), rng.normal(50, 3, size=200)])})
    data.loc[::50, "a"] = np.nan
    one = transformers.ClusterBasedNormalizer(missing_value_generation="from_column")
    one.set_random_state(np.random.RandomState(0), "fit")
    there = one.fit_transform(data, "a")
    assert type(one._bgm_transformer) is accelerated
    # Two components; the columns are the value, its component, and whether it is missing.
    assert one.valid_component_indicator.sum() >= 2 and there.shape == (500, 3)
    back = one.reverse_transform(there)["a"]
    assert (back.isna() == data["a"].isna()).all()
    np.testing.assert_allclose(back.dropna(), data["a"].dropna(), rtol=1e-6, atol=1e-6)
