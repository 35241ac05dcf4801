"""What the estimators of mixtures have in common."""

import functools
from numbers import Integral, Real

from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _bridge, _core, _evaluation, _inputs, _rules


class Mixture(DensityMixin, BaseEstimator):
    """Predictions from the attributes of a fit."""

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions(set(_bridge.STARTS))],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "n_jobs": [Integral, None],
        "init_rows": [Interval(Integral, 1, None, closed="left"), None],
        "callback": [callable, None],
    }

    # The documentation link in scikit-learn's HTML representation. This project's pages have no public address, and
    # scikit-learn's page describes another class: no link.
    _doc_link_module = "gmm_rs"
    _doc_link_template = ""

    @classmethod
    @functools.cache
    def _get_param_names(cls):
        # scikit-learn inspects the signature on every call.
        return super()._get_param_names()

    def _e_step(self):
        """The mixture whose responsibilities are those of the fit, and what is added to its log densities."""
        return self, 0.0

    def _evaluated(self, X, what):
        check_is_fitted(self)
        rows = _inputs.rows(self, X, reset=False, by_name=True)
        mixture, log_scale = self._e_step()
        return _evaluation.predicted(mixture, X, rows, what), log_scale

    def _mean_log_density(self, X, sample_weight):
        check_is_fitted(self)
        rows = _inputs.rows(self, X, reset=False, by_name=True)
        mixture, log_scale = self._e_step()
        return _evaluation.score(mixture, rows, _inputs.weights(sample_weight, rows)) + log_scale

    def predict(self, X):
        """Predict the component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n,)
            Most probable component of each row, the first one if several are equally probable; -1 for the noise of a
            :class:`GaussianMixture` with `noise`.
        """
        return self._evaluated(X, "labels")[0]

    def predict_proba(self, X):
        """Evaluate the probability (responsibility) of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        resp : ndarray of shape (n, k)
            Probability of each component for each row. Each row sums to 1. A :class:`GaussianMixture` with `noise` has a
            further column, the last, for the noise.
        """
        return self._evaluated(X, "responsibilities")[0]

    def sample(self, n_samples=1):
        """Draw random rows from the mixture of `weights_`, `means_` and `covariances_`.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows to draw.

        Returns
        -------
        X : ndarray of shape (n_samples, d)
            Rows in random order (scikit-learn sorts them by component).

        y : ndarray of shape (n_samples,)
            Component of each row; -1 for the noise of a :class:`GaussianMixture` with `noise`.
        """
        check_is_fitted(self)
        n = count(n_samples, "n_samples")
        drawn = _core.sample(_bridge.parameters(self), n, _bridge.seed(self.random_state), _rules.noise_of(self))
        return tuple(_inputs.like(self.means_, array) for array in drawn)


def count(value, name):
    """`value`, if it is an integer of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"Invalid value for '{name}': {value!r}. It must be an integer of at least 1.")
    return int(value)
