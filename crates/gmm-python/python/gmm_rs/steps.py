"""The steps of an EM iteration one by one, for rows that lie in several files, processes or machines.

One iteration over two arrays::

    from gmm_rs.steps import e_step, m_step

    total = e_step(X1, model) + e_step(X2, model)
    weights, means, covariances = m_step(total, model)

The sums of rows under the same parameters add up, in any grouping; the order decides the rounding. ``n``, ``k`` and
``d`` are the numbers of rows, components and columns. :mod:`gmm_rs.dask` runs whole fits this way on a cluster, and the
program ``gmm`` has the same steps: ``gmm pass``, ``gmm add``, ``gmm maximise``.
"""

from types import SimpleNamespace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _core, _inputs, _rules
from gmm_rs._given import Parameters, float64
from gmm_rs._gpu import to_host
from gmm_rs._place import place
from gmm_rs.exceptions import ParameterError

__all__ = ["PassRows", "Statistics", "e_step", "m_step"]


class Statistics:
    """Sufficient statistics of rows under a mixture: all that the M-step needs, as moments about its means.

    With ``z = x - centres[c]`` and ``r`` the responsibility of component ``c`` for a row times the row's weight. The sum
    of two objects is the statistics of the rows of both. Objects can be compared and pickled, and are not modified.

    Attributes
    ----------
    covariance_type : {'full', 'tied', 'diag', 'spherical'}
        Covariance type of the mixture.

    centres : ndarray of shape (k, d)
        The means of the mixture.

    weight : ndarray of shape (k,)
        Sums of ``r``.

    first : ndarray of shape (k, d)
        Sums of ``r * z``.

    second : ndarray
        Sums of ``r * outer(z, z)``, in the shape of the covariances: for 'tied' over all components, for 'diag' the
        diagonals, for 'spherical' the traces.

    log_likelihood : float
        Sum of weight times log density.

    mean_log_likelihood : float
        `log_likelihood` per unit of weight.

    total_weight : float
        Sum of the row weights.

    n_rows : int
        Number of rows of positive weight.

    Examples
    --------
    >>> from gmm_rs.steps import Statistics, e_step
    >>> start = ([1.0], [[0.0]], [[[1.0]]])
    >>> both = e_step([[1.0]], start) + e_step([[2.0], [3.0]], start)
    >>> both.n_rows, both.first.tolist(), both.second.tolist()
    (3, [[6.0]], [[[14.0]]])
    >>> Statistics.from_bytes(both.to_bytes()) == both
    True
    """

    __slots__ = ("_core",)

    def __init__(self, core):
        if not isinstance(core, _core.Statistics):
            raise TypeError("statistics come from e_step or Statistics.from_bytes")
        self._core = core

    @classmethod
    def from_bytes(cls, data):
        """Read the byte form, also that of files written by ``gmm pass`` and ``gmm add``.

        Parameters
        ----------
        data : bytes
            The result of :meth:`to_bytes`, or the content of a file.

        Returns
        -------
        statistics : Statistics

        Raises
        ------
        ParameterError
            If the bytes are damaged or not of this form; the message names the byte.
        """
        return cls(_core.Statistics.from_bytes(bytes(data)))

    def to_bytes(self):
        """Return the versioned, checksummed byte form, which preserves the bits of every number.

        Returns
        -------
        data : bytes
        """
        return self._core.to_bytes()

    covariance_type = property(lambda self: self._core.covariance_type)
    centres = property(lambda self: self._core.centres)
    weight = property(lambda self: self._core.weight)
    first = property(lambda self: self._core.first)
    second = property(lambda self: self._core.second)
    log_likelihood = property(lambda self: self._core.log_likelihood)
    total_weight = property(lambda self: self._core.total_weight)
    n_rows = property(lambda self: self._core.n_rows)
    mean_log_likelihood = property(lambda self: self.log_likelihood / self.total_weight)

    def __add__(self, other):
        if not isinstance(other, Statistics):
            return NotImplemented
        return Statistics(self._core.plus(other._core))

    def __radd__(self, other):
        # The start of `sum(..)`.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other):
        return self._core.equals(other._core) if isinstance(other, Statistics) else NotImplemented

    __hash__ = None

    def __reduce__(self):
        return Statistics.from_bytes, (self.to_bytes(),)

    def __repr__(self):
        k, d = self.first.shape
        return f"Statistics(<{self.n_rows} rows, {self.covariance_type}, k={k}, d={d}>)"


class PassRows:
    """Rows that are loaded once for many E-steps, on the CPU or an NVIDIA GPU.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts. An array that is not copied is
        referenced and must not be modified.

    shift : array-like of shape (d,)
        A point within the bulk of the data, which is subtracted from the rows before they are rounded. Passes over
        different rows should use the same, such as the median of some rows.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows, a row of weight 0 is ignored.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied; sums are always float64. None means the precision of the
        data.

    n_jobs : int, default=None
        Number of CPU threads. The same number gives the same bits.
    """

    def __init__(self, X, shift, *, sample_weight=None, device="auto", precision=None, n_jobs=None):
        where = SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs)
        rows = _inputs.array_in_place(X, place(where))
        self._core = _loaded(rows, sample_weight, where, (precision or _precision(rows), shift), 100.0)

    def e_step(self, model, covariance_type="full"):
        """Compute the statistics of the rows under a mixture.

        Parameters
        ----------
        model : estimator or tuple
            As for :func:`e_step`.

        covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
            As for :func:`e_step`.

        Returns
        -------
        statistics : Statistics
        """
        return Statistics(self._core.e_step(_given(model, covariance_type)))


def e_step(X, model, covariance_type="full", *, sample_weight=None, device="auto", precision=None, n_jobs=None):
    """One pass over rows under a mixture: their sufficient statistics.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts.

    model : estimator or tuple
        A fitted `GaussianMixture` of this package or scikit-learn, or ``(weights, means, covariances)``.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of a tuple; ignored for an estimator.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows, a row of weight 0 is ignored.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied; sums are always float64. None means the precision of the
        data.

    n_jobs : int, default=None
        Number of CPU threads. The same number gives the same bits.

    Returns
    -------
    statistics : Statistics

    Raises
    ------
    ValueError
        If rows or parameters are invalid, or rows are so far from all components that a sum is not finite.

    Examples
    --------
    >>> from gmm_rs.steps import e_step
    >>> found = e_step([[1.0], [3.0]], ([1.0], [[0.0]], [1.0]), "spherical")
    >>> found.weight.tolist(), found.first.tolist(), found.second.tolist()
    ([2.0], [[4.0]], [10.0])
    """
    given = _given(model, covariance_type)
    where = SimpleNamespace(device=device, precision=precision, n_jobs=n_jobs)
    rows = _inputs.array_in_place(X, place(where))
    if rows.shape[1] != given[2].shape[-1]:
        raise ParameterError(f"X has {rows.shape[1]} columns, the mixture has {given[2].shape[-1]}")
    storage = _core.storage(given, precision or _precision(rows))
    return Statistics(_loaded(rows, sample_weight, where, storage, 1.0).e_step(given))


def m_step(statistics, model, *, reg_covar=1e-6):
    """Compute the mixture that maximises the expected log-likelihood.

    Parameters
    ----------
    statistics : Statistics
        Sums of passes over all rows.

    model : estimator or tuple
        The mixture of these passes, as for :func:`e_step`. Components without rows keep its mean and covariance.

    reg_covar : float, default=1e-6
        Non-negative regularization added to the diagonal of the covariances, in squared units of the data.

    Returns
    -------
    parameters : Parameters
        Named tuple of weights, means and covariances.

    Raises
    ------
    ValueError
        If the statistics are of passes under another mixture, or a covariance is singular.

    Examples
    --------
    >>> from gmm_rs.steps import e_step, m_step
    >>> start = ([1.0], [[0.0]], [1.0])
    >>> found = m_step(e_step([[1.0], [3.0]], start, "spherical"), start, reg_covar=0.0)
    >>> found.means.tolist(), found.covariances.tolist()
    ([[2.0]], [1.0])
    """
    if not isinstance(statistics, Statistics):
        raise TypeError(f"expected Statistics, got {type(statistics).__name__}")
    found = statistics._core.maximise(_given(model, statistics.covariance_type), float(reg_covar))
    return Parameters(found["weights"], found["means"], found["covariances"])


def _loaded(rows, sample_weight, where, storage, passes):
    """Rows on their engine, stored as `storage` says, for about this many passes."""
    precision, shift = storage
    shift = np.ascontiguousarray(float64(shift))
    if shift.shape != (rows.shape[1],):
        raise ParameterError(f"shift has shape {shift.shape}: it must have {rows.shape[1]} numbers, one per column")
    weights = _inputs.weights(sample_weight, rows)
    return _core.PassRows(_inputs.contiguous(rows), place(where, rows), (precision, shift), passes, weights)


def _given(model, covariance_type, *, noise=None):
    """Covariance type, weights, means and covariances of an estimator or a tuple, float64.

    An estimator with uniform noise is refused unless `noise` is 'beside': the Gaussian components are then all that counts.
    """
    if isinstance(model, tuple | list):
        if len(model) != 3:
            raise ParameterError(f"the mixture has {len(model)} parts: it must be (weights, means, covariances)")
        arrays = model
    else:
        check_is_fitted(model)
        if noise != "beside":
            _rules.refuse_noise(model, "which (weights, means, covariances) lack")
        covariance_type = model.covariance_type
        arrays = (model.weights_, model.means_, model.covariances_)
    return (covariance_type, *(np.ascontiguousarray(float64(to_host(array))) for array in arrays))


def _precision(rows):
    """The precision of an array of rows."""
    return "f32" if rows.dtype == np.float32 else "f64"
