"""Selects the number of components and the covariance type by an information criterion, as ``gmm select`` does."""

import json
import re
import sys
import warnings
from html import escape
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gmm_rs import _bridge, _core, _fitted, _inputs, _measured, _missing, _rules
from gmm_rs._given import index
from gmm_rs._place import place
from gmm_rs.exceptions import DataWarning, ParameterError
from gmm_rs.mixture import GaussianMixture

__all__ = ["Selection", "Start", "Test", "select"]

_KINDS = ("full", "tied", "diag", "spherical")
_CRITERIA = ("bic", "aic", "icl", "icl-labels", "blrt")

# More fits than anyone would wait for.
_MOST = 10_000


def select(
    X,
    k=range(1, 11),
    *,
    covariance_type="full",
    criterion="bic",
    init_params="kmeans",
    n_init=1,
    tol=1e-3,
    max_iter=100,
    reg_covar=1e-6,
    random_state=None,
    sample_weight=None,
    progress=False,
    device="auto",
    precision=None,
    n_jobs=None,
    init_rows=None,
    replicates=99,
    level=0.05,
    prior=None,
    floor=0.0,
    floor_relative=0.0,
    drop_starved=None,
    noise=None,
    noise_volume=None,
    missing="error",
    row_noise=None,
    projection=None,
    limits=None,
):
    """Fit every combination of number of components and covariance type, and select the best by a criterion.

    A candidate that cannot be fitted, for example one with more components than rows, is listed in the table with its
    error. Ctrl-C stops the selection. Candidates, fits and choice are the same as for ``gmm select``.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts.

    k : int or iterable of int, default=range(1, 11)
        Numbers of components; duplicates are ignored.

    covariance_type : str or iterable of str, default='full'
        Covariance types among 'full', 'tied', 'diag', 'spherical', and 'factors:H', which is 'full' with H factors;
        duplicates are ignored.

    criterion : {'bic', 'aic', 'icl', 'icl-labels', 'blrt'}, default='bic'
        Information criterion; lower is better. 'icl-labels' is mclust's ICL. 'blrt' makes bootstrap likelihood-ratio
        tests of each number of components against the next, until one is not significant.

    init_params : str, default='kmeans'
        This and the parameters without a description are those of :class:`~gmm_rs.mixture.GaussianMixture`.

    n_init : int, default=1

    tol : float, default=1e-3

    max_iter : int, default=100

    reg_covar : float, default=1e-6

    random_state : int, RandomState instance or None, default=None
        Random seed, the same for each candidate.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows.

    progress : bool, default=False
        Whether to print the number of completed fits to standard error.

    device : str, default='auto'

    precision : {'f32', 'f64', 'fast'}, default=None

    n_jobs : int, default=None

    init_rows : int, default=None

    replicates : int, default=99
        Number of data sets drawn for each test of 'blrt'.

    level : float, default=0.05
        A test with a p-value above this ends the sequence.

    prior : {'conjugate'} or dict, default=None
        This and the following are those of :class:`~gmm_rs.mixture.GaussianMixture`, for each candidate. With a prior the
        criteria have the likelihood at the posterior mode, as in mclust.

    floor : float, default=0.0

    floor_relative : float, default=0.0

    drop_starved : float, default=None

    noise : 'auto', float or array-like of bool of shape (n,), default=None

    noise_volume : float, default=None

    missing : {'error', 'em', 'drop'}, default='error'

    row_noise : array-like of shape (n, d) or (n, d, d), default=None
        Measurement errors of the rows. This and the following are `noise`, `projection` and `limits` of
        :meth:`GaussianMixture.fit <gmm_rs.mixture.GaussianMixture.fit>`.

    projection : array-like of shape (n, m, d), default=None

    limits : Limits, default=None

    Returns
    -------
    selection : Selection
        All candidates and the best estimator.

    Raises
    ------
    ValueError
        If data or parameters are invalid, or no candidate can be fitted.

    Examples
    --------
    >>> from gmm_rs import select
    >>> from gmm_rs.datasets import make_gmm
    >>> X, y = make_gmm(400, 2, 3, separation=6.0, random_state=0)
    >>> found = select(X, range(1, 6), covariance_type=("full", "diag"), random_state=0)
    >>> found.best_estimator_.n_components
    3
    """
    if criterion not in _CRITERIA:
        raise ParameterError(f"unknown criterion {criterion!r}: choose one of {', '.join(_CRITERIA)}")
    replicates = index(replicates, "replicates", 1)
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}: it must be a number between 0 and 1")
    components = _components(k)
    kinds = _kinds(covariance_type, has_factors=True)
    model = GaussianMixture(
        components[0],
        **_of_kind(kinds[0]),
        tol=tol,
        reg_covar=reg_covar,
        max_iter=max_iter,
        n_init=n_init,
        init_params=init_params,
        random_state=random_state,
        device=device,
        precision=precision,
        n_jobs=n_jobs,
        init_rows=init_rows,
        prior=prior,
        floor=floor,
        floor_relative=floor_relative,
        drop_starved=drop_starved,
        noise=noise,
        noise_volume=noise_volume,
        missing=missing,
    )
    model._validate_params()
    rows = _measured.rows(model, X, row_noise, projection, limits, reset=True, ensure_min_samples=2)
    options = {
        "n_components": components[0],
        "covariance_type": model.covariance_type,
        "n_init": n_init,
        "init_rows": init_rows,
        "tol": tol,
        "max_iter": max_iter,
        "reg_covar": reg_covar,
        "seed": _bridge.seed(random_state),
        "rule": _rules.rule(model, None, *rows.shape),
    }
    weights = _inputs.weights(sample_weight, rows)
    if missing == "drop":
        rows, weights, _ = _missing.complete(rows, weights, None)
    start = _bridge.STARTS[init_params]
    try:
        found = _core.select(
            _inputs.contiguous(rows),
            options,
            place(model, rows),
            start,
            components,
            kinds,
            criterion,
            (replicates, float(level)),
            weights,
            _told if progress else None,
        )
    finally:
        if progress:
            print(file=sys.stderr)
    best, fit = found["candidates"][found["best"]], found["fit"]
    model.set_params(n_components=best["n_components"], **_of_kind(best["covariance_type"]))
    _bridge.set_parameters(model, fit, rows.dtype)
    _fitted.set_record(model, fit["record"])
    _rules.set_noise(model, fit["noise"])
    model.fast_loss_ = fit["fast_loss"]
    _bridge.as_given(model, X)
    made = Selection(criterion, _table(found["candidates"]), found["best"], model)
    made.labels_icl_ = np.array(found["labels_icl"], dtype=np.float64)
    made.tests_ = [Test(k, statistic, p, np.array(drawn)) for k, statistic, p, drawn in found["tests"]]
    made.starts_ = [[Start(*one) for one in candidate["starts"]] for candidate in found["candidates"]]
    made._warn(fit["warnings"])
    return made


class Test(NamedTuple):
    """A bootstrap likelihood-ratio test of `k` components against the next candidate."""

    k: int
    statistic: float
    p_value: float
    replicates: np.ndarray


class Start(NamedTuple):
    """What one start of a fit reached; `short` marks a short run that was only compared with others."""

    restart: int
    start: str
    mean_log_likelihood: float
    iterations: int
    converged: bool
    short: bool


class Selection:
    """Result of :func:`select`.

    Parameters
    ----------
    criterion : {'bic', 'aic', 'icl', 'icl-labels', 'blrt'}
        What decided.

    table : dict of ndarray
        One entry per candidate, in the order of the fits, under the keys 'k', 'covariance_type', 'log_likelihood',
        'n_parameters', 'bic', 'aic', 'icl', 'iterations', 'converged', 'seconds' and 'error'. 'error' is empty if the
        candidate was fitted; otherwise it is the reason for the failure and the numbers are NaN.

    best_index : int
        Index of the chosen candidate, the first one if several are equal.

    best_estimator : GaussianMixture
        The best candidate, fitted.

    Attributes
    ----------
    best_estimator_ : GaussianMixture
        The candidate with the lowest criterion, fitted.

    best_index_ : int
        Index of the best candidate in the table.

    best_params_ : dict
        `n_components` and `covariance_type` of the best candidate, and `factors` if it has some.

    labels_icl_ : ndarray
        For 'icl-labels' its value for each candidate, else empty.

    tests_ : list of Test
        For 'blrt' the tests made, else empty.

    starts_ : list of list of Start
        What each start of each candidate reached.
    """

    def __init__(self, criterion, table, best_index, best_estimator):
        self.criterion = criterion
        self.table = table
        self.best_index_ = best_index
        self.best_estimator_ = best_estimator
        self.labels_icl_, self.tests_, self.starts_ = np.empty(0), [], []
        names = ("n_components", "covariance_type", *(["factors"] if best_estimator.factors else []))
        self.best_params_ = {name: getattr(best_estimator, name) for name in names}

    def to_frame(self):
        """Convert the table to a pandas DataFrame; needs `pandas`.

        Returns
        -------
        frame : pandas.DataFrame
            One row per candidate.
        """
        import pandas

        return pandas.DataFrame(self.table)

    def __repr__(self):
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]
        rows = zip(text, ["", *map(str, self.table["error"])])
        return "\n".join(f"{line}  {error}".rstrip() for line, error in rows)

    def _repr_html_(self):
        head, *lines = self._lines()
        heads = "".join(f"<th>{escape(cell)}</th>" for cell in [*head, ""])
        body = []
        for i, (line, error) in enumerate(zip(lines, self.table["error"])):
            style = ' style="font-weight: bold"' if i == self.best_index_ else ""
            body.append(f"<tr{style}>" + "".join(f"<td>{escape(cell)}</td>" for cell in [*line, str(error)]) + "</tr>")
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def _lines(self):
        """The table as text cells, heading first; * marks the best candidate, (!) those that did not converge."""
        names = ("log_likelihood", "bic", "aic", "icl")
        lines = [["", "k", "covariance_type", "n_parameters", *names, "iterations"]]
        for i, (k, kind, free) in enumerate(
            zip(self.table["k"], self.table["covariance_type"], self.table["n_parameters"])
        ):
            line = ["*" if i == self.best_index_ else "", str(k), str(kind), str(free)]
            if self.table["error"][i]:
                lines.append(line + [""] * 5)
                continue
            mark = "" if self.table["converged"][i] else " (!)"
            numbers = [f"{self.table[name][i]:.2f}" for name in names]
            lines.append([*line, *numbers, f"{self.table['iterations'][i]}{mark}"])
        return lines

    def _warn(self, found):
        """Issue the warnings of the fit of the best candidate."""
        model = self.best_estimator_
        who = f"the best candidate, {model.n_components} components with {model.covariance_type} covariances"
        for kind, text in found:
            if kind == "not-converged":
                continue
            category = DataWarning if kind == "regularisation" else ConvergenceWarning
            warnings.warn(f"{who}: {text}", category, stacklevel=3)
        if not model.converged_ and model.max_iter > 0:
            text = f"{who}, did not converge: raise max_iter, tol or n_init"
            warnings.warn(text, ConvergenceWarning, stacklevel=3)


def _components(k):
    """Numbers of components without duplicates, in the given order."""
    if isinstance(k, Integral):
        return [index(k, "k", 1)]
    if isinstance(k, (str, bytes)) or not np.iterable(k):
        raise ParameterError(f"k is {k!r}: it must be an integer or an iterable of integers, such as range(1, 11)")
    found = {}
    for value in k:
        found[index(value, "k", 1)] = None
        if len(found) > _MOST:
            raise ParameterError(f"k has more than {_MOST} numbers")
    if not found:
        raise ParameterError("k is empty: it must contain at least one number of components")
    return list(found)


def _of_kind(word):
    """The parameters of an estimator for a covariance type of :func:`select`."""
    kind, _, factors = word.partition(":")
    if factors:
        return {"covariance_type": "full", "factors": int(factors)}
    return {"covariance_type": kind, "factors": None}


def _kinds(covariance_type, *, has_factors=False):
    """Covariance types without duplicates, in the given order; perhaps also some of factors."""
    kinds = [covariance_type] if isinstance(covariance_type, str) else covariance_type
    choices = ", ".join((*_KINDS, "factors:H") if has_factors else _KINDS)
    if not np.iterable(kinds):
        raise ParameterError(f"covariance_type is {covariance_type!r}: choose from {choices}")
    found = {}
    for kind in kinds:
        if kind not in _KINDS and not (has_factors and re.fullmatch("factors:[1-9][0-9]*", str(kind))):
            raise ParameterError(f"unknown covariance_type {kind!r}: choose from {choices}")
        found[str(kind)] = None
    if not found:
        raise ParameterError(f"covariance_type is empty: choose from {choices}")
    return list(found)


def _table(candidates):
    """The table as a dictionary of columns; a candidate without a fit has NaN, 0 iterations and an error."""
    records = [json.loads(one["record"]) if one["record"] is not None else {} for one in candidates]

    def numbers(name):
        values = (record.get(name) for record in records)
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    return {
        "k": np.array([one["n_components"] for one in candidates]),
        "covariance_type": np.array([one["covariance_type"] for one in candidates]),
        "log_likelihood": numbers("log_likelihood"),
        "n_parameters": np.array([one["n_parameters"] for one in candidates]),
        "bic": numbers("bic"),
        "aic": numbers("aic"),
        "icl": numbers("icl"),
        "iterations": np.array([record.get("iterations", 0) for record in records]),
        "converged": np.array([record.get("converged", False) for record in records]),
        "seconds": np.array([one["seconds"] for one in candidates], dtype=np.float64),
        "error": np.array([one["error"] or "" for one in candidates]),
    }


def _told(done, fits):
    print(f"\r{done} of {fits} fits", end="", file=sys.stderr, flush=True)
