"""Unmodified scikit-learn programs run on this package."""

import copy
import logging
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sklearn.mixture
from scipy import sparse
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original

from gmm_rs import accel

SCRIPT = """
import pickle, sys
import numpy as np
from sklearn.mixture import GaussianMixture

X = np.random.default_rng(0).normal(size=(100, 2)) + np.repeat([[0.0], [9.0]], 50, axis=0)
model = GaussianMixture(n_components=2, random_state=0).fit(X)
assert (model.predict(X)[:50] == model.predict(X)[0]).all()
assert model.predict_proba(X).shape == (100, 2) and model.sample(3)[0].shape == (3, 2)
print(type(model).__module__, round(model.score(X), 6), sys.argv[1:], __name__)
with open(sys.argv[1], "wb") as file:
    pickle.dump(model, file)
"""


@pytest.fixture
def accelerated():
    accel.install()
    yield sklearn.mixture.GaussianMixture
    accel.uninstall()


@pytest.fixture
def log(caplog):
    logger = logging.getLogger("gmm_rs.accel")
    caplog.set_level(logging.INFO, logger="gmm_rs.accel")
    before, logger.propagate = logger.propagate, True
    yield caplog
    logger.propagate = before


def python(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done


def test_an_unmodified_script_runs_on_this_package(tmp_path):
    script, here, plain = tmp_path / "script.py", tmp_path / "here.pkl", tmp_path / "plain.pkl"
    script.write_text(SCRIPT)
    theirs = python(script, plain).stdout.split()
    ours = python("-m", "gmm_rs.accel", script, here, GMM_ACCEL_LOG="info")
    found = ours.stdout.split()
    assert (theirs[0], found[0]) == ("sklearn.mixture._gaussian_mixture", "gmm_rs.accel._estimator")
    assert float(found[1]) == pytest.approx(float(theirs[1]), abs=1e-3)
    assert found[3] == theirs[3] == "__main__"
    assert "fit of 100 × 2 rows ran on" in ours.stderr
    # The pickle contains scikit-learn's class: it can be loaded without this package.
    load = """
        import pickle, sys
        sys.modules["gmm_rs"] = None
        model = pickle.load(open(sys.argv[1], "rb"))
        print(type(model).__module__, model.predict([[9.0, 9.0]]).shape)
    """
    assert python("-W", "error", "-c", textwrap.dedent(load), here).stdout.split() == [
        "sklearn.mixture._gaussian_mixture",
        "(1,)",
    ]


def test_a_module_runs_as_well(tmp_path):
    (tmp_path / "program.py").write_text("import sklearn.mixture; print(sklearn.mixture.GaussianMixture.__module__)")
    done = subprocess.run(
        [sys.executable, "-m", "gmm_rs.accel", "-m", "program"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "gmm_rs.accel._estimator", done.stderr


def test_a_notebook_loads_and_unloads_it():
    accel.load_ipython_extension(None)
    assert accel.is_installed()
    accel.unload_ipython_extension(None)
    assert not accel.is_installed() and sklearn.mixture.GaussianMixture is Original


def test_installing_twice_is_installing_once():
    accel.install()
    accel.install()
    accel.uninstall()
    assert sklearn.mixture.GaussianMixture is Original


def test_fits_are_instances_of_both(accelerated, rows):
    one = accelerated(3, random_state=0).fit(rows)
    assert isinstance(one, Original) and isinstance(one, sklearn.mixture.GaussianMixture)
    plain = Original(3, **{"means_init": one.means_, "weights_init": one.weights_, "precisions_init": one.precisions_})
    np.testing.assert_allclose(one.score_samples(rows), plain.fit(rows).score_samples(rows), atol=1e-2)
    np.testing.assert_array_equal(one.fit_predict(rows), one.predict(rows))


def test_copies_stay_accelerated_and_pickles_do_not(accelerated, rows):
    one = accelerated(3, random_state=0).fit(rows)
    assert type(copy.copy(one)) is type(copy.deepcopy(one)) is accelerated
    assert type(sklearn.base.clone(one)) is accelerated
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is Original
    np.testing.assert_array_equal(again.means_, one.means_)


def test_sparse_input_is_left_to_scikit_learn(accelerated, rows, log):
    with pytest.raises(TypeError, match="Sparse data was passed"):
        accelerated().fit(sparse.csr_array(rows))
    assert "left to scikit-learn: the input is sparse" in log.text


def test_a_subclass_is_left_to_scikit_learn(accelerated, rows, log):
    class Mine(accelerated):
        pass

    one = Mine(2, random_state=0).fit(rows)
    assert "Mine is a subclass" in log.text
    np.testing.assert_array_equal(one.means_, Original(2, random_state=0).fit(rows).means_)


def test_an_unknown_option_is_left_to_scikit_learn(accelerated, rows, log):
    with pytest.raises(ValueError, match="'init_params' parameter"):
        accelerated(init_params="guess").fit(rows)
    assert "init_params='guess' is not supported" in log.text


def twins(k, X, **parameters):
    """The results of the accelerated fit and of scikit-learn's: the error message, or the attributes."""

    def outcome(cls):
        parameters["random_state"] = np.random.RandomState(0)
        try:
            one = cls(k, **parameters).fit(X)
        except ValueError as error:
            return str(error)
        return [getattr(one, name).tolist() for name in ("weights_", "means_", "covariances_")], one.n_iter_

    return outcome(sklearn.mixture.GaussianMixture), outcome(Original)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_without_regularisation_singletons_give_what_scikit_learn_gives(accelerated, kind, log):
    rng = np.random.default_rng(0)
    # A component on a single row, whose variance is 0 or a rounding error.
    for shift in (0.0, 0.1, 1e3 + 1 / 3):
        X = np.vstack([rng.normal(size=(20, 2)), [[50.0, 50.0]]]) + shift
        ours, theirs = twins(2, X, covariance_type=kind, reg_covar=0.0)
        if "left to scikit-learn" in log.text:
            assert ours == theirs
        else:
            assert not isinstance(theirs, str)
        log.clear()


def test_identical_rows_without_regularisation_fail_in_scikit_learns_words(accelerated, log):
    ours, theirs = twins(2, np.full((9, 2), 1.5), reg_covar=0.0)
    assert ours == theirs and ours.startswith("Fitting the mixture model failed because")
    assert "left to scikit-learn" in log.text
    with pytest.raises(ValueError, match="ill-defined"):
        accelerated(2, reg_covar=0.0).fit_predict(np.full((9, 2), 1.5))


def test_an_unknown_level_of_the_log_lists_the_levels(monkeypatch):
    monkeypatch.setenv("GMM_ACCEL_LOG", "loud")
    with pytest.raises(ValueError, match="choose one of debug, info"):
        accel.install()
    assert not accel.is_installed()
