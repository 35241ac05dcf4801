"""Into worker processes and back: estimators that go there stay accelerated, and workers have it installed.

Ordinary pickles are scikit-learn's own (``GaussianMixture.__reduce_ex__``). Those between processes are made by picklers
with tables of their own, in which a class can be registered: `multiprocessing`'s, which `concurrent.futures` shares, and
those of joblib's two backends. A process that is not forked is told first how to prepare itself, where it also installs.
"""

import functools
import multiprocessing.reduction
import multiprocessing.spawn
import os

import joblib.externals.loky.backend.reduction as loky_reduction
import joblib.externals.loky.backend.spawn as loky_spawn

import gmm_rs
from gmm_rs import accel

try:
    import joblib.pool as joblib_pool
except ImportError:
    # There is no multiprocessing on this platform.
    joblib_pool = None

# Run in a worker before it imports the program, whose imports are then accelerated. A worker that finds no package of
# ours goes on with scikit-learn's class.
_INSTALL = """
import sys
sys.path[:] = {path!r}
try:
    from gmm_rs.accel import install
except ImportError:
    pass
else:
    install()
"""


def follow_into_workers(cls):
    """Register `cls` with the picklers between processes, and see to it that processes install. Once is enough."""
    multiprocessing.reduction.ForkingPickler.register(cls, _reduce)
    loky_reduction.register(cls, _reduce)
    for module in (multiprocessing.spawn, loky_spawn):
        module.get_preparation_data = _announcing(module.get_preparation_data)
    if joblib_pool is not None and not hasattr(joblib_pool.CustomizablePickler, "_gmm_rs"):
        joblib_pool.CustomizablePickler = _pickler_with(joblib_pool.CustomizablePickler, cls)


def _reduce(estimator):
    return _rebuild, (type(estimator), accel.is_installed()), estimator.__getstate__()


def _rebuild(cls, is_installed):
    # A worker may run since before the installation. What comes back from one changes nothing here.
    if is_installed and multiprocessing.parent_process() is not None:
        accel.install()
    # For the way back, also where nothing is installed any longer.
    follow_into_workers(cls)
    return cls.__new__(cls)


def _announcing(get_preparation_data):
    """What a process is told that is not forked, with the order to install while that holds here."""
    if hasattr(get_preparation_data, "_gmm_rs"):
        return get_preparation_data

    @functools.wraps(get_preparation_data)
    def announcing(*args, **kwargs):
        data = get_preparation_data(*args, **kwargs)
        if accel.is_installed():
            data["gmm_rs.accel"] = _Install(data.get("sys_path", []))
        return data

    announcing._gmm_rs = True
    return announcing


class _Install:
    """Installs where it is unpickled."""

    def __init__(self, path):
        # The package may lie where only this process looks.
        self._path = [*path, os.path.dirname(os.path.dirname(gmm_rs.__file__))]

    def __reduce__(self):
        return exec, (_INSTALL.format(path=self._path), {})


def _pickler_with(base, cls):
    """joblib's pickler of pools, which reads no table that a class could be registered in from outside."""

    def begin(self, *args, **kwargs):
        base.__init__(self, *args, **kwargs)
        self.register(cls, _reduce)

    return type(base.__name__, (base,), {"__init__": begin, "_gmm_rs": True})
