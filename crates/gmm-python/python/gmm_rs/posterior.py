"""Draws from the posterior of a mixture's parameters, by NUTS or random-walk Metropolis.

A posterior summary in three lines::

    from gmm_rs import mcmc

    draws = mcmc(X, 3)
    table = draws.summary()

``C`` is the number of chains, ``N`` the number of draws per chain, ``k`` the number of components and ``d`` the number
of columns. Arrays of draws have the leading axes (C, N).
"""

import sys
import warnings

from sklearn.utils.validation import _get_feature_names

from gmm_rs import _bridge, _core, _inputs, _prior
from gmm_rs._draws import KINDS, Draws
from gmm_rs._given import index
from gmm_rs._place import place
from gmm_rs.exceptions import DataWarning, ParameterError

__all__ = ["Draws", "mcmc"]


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
    """Sample weights, means and covariances from their posterior.

    The same rows, arguments and number of threads give the same draws. Ctrl-C raises
    :class:`~gmm_rs.exceptions.SamplingInterrupted`, which contains the chains so far.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts. Rows on a GPU are used there by the
        chains and the initial fits; they are also copied to the host a few times, in chunks, to compute the defaults of
        the prior and a checksum for the checkpoint.

    n_components : int
        Number of components ``k``.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type.

    sampler : {'nuts', 'rwm'}, default='nuts'
        The No-U-Turn sampler, or random-walk Metropolis, which moves one component at a time.

    chains : int, default=4
        Number of chains.

    draws : int, default=1000
        Number of draws kept per chain.

    warmup : int, default=1000
        Number of warm-up steps per chain, in which the sampler adapts. They are discarded.

    thin : int, default=1
        Steps per kept draw.

    target_accept : float, default=0.8
        Target acceptance rate of NUTS. Raise it towards 1 if trajectories diverge.

    prior : dict or path, default=None
        Dict with the tables 'weights', 'means' and 'covariances', such as
        ``{"weights": {"prior": "dirichlet", "concentration": 2.0}}``, or path of a TOML file with these tables. See the
        notes for all keys and defaults.

    start : {'fit', 'each'}, default='fit'
        Starting points: all chains near the best of five EM fits, or each near its own fit.

    relabel : str, default='none'
        Relabelling of components against label switching: 'none', 'order' or 'order:COLUMN' (by ascending means of a
        column), or 'pivot' (match the draw of highest posterior density).

    random_state : int, RandomState instance or None, default=None
        Random seed.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows.

    checkpoint : bytes, default=None
        Checkpoint to continue from, made by a run on the same rows with the same arguments, also by ``gmm mcmc``.
        `draws` may be larger than in that run, but not smaller. If `random_state` is None, the seed is that of the run.
        On another engine the further draws differ, and a warning is issued.

    progress : bool, default=False
        Whether to print the progress of the chains to standard error.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied. None means the precision of the data.

    n_jobs : int, default=None
        Number of CPU threads. None and -1 mean all cores.

    Returns
    -------
    draws : Draws
        Draws of all chains.

    Notes
    -----
    Each table of a prior has the key 'prior', the name of the distribution, and may have the keys below. Missing keys
    and tables have the defaults in the last column. ``v`` are the variances of the columns and ``s`` their square
    roots; for spherical covariances ``v`` is averaged over the columns. 'mean', 'sd' and 'scale' are one number, or one
    number per column (for spherical covariances, one number).

    ============  =================  ==================  ==============================  =====================
    table         prior              key                 meaning                         default
    ============  =================  ==================  ==============================  =====================
    weights       dirichlet          concentration       equal for all components        1.0
    weights       flat                                   dirichlet, concentration 1
    means         normal             mean                prior mean                      middle of the range
    means         normal             sd                  prior standard deviation        range
    means         flat                                   constant; one component only
    covariances   inverse-wishart    degrees_of_freedom  above ``d - 1``                 ``d + 2``
    covariances   inverse-wishart    scale               diagonal of the scale matrix    ``v * k**(-2/d)``
    covariances   lkj                eta                 1 is flat over correlations     2.0
    covariances   lkj                scale               half-normal scale (deviations)  ``s``
    covariances   inverse-gamma      shape               positive                        1.5
    covariances   inverse-gamma      scale               scale of the variances          ``v * k**(-2/d) / 2``
    covariances   half-normal        scale               scale of standard deviations    ``s``
    ============  =================  ==================  ==============================  =====================

    'inverse-wishart' and 'lkj' are for full and tied covariances, 'inverse-gamma' and 'half-normal' for diagonal and
    spherical ones; the first of each pair is the default. The default for means is 'normal', for weights 'dirichlet'.

    Examples
    --------
    >>> from gmm_rs import mcmc
    >>> from gmm_rs.datasets import make_gmm
    >>> X, y = make_gmm(200, 1, 2, separation=6.0, random_state=0)
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
        "prior": _prior.as_text(prior),
        "start": start,
        "relabel": relabel,
        "seed": None if checkpoint is not None and random_state is None else _bridge.seed(random_state),
    }
    where = _Where(device, precision, n_jobs)
    rows = _inputs.array_in_place(X, place(where))
    sample_weight = _inputs.weights(sample_weight, rows)
    follow = _told if progress else None
    try:
        found = _core.mcmc(
            _inputs.contiguous(rows), options, place(where, rows), sample_weight, checkpoint, follow
        )
    except ParameterError as error:
        raise ParameterError(_prior.in_words(str(error), prior)) from None
    finally:
        if progress:
            print(file=sys.stderr)
    if found["improper"] is not None:
        warnings.warn(
            f"{found['improper']}: with half-normal scales the integral of the posterior density is then infinite, in "
            "a narrow spike that chains rarely find; inverse-wishart and inverse-gamma priors avoid this",
            DataWarning,
            stacklevel=2,
        )
    if found["moved"] is not None:
        warnings.warn(found["moved"], DataWarning, stacklevel=2)
    arrays = [found[name] for name in ("weights", "means", "covariances")]
    made = Draws(covariance_type, *arrays, found["stats"], checkpoint=found["checkpoint"], feature_names=_names(X))
    for concern in made.concerns():
        warnings.warn(concern, DataWarning, stacklevel=2)
    return made


class _Where:
    """The attributes of an estimator that `place` reads: where to compute."""

    def __init__(self, device, precision, n_jobs):
        self.device, self.precision, self.n_jobs = device, precision, n_jobs


def _names(X):
    """Names of the columns, or None if there are none or not all are strings."""
    try:
        return _get_feature_names(X)
    except TypeError:
        return None


def _told(done, steps, diverging):
    more = f", {diverging} diverged" if diverging else ""
    print(f"\r{min(done, steps)} of {steps} steps{more}", end="", file=sys.stderr, flush=True)
