"""Products with a matrix that stays loaded: inner products, quadratic forms, distances and searches, in batches.

Three lines to the best pages for each question::

    from gmm_rs import Resident

    pages = Resident(X)
    indices, scores = pages.top_k(questions, 10)

``m`` and ``k`` are rows and columns of the matrix; a batch of ``q`` questions is an array of shape (q, k). On a GPU the
matrix is sent with the first question, and stays. Matrix and questions that lie on that GPU already (torch's, CuPy's,
JAX's) are read there; answers are NumPy's.
"""

import numpy as np

from gmm_rs import _core, _gpu, _inputs
from gmm_rs._given import float64, index
from gmm_rs._place import place

__all__ = ["Resident"]


class Resident:
    """A matrix that stays on an engine while questions come in batches.

    Sums are float64 whatever the type: float32 numbers are multiplied exactly, added in float64 and rounded once. On a GPU
    float32 products of 2**31 multiplications or more are made of products of halves instead, and off by some 2**-22 of the
    norms of row and question. NaN and infinity go the way of IEEE 754. Same matrix, same batch: same bits, for any number of
    threads. Other Python threads run meanwhile, and Ctrl-C stops long work.

    It pickles, and works in forked processes: each process loads the matrix for itself. One on a GPU is pickled as NumPy's,
    and cannot be used by a forked process, since CUDA cannot. It comes to the host for the first quadratic form, whose fold the
    host makes, and for the first distance, whose Cholesky factor.

    Parameters
    ----------
    matrix : array-like of shape (m, k)
        In any form that rows of a fit have. Where it is read in place, on the host or on a GPU, it is kept, and must not be
        written to.

    device : str, default='auto'
        'auto', 'cpu', 'cuda', 'cuda:I' or 'reference'.

    precision : {'f32', 'f64'}, default=None
        Type of the matrix, of what is asked and of the answers. None takes the matrix's own.

    fast : bool, default=False
        Whether 256 products of float32 at a time may be added in float32: up to twice as fast in large batches, and off by
        2**-16 of the sum of absolute products at most, some 2**-21 as a rule. On a GPU large products are then products of
        halves, and off by 2**-10 of that sum.

    n_jobs : int, default=None
        Threads. None and -1 mean all cores.

    Attributes
    ----------
    shape : tuple of int
        ``(m, k)``.

    dtype : dtype
        float32 or float64.

    Raises
    ------
    ValueError
        For arrays that cannot be used, also from the methods; see :mod:`gmm_rs.exceptions`.

    Examples
    --------
    >>> from gmm_rs import Resident
    >>> pages = Resident([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> pages.inner([[1.0, 1.0]])
    array([[1. , 1.4, 1. ]])
    >>> indices, values = pages.top_k([[1.0, 1.0]], 2)
    >>> indices
    array([[1, 0]])
    """

    def __init__(self, matrix, *, device="auto", precision=None, fast=False, n_jobs=None):
        self.device = device
        self.precision = precision
        self.fast = bool(fast)
        self.n_jobs = n_jobs
        self._matrix = self._array(matrix)
        self.shape = self._matrix.shape
        self.dtype = np.dtype({"f32": "float32", "f64": "float64", None: self._matrix.dtype}.get(precision, "float64"))
        self._load()

    def _load(self):
        self._core = _core.Resident(_inputs.contiguous(self._matrix), place(self, self._matrix), self.fast)

    def __getstate__(self):
        # A matrix on a GPU travels as NumPy's.
        state = {**self.__dict__, "_matrix": _inputs.on_host(self._matrix, place(self))}
        del state["_core"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    def __repr__(self):
        return f"Resident(<{self.shape[0]} × {self.shape[1]} matrix of {self.dtype}>)"

    def matmul(self, b):
        """The product with a right factor; ``resident @ b`` is the same.

        Parameters
        ----------
        b : array-like of shape (k, n)

        Returns
        -------
        product : ndarray of shape (m, n)
        """
        return self._core.matmul(_inputs.contiguous(self._array(b)))

    __matmul__ = matmul

    def inner(self, questions):
        """Inner products of every question with every row of the matrix.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)

        Returns
        -------
        values : ndarray of shape (q, m) or (m,)
        """
        return self._asked(self._core.inner, questions)

    def quadratic_form(self, questions):
        """``x @ A @ x`` of every question, for a square matrix, symmetric or not, in float64.

        The first call folds the matrix onto its triangle, which takes its memory a second time and halves the work.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)

        Returns
        -------
        values : ndarray of shape (q,) or float
            NaN where a question holds NaN or infinity.
        """
        return self._asked(self._core.quadratic_form, questions)

    def mahalanobis(self, questions, mean=None):
        """Squared Mahalanobis distances ``(x - mean) @ inv(A) @ (x - mean)``, for a covariance matrix.

        They come by the matrix's Cholesky factor, which the first call makes, all in float64.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)

        mean : array-like of shape (k,), default=None
            None is 0.

        Returns
        -------
        values : ndarray of shape (q,) or float
            NaN where a question holds NaN or infinity.

        Raises
        ------
        NumericalError
            Where the matrix is not positive definite: names column and pivot.
        """
        mean = None if mean is None else np.ascontiguousarray(float64(_gpu.to_host(mean))).reshape(-1)
        return self._asked(lambda x: self._core.mahalanobis(x, mean), questions)

    def top_k(self, questions, count):
        """The rows with the largest inner products, best first, without those of all rows in memory.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)

        count : int
            At most ``m``.

        Returns
        -------
        indices : ndarray of shape (q, count) or (count,)
            Equal values keep the order of the rows; NaN comes last.

        values : ndarray of shape (q, count) or (count,)
        """
        count = index(count, "count", 0)
        return self._asked(lambda x: self._core.top_k(x, count), questions)

    def _asked(self, ask, questions):
        is_array = hasattr(questions, "ndim") or _gpu.is_on_gpu(questions)
        array = questions if is_array else np.asarray(questions)
        if getattr(array, "ndim", 2) != 1:
            return ask(_inputs.contiguous(self._array(array)))
        array = array if _gpu.is_on_gpu(array) else np.asarray(array)
        found = ask(_inputs.contiguous(self._array(array.reshape(1, -1))))
        return tuple(one[0] for one in found) if isinstance(found, tuple) else found[0]

    def _is_elsewhere(self, array):
        """Whether a question says that it lies on another GPU than the one that multiplies."""
        device = place(self, self._matrix)["device"]
        there = _gpu.ordinal(array)
        return there is not None and device not in ("cpu", "reference") and there != int(device.partition(":")[2] or 0)

    def _array(self, array):
        """Any sides: a batch may be empty, and so may a matrix. One on the GPU that multiplies stays there."""
        matrix = getattr(self, "_matrix", None)
        # Some that lie there know no shape of their own.
        is_empty = 0 in getattr(array, "shape", ())
        if _gpu.is_on_gpu(array) and (is_empty or (matrix is not None and self._is_elsewhere(array))):
            array = _gpu.to_host(array)
        return _inputs.array_in_place(array, place(self), ensure_min_samples=0, ensure_min_features=0)
