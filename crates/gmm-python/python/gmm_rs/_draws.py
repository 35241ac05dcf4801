"""Draws of mixtures' parameters, and what is made of them."""

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
    "apart": "take more warmup and draws, or, where components changed places, relabel='pivot'",
    "few": "take more draws",
    "diverging": "raise target_accept, or the prior leaves a component too free",
}


class Draws:
    """Draws of weights, means and covariances, with what the sampler had to say.

    Parameters
    ----------
    covariance_type : {'full', 'tied', 'diag', 'spherical'}
        Kind of the covariances.

    weights : array-like of shape (C, N, k)
        Component weights.

    means : array-like of shape (C, N, k, d)
        Component means.

    covariances : array-like
        (C, N) and the shape of the kind.

    sample_stats : dict
        Arrays of shape (C, N): 'lp', the log posterior density, 'acceptance_rate', and of NUTS 'diverging', 'n_steps',
        'step_size', 'tree_depth' and 'energy'. NUTS lacks 'energy' where some draws are of a checkpoint that had none.

    checkpoint : bytes, default=None
        The chains, for :func:`~gmm_rs.mcmc` to go on with.

    feature_names : list of str, default=None
        Names of the columns; :func:`~gmm_rs.mcmc` takes those of its rows. A file does not keep them.

    Attributes
    ----------
    n_chains : int
        Chains ``C``.

    n_draws : int
        Draws of each, ``N``.
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
        """A line about each number: mean, deviation, quantiles, effective sample sizes, R-hat.

        Of a matrix the lower triangle. ``pandas.DataFrame(draws.summary())`` makes a table of it.

        Returns
        -------
        summary : dict
            Arrays of one length under 'name', 'mean', 'sd', 'q5', 'q95', 'ess_bulk', 'ess_tail' and 'r_hat'.
        """
        names = ("name", "mean", "sd", "q5", "q95", "ess_bulk", "ess_tail", "r_hat")
        lines = _core.summary(self._given())
        columns = zip(*lines) if lines else [()] * len(names)
        return {name: np.array(column) for name, column in zip(names, columns)}

    def concerns(self):
        """What should be seen before the draws are believed; :func:`~gmm_rs.mcmc` warns of it.

        Returns
        -------
        concerns : list of str
            Empty where chains mixed, draws are enough and none diverged.
        """
        diverging = int(np.sum(self.sample_stats.get("diverging", 0)))
        return [f"{text}; {_ADVICE[kind]}" for kind, text in _core.concerns(self._given(), diverging)]

    def mixture(self, i):
        """One draw as an estimator that predicts.

        Parameters
        ----------
        i : int or tuple of int
            The draw's number in all chains, one after another, or ``(chain, draw)``.

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
        """Log posterior predictive density of rows: the logarithm of the mean density over draws.

        Components that change places do not matter.

        Parameters
        ----------
        X : array-like of shape (n, d)

        n_draws : int, default=200
            Draws to average over, at equal distances; all where there are no more.

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
        """Probabilities of the components, averaged over draws.

        They mean something where components keep their places: see `relabel` of :func:`~gmm_rs.mcmc`.

        Parameters
        ----------
        X : array-like of shape (n, d)

        n_draws : int, default=200
            Draws to average over, at equal distances; all where there are no more.

        Returns
        -------
        resp : ndarray of shape (n, k)
        """
        found = [model.predict_proba(X) for model in self._some(n_draws)]
        return np.mean(found, axis=0)

    def predict(self, X, *, n_draws=200):
        """The component of largest probability, averaged over draws.

        Parameters
        ----------
        X : array-like of shape (n, d)

        n_draws : int, default=200
            Draws to average over, at equal distances; all where there are no more.

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
        """A row for each draw; needs `pandas`.

        Returns
        -------
        frame : pandas.DataFrame
            Columns 'chain', 'draw', 'weights[0]', .., 'means[0,0]', .., 'covariances[0,0,0]', .., and those of
            `sample_stats`: what :meth:`save` writes to parquet.
        """
        return _draws_forms.frame(self)

    def log_likelihood(self, X):
        """Log density of each row at each draw, ``8 C N n`` bytes.

        Parameters
        ----------
        X : array-like of shape (n, d)

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
        """The draws as ArviZ has them; needs `arviz`, version 0 or 1.

        Dimensions are 'component', 'feature' (by its name where the rows had names) and, of matrices, 'feature_b'.

        Parameters
        ----------
        X : array-like of shape (n, d), default=None
            Rows whose log-likelihood goes along, as 'rows' over 'row'; ``arviz.loo`` needs it.

        Returns
        -------
        data : InferenceData or DataTree
            Groups `posterior` and `sample_stats`, and `log_likelihood` where rows are given.
        """
        return _draws_forms.arviz_data(self, X)

    def save(self, path):
        """Writes the draws as ``gmm mcmc`` does. The file appears whole or not at all; the checkpoint is not in it.

        Parameters
        ----------
        path : path
            Ends in .npz, or in .parquet or .arrow, which :meth:`load` does not read.

        Returns
        -------
        self : Draws
        """
        _core.write_draws(os.fspath(path), self._given(), self.sample_stats)
        return self

    @classmethod
    def load(cls, path):
        """Reads an npz, such as :meth:`save` and ``gmm mcmc`` write.

        Parameters
        ----------
        path : path

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
            raise ParameterError(f"{path} holds no draws: it lacks {error}") from None
        return cls(kind, *parameters, arrays)
