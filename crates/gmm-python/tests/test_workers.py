"""Under `accel`, worker processes are also accelerated, and files contain scikit-learn's class."""

import io
import os
import pickle
import subprocess
import sys
import textwrap

import cloudpickle
import joblib
import pytest
import sklearn.mixture
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original

from gmm_rs import accel

# A worker reports the class of an estimator, and the class that a program imports there.
MODULE = """
import os

import sklearn.mixture


def fitted(estimator, rows):
    estimator.fit(rows)
    return os.getpid(), type(estimator).__module__, sklearn.mixture.GaussianMixture.__module__, estimator


def found(_):
    from sklearn.mixture import GaussianMixture

    return os.getpid(), GaussianMixture.__module__
"""

BEGIN = """
import multiprocessing, os, sys
import joblib
import numpy as np
from work import found, fitted

X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [9.0]], 100, axis=0)
OURS = "gmm_rs.accel._estimator"


def check(results):
    for pid, there, program, back in results:
        assert pid != os.getpid()
        assert (there, program, type(back).__module__) == (OURS, OURS, OURS), (there, program, type(back))
        assert back.n_iter_ > 0


if __name__ == "__main__":
    from sklearn.mixture import GaussianMixture
"""


def run(program, tmp_path, accelerated=True, **environment):
    """Run a user's script under ``python -m gmm_rs.accel``, and return its standard error."""
    (tmp_path / "work.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(BEGIN + textwrap.indent(textwrap.dedent(program), "    "))
    how = ["-m", "gmm_rs.accel"] if accelerated else []
    done = subprocess.run(
        [sys.executable, *how, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(method, tmp_path):
    run(
        f"""
        context = multiprocessing.get_context({method!r})
        with context.Pool(2) as pool:
            check(pool.starmap(fitted, [(GaussianMixture(2, random_state=0), X)] * 2))
            assert {{module for _, module in pool.map(found, range(4))}} == {{OURS}}
        queue = context.Queue()
        queue.put(GaussianMixture(2))
        assert type(queue.get()) is GaussianMixture
        """,
        tmp_path,
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_concurrent_futures(method, tmp_path):
    run(
        f"""
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context({method!r})) as pool:
            check([pool.submit(fitted, GaussianMixture(2, random_state=0), X).result()])
            assert {{module for _, module in pool.map(found, range(4))}} == {{OURS}}
        """,
        tmp_path,
    )


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_processes_of_joblib(backend, tmp_path):
    run(
        f"""
        parallel = joblib.Parallel(n_jobs=2, backend={backend!r})
        check(parallel(joblib.delayed(fitted)(GaussianMixture(2, random_state=0), X) for _ in range(3)))
        assert {{module for _, module in parallel(joblib.delayed(found)(i) for i in range(4))}} == {{OURS}}
        """,
        tmp_path,
    )


def test_threads_of_joblib(tmp_path):
    run(
        """
        done = joblib.Parallel(n_jobs=2, backend="threading")(
            joblib.delayed(fitted)(GaussianMixture(2, random_state=0), X) for _ in range(3)
        )
        assert all(module == OURS for _, *modules, _ in done for module in modules)
        """,
        tmp_path,
    )


def test_a_worker_that_runs_already_is_accelerated_by_what_comes_to_it(tmp_path):
    run(
        """
        parallel = joblib.Parallel(n_jobs=2)
        before = parallel(joblib.delayed(found)(i) for i in range(4))
        assert {module for _, module in before} == {"sklearn.mixture._gaussian_mixture"}
        import gmm_rs
        gmm_rs.accel.install()
        from sklearn.mixture import GaussianMixture
        check(parallel(joblib.delayed(fitted)(GaussianMixture(2, random_state=0), X) for _ in range(3)))
        """,
        tmp_path,
        accelerated=False,
    )


def test_after_uninstall_workers_that_start_have_scikit_learns_class(tmp_path):
    run(
        """
        import gmm_rs
        gmm_rs.accel.uninstall()
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                assert pool.map(found, [0])[0][1] == "sklearn.mixture._gaussian_mixture"
        done = joblib.Parallel(n_jobs=2)(joblib.delayed(found)(i) for i in range(2))
        assert {module for _, module in done} == {"sklearn.mixture._gaussian_mixture"}
        # Estimators created before stay accelerated; returned estimators do not install anything.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            _, there, _, back = pool.apply(fitted, (GaussianMixture(2), X))
        assert there == type(back).__module__ == OURS and not gmm_rs.accel.is_installed()
        """,
        tmp_path,
    )


def test_searches_and_cross_validation_say_in_the_log_that_workers_ran_here(tmp_path):
    log = run(
        """
        from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline = make_pipeline(StandardScaler(), GaussianMixture(random_state=0))
        search = GridSearchCV(pipeline, {"gaussianmixture__n_components": [1, 2]}, cv=3, n_jobs=2).fit(X)
        assert type(search.best_estimator_[-1]) is GaussianMixture and search.best_params_["gaussianmixture__n_components"] == 2
        print("search", file=sys.stderr, flush=True)
        nested = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [1, 2]}, cv=3, n_jobs=2)
        assert np.isfinite(cross_val_score(nested, X, cv=2, n_jobs=2)).all()
        done = cross_validate(GaussianMixture(2, random_state=0), X, cv=3, n_jobs=2, return_estimator=True)
        assert all(type(one) is GaussianMixture and one.converged_ for one in done["estimator"])
        """,
        tmp_path,
        GMM_ACCEL_LOG="info",
    )
    # Two candidates in three folds in workers, and one final fit of the best candidate here.
    fits = log.split("search")[0].count("rows ran on")
    assert fits == 7, log


def test_a_class_of_the_users_own_runs_there_as_it_does_here(tmp_path):
    run(
        """
        import cloudpickle
        class Mine(GaussianMixture):
            pass
        globals()["Mine"] = Mine
        _, there, program, back = joblib.Parallel(n_jobs=2)([joblib.delayed(fitted)(Mine(2, random_state=0), X)] * 2)[0]
        assert program == OURS and type(back).__name__ == "Mine"
        """,
        tmp_path,
    )


def test_files_stay_scikit_learns_own(rows, tmp_path):
    accel.install()
    try:
        one = sklearn.mixture.GaussianMixture(3, random_state=0).fit(rows)
        file = io.BytesIO()
        joblib.dump(one, file)
        file.seek(0)
        plain = [pickle.loads(pickle.dumps(one)), joblib.load(file), cloudpickle.loads(cloudpickle.dumps(one))]
        nested = pickle.loads(pickle.dumps({"models": [one]}))["models"][0]
        memory = joblib.Memory(tmp_path, verbose=0).cache(lambda: one)
        memory()
        assert [type(each) for each in [*plain, nested, memory()]] == [Original] * 5
        assert b"gmm_rs" not in pickle.dumps(one)
    finally:
        accel.uninstall()
