"""Draws from the posterior of a mixture's parameters, by NUTS or random-walk Metropolis.

Three lines to a table of what the parameters may be::

    from gmm_rs import mcmc

    draws = mcmc(X, 3)
    table = draws.summary()

``C`` and ``N`` are chains and draws of each; ``k`` and ``d`` components and columns. Arrays of draws have (C, N) in front.
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
    """Draw weights, means and covariances from their posterior.

    Same rows, arguments and threads give the same draws. Ctrl-C raises :class:`~gmm_rs.exceptions.SamplingInterrupted`,
    which holds the chains so far.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that a fit takes. Those on a GPU are read there by chains and by the fits that these start from; a
        few times they come to the host piece by piece, for what a prior takes from them and to know them again.

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
        Tables 'weights', 'means' and 'covariances', such as ``{"weights": {"prior": "dirichlet", "concentration": 2.0}}``,
        or a TOML file with them. The notes have all keys and their defaults.

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
        than it had, and not fewer. Without a `random_state` the seed is that of the run. Another engine goes on to other draws, which a
        warning says.

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

    Notes
    -----
    Each table of a prior has the key 'prior', which names it, and may have the keys below; what is left out, key or whole
    table, is as the default column says. ``v`` are the variances of the columns and ``s`` their square roots; spherical
    covariances take the mean of ``v`` over the columns. 'mean', 'sd' and 'scale' are one number, or one for each column
    (of spherical covariances, one number).

    ============  =================  ==================  ==============================  =====================
    table         prior              key                 meaning                         default
    ============  =================  ==================  ==============================  =====================
    weights       dirichlet          concentration       the same for each component     1.0
    weights       flat                                   dirichlet of concentration 1
    means         normal             mean                where means are centred         middle of the range
    means         normal             sd                  their standard deviation        range
    means         flat                                   constant; one component only
    covariances   inverse-wishart    degrees_of_freedom  above ``d - 1``                 ``d + 2``
    covariances   inverse-wishart    scale               diagonal of the scale matrix    ``v * k**(-2/d)``
    covariances   lkj                eta                 1 is flat over correlations     2.0
    covariances   lkj                scale               of half-normals of deviations   ``s``
    covariances   inverse-gamma      shape               positive                        1.5
    covariances   inverse-gamma      scale               of the variances                ``v * k**(-2/d) / 2``
    covariances   half-normal        scale               of the standard deviations      ``s``
    ============  =================  ==================  ==============================  =====================

    'inverse-wishart' and 'lkj' are for full and tied covariances, 'inverse-gamma' and 'half-normal' for diagonal and
    spherical ones; the first of each pair is the default. The means' default is 'normal', the weights' 'dirichlet'.

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
            f"{found['improper']}: with half-normal scales the posterior has no finite integral about them, only a spike "
            "that chains seldom find; inverse-wishart and inverse-gamma have none",
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
    """Where to compute, as `place` asks an estimator."""

    def __init__(self, device, precision, n_jobs):
        self.device, self.precision, self.n_jobs = device, precision, n_jobs


def _names(X):
    """Names of the columns, or None where there are none or not all are strings."""
    try:
        return _get_feature_names(X)
    except TypeError:
        return None


def _told(done, steps, diverging):
    more = f", {diverging} diverged" if diverging else ""
    print(f"\r{min(done, steps)} of {steps} steps{more}", end="", file=sys.stderr, flush=True)
