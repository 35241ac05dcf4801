"""Many fits in one call: a mixture for each of many groups of rows.

``b``, ``k`` and ``d`` are the numbers of groups, components and columns. The fits share the threads of one call, so that
neither joblib nor a loop is needed. The program has the same as ``gmm fit --by``.
"""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gmm_rs import _bridge, _core, _fitted, _inputs, _rules
from gmm_rs._gpu import to_host
from gmm_rs._place import place
from gmm_rs.exceptions import DataWarning, ParameterError
from gmm_rs.mixture import GaussianMixture

__all__ = ["ManyMixtures", "fit_many"]

# Parameters of GaussianMixture that belong to a single fit.
_OF_ONE = ("warm_start", "verbose", "verbose_interval", "callback", "labels", "missing", "factors")


def fit_many(X, n_components=1, *, groups=None, sample_weight=None, **parameters):
    """Fit a mixture to each of many groups of rows, in one call.

    Each fit has the bits of ``GaussianMixture(n_components, **parameters).fit`` on the rows of its group alone; on a GPU,
    where thousands of small fits run in one launch, it agrees with that up to rounding. A group
    that fails, for example for lack of rows, has its exception in `errors` and changes no other. Warnings count the
    groups that failed and the fits that did not converge.

    Parameters
    ----------
    X : array-like of shape (b, n, d), list of array-like of shape (n_i, d), or array-like of shape (n, d)
        The rows of each group; or all rows, with `groups`.

    n_components : int, default=1
        Number of components ``k`` of every fit.

    groups : array-like of shape (n,), default=None
        The group of each row: numbers, text or any values that can be sorted. Groups are in the order of
        ``numpy.unique(groups)``.

    sample_weight : array-like, default=None
        Row weights, of shape (b, n), a list of arrays, or of shape (n,), as `X`.

    **parameters
        Further parameters of :class:`~gmm_rs.mixture.GaussianMixture`, except `warm_start`, `verbose`,
        `verbose_interval`, `callback`, `labels`, `missing` and `factors`. Initial parameters are those of every group. An integer
        `random_state` is the seed of each fit; a generator gives one seed for all.

    Returns
    -------
    mixtures : ManyMixtures

    Raises
    ------
    ValueError
        If parameters are invalid, or a value of `X` is NaN or infinite.

    Examples
    --------
    >>> from gmm_rs.many import fit_many
    >>> mixtures = fit_many([[0.0], [9.0], [2.0], [7.0]], groups=["a", "b", "a", "b"])
    >>> mixtures.groups_.tolist(), mixtures.means_[:, 0, 0].tolist()
    (['a', 'b'], [1.0, 8.0])
    >>> mixtures.predict([[3.0]], groups=["b"]).tolist()
    [0]
    """
    for name in _OF_ONE:
        if name in parameters:
            raise ParameterError(f"fit_many has no parameter '{name}': fit the group alone")
    template = GaussianMixture(n_components, **parameters)
    template._validate_params()
    where = place(template)
    table = _Table(X, groups, where)
    if isinstance(template.noise, list | tuple | np.ndarray):
        raise ParameterError("noise has a value for each row, which fit_many does not support: use 'auto' or a share")
    run = _bridge._Run(template, table.rows, table.weights(sample_weight))
    mixtures = ManyMixtures(template, table, run.many(table.ends))
    mixtures._warn()
    return mixtures


class _Table:
    """All rows, group by group, and how to return to the form of the input."""

    def __init__(self, X, groups, where):
        self.order, self.shape = None, None
        if groups is not None:
            self._of_groups(X, np.asarray(groups), where)
        elif isinstance(X, list | tuple):
            self._of_list(X, where)
        else:
            self._of_array(X)
        self.d = self.rows.shape[1]

    def _of_groups(self, X, groups, where):
        rows = _inputs.array(X, where)
        if groups.shape != (len(rows),):
            raise ParameterError(f"groups have shape {groups.shape}: expected ({len(rows)},), one for each row")
        try:
            self.order = np.argsort(groups, kind="stable")
            self.labels, counts = np.unique(groups, return_counts=True)
        except TypeError as error:
            raise ParameterError(f"groups cannot be sorted ({error}): use values of one kind, without None") from None
        self.rows, self.ends = _inputs.contiguous(rows[self.order]), np.cumsum(counts).tolist()

    def _of_list(self, X, where):
        each = [_inputs.array(one, where, ensure_min_samples=0) for one in X]
        if not each:
            raise ParameterError("X is an empty list: give the rows of at least one group")
        widths = {one.shape[1] for one in each}
        if len(widths) > 1:
            raise ParameterError(f"the groups have {sorted(widths)} columns: they must have the same number")
        self.labels = np.arange(len(each))
        self.rows, self.ends = _inputs.contiguous(np.concatenate(each)), np.cumsum([len(one) for one in each]).tolist()

    def _of_array(self, X):
        X = np.asarray(to_host(X))
        if X.ndim != 3:
            raise ParameterError(
                f"X has shape {X.shape}: give (b, n, d), a list of arrays of shape (n_i, d), or (n, d) with groups"
            )
        b, n, d = X.shape
        self.shape, self.labels = (b, n), np.arange(b)
        self.rows = _inputs.contiguous(_inputs.array(X.reshape(b * n, d)))
        self.ends = [n * (i + 1) for i in range(b)]

    def weights(self, sample_weight):
        """Row weights in the order of the rows."""
        if sample_weight is None:
            return None
        if isinstance(sample_weight, list | tuple) and self.order is None and self.shape is None:
            given = np.concatenate([np.asarray(one, dtype=np.float64) for one in sample_weight])
        else:
            given = np.asarray(sample_weight)
            if self.shape is not None and given.shape != self.shape:
                raise ParameterError(f"sample_weight has shape {given.shape}, expected {self.shape}")
            given = given.reshape(-1)
        given = _inputs.weights(given, self.rows)
        return given if self.order is None else np.ascontiguousarray(given[self.order])

    def as_given(self, values):
        """Values of the rows, in the form of the input."""
        if self.order is not None:
            out = np.empty_like(values)
            out[self.order] = values
            return out
        if self.shape is not None:
            return values.reshape(self.shape)
        return np.split(values, self.ends[:-1])


class ManyMixtures:
    """The mixtures of many groups: result of :func:`fit_many`.

    ``mixtures[i]`` is the fitted :class:`~gmm_rs.mixture.GaussianMixture` of a group, and ``mixtures.of(label)`` that of
    a label. Arrays have the dtype of the rows, and NaN where a group failed, or has fewer components than `n_components`
    because some were dropped.

    Attributes
    ----------
    groups_ : ndarray of shape (b,)
        The label of each group: the distinct values of `groups`, or 0, 1, ..

    weights_ : ndarray of shape (b, k)
        Component weights.

    means_ : ndarray of shape (b, k, d)
        Component means.

    covariances_ : ndarray
        Component covariances: (b, k, d, d) for 'full', (b, d, d) for 'tied', (b, k, d) for 'diag', (b, k) for
        'spherical'.

    precisions_cholesky_ : ndarray
        Cholesky factors of the precisions, with the shape of `covariances_`.

    n_components_ : ndarray of shape (b,)
        Number of components; 0 where a group failed.

    converged_ : ndarray of bool of shape (b,)
        Whether the best fit converged.

    n_iter_ : ndarray of shape (b,)
        Number of EM iterations of the best fit.

    lower_bound_ : ndarray of shape (b,)
        Mean log-likelihood at the last E-step of the best fit.

    log_likelihood_ : ndarray of shape (b,)
        Log-likelihood of the group's rows under its mixture.

    errors : list of length b
        None, or the exception of a group that failed.

    n_features_in_ : int
        Number of columns ``d``.

    engine_ : str
        The engine used: 'cpu', 'cuda:0', ..
    """

    def __init__(self, template, table, found):
        self._template, self._fits = template, found["fits"]
        dtype = self._dtype = table.rows.dtype
        self.groups_ = table.labels
        self.weights_, self.means_, self.covariances_, self.precisions_cholesky_ = (
            found[name].astype(dtype, copy=False) for name in ("weights", "means", "covariances", "precision_factors")
        )
        self.n_components_ = found["n_components"]
        self.converged_ = found["converged"]
        self.n_iter_ = found["iterations"]
        self.lower_bound_ = found["lower_bound"]
        self.log_likelihood_ = found["log_likelihood"]
        self.errors = found["errors"]
        self.n_features_in_ = table.d
        self.engine_ = found["engine"]

    def __len__(self):
        return len(self.groups_)

    def __getitem__(self, index):
        """The estimator of a group, by its index; the exception of a group that failed is raised."""
        i = range(len(self))[index]
        if self.errors[i] is not None:
            raise self.errors[i]
        found = self._fits.fit(i) if isinstance(self._fits, _core.ManyFits) else self._fits[i]
        model = clone(self._template)
        _bridge.set_parameters(model, found, self._dtype)
        _fitted.set_record(model, found["record"])
        _rules.set_noise(model, found["noise"])
        model.fast_loss_, model.n_features_in_ = found["fast_loss"], self.n_features_in_
        return model

    def of(self, label):
        """The estimator of the group with a label.

        Parameters
        ----------
        label : object
            One of `groups_`.

        Returns
        -------
        model : GaussianMixture
        """
        found = np.flatnonzero(self.groups_ == label)
        if len(found) == 0:
            raise ParameterError(f"no group is {label!r}")
        return self[int(found[0])]

    def predict(self, X, groups=None):
        """Predict the component of each row by the mixture of its group.

        Parameters
        ----------
        X : array-like
            Rows in one of the forms that :func:`fit_many` takes, with the same groups, or with `groups` some of them.

        groups : array-like of shape (n,), default=None
            The group of each row.

        Returns
        -------
        labels : ndarray of shape (b, n), list of ndarray of shape (n_i,), or ndarray of shape (n,)
            In the form of `X`.
        """
        return self._evaluated(X, groups, "predict")

    def score_samples(self, X, groups=None):
        """Compute the log density of each row under the mixture of its group.

        Parameters
        ----------
        X : array-like
            As for :meth:`predict`.

        groups : array-like of shape (n,), default=None
            The group of each row.

        Returns
        -------
        log_prob : ndarray of shape (b, n), list of ndarray of shape (n_i,), or ndarray of shape (n,)
            In the form of `X`.
        """
        return self._evaluated(X, groups, "score_samples")

    def _evaluated(self, X, groups, what):
        where = place(self._template)
        table = _Table(X, groups, where)
        if table.d != self.n_features_in_:
            raise ParameterError(f"X has {table.d} columns, but the mixtures have {self.n_features_in_}")
        chosen = self._indices(table.labels, by_label=groups is not None)
        for i in chosen:
            if self.errors[i] is not None:
                raise ParameterError(f"group {self.groups_[i]!r} has no mixture: {self.errors[i]}")
        if self._template.noise is not None:
            # The densities of noise are those of each estimator.
            parts = np.split(table.rows, table.ends[:-1])
            found = np.concatenate([getattr(self[i], what)(part) for i, part in zip(chosen, parts)])
        else:
            parameters = [self._parameters(i) for i in chosen]
            found = _core.evaluate_many(table.rows, table.ends, parameters, where, what == "predict")
            if what != "predict":
                found = found.astype(np.result_type(table.rows.dtype, self._dtype), copy=False)
        return table.as_given(found)

    def _indices(self, labels, by_label):
        """The indices of the groups with these labels."""
        if not by_label:
            if len(labels) != len(self):
                raise ParameterError(f"X has {len(labels)} groups, but there are {len(self)} mixtures: give groups")
            return range(len(self))
        known = {label: i for i, label in enumerate(self.groups_.tolist())}
        missing = [label for label in labels.tolist() if label not in known]
        if missing:
            raise ParameterError(f"no mixture for group {missing[0]!r}")
        return [known[label] for label in labels.tolist()]

    def _parameters(self, i):
        k = self.n_components_[i]
        factors = self.precisions_cholesky_[i]
        if self._template.covariance_type != "tied":
            factors = factors[:k]
        return (self._template.covariance_type, self.weights_[i, :k], self.means_[i, :k], factors)

    def _warn(self):
        """Warn of the groups that failed and of the fits that did not converge."""
        failed = [i for i, error in enumerate(self.errors) if error is not None]
        if failed:
            first = f"the first is {self.groups_[failed[0]]!r}: {self.errors[failed[0]]}"
            warnings.warn(f"{len(failed)} of {len(self)} groups failed; {first}", DataWarning, stacklevel=3)
        unfinished = np.count_nonzero(~self.converged_) - len(failed)
        if unfinished and self._template.max_iter > 0:
            text = f"{unfinished} of {len(self)} fits did not converge: increase max_iter or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=3)

    def __getstate__(self):
        # The fits as dictionaries, which any process can read.
        fits = [self._fits.fit(i) for i in range(len(self))] if isinstance(self._fits, _core.ManyFits) else self._fits
        return {**self.__dict__, "_fits": fits}

    def __repr__(self):
        failed = sum(error is not None for error in self.errors)
        what = f"{len(self)} groups, {self._template!r}"
        return f"ManyMixtures({what}{f', {failed} failed' if failed else ''})"
