"""Support for worker processes: the acceleration is installed there, and estimators sent to them stay accelerated.

Ordinary pickles contain scikit-learn's class (``Accelerated.__reduce_ex__``). Data between processes are pickled by
picklers with their own registries, in which a class can be registered: that of `multiprocessing`, which
`concurrent.futures` shares, and those of joblib's two backends. A process that is not forked first receives preparation
data, to which the installation is added.
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

# Executed in a worker before it imports the program, so that the program's imports are accelerated. A worker that
# cannot import this package uses scikit-learn's class.
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


# The classes that stay accelerated in workers.
_classes: list[type] = []


def follow_into_workers(cls):
    """Register `cls` with the picklers for processes, and make new processes install it. Repeated calls are no-ops."""
    if cls not in _classes:
        _classes.append(cls)
    multiprocessing.reduction.ForkingPickler.register(cls, _reduce)
    loky_reduction.register(cls, _reduce)
    for module in (multiprocessing.spawn, loky_spawn):
        module.get_preparation_data = _announcing(module.get_preparation_data)
    if joblib_pool is not None and not hasattr(joblib_pool.CustomizablePickler, "_gmm_rs"):
        joblib_pool.CustomizablePickler = _pickler_with(joblib_pool.CustomizablePickler)


def _reduce(estimator):
    return _rebuild, (type(estimator), accel.is_installed()), estimator.__getstate__()


def _rebuild(cls, is_installed):
    # A worker may have been started before the installation. In the main process nothing is installed.
    if is_installed and multiprocessing.parent_process() is not None:
        accel.install()
    # So that the estimator can be sent back, even if the acceleration has been uninstalled.
    follow_into_workers(cls)
    return cls.__new__(cls)


def _announcing(get_preparation_data):
    """Wrap the function that makes the preparation data of a new process: while installed, add the installation."""
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
    """An object that installs the acceleration when it is unpickled."""

    def __init__(self, path):
        # The package may be in a folder that only this process has in its path.
        self._path = [*path, os.path.dirname(os.path.dirname(gmm_rs.__file__))]

    def __reduce__(self):
        return exec, (_INSTALL.format(path=self._path), {})


def _pickler_with(base):
    """joblib's pickler for pools with the classes registered; it has no registry that is accessible from outside."""

    def begin(self, *args, **kwargs):
        base.__init__(self, *args, **kwargs)
        for cls in _classes:
            self.register(cls, _reduce)

    return type(base.__name__, (base,), {"__init__": begin, "_gmm_rs": True})
