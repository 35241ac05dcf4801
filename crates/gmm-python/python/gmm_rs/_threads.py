"""The number of CPU threads.

The first of these that is set: `n_jobs`; `n_jobs` of the joblib context (``joblib.parallel_config``); a limit set by
threadpoolctl; the environment variables ``RAYON_NUM_THREADS``, then ``OMP_NUM_THREADS``; the number of cores available
to the process. joblib sets ``OMP_NUM_THREADS`` in its worker processes, to ``inner_max_num_threads`` or to their share
of the cores.
"""

import threading

import joblib
import threadpoolctl

from gmm_rs import _core
from gmm_rs.exceptions import ParameterError

# Maximum number of threads that the engines start.
_MOST = 1024

# The limit set in the main thread, which applies to all threads without their own limit, and each thread's own limit.
_of_main = None
_own = threading.local()


def threads(n_jobs=None):
    """The number of threads for an `n_jobs`; 0 means that the engine uses the environment or the number of cores.

    Parameters
    ----------
    n_jobs : int or None
        Negative numbers count from the number of cores, as in joblib: -1 is all, -2 all but one.

    Returns
    -------
    threads : int
    """
    if n_jobs is None:
        n_jobs = _of_context()
    if n_jobs is None:
        return min(_limit() or 0, _MOST)
    if n_jobs == 0:
        raise ParameterError("n_jobs is 0: it must be positive, or negative to count from the number of cores")
    if n_jobs < 0:
        n_jobs = max(joblib.cpu_count() + 1 + n_jobs, 1)
    return min(int(n_jobs), _MOST)


def _of_context():
    # Before joblib 1.3, a context without `n_jobs` could not be distinguished from n_jobs=1.
    return joblib.parallel.get_active_backend()[1] if hasattr(joblib, "parallel_config") else None


def _limit():
    return getattr(_own, "limit", None) or _of_main


def _set_limit(limit):
    if threading.current_thread() is threading.main_thread():
        global _of_main
        _of_main = limit
    else:
        _own.limit = limit


# Before version 3.2, threadpoolctl supports only its built-in libraries.
_IS_OPEN = hasattr(threadpoolctl, "register")


class Controller(threadpoolctl.LibController if _IS_OPEN else object):  # type: ignore[misc]
    """Controller that registers the engines with threadpoolctl, so that its limits apply to them."""

    # The threads loop over rows, as OpenMP threads do: `user_api="openmp"` limits them, `user_api="blas"` does not.
    user_api = "openmp"
    internal_api = "gmm_rs"
    filename_prefixes = ("_core",)
    # Other packages also have a library of that name; this symbol identifies ours.
    check_symbols = ("gmm_rs_default_threads",)

    def get_num_threads(self):
        return _limit() or self.dynlib.gmm_rs_default_threads()

    def set_num_threads(self, num_threads):
        _set_limit(None)
        # The number that applies without a limit is stored as no limit: the environment may change later.
        if num_threads != self.get_num_threads():
            _set_limit(max(int(num_threads), 1))

    def get_version(self):
        return _core.__version__


if _IS_OPEN:
    threadpoolctl.register(Controller)
