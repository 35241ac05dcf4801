"""Background models: adaptation of one mixture to many speakers or classes, supervectors and scores.

A universal background model is a fitted ``GaussianMixture`` of this package or scikit-learn, or
``(weights, means, covariances)``. A speaker's model is the background moved towards the speaker's rows (Reynolds,
Quatieri and Dunn 2000). ``s``, ``u``, ``k`` and ``d`` are the numbers of speakers, test utterances, components and
columns. The program has the same as ``gmm adapt`` and ``gmm score --background``.
"""

from types import SimpleNamespace

import numpy as np

from gmm_rs import _core, _evaluation, _inputs
from gmm_rs._given import float64, index
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError
from gmm_rs.steps import Statistics, _given
from gmm_rs.structure import _like

__all__ = ["adapt", "adapt_many", "linear_scores", "log_likelihood_ratio", "supervectors", "top_statistics"]

_UPDATES = ("means", "variances", "weights")


def adapt(
    model,
    X,
    *,
    relevance=16.0,
    update=("means",),
    rule="reynolds",
    top=None,
    covariance_type="diag",
    sample_weight=None,
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Adapt a background model to the rows of one speaker: maximum a posteriori parameters.

    Parameters
    ----------
    model : estimator or tuple
        The background: a fitted `GaussianMixture` of this package or scikit-learn, or
        ``(weights, means, covariances)``.

    X : array-like of shape (n, d)
        Rows of the speaker.

    relevance : float, default=16.0
        The weight of rows at which a component is halfway between the background and the rows.

    update : sequence of {'means', 'variances', 'weights'}, default=('means',)
        What is adapted. Variances of kind 'tied' cannot be.

    rule : {'reynolds', 'kaldi'}, default='reynolds'
        Rule for variances and weights: eqs. 11 and 13 of Reynolds et al., or those of Kaldi.

    top : int, default=None
        Share each row among its `top` components of largest density only, as for :func:`top_statistics`.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='diag'
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
    adapted : GaussianMixture or Parameters
        An estimator if `model` is an estimator; else a named tuple.

    Examples
    --------
    >>> from gmm_rs.adapt import adapt
    >>> adapt(([1.0], [[0.0]], [[1.0]]), [[4.0], [4.0]], relevance=2.0).means.tolist()
    [[2.0]]
    """
    given = _given(model, covariance_type, noise="beside")
    for what in update:
        if what not in _UPDATES:
            raise ParameterError(f"update has {what!r}: choose from {', '.join(_UPDATES)}")
    where = place(SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs))
    rows = _inputs.contiguous(_inputs.array(X, where))
    weights = _evaluation.discounted(model, rows, _inputs.weights(sample_weight, rows), where)
    factors = tuple(float(relevance) if what in update else None for what in _UPDATES)
    return _like(model, given[0], _core.adapted(rows, given, where, factors, (rule, _top(top)), weights=weights))


def adapt_many(
    model,
    X,
    *,
    groups=None,
    relevance=16.0,
    top=None,
    covariance_type="diag",
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Adapt the means of a background model to each of many speakers, in one call.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`adapt`.

    X : list of array-like of shape (n_i, d), or array-like of shape (n, d)
        The rows of each speaker; or all rows, with `groups`.

    groups : array-like of shape (n,), default=None
        The speaker of each row. Speakers are in the order of ``numpy.unique(groups)``.

    relevance : float, default=16.0
        As for :func:`adapt`.

    top : int, default=None
        As for :func:`adapt`.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='diag'
        Covariance type of a tuple; ignored for an estimator.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    means : ndarray of shape (s, k, d)
        Weights and covariances of every speaker are those of the background.

    Examples
    --------
    >>> from gmm_rs.adapt import adapt_many
    >>> adapt_many(([1.0], [[0.0]], [[1.0]]), [[[4.0], [4.0]], [[-3.0]]], relevance=2.0).tolist()
    [[[2.0]], [[-1.0]]]
    """
    where = place(SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs))
    rows, ends = _utterances(X, groups, where)
    given = _given(model, covariance_type)
    return _core.adapted_means(rows, given, where, ends, (float(relevance), _top(top)))


def top_statistics(
    model, X, *, top=30, groups=None, covariance_type="diag", device="auto", precision=None, n_jobs=None
):
    """Compute the statistics of each utterance with its rows shared among their largest components only.

    The responsibilities of a row are those of its `top` components of largest density under the mixture, and 0 for all
    others, as in Kaldi with ``gmm-gselect``.

    Parameters
    ----------
    model : estimator or tuple
        As for :func:`adapt`, of kind 'diag' or 'spherical'.

    X : list of array-like of shape (n_i, d), or array-like of shape (n, d)
        The rows of each utterance; or all rows, with `groups`.

    top : int, default=30
        Number of components; all of them if there are not more.

    groups : array-like of shape (n,), default=None
        The utterance of each row, as for :func:`adapt_many`.

    covariance_type : {'diag', 'spherical'}, default='diag'
        Covariance type of a tuple; ignored for an estimator.

    device : {'auto', 'cpu', 'cuda', 'cuda:0', ...}, default='auto'
        Where it runs.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    statistics : list of Statistics
        The log-likelihoods are those of the `top` components.

    Examples
    --------
    >>> from gmm_rs.adapt import top_statistics
    >>> model = ([0.5, 0.5], [[0.0], [1.0]], [[1.0], [1.0]])
    >>> top_statistics(model, [[[0.1], [0.7]]], top=1)[0].weight.tolist()
    [1.0, 1.0]
    """
    where = place(SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs))
    rows, ends = _utterances(X, groups, where)
    found = _core.top_statistics(rows, _given(model, covariance_type), where, ends, _top(top))
    return [Statistics(one) for one in found]


def supervectors(means, model, *, normalised=True, covariance_type="diag"):
    """Return the supervector of each speaker.

    Parameters
    ----------
    means : array-like of shape (s, k, d)
        Result of :func:`adapt_many`.

    model : estimator or tuple
        The background.

    normalised : bool, default=True
        Whether a supervector has the means less the background's, in standard deviations and times the roots of the
        weights (Campbell, Sturim and Reynolds 2006), so that products of supervectors are their kernel; or else the
        means themselves.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='diag'
        Covariance type of a tuple; ignored for an estimator.

    Returns
    -------
    supervectors : ndarray of shape (s, k * d)

    Examples
    --------
    >>> from gmm_rs.adapt import supervectors
    >>> supervectors([[[3.0]]], ([1.0], [[1.0]], [[4.0]])).tolist()
    [[1.0]]
    """
    return _core.supervectors(_given(model, covariance_type), _means(means), bool(normalised))


def log_likelihood_ratio(
    model,
    background,
    X,
    *,
    top=30,
    trials=None,
    groups=None,
    covariance_type="diag",
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Compute mean log-likelihood ratios of speakers and background, with the largest components of each row.

    The ratio of an utterance is the mean over its rows of ``ln p(x | speaker) - ln p(x | background)``. Both densities
    are those of the `top` components of the row that have the largest densities under the background.

    Parameters
    ----------
    model : estimator, tuple, or array-like of shape (s, k, d)
        One speaker's model; or the adapted means of several speakers.

    background : estimator or tuple
        As for :func:`adapt`.

    X : array-like of shape (n, d), or list of array-like
        The rows of one utterance; or those of each of several.

    top : int, default=30
        Number of components; all of them if there are not more.

    trials : sequence of (int, int), default=None
        Pairs of a speaker and an utterance, by their indices. None means all pairs.

    groups : array-like of shape (n,), default=None
        The utterance of each row, as for :func:`adapt_many`.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='diag'
        Covariance type of tuples; ignored for estimators.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    ratio : float or ndarray
        A float for one model and one utterance; one number for each of `trials`; else of shape (s, u).

    Examples
    --------
    >>> from gmm_rs.adapt import log_likelihood_ratio
    >>> background = ([1.0], [[0.0]], [[1.0]])
    >>> log_likelihood_ratio(([1.0], [[1.0]], [[1.0]]), background, [[2.0], [2.0]])
    1.5
    """
    given, top = _given(background, covariance_type), index(top, "top", 1)
    where = place(SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs))
    is_model = isinstance(model, tuple) or hasattr(model, "means_")
    is_one = groups is None and not _is_list(X)
    rows, ends = _utterances([X] if is_one else X, groups, where)
    speakers = (None, [_given(model, covariance_type)]) if is_model else (_means(model), [])
    s, u = (1 if is_model else len(speakers[0])), len(ends)
    pairs = [(i, j) for i in range(s) for j in range(u)] if trials is None else [(int(i), int(j)) for i, j in trials]
    if any(i < 0 or j < 0 for i, j in pairs):
        raise ParameterError("trials have a negative index: speakers and utterances count from 0")
    found = _core.ratios(rows, given, where, ends, speakers, (pairs, top))
    if trials is not None:
        return found
    return float(found[0]) if is_model and is_one else found.reshape(s, u)


def linear_scores(
    means,
    background,
    X,
    *,
    groups=None,
    per_row=True,
    covariance_type="diag",
    device="auto",
    precision=None,
    n_jobs=None,
):
    """Score speakers on utterances by the linear approximation of the log-likelihood ratio.

    Parameters
    ----------
    means : array-like of shape (s, k, d)
        Result of :func:`adapt_many`.

    background : estimator or tuple
        As for :func:`adapt`.

    X : list of array-like of shape (n_i, d), or array-like of shape (n, d)
        The rows of each test utterance; or all rows, with `groups`.

    groups : array-like of shape (n,), default=None
        The utterance of each row, as for :func:`adapt_many`.

    per_row : bool, default=True
        Whether scores are divided by the numbers of rows (bob's ``frame_length_normalization``).

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='diag'
        Covariance type of a tuple; ignored for an estimator.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored. None means that of the data.

    n_jobs : int, default=None
        Number of CPU threads.

    Returns
    -------
    scores : ndarray of shape (s, u)
        ``sum_c (m_c - M_c)' inv(S_c) F_c`` with the first moments ``F`` of the rows about the background's means
        (Glembek et al. 2009).

    Examples
    --------
    >>> from gmm_rs.adapt import linear_scores
    >>> linear_scores([[[1.0]]], ([1.0], [[0.0]], [[2.0]]), [[[3.0], [5.0]]]).round(6).tolist()
    [[2.0]]
    """
    given = _given(background, covariance_type)
    where = place(SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs))
    rows, ends = _utterances(X, groups, where)
    first, totals = _core.first_moments(rows, given, where, ends)
    return _core.linear(given, _means(means), first, totals if per_row else None)


def _top(top):
    return None if top is None else index(top, "top", 1)


def _is_list(X):
    """Whether `X` is a list of the rows of several utterances."""
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2


def _utterances(X, groups, where):
    """All rows, utterance by utterance, and the index after the last row of each."""
    if groups is not None:
        rows = _inputs.array(X, where)
        groups = np.asarray(groups)
        if groups.shape != (len(rows),):
            raise ParameterError(f"groups have shape {groups.shape}: expected ({len(rows)},), one for each row")
        order = np.argsort(groups, kind="stable")
        counts = np.unique(groups, return_counts=True)[1]
        return _inputs.contiguous(rows[order]), np.cumsum(counts).tolist()
    if isinstance(X, np.ndarray) and X.ndim == 2:
        raise ParameterError("X is one array: give a list of arrays, one for each utterance, or groups")
    each = [_inputs.array(one, where) for one in X]
    if not each:
        raise ParameterError("X is an empty list: give the rows of at least one utterance")
    widths = {one.shape[1] for one in each}
    if len(widths) > 1:
        raise ParameterError(f"the utterances have {sorted(widths)} columns: they must have the same number")
    return _inputs.contiguous(np.concatenate(each)), np.cumsum([len(one) for one in each]).tolist()


def _means(means):
    means = float64(means)
    if means.ndim != 3:
        raise ParameterError(f"means have shape {means.shape}: expected (s, k, d)")
    return np.ascontiguousarray(means)
