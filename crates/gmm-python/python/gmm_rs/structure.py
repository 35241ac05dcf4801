"""Structure of mixtures: divergences, merges that keep the moments, components combined into clusters, splits.

A mixture is a fitted ``GaussianMixture`` of this package or scikit-learn, or ``(weights, means, covariances)``. ``n``,
``k`` and ``d`` are the numbers of rows, components and columns. The program has the same as ``gmm merge``,
``gmm split`` and ``gmm distance``.
"""

from types import SimpleNamespace

import numpy as np
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original

from gmm_rs import _bridge, _core, _evaluation, _fitted, _inputs, _rules
from gmm_rs._given import Parameters, index
from gmm_rs._place import place
from gmm_rs._structure_results import Combination, Divergence, Tree
from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import GaussianMixture
from gmm_rs.steps import _given

__all__ = ["Combination", "Divergence", "Tree", "combine", "distances", "kl", "merge", "split", "split_merge", "tree"]

_DISTANCES = ("runnalls", "kl", "bhattacharyya")


def distances(model, criterion="kl", covariance_type="full"):
    """Compute the distance of every two components.

    Parameters
    ----------
    model : estimator or tuple
        A fitted `GaussianMixture` of this package or scikit-learn, or ``(weights, means, covariances)``. Noise of an
        estimator stays, and each row counts as much as it is not noise; :func:`kl` and :func:`split_merge` refuse it.

    criterion : {'kl', 'bhattacharyya', 'runnalls'}, default='kl'
        Symmetric Kullback-Leibler divergence, Bhattacharyya's distance, or Runnalls' bound on the divergence that the
        merge of the two causes (Runnalls 2007).

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    Returns
    -------
    distances : ndarray of shape (k, k)
        Symmetric, with zeros on the diagonal.

    Examples
    --------
    >>> from gmm_rs.structure import distances
    >>> distances(([0.5, 0.5], [[0.0], [3.0]], [1.0, 1.0]), covariance_type="spherical").tolist()
    [[0.0, 9.0], [9.0, 0.0]]
    """
    return _core.distances_of(_given(model, covariance_type, noise="beside"), _word(criterion, _DISTANCES))


def kl(f, g, *, covariance_type="full", draws=20_000, random_state=0):
    """Compute the Kullback-Leibler divergence of mixture `g` from mixture `f`.

    Parameters
    ----------
    f : estimator or tuple
        As for :func:`distances`.

    g : estimator or tuple
        Another mixture of as many columns.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of tuples; ignored for estimators.

    draws : int, default=20000
        Number of draws of the Monte Carlo estimate.

    random_state : int, RandomState instance or None, default=0
        Seed of the draws.

    Returns
    -------
    divergence : Divergence

    Examples
    --------
    >>> from gmm_rs.structure import kl
    >>> f, g = ([1.0], [[0.0]], [1.0]), ([1.0], [[3.0]], [1.0])
    >>> round(kl(f, g, covariance_type="spherical").variational, 12)
    4.5
    """
    given = [_given(model, covariance_type) for model in (f, g)]
    return Divergence(*_core.divergence(*given, index(draws, "draws", 2), _bridge.seed(random_state)))


def tree(model, criterion="runnalls", covariance_type="full"):
    """Merge the two closest components again and again, until one is left.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`distances`.

    criterion : {'runnalls', 'kl', 'bhattacharyya'}, default='runnalls'
        As for :func:`distances`.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    Returns
    -------
    tree : Tree

    Examples
    --------
    >>> from gmm_rs.structure import tree
    >>> found = tree(([0.2, 0.3, 0.5], [[0.0], [9.0], [1.0]], [1.0, 1.0, 1.0]), covariance_type="spherical")
    >>> found.clusters(2).tolist()
    [0, 1, 0]
    """
    found = _core.tree(_given(model, covariance_type, noise="beside"), _word(criterion, _DISTANCES))
    return Tree(found["linkage"], found["values"], found["labels"])


def merge(
    model,
    n_components=None,
    X=None,
    *,
    criterion=None,
    covariance_type="full",
    sample_weight=None,
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Merge components, and keep mean and covariance of the whole mixture.

    Mean and covariance are kept exactly for 'full' and 'tied'; 'diag' keeps the variances, 'spherical' their sum.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`distances`.

    n_components : int, default=None
        Number of components to keep. None means that of the smallest BIC on `X`.

    X : array-like of shape (n, d), default=None
        Rows, needed for 'bic'.

    criterion : {'runnalls', 'kl', 'bhattacharyya', 'bic'}, default=None
        Which two are merged next: the closest, as for :func:`distances`, or those whose merge keeps the likelihood of
        `X` highest. None means 'bic' if there is `X`, else 'runnalls'.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    merged : GaussianMixture or Parameters
        An estimator with the parameters of the merged mixture if `model` is an estimator; else a named tuple.

    Examples
    --------
    >>> from gmm_rs.structure import merge
    >>> found = merge(([0.25, 0.25, 0.5], [[0.0], [1.0], [9.0]], [1.0, 1.0, 1.0]), 2, covariance_type="spherical")
    >>> found.means.tolist(), found.covariances.tolist()
    ([[0.5], [9.0]], [1.25, 1.0])
    """
    given = _given(model, covariance_type, noise="beside")
    if criterion is None:
        criterion = "runnalls" if X is None else "bic"
    if _word(criterion, (*_DISTANCES, "bic")) == "bic":
        if X is None:
            raise ParameterError("criterion 'bic' needs the rows: give X")
        found = _of_rows(model, given, X, "bic", sample_weight, device, precision, n_jobs)
        count = found["best"] if n_components is None else n_components
    else:
        if n_components is None:
            raise ParameterError(f"criterion {criterion!r} does not choose n_components: give a number or X")
        found, count = _core.tree(given, criterion), n_components
    clusters = Tree(found["linkage"], found["values"], found["labels"]).clusters(count)
    return _like(model, given[0], _core.merged(given, clusters.tolist()))


def combine(
    model,
    X,
    n_clusters=None,
    *,
    criterion="entropy",
    cutoff=0.025,
    covariance_type="full",
    sample_weight=None,
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Combine components into clusters by what the rows say; the mixture itself does not change.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`distances`.

    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts.

    n_clusters : int, default=None
        Number of clusters. None means the elbow of the entropies for 'entropy'; for 'demp', combinations go on while
        the largest misclassification probability is at least `cutoff`.

    criterion : {'entropy', 'demp'}, default='entropy'
        Largest fall of the entropy (Baudry et al. 2010; mclust's ``clustCombi``), or largest directly estimated
        misclassification probability (Hennig 2010).

    cutoff : float, default=0.025
        For 'demp' without `n_clusters`.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    combination : Combination

    Examples
    --------
    >>> from gmm_rs.structure import combine
    >>> mixture = ([0.3, 0.3, 0.4], [[0.0], [1.0], [9.0]], [1.0, 1.0, 1.0])
    >>> found = combine(mixture, [[0.2], [0.5], [1.1], [8.0], [9.5]], 2, covariance_type="spherical")
    >>> found.clusters.tolist(), found.n_clusters
    ([0, 0, 1], 2)
    """
    given = _given(model, covariance_type, noise="beside")
    _word(criterion, ("entropy", "demp"))
    found = _of_rows(model, given, X, criterion, sample_weight, device, precision, n_jobs)
    k = len(given[1])
    if n_clusters is None:
        joined = np.flatnonzero(~(found["values"] >= cutoff))
        separated = k - (joined[0] if len(joined) else k - 1)
        n_clusters = found["elbow"] if criterion == "entropy" else int(separated)
    return Combination(found, n_clusters)


def split(model, component=None, n_components=None, *, share=0.5, distance=0.5, covariance_type="full"):
    """Split components along their principal axes, and keep the moments of the whole mixture.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`distances`.

    component : int, default=None
        The component to split: one part keeps its place, the other is appended.

    n_components : int, default=None
        Split the component of largest weight times variance along its axis until there are this many. Give this or
        `component`.

    share : float, default=0.5
        Share of the weight that the first part keeps.

    distance : float, default=0.5
        Share of the standard deviation along the axis that becomes distance of the means; between 0 and 1.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    Returns
    -------
    split : GaussianMixture or Parameters
        As for :func:`merge`.

    Examples
    --------
    >>> from gmm_rs.structure import split
    >>> split(([1.0], [[0.0]], [[4.0]]), 0, covariance_type="diag").means.tolist()
    [[-1.0], [1.0]]
    """
    given = _given(model, covariance_type, noise="beside")
    if (component is None) == (n_components is None):
        raise ParameterError("give either component or n_components")
    component = None if component is None else index(component, "component", 0)
    count = 0 if n_components is None else index(n_components, "n_components", 1)
    return _like(model, given[0], _core.split_of(given, component, count, float(share), float(distance)))


def split_merge(model, X, *, candidates=5, sample_weight=None):
    """Improve a fit by splits and merges of components, which leave local maxima (SMEM; Ueda et al. 2000).

    EM first continues from the parameters of the model. Then two components that share their rows are merged, another
    one is split, and EM runs from there. The result is kept if its mean log-likelihood is higher by more than `tol` of
    the model; so the likelihood never falls.

    Parameters
    ----------
    model : GaussianMixture
        A fitted estimator of :mod:`gmm_rs.mixture`, or of scikit-learn. Its `tol`, `max_iter` and `reg_covar` are used.

    X : array-like of shape (n, d)
        The rows that it was fitted to.

    candidates : int, default=5
        Number of candidates that are tried from each maximum.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows.

    Returns
    -------
    model : GaussianMixture
        A new estimator with the better parameters.

    Examples
    --------
    >>> from gmm_rs.datasets import make_gmm
    >>> from gmm_rs.mixture import GaussianMixture
    >>> from gmm_rs.structure import split_merge
    >>> X, y = make_gmm(400, 2, 4, separation=4.0, random_state=0)
    >>> model = GaussianMixture(4, init_params="random_from_data", random_state=1, max_iter=500).fit(X)
    >>> split_merge(model, X).score(X) >= model.score(X)
    True
    """
    if not isinstance(model, (GaussianMixture, Original)):
        raise TypeError(f"expected a GaussianMixture, got {type(model).__name__}")
    given = _given(model, "full")
    made = _like(model, given[0], _core.merged(given, list(range(len(given[1])))))
    rows = _inputs.array_in_place(X, place(made))
    if rows.shape[1] != made.n_features_in_:
        raise ParameterError(f"X has {rows.shape[1]} columns, the mixture has {made.n_features_in_}")
    options = {
        "n_components": made.n_components,
        "covariance_type": given[0],
        "n_init": 1,
        "init_rows": None,
        "tol": made.tol,
        "max_iter": made.max_iter,
        "reg_covar": made.reg_covar,
        "seed": 0,
    }
    weights = _inputs.weights(sample_weight, rows)
    candidates = index(candidates, "candidates", 1)
    found = _core.split_merge(_inputs.contiguous(rows), given, options, place(made, rows), candidates, weights)
    _bridge.set_parameters(made, found, rows.dtype)
    _fitted.set_record(made, found["record"])
    return made


def _word(word, choices):
    if word not in choices:
        raise ParameterError(f"unknown criterion {word!r}: choose one of {', '.join(choices)}")
    return word


def _of_rows(model, given, X, criterion, sample_weight, device, precision, n_jobs):
    """The tree by a criterion of the rows."""
    where = SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs)
    rows, d = _inputs.array_in_place(X, place(where)), given[2].shape[-1]
    if rows.shape[1] != d:
        raise ParameterError(f"X has {rows.shape[1]} columns, the mixture has {d}")
    of, weights = place(where, rows), _inputs.weights(sample_weight, rows)
    rows = _inputs.contiguous(rows)
    return _core.tree_of_rows(rows, given, of, criterion, _evaluation.discounted(model, rows, weights, of))


def _like(model, kind, found):
    """The parameters in the form of `model`: an estimator or a named tuple."""
    if not isinstance(model, (GaussianMixture, Original)):
        return Parameters(found["weights"], found["means"], found["covariances"])
    known = GaussianMixture().get_params()
    given = {name: value for name, value in model.get_params().items() if name in known}
    starts = {"weights_init": None, "means_init": None, "precisions_init": None}
    made = GaussianMixture(**{**given, **starts, "n_components": len(found["weights"]), "covariance_type": kind})
    _bridge.set_parameters(made, found, np.float64)
    made.n_features_in_ = found["means"].shape[1]
    if hasattr(model, "feature_names_in_"):
        made.feature_names_in_ = model.feature_names_in_
    _rules.set_noise(made, _rules.noise_of(model))
    return made
