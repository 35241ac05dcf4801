"""Products of a fixed matrix with batches of vectors: inner products, quadratic forms, distances and top-k search.

The best pages for each question in three lines::

    from gmm_rs import Resident

    pages = Resident(X)
    indices, scores = pages.top_k(questions, 10)

``m`` and ``k`` are the numbers of rows and columns of the matrix; a batch of ``q`` vectors ("questions") is an array of
shape (q, k). For a GPU, the first call uploads the matrix, and it stays there. A matrix or questions already on that
GPU (torch, CuPy, JAX) are not copied. Results are NumPy arrays.
"""

import numpy as np

from gmm_rs import _core, _gpu, _inputs
from gmm_rs._given import float64, index
from gmm_rs._place import place

__all__ = ["Resident"]


class Resident:
    """A matrix stored on an engine, for products with batches of vectors.

    Sums are float64 for both dtypes: float32 numbers are multiplied exactly, added in float64 and rounded once.
    Exception: on a GPU, float32 products with at least 2**31 multiplications are computed in split fp16, with an error
    of about 2**-22 times the norms of the matrix row and the question. NaN and infinity follow IEEE 754. The same
    matrix and batch give the same bits, for any number of threads. Methods release the GIL, and Ctrl-C interrupts long
    computations.

    Objects can be pickled and used in forked processes; each process loads its own copy of the matrix. A matrix on a
    GPU is pickled as a NumPy array, and cannot be used in a forked process, because CUDA does not support that. It is
    copied to the host by the first quadratic form, to fold it onto its lower triangle, and by the first distance, to
    factorise it.

    Parameters
    ----------
    matrix : array-like of shape (m, k)
        Matrix, in any form that rows of a fit may have. An array that is not copied, on the host or on a GPU, is
        referenced and must not be modified.

    device : str, default='auto'
        'auto', 'cpu', 'cuda', 'cuda:I' or 'reference'.

    precision : {'f32', 'f64'}, default=None
        Precision of the matrix, the questions and the results. None means the precision of the matrix.

    fast : bool, default=False
        Whether float32 products may be summed in float32, 256 at a time: up to twice as fast in large batches, with an
        error of at most 2**-16, and typically about 2**-21, of the sum of the products' absolute values. On a GPU,
        large products are then single fp16 products, with an error of at most 2**-9 times the norms of the matrix row
        and the question.

    n_jobs : int, default=None
        Number of CPU threads. None and -1 mean all cores.

    Attributes
    ----------
    shape : tuple of int
        ``(m, k)``.

    dtype : dtype
        float32 or float64.

    Raises
    ------
    ValueError
        If arrays are invalid, also from the methods; see :mod:`gmm_rs.exceptions`.

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
        # A matrix on a GPU is pickled as a NumPy array.
        state = {**self.__dict__, "_matrix": _inputs.on_host(self._matrix, place(self))}
        del state["_core"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    def __repr__(self):
        return f"Resident(<{self.shape[0]} × {self.shape[1]} matrix of {self.dtype}>)"

    def matmul(self, b):
        """Compute the matrix product with `b`; the same as ``resident @ b``.

        Parameters
        ----------
        b : array-like of shape (k, n)
            Right matrix.

        Returns
        -------
        product : ndarray of shape (m, n)
        """
        return self._core.matmul(_inputs.contiguous(self._array(b)))

    __matmul__ = matmul

    def inner(self, questions):
        """Compute the inner products of every question with every row of the matrix.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)
            Vectors, one per row.

        Returns
        -------
        values : ndarray of shape (q, m) or (m,)
        """
        return self._asked(self._core.inner, questions)

    def quadratic_form(self, questions):
        """Compute ``x @ A @ x`` for every question, for a square matrix, symmetric or not, in float64.

        The first call folds the matrix onto its lower triangle, which halves the work and needs memory for a second
        matrix.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)
            Vectors, one per row.

        Returns
        -------
        values : ndarray of shape (q,) or float
            NaN if a question contains NaN or infinity.
        """
        return self._asked(self._core.quadratic_form, questions)

    def mahalanobis(self, questions, mean=None):
        """Compute squared Mahalanobis distances ``(x - mean) @ inv(A) @ (x - mean)``, for a covariance matrix.

        They are computed in float64 from the Cholesky factor of the matrix, which the first call computes.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)
            Vectors, one per row.

        mean : array-like of shape (k,), default=None
            Mean. None means 0.

        Returns
        -------
        values : ndarray of shape (q,) or float
            NaN if a question contains NaN or infinity.

        Raises
        ------
        NumericalError
            If the matrix is not positive definite; the message names column and pivot.
        """
        mean = None if mean is None else np.ascontiguousarray(float64(_gpu.to_host(mean))).reshape(-1)
        return self._asked(lambda x: self._core.mahalanobis(x, mean), questions)

    def top_k(self, questions, count):
        """Find the rows with the largest inner products, best first, without storing all inner products.

        Parameters
        ----------
        questions : array-like of shape (q, k) or (k,)
            Vectors, one per row.

        count : int
            Number of rows to find for each question, at most ``m``.

        Returns
        -------
        indices : ndarray of shape (q, count) or (count,)
            Indices of the rows. Equal values are in the order of the rows; NaN comes last.

        values : ndarray of shape (q, count) or (count,)
            Inner products with these rows.
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
        """Whether `array` reports that it is on another GPU than the one that multiplies."""
        device = place(self, self._matrix)["device"]
        there = _gpu.ordinal(array)
        return there is not None and device not in ("cpu", "reference") and there != int(device.partition(":")[2] or 0)

    def _array(self, array):
        """`array` as a matrix of any shape, also empty. An array on the GPU that multiplies stays there."""
        matrix = getattr(self, "_matrix", None)
        # Some GPU arrays have no attribute `shape`.
        is_empty = 0 in getattr(array, "shape", ())
        if _gpu.is_on_gpu(array) and (is_empty or (matrix is not None and self._is_elsewhere(array))):
            array = _gpu.to_host(array)
        return _inputs.array_in_place(array, place(self), ensure_min_samples=0, ensure_min_features=0)
