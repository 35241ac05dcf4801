"""Runs programs that use ``sklearn.mixture.GaussianMixture`` on this package's engines, unchanged.

Three ways, each before the program imports the class from scikit-learn::

    python -m gmm_rs.accel script.py          # or: python -m gmm_rs.accel -m module
    %load_ext gmm_rs.accel                    # in a notebook
    import gmm_rs; gmm_rs.accel.install()     # in a program

What this package does not do (sparse input, subclasses of the class, arrays of other libraries) scikit-learn does, as
ever; so it does where a covariance becomes singular, which it may refuse or not. ``GMM_ACCEL_LOG=info`` in the
environment says on standard error what ran where, and why. A pickle is one of scikit-learn's own class and loads where
this package is not installed.

Worker processes of joblib, `multiprocessing` and `concurrent.futures` do the same: in those that are started while it is
installed it is installed as well, and estimators stay accelerated on their way there and back.
"""

import logging
import os

__all__ = ["install", "is_installed", "uninstall"]

logger = logging.getLogger("gmm_rs.accel")


def install():
    """Put this package's class in the place of ``sklearn.mixture.GaussianMixture``. A second call does nothing.

    Code that imported the class before keeps scikit-learn's.
    """
    import sklearn.mixture

    from gmm_rs.accel._estimator import GaussianMixture
    from gmm_rs.accel._workers import follow_into_workers

    _listen()
    follow_into_workers(GaussianMixture)
    sklearn.mixture.GaussianMixture = GaussianMixture


def uninstall():
    """Give scikit-learn's class its place back. Estimators made and worker processes started meanwhile go on as they are."""
    import sklearn.mixture

    from gmm_rs.accel._estimator import Original

    sklearn.mixture.GaussianMixture = Original


def is_installed():
    """Whether ``sklearn.mixture.GaussianMixture`` is this package's.

    Returns
    -------
    installed : bool
    """
    import sklearn.mixture

    from gmm_rs.accel._estimator import Original

    return sklearn.mixture.GaussianMixture is not Original


def load_ipython_extension(ipython):
    """``%load_ext gmm_rs.accel``."""
    install()


def unload_ipython_extension(ipython):
    """``%unload_ext gmm_rs.accel``."""
    uninstall()


def _listen():
    level = os.environ.get("GMM_ACCEL_LOG", "").upper()
    if not level or logger.handlers:
        return
    if not isinstance(logging.getLevelName(level), int):
        raise ValueError(f"GMM_ACCEL_LOG is {level.lower()!r}: choose one of debug, info, warning, error")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("gmm_rs.accel: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
