"""`gmm_rs.dask`: fits over partitions, on a cluster and on the schedulers of one machine."""

import os
import pickle
import signal
import sys
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from conftest import KINDS, start
from distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import gmm_rs
from gmm_rs import _partitions, mixture
from gmm_rs.dask import GaussianMixture
from gmm_rs.datasets import make_gmm
from gmm_rs.exceptions import DataError, ParameterError

SIZES = (700, 1, 255, 900, 3, 600)
N, D = sum(SIZES), 3


def block(i, dtype="float64"):
    """The rows of a partition, made anew wherever they are asked for."""
    rows = make_gmm(N, 3, D, separation=3.0, random_state=0)[0].astype(dtype)
    first = sum(SIZES[:i])
    return rows[first : first + SIZES[i]]


def array(dtype="float64"):
    """All rows as a dask.array of uneven chunks."""
    make = dask.delayed(block)
    return da.concatenate([da.from_delayed(make(i, dtype), (n, D), dtype) for i, n in enumerate(SIZES)])


def weights():
    return 0.5 + np.arange(N) % 3.0


def estimator(kind="full", **parameters):
    return GaussianMixture(3, covariance_type=kind, random_state=0, **{"device": "cpu", **parameters})


def bits(model):
    """All fitted parameters and the trace as bytes."""
    return [np.asarray(a).tobytes() for a in (model.weights_, model.means_, model.covariances_, model.lower_bounds_)]


@pytest.fixture(scope="module")
def cluster():
    """Three worker processes, each of one thread."""
    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


def kill(client, iteration, at=3):
    """At iteration `at`, kill one of the workers that keep partitions."""
    if iteration == at:
        pids = client.run(os.getpid)
        held = {worker for workers in client.who_has().values() for worker in workers}
        os.kill(pids[min(held)], signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_partitions_give_the_fit_of_all_rows(kind, dtype):
    X = array(dtype)
    rows = X.compute()
    begin = start(rows, 3, kind)
    for sample_weight in (None, weights()):
        ours = estimator(kind, **begin).fit(X, sample_weight=sample_weight)
        theirs = mixture.GaussianMixture(3, covariance_type=kind, device="cpu", **begin)
        theirs.fit(rows, sample_weight=sample_weight)
        assert ours.n_iter_ == theirs.n_iter_ and ours.converged_
        tolerance = 1e-4 if dtype == "float32" else 1e-8
        for name in ("weights_", "means_", "covariances_", "precisions_cholesky_", "lower_bounds_"):
            found, wanted = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
            assert found.dtype == wanted.dtype and np.allclose(found, wanted, rtol=tolerance, atol=tolerance), name


def test_one_component_is_the_mean_and_the_covariance():
    X = array()
    rows, w = X.compute(), weights()
    model = GaussianMixture(1, reg_covar=0.0, device="cpu").fit(X, sample_weight=w)
    mean = np.average(rows, axis=0, weights=w)
    assert np.allclose(model.means_[0], mean, rtol=0, atol=1e-13)
    assert np.allclose(model.covariances_[0], np.cov(rows.T, aweights=w, ddof=0), rtol=1e-12)


def test_a_killed_worker_and_the_number_of_workers_change_no_bit(cluster):
    X = array()
    with Client(cluster) as client:
        undisturbed = estimator(max_iter=6, tol=0.0, init_rows=500)
        killed = estimator(max_iter=6, tol=0.0, init_rows=500, callback=lambda iteration, _: kill(client, iteration))
        with pytest.warns(ConvergenceWarning):
            undisturbed.fit(X, sample_weight=weights())
        before = client.run(os.getpid)
        with pytest.warns(ConvergenceWarning):
            killed.fit(X, sample_weight=weights())
        client.wait_for_workers(3, timeout=20)
        assert set(client.run(os.getpid).values()) != set(before.values()), "a worker was replaced"
    alone = {}
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler), pytest.warns(ConvergenceWarning):
            alone[scheduler] = estimator(max_iter=6, tol=0.0, init_rows=500).fit(X, sample_weight=weights())
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"):
        with pytest.warns(ConvergenceWarning):
            alone["one worker"] = estimator(max_iter=6, tol=0.0, init_rows=500).fit(X, sample_weight=weights())
    for what, model in {"killed": killed, **alone}.items():
        assert bits(model) == bits(undisturbed), what


def test_workers_keep_their_rows_between_iterations_and_free_them_after_the_fit(cluster):
    def kept():
        return sum(len(parts) for parts in _partitions._KEPT.values())

    seen = []
    with Client(cluster) as client:
        client.wait_for_workers(3, timeout=20)
        model = estimator(max_iter=3, tol=0.0, callback=lambda *_: seen.append(sum(client.run(kept).values())))
        with pytest.warns(ConvergenceWarning):
            model.fit(array())
        assert seen[0] == len(SIZES) and min(seen) == len(SIZES)
        assert sum(client.run(kept).values()) == 0


def test_an_interrupted_fit_leaves_no_tasks(cluster):
    def interrupt(iteration, _):
        if iteration == 2:
            raise KeyboardInterrupt

    with Client(cluster) as client:
        model = estimator(tol=0.0, callback=interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(array())
        assert not hasattr(model, "means_")
        until = time.monotonic() + 10
        while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            assert time.monotonic() < until, "tasks are left"
            time.sleep(0.05)


def test_predictions_are_lazy_and_those_of_one_machine():
    X = array()
    rows = X.compute()
    model = estimator().fit(X)
    plain = model._plain()
    frame = dd.from_pandas(pd.DataFrame(rows, columns=["a", "b", "c"]), npartitions=4)
    named = estimator().fit(frame)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    delayed = [dask.delayed(block)(i) for i in range(len(SIZES))]
    for method in ("predict", "predict_proba", "score_samples"):
        wanted = getattr(plain, method)(rows)
        found = getattr(model, method)(X)
        assert isinstance(found, da.Array) and found.shape == wanted.shape and found.dtype == wanted.dtype
        assert found.chunks[0] == SIZES
        assert (found.compute() == wanted).all()
        assert (getattr(model, method)(delayed).compute() == wanted).all()
        assert (getattr(model, method)(rows) == wanted).all()
        of_frame = getattr(named, method)(frame).compute()
        assert np.allclose(of_frame, getattr(named._plain(), method)(pd.DataFrame(rows, columns=["a", "b", "c"])))
    assert np.isclose(model.score(X), plain.score(rows), rtol=1e-13)
    assert np.isclose(model.score(X, sample_weight=weights()), plain.score(rows, sample_weight=weights()), rtol=1e-13)
    assert np.isclose(model.bic(X), plain.bic(rows)) and np.isclose(model.aic(X), plain.aic(rows))


def test_every_form_of_the_same_partitions_gives_the_same_bits():
    X = array()
    parts = [block(i) for i in range(len(SIZES))]
    ends = np.cumsum(SIZES)
    split = [weights()[end - n : end] for n, end in zip(SIZES, ends)]
    forms = {
        "array": (X, da.from_array(weights(), chunks=500)),
        "columns in chunks": (X.rechunk({1: 2}), weights()),
        "delayed": ([dask.delayed(part) for part in parts], [dask.delayed(part) for part in split]),
    }
    found = {name: bits(estimator().fit(rows, sample_weight=w)) for name, (rows, w) in forms.items()}
    for name in found:
        assert found[name] == found["array"], name


def test_empty_partitions_and_rows_of_weight_zero_do_not_count():
    w = weights()
    w[: SIZES[0]] = 0.0
    parts = [dask.delayed(block)(i) for i in range(len(SIZES))]
    split = [dask.delayed(w[sum(SIZES[:i]) : sum(SIZES[: i + 1])]) for i in range(len(SIZES))]
    with_absent = estimator().fit(parts, sample_weight=split)
    empty = dask.delayed(np.zeros((0, D)))
    without = estimator().fit([*parts[1:], empty], sample_weight=[*split[1:], dask.delayed(np.zeros(0))])
    assert bits(with_absent) == bits(without)


def test_starts_and_restarts():
    X = array()
    for init in ("kmeans", "k-means++", "random_from_data", "random"):
        model = estimator(init_params=init, n_init=2, max_iter=300).fit(X)
        assert model.converged_ and np.all(np.diff(model.lower_bounds_) > -1e-9), init
    first = estimator(max_iter=2, tol=0.0, warm_start=True)
    with pytest.warns(ConvergenceWarning):
        first.fit(X).fit(X)
    with pytest.warns(ConvergenceWarning):
        whole = estimator(max_iter=4, tol=0.0).fit(X)
    assert np.allclose(first.means_, whole.means_, rtol=1e-12)
    assert estimator(max_iter=0).fit(X).n_iter_ == 0
    assert estimator(init_rows=100).fit(X).converged_
    given = start(X.compute(), 3, "full")
    assert estimator(means_init=given["means_init"]).fit(X).converged_


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [((3, 17, 2), np.nan, "partition 3: .*row 17, column 2"), ((0, 5, 0), np.inf, "partition 0: .*row 5, column 0")],
)
def test_an_error_names_the_partition_and_the_row(at, value, words):
    parts = [block(i).copy() for i in range(len(SIZES))]
    parts[at[0]][at[1:]] = value
    with pytest.raises(DataError, match=words):
        estimator().fit([dask.delayed(part) for part in parts])
    # Also if the row is not in the sample.
    with pytest.raises(DataError, match=words):
        estimator(init_rows=3, **start(block(0), 3, "full")).fit([dask.delayed(part) for part in parts])


def test_without_dask_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match="pip install"):
        estimator().fit(np.zeros((9, 2)))


def test_an_estimator_survives_clone_and_files(tmp_path):
    X = array()
    model = estimator().fit(X)
    assert not hasattr(clone(model), "means_") and clone(model).get_params() == model.get_params()
    again = gmm_rs.load(gmm_rs.save(model, tmp_path / "model.json"), device="cpu")
    assert (again.predict(X.compute()) == model.predict(X).compute()).all()
    assert bits(pickle.loads(pickle.dumps(model))) == bits(model)
    assert (model.fit_predict(X).compute() == model.predict(X).compute()).all()


def test_what_does_not_match_is_an_error():
    X = array()
    with pytest.raises(DataError, match="partition 1 has columns 2, partition 0 has 3"):
        estimator().fit([dask.delayed(block)(0), dask.delayed(np.zeros((4, 2)))])
    with pytest.raises(ParameterError, match="sample_weight has 2 partitions, X has 6"):
        estimator().fit(X, sample_weight=[dask.delayed(np.ones(3))] * 2)
    with pytest.raises(DataError, match="partition 0: the weight of row 1 is -1.0"):
        w = weights()
        w[1] = -1.0
        estimator().fit(X, sample_weight=w)
    with pytest.raises(ParameterError, match="'fast'"):
        estimator(precision="fast").fit(X)
    with pytest.raises(ParameterError, match="a fit on a cluster maximises the likelihood: prior must"):
        estimator(prior="conjugate").fit(X)
    with pytest.raises(DataError, match="Expected 2D array, got 1D"):
        estimator().fit(X[:, 0])
    with pytest.raises(ParameterError, match="n_components = 3, n_samples = 1"):
        estimator().fit(X[:1])
    model = estimator().fit(X)
    with pytest.raises(DataError, match="X has 2 features"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="not fitted"):
        estimator().predict(X)
