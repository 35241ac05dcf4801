"""Accelerates programs that use ``sklearn.mixture.GaussianMixture`` without changing them.

Use one of these, before the program imports the class from scikit-learn::

    python -m gmm_rs.accel script.py          # or: python -m gmm_rs.accel -m module
    %load_ext gmm_rs.accel                    # in a notebook
    import gmm_rs; gmm_rs.accel.install()     # in a program

Unsupported cases (sparse input, subclasses, array API dispatch) run in scikit-learn as before. So do fits in which a
covariance becomes singular, which scikit-learn may or may not reject. The environment variable ``GMM_ACCEL_LOG=info``
logs to standard error what ran where, and why. Pickles contain scikit-learn's own class and can be loaded without this
package.

Worker processes of joblib, `multiprocessing` and `concurrent.futures` that are started while the acceleration is
installed are accelerated as well. Estimators sent to workers and back stay accelerated.
"""

import logging
import os

__all__ = ["install", "is_installed", "uninstall"]

logger = logging.getLogger("gmm_rs.accel")


def install():
    """Replace ``sklearn.mixture.GaussianMixture`` by this package's class. A second call has no effect.

    Code that imported the class before keeps scikit-learn's class.
    """
    import sklearn.mixture

    from gmm_rs.accel._estimator import GaussianMixture
    from gmm_rs.accel._workers import follow_into_workers

    _listen()
    follow_into_workers(GaussianMixture)
    sklearn.mixture.GaussianMixture = GaussianMixture


def uninstall():
    """Restore scikit-learn's class. Estimators created and worker processes started in between stay accelerated."""
    import sklearn.mixture

    from gmm_rs.accel._estimator import Original

    sklearn.mixture.GaussianMixture = Original


def is_installed():
    """Return whether ``sklearn.mixture.GaussianMixture`` is this package's class.

    Returns
    -------
    installed : bool
    """
    import sklearn.mixture

    from gmm_rs.accel._estimator import Original

    return sklearn.mixture.GaussianMixture is not Original


def load_ipython_extension(ipython):
    """Implement ``%load_ext gmm_rs.accel``."""
    install()


def unload_ipython_extension(ipython):
    """Implement ``%unload_ext gmm_rs.accel``."""
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
