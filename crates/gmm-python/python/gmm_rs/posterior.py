"""Draws from the posterior of a mixture's parameters, by NUTS or random-walk Metropolis.

Three lines to a table of what the parameters may be::

    from gmm_rs import mcmc

    draws = mcmc(X, 3)
    table = draws.summary()

``C`` and ``N`` are chains and draws of each; ``k`` and ``d`` components and columns. Arrays of draws have (C, N) in front.
"""

import json
import os
import sys
import warnings

import numpy as np

from gmm_rs import _bridge, _core, _inputs
from gmm_rs._given import index
from gmm_rs._place import place
from gmm_rs.exceptions import DataWarning, ParameterError
from gmm_rs.mixture import GaussianMixture

__all__ = ["Draws", "mcmc"]

KINDS = ("full", "tied", "diag", "spherical")

# Above this, chains have not mixed; fewer effective draws for each chain than this make rough quantiles (Vehtari and
# others 2021).
R_HAT, ESS_PER_CHAIN = 1.01, 100.0


def mcmc(
    X,
    n_components,
    *,
    covariance_type="full",
    sampler="nuts",
    chains=4,
    draws=1000,
    warmup=1000,
    thin=1,
    target_accept=0.8,
    prior=None,
    start="fit",
    relabel="none",
    random_state=None,
    sample_weight=None,
    checkpoint=None,
    progress=False,
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Draw weights, means and covariances from their posterior.

    Same rows, arguments and threads give the same draws. Ctrl-C raises :class:`~gmm_rs.exceptions.SamplingInterrupted`,
    which holds the chains so far.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that a fit takes.

    n_components : int
        Components ``k``.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Kind of the covariances.

    sampler : {'nuts', 'rwm'}, default='nuts'
        The No-U-Turn sampler, or random-walk Metropolis one component at a time.

    chains : int, default=4
        Chains.

    draws : int, default=1000
        Draws that each chain keeps.

    warmup : int, default=1000
        Steps before them, in which the sampler adapts.

    thin : int, default=1
        Steps for each draw that is kept.

    target_accept : float, default=0.8
        Mean acceptance that NUTS adapts its step size to; closer to 1 where trajectories diverge.

    prior : dict or path, default=None
        Tables 'weights', 'means' and 'covariances' as ``gmm mcmc --help`` has them, such as ``{"weights": {"prior":
        "dirichlet", "concentration": 2.0}}``, or a TOML file with them. What is left out is weakly informative, from the
        data.

    start : {'fit', 'each'}, default='fit'
        Where chains start: all about one fit, or each about a fit of its own.

    relabel : str, default='none'
        What to do about components that change places: 'none', 'order', 'order:COLUMN' (by ascending means) or 'pivot'
        (most like the best draw).

    random_state : int, RandomState instance or None, default=None
        Seed of every draw.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 is the row twice.

    checkpoint : bytes, default=None
        Chains to go on with, of a run on these rows with the same arguments, also of ``gmm mcmc``; `draws` may be more
        than it had. Without a `random_state` the seed is that of the run.

    progress : bool, default=False
        Whether to show on standard error how far the chains are.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Type in which rows are held and multiplied. None takes the data's own.

    n_jobs : int, default=None
        Threads on the CPU. None and -1 mean all cores.

    Returns
    -------
    draws : Draws

    Examples
    --------
    >>> from gmm_rs import mcmc
    >>> from gmm_rs.datasets import make_gmm
    >>> X, y = make_gmm(200, 1, 2, random_state=0)
    >>> draws = mcmc(X, 2, chains=2, draws=500, warmup=500, relabel="order", random_state=0)
    >>> draws.means.shape
    (2, 500, 2, 1)
    """
    for name, value, choices in [
        ("covariance_type", covariance_type, KINDS),
        ("sampler", sampler, ("nuts", "rwm")),
        ("start", start, ("fit", "each")),
    ]:
        if value not in choices:
            raise ParameterError(f"unknown {name} {value!r}: choose one of {', '.join(choices)}")
    options = {
        "n_components": index(n_components, "n_components", 1),
        "covariance_type": covariance_type,
        "sampler": sampler,
        "chains": index(chains, "chains", 1),
        "draws": index(draws, "draws", 1),
        "warmup": index(warmup, "warmup", 0),
        "thin": index(thin, "thin", 1),
        "target_accept": float(target_accept),
        "prior": _prior(prior),
        "start": start,
        "relabel": relabel,
        "seed": None if checkpoint is not None and random_state is None else _bridge.seed(random_state),
    }
    where = place(_Where(device, precision, n_jobs))
    rows = _inputs.contiguous(_inputs.array(X, where))
    follow = _told if progress else None
    try:
        found = _core.mcmc(rows, options, where, _inputs.weights(sample_weight, rows), checkpoint, follow)
    finally:
        if progress:
            print(file=sys.stderr)
    if found["improper"] is not None:
        warnings.warn(
            f"{found['improper']}: with half-normal scales the posterior has no finite integral about them, only a spike "
            "that chains seldom find; inverse-wishart and inverse-gamma have none",
            DataWarning,
            stacklevel=2,
        )
    arrays = [found[name] for name in ("weights", "means", "covariances")]
    made = Draws(covariance_type, *arrays, found["stats"], checkpoint=found["checkpoint"])
    for concern in made.concerns():
        warnings.warn(concern, DataWarning, stacklevel=2)
    return made


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
        'step_size' and 'tree_depth'.

    checkpoint : bytes, default=None
        The chains, for :func:`mcmc` to go on with.

    Attributes
    ----------
    n_chains : int
        Chains ``C``.

    n_draws : int
        Draws of each, ``N``.
    """

    def __init__(self, covariance_type, weights, means, covariances, sample_stats, *, checkpoint=None):
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

    def __repr__(self):
        k, d = self.means.shape[2:]
        return f"Draws(<{self.n_chains} chains of {self.n_draws} draws, {k} components in {d} columns>)"

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
        """What should be seen before the draws are believed; :func:`mcmc` warns of it.

        Returns
        -------
        concerns : list of str
            Empty where chains mixed, draws are enough and none diverged.
        """
        lines, found = self.summary(), []
        apart = int((lines["r_hat"] > R_HAT).sum())
        if apart:
            top = np.nanargmax(lines["r_hat"])
            found.append(
                f"r_hat is above {R_HAT} for {apart} of {len(lines['name'])} numbers (largest {lines['r_hat'][top]:.3f}, "
                f"{lines['name'][top]}): the chains have not mixed; take more warmup and draws, or, where components "
                "changed places, relabel='pivot'"
            )
        ess = np.fmin(lines["ess_bulk"], lines["ess_tail"])
        few = (lines["sd"] > 0.0) & (ess < ESS_PER_CHAIN * self.n_chains)
        if few.any():
            found.append(
                f"{int(few.sum())} of {len(few)} numbers have an effective sample size below "
                f"{ESS_PER_CHAIN * self.n_chains:.0f} (least {ess[few].min():.0f}): their quantiles are rough; take more "
                "draws"
            )
        diverging = int(np.sum(self.sample_stats.get("diverging", 0)))
        if diverging:
            found.append(
                f"{diverging} of {self.n_chains * self.n_draws} draws diverged: what lies beyond is not drawn from; raise "
                "target_accept, or the prior leaves a component too free"
            )
        return found

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

        They mean something where components keep their places: see `relabel` of :func:`mcmc`.

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

    def to_arviz(self):
        """The draws as ArviZ has them; needs `arviz`.

        Returns
        -------
        data : InferenceData or DataTree
            Groups `posterior` and `sample_stats`.
        """
        import inspect

        import arviz

        posterior = {name: getattr(self, name) for name in ("weights", "means", "covariances")}
        if "posterior" in inspect.signature(arviz.from_dict).parameters:
            return arviz.from_dict(posterior=posterior, sample_stats=self.sample_stats)
        # From version 1 on groups are one dictionary.
        return arviz.from_dict({"posterior": posterior, "sample_stats": self.sample_stats})

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


class _Where:
    """Where to compute, as `place` asks an estimator."""

    def __init__(self, device, precision, n_jobs):
        self.device, self.precision, self.n_jobs = device, precision, n_jobs


def _prior(prior):
    """Whether it is JSON, and its text; None stays None."""
    if prior is None:
        return None
    if isinstance(prior, (str, os.PathLike)):
        with open(prior, encoding="utf-8") as file:
            return (False, file.read())
    if not isinstance(prior, dict):
        raise ParameterError(f"prior is {type(prior).__name__}: it must be a dict or the path of a TOML file")
    try:
        return (True, json.dumps(prior, allow_nan=False, default=lambda value: np.asarray(value, np.float64).tolist()))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"prior: {error}") from None


def _told(done, steps, diverging):
    more = f", {diverging} diverged" if diverging else ""
    print(f"\r{min(done, steps)} of {steps} steps{more}", end="", file=sys.stderr, flush=True)
