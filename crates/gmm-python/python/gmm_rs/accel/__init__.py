"""Accelerates programs that use scikit-learn's ``GaussianMixture`` or ``BayesianGaussianMixture`` without changing them.

Use one of these, before the program imports a class from ``sklearn.mixture``::

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
    """Replace the classes of ``sklearn.mixture`` by those of this package. A second call has no effect.

    Code that imported a class before keeps scikit-learn's class.
    """
    import sklearn.mixture

    from gmm_rs.accel._estimator import CLASSES
    from gmm_rs.accel._workers import follow_into_workers

    _listen()
    for cls in CLASSES:
        follow_into_workers(cls)
        setattr(sklearn.mixture, cls.__name__, cls)


def uninstall():
    """Restore scikit-learn's classes. Estimators created and worker processes started in between stay accelerated."""
    import sklearn.mixture

    from gmm_rs.accel._estimator import CLASSES

    for cls in CLASSES:
        setattr(sklearn.mixture, cls.__name__, cls._original)


def is_installed():
    """Return whether the classes of ``sklearn.mixture`` are those of this package.

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
