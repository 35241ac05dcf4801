"""How many threads compute on the CPU.

The first of these that says a number: `n_jobs`; `n_jobs` of joblib's context (``joblib.parallel_config``); a limit of
threadpoolctl's; ``RAYON_NUM_THREADS``, then ``OMP_NUM_THREADS``, in the environment; the cores that the process may
use. joblib's own worker processes find ``OMP_NUM_THREADS`` set, by ``inner_max_num_threads`` or to their share of the
cores.
"""

import threading

import joblib
import threadpoolctl

from gmm_rs import _core
from gmm_rs.exceptions import ParameterError

# As many as the engines start.
_MOST = 1024

# The limit that the main thread set, which holds for all threads that set none, and each thread's own.
_of_main = None
_own = threading.local()


def threads(n_jobs=None):
    """Threads for an `n_jobs`; 0 leaves it to the environment and the cores.

    Parameters
    ----------
    n_jobs : int or None
        Negative numbers count from the number of cores, as joblib has it: -1 is all, -2 all but one.

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
    # Before joblib 1.3 a context without a number looks like one of 1.
    return joblib.parallel.get_active_backend()[1] if hasattr(joblib, "parallel_config") else None


def _limit():
    return getattr(_own, "limit", None) or _of_main


def _set_limit(limit):
    if threading.current_thread() is threading.main_thread():
        global _of_main
        _of_main = limit
    else:
        _own.limit = limit


# Before 3.2 threadpoolctl knows no libraries but its own.
_IS_OPEN = hasattr(threadpoolctl, "register")


class Controller(threadpoolctl.LibController if _IS_OPEN else object):  # type: ignore[misc]
    """What threadpoolctl knows of the engines, so that its limits hold for them."""

    # Loops over rows by threads, as OpenMP's: `user_api="openmp"` limits them, `user_api="blas"` does not.
    user_api = "openmp"
    internal_api = "gmm_rs"
    filename_prefixes = ("_core",)
    # Other packages have a library of that name as well.
    check_symbols = ("gmm_rs_default_threads",)

    def get_num_threads(self):
        return _limit() or self.dynlib.gmm_rs_default_threads()

    def set_num_threads(self, num_threads):
        _set_limit(None)
        # To go back to what holds without a limit is to have none: the environment may change later.
        if num_threads != self.get_num_threads():
            _set_limit(max(int(num_threads), 1))

    def get_version(self):
        return _core.__version__


if _IS_OPEN:
    threadpoolctl.register(Controller)
