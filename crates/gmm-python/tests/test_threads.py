"""The number of threads: `n_jobs`, joblib's context, threadpoolctl, the environment, the cores, in this order."""

import os
import subprocess
import sys
import textwrap
import threading

import joblib
import pytest
import threadpoolctl
from conftest import model

from gmm_rs import _core
from gmm_rs._place import place

CORES = joblib.cpu_count()


def threads(n_jobs=None):
    """The number of threads that the engine reports."""
    _, description, _ = _core.engine(place(model(n_jobs=n_jobs)))
    return int(description.split(" thread")[0])


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def test_all_cores_where_nobody_says():
    assert threads() == CORES


def test_n_jobs_counts_from_the_number_of_cores_where_it_is_negative():
    assert [threads(n) for n in (1, 3, -1, -CORES, -CORES - 5)] == [1, 3, CORES, 1, 1]
    with pytest.raises(ValueError, match="n_jobs is 0"):
        threads(0)


def test_the_environment_is_read_at_each_call(monkeypatch):
    for name, value, expected in [
        ("OMP_NUM_THREADS", "3", 3),
        ("OMP_NUM_THREADS", "5,2", 5),
        ("OMP_NUM_THREADS", "0", CORES),
        ("OMP_NUM_THREADS", "many", CORES),
        ("OMP_NUM_THREADS", "100000", 1024),
        ("RAYON_NUM_THREADS", "100000", 1024),
        # Takes precedence over the OpenMP variable set above.
        ("RAYON_NUM_THREADS", "7", 7),
    ]:
        monkeypatch.setenv(name, value)
        # Checked without starting a thousand threads.
        found = _core_default() if expected > 100 else threads()
        assert found == expected, (name, value)


def _core_default():
    import ctypes

    return ctypes.CDLL(_core.__file__).gmm_rs_default_threads()


def test_a_limit_of_threadpoolctl_holds_in_its_block_and_no_longer(monkeypatch):
    with threadpoolctl.threadpool_limits(1):
        assert threads() == 1
        with threadpoolctl.threadpool_limits(limits={"openmp": 3}):
            assert threads() == 3
        assert threads() == 1
        assert threads(n_jobs=2) == 2
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert threads() == CORES
    # After the context there is no limit: the environment applies again.
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads() == 3
    with threadpoolctl.threadpool_limits(1):
        assert threads() == 1
    assert threads() == 3


def test_threadpoolctl_lists_the_engines():
    found = [library for library in threadpoolctl.threadpool_info() if library["internal_api"] == "gmm_rs"]
    assert [library["num_threads"] for library in found] == [CORES]


def test_a_limit_of_the_main_thread_holds_for_others_and_one_of_another_for_itself():
    def in_a_thread(work):
        found = []
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()
        return found[0]

    def limited():
        with threadpoolctl.threadpool_limits(3):
            return threads(), threads_of_main.append(_limit_of_main())

    def _limit_of_main():
        from gmm_rs import _threads

        return _threads._of_main

    threads_of_main = []
    with threadpoolctl.threadpool_limits(1):
        assert in_a_thread(threads) == 1
    assert in_a_thread(limited)[0] == 3 and threads_of_main == [None]
    assert threads() == CORES


def test_the_context_of_joblib_is_over_the_limit_and_under_n_jobs(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with threadpoolctl.threadpool_limits(3):
        with joblib.parallel_config(n_jobs=5):
            assert (threads(), threads(n_jobs=2)) == (5, 2)
        with joblib.parallel_config(n_jobs=-1):
            assert threads() == CORES
        # A context without `n_jobs`.
        with joblib.parallel_config(backend="threading"):
            assert threads() == 3
    with joblib.parallel_config(n_jobs=1):
        assert model(1, random_state=0).fit([[0.0], [1.0]]).engine_ == "cpu"


def test_workers_of_joblib_share_the_cores_or_take_what_is_said():
    # A separate program: the number of threads is fixed when a worker starts.
    program = """
        import joblib
        from test_threads import threads

        def found(n_jobs, **config):
            with joblib.parallel_config(backend="loky", **config):
                return set(joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(threads)() for _ in range(4)))

        if __name__ == "__main__":
            print(found(2), found(2, inner_max_num_threads=3))
    """
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": here},
    )
    assert done.stdout.strip() == f"{{{max(CORES // 2, 1)}}} {{3}}", done.stderr
