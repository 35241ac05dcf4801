"""Posterior draws of mixture parameters: summaries, predictions and files."""

import os

import numpy as np

from sklearn.utils.validation import _get_feature_names

from gmm_rs import _bridge, _core, _draws_forms
from gmm_rs._given import index
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture

KINDS = ("full", "tied", "diag", "spherical")

_ADVICE = {
    "unjudged": "take more draws",
    "apart": "take more warmup and draws, or use relabel='pivot' if components switched labels",
    "few": "take more draws",
    "diverging": "raise target_accept, or use a more informative prior",
}


class Draws:
    """Posterior draws of weights, means and covariances, with statistics of the sampler.

    Parameters
    ----------
    covariance_type : {'full', 'tied', 'diag', 'spherical'}
        Covariance type.

    weights : array-like of shape (C, N, k)
        Component weights.

    means : array-like of shape (C, N, k, d)
        Component means.

    covariances : array-like
        Covariances; the leading axes are (C, N), followed by the shape for the covariance type.

    sample_stats : dict
        Arrays of shape (C, N): 'lp', the log posterior density, 'acceptance_rate', and for NUTS 'diverging', 'n_steps',
        'step_size', 'tree_depth' and 'energy'. 'energy' is missing if some draws come from a checkpoint without it.

    checkpoint : bytes, default=None
        State of the chains, from which :func:`~gmm_rs.mcmc` can continue.

    feature_names : list of str, default=None
        Names of the columns; :func:`~gmm_rs.mcmc` takes those of its rows. They are not saved to files.

    Attributes
    ----------
    n_chains : int
        Number of chains ``C``.

    n_draws : int
        Number of draws per chain ``N``.
    """

    def __init__(
        self, covariance_type, weights, means, covariances, sample_stats, *, checkpoint=None, feature_names=None
    ):
        self.covariance_type = covariance_type
        self.weights, self.means, self.covariances = (
            np.ascontiguousarray(array, dtype=np.float64) for array in (weights, means, covariances)
        )
        self.sample_stats = {name: np.asarray(values) for name, values in sample_stats.items()}
        self.checkpoint = checkpoint
        if covariance_type not in KINDS:
            raise ParameterError(f"unknown covariance_type {covariance_type!r}: choose one of {', '.join(KINDS)}")
        if self.means.ndim != 4:
            raise ParameterError(f"draws of means have shape {self.means.shape}, expected (C, N, k, d)")
        each, (k, d) = self.means.shape[:2], self.means.shape[2:]
        kind = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[covariance_type]
        for name, array, shape in [("weights", self.weights, (k,)), ("covariances", self.covariances, kind)]:
            if array.shape != each + shape:
                raise ParameterError(f"draws of {name} have shape {array.shape}, expected {each + shape}")
        for name, values in self.sample_stats.items():
            if values.shape != each:
                raise ParameterError(f"{name} has shape {values.shape}, expected {each}")
        self.n_chains, self.n_draws = each
        self.feature_names = None if feature_names is None else [str(name) for name in feature_names]
        if self.feature_names is not None and len(self.feature_names) != d:
            raise ParameterError(f"there are {len(self.feature_names)} feature_names for {d} columns")

    def __repr__(self):
        k, d = self.means.shape[2:]
        return f"Draws(<{self.n_chains} chains of {self.n_draws} draws, {k} components in {d} columns>)"

    def _repr_html_(self):
        return _draws_forms.html(self)

    def _given(self):
        lp = self.sample_stats.get("lp", np.full(self.means.shape[:2], np.nan))
        return (self.covariance_type, self.weights, self.means, self.covariances, np.asarray(lp, dtype=np.float64))

    def summary(self):
        """Summarise each scalar parameter: mean, standard deviation, quantiles, effective sample sizes, R-hat.

        Only the lower triangles of matrices are included. ``pandas.DataFrame(draws.summary())`` is a table of it.

        Returns
        -------
        summary : dict
            Arrays of equal length under 'name', 'mean', 'sd', 'q5', 'q95', 'ess_bulk', 'ess_tail' and 'r_hat'.
        """
        names = ("name", "mean", "sd", "q5", "q95", "ess_bulk", "ess_tail", "r_hat")
        lines = _core.summary(self._given())
        columns = zip(*lines) if lines else [()] * len(names)
        return {name: np.array(column) for name, column in zip(names, columns)}

    def concerns(self):
        """Return warnings about the quality of the draws; :func:`~gmm_rs.mcmc` also issues them.

        Returns
        -------
        concerns : list of str
            Empty if the chains mixed, there are enough draws, and none diverged.
        """
        diverging = int(np.sum(self.sample_stats.get("diverging", 0)))
        return [f"{text}; {_ADVICE[kind]}" for kind, text in _core.concerns(self._given(), diverging)]

    def mixture(self, i):
        """Return one draw as a fitted estimator.

        Parameters
        ----------
        i : int or tuple of int
            Index of the draw in the concatenated chains, or ``(chain, draw)``.

        Returns
        -------
        mixture : GaussianMixture
        """
        at = np.unravel_index(i, self.means.shape[:2]) if np.ndim(i) == 0 else tuple(i)
        weights, means, covariances = self.weights[at], self.means[at], self.covariances[at]
        if weights.ndim != 1:
            raise ParameterError(f"i is {i!r}: it must be one draw")
        model = GaussianMixture(len(weights), covariance_type=self.covariance_type)
        _bridge.set_parameters(model, _core.mixture((self.covariance_type, weights, means, covariances)), np.float64)
        model.n_features_in_ = means.shape[1]
        return model

    def score_samples(self, X, *, n_draws=200):
        """Compute the log posterior predictive density of rows: the logarithm of the mean density over draws.

        Label switching does not affect it.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        n_draws : int, default=200
            Number of evenly spaced draws to average over; all draws if there are fewer.

        Returns
        -------
        log_prob : ndarray of shape (n,)
        """
        total, count = None, 0
        for model in self._some(n_draws):
            here = model.score_samples(X)
            total, count = here if total is None else np.logaddexp(total, here), count + 1
        return total - np.log(count)

    def predict_proba(self, X, *, n_draws=200):
        """Compute the probabilities of the components, averaged over draws.

        They are meaningful only if components do not switch labels: see `relabel` of :func:`~gmm_rs.mcmc`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        n_draws : int, default=200
            Number of evenly spaced draws to average over; all draws if there are fewer.

        Returns
        -------
        resp : ndarray of shape (n, k)
        """
        found = [model.predict_proba(X) for model in self._some(n_draws)]
        return np.mean(found, axis=0)

    def predict(self, X, *, n_draws=200):
        """Predict the component of largest probability, averaged over draws.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        n_draws : int, default=200
            Number of evenly spaced draws to average over; all draws if there are fewer.

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        return self.predict_proba(X, n_draws=n_draws).argmax(axis=1)

    def _some(self, n_draws):
        total = self.n_chains * self.n_draws
        count = min(index(n_draws, "n_draws", 1), total)
        if count == 0:
            raise ParameterError("there are no draws to average over")
        return (self.mixture(i) for i in np.arange(count) * total // count)

    def to_frame(self):
        """Convert the draws to a pandas DataFrame; needs `pandas`.

        Returns
        -------
        frame : pandas.DataFrame
            One row per draw, with the columns 'chain', 'draw', 'weights[0]', .., 'means[0,0]', ..,
            'covariances[0,0,0]', .., and those of `sample_stats`. :meth:`save` writes the same table to parquet.
        """
        return _draws_forms.frame(self)

    def log_likelihood(self, X):
        """Compute the log density of each row under each draw; needs ``8 C N n`` bytes of memory.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        log_likelihood : ndarray of shape (C, N, n)
        """
        try:
            names = _get_feature_names(X)
        except TypeError:
            names = None
        return _draws_forms.log_likelihood(self, X, names)

    def to_arviz(self, X=None):
        """Convert the draws to ArviZ data; needs `arviz`, version 0 or 1.

        Dimensions are 'component', 'feature' (with the names of the columns, if any) and, for matrices, 'feature_b'.

        Parameters
        ----------
        X : array-like of shape (n, d), default=None
            Rows whose log-likelihood is included, as variable 'rows' with dimension 'row'; ``arviz.loo`` needs it.

        Returns
        -------
        data : InferenceData or DataTree
            Groups `posterior` and `sample_stats`, and `log_likelihood` if `X` is given.
        """
        return _draws_forms.arviz_data(self, X)

    def save(self, path):
        """Write the draws to a file, in the formats of ``gmm mcmc``.

        The file is written atomically. It does not contain the checkpoint.

        Parameters
        ----------
        path : path
            Path with the extension .npz, .parquet or .arrow; :meth:`load` reads only .npz.

        Returns
        -------
        self : Draws
        """
        _core.write_draws(os.fspath(path), self._given(), self.sample_stats)
        return self

    @classmethod
    def load(cls, path):
        """Read draws from an npz file written by :meth:`save` or ``gmm mcmc``.

        Parameters
        ----------
        path : path
            Path of the file.

        Returns
        -------
        draws : Draws
        """
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        try:
            kind = arrays.pop("covariance_type").tobytes().decode("ascii")
            parameters = [arrays.pop(name) for name in ("weights", "means", "covariances")]
        except (KeyError, UnicodeDecodeError) as error:
            raise ParameterError(f"{path} does not contain draws: missing or invalid {error}") from None
        return cls(kind, *parameters, arrays)
