"""The log-likelihood of fixed rows as a function of the parameters, for samplers and optimisers.

A value in three lines::

    from gmm_rs import Likelihood

    likelihood = Likelihood(X)
    value = likelihood.value(weights, means, covariances)

The rows are loaded once, on the CPU or an NVIDIA GPU; each call then transfers only parameters and results. ``n``,
``k`` and ``d`` are the numbers of rows, components and columns. Covariances have the shape (k, d, d) for 'full', (d, d)
for 'tied', (k, d) for 'diag' (variances), and (k,) for 'spherical' (variances).
"""

from gmm_rs import _core, _inputs
from gmm_rs._components import Components
from gmm_rs._given import Gradient, Parameters, float64
from gmm_rs._place import place
from gmm_rs._unconstrained import Unconstrained
from gmm_rs.exceptions import ParameterError

__all__ = ["Components", "Gradient", "Likelihood", "Parameters", "Unconstrained"]


class Likelihood:
    """The log-likelihood of `X` as a function of a mixture's parameters.

    A value is the sum of ``sample_weight * log(p(x))`` over the rows: finite or ``-inf``, never NaN. The same rows,
    parameters and number of threads give the same bits. There is one exception: on a GPU, batches of up to three
    mixtures may use another kernel than larger batches; the results agree to float32 precision (see :meth:`batch`).
    Methods release the GIL, and Ctrl-C interrupts long computations.

    Objects can be pickled and used in forked processes; each process loads its own copy of the rows. Rows on a GPU are
    pickled as a NumPy array, and cannot be used in a forked process, because CUDA does not support that.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that :class:`~gmm_rs.mixture.GaussianMixture` accepts. An array that is not copied, on the
        host or on a GPU, is referenced and must not be modified.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type of the parameters.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 counts as two equal rows, a row of weight 0 is ignored.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Precision in which rows are stored and multiplied; sums are always float64. None means the precision of the
        data.

    n_jobs : int, default=None
        Number of CPU threads. None and -1 mean all cores.

    Attributes
    ----------
    n_samples : int
        Number of rows ``n``.

    n_features : int
        Number of columns ``d``.

    Raises
    ------
    ValueError
        If rows, weights or parameters are invalid, also from the methods; see :mod:`gmm_rs.exceptions`.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs import Likelihood
    >>> likelihood = Likelihood([[0.0], [1.0], [5.0], [6.5]], "diag")
    >>> weights, means, variances = [0.5, 0.5], [[0.5], [4.0]], [[1.0], [1.0]]
    >>> round(likelihood.value(weights, means, variances), 6)
    -10.310387
    >>> value, gradient = likelihood.value_and_gradient(weights, means, variances)
    >>> bool(gradient.means[1, 0] > 0)  # Increasing the second mean increases the likelihood.
    True
    """

    def __init__(self, X, covariance_type="full", *, sample_weight=None, device="auto", precision=None, n_jobs=None):
        self.covariance_type = covariance_type
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        if covariance_type not in ("full", "tied", "diag", "spherical"):
            choices = "full, tied, diag, spherical"
            raise ParameterError(f"unknown covariance_type {covariance_type!r}: choose one of {choices}")
        self._rows = _inputs.array_in_place(X, place(self))
        self._weights = _inputs.weights(sample_weight, self._rows)
        self.n_samples, self.n_features = self._rows.shape
        self._load()

    def _load(self):
        self._core = _core.Likelihood(_inputs.contiguous(self._rows), place(self, self._rows), self._weights)

    def __getstate__(self):
        # Rows on a GPU are pickled as a NumPy array.
        return {**self.__dict__, "_core": None, "_rows": _inputs.on_host(self._rows, place(self))}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    def __repr__(self):
        return f"Likelihood(<{self.n_samples} × {self.n_features} rows>, {self.covariance_type!r})"

    def value(self, weights, means, covariances):
        """Compute the log-likelihood.

        Parameters
        ----------
        weights : array-like of shape (k,)
            Component weights; they sum to 1.

        means : array-like of shape (k, d)
            Component means.

        covariances : array-like
            Component covariances.

        Returns
        -------
        value : float
        """
        return self._core.value(self._given(weights, means, covariances))

    def batch(self, weights, means, covariances):
        """Compute the log-likelihood of many mixtures in one batch.

        The results have the same bits as those of :meth:`value`, with one exception: on a GPU, for float32 rows without
        weights and diagonal or spherical covariances, batches of up to three mixtures use another kernel than larger
        ones. The two agree to a relative 1e-6 of the value or of a row's log density.

        Parameters
        ----------
        weights : array-like of shape (B, k)
            Component weights of each mixture.

        means : array-like of shape (B, k, d)
            Component means of each mixture.

        covariances : array-like
            Component covariances, with ``B`` as the leading axis.

        Returns
        -------
        values : ndarray of shape (B,)
        """
        return self._core.batch(self._given(weights, means, covariances))

    def log_densities(self, weights, means, covariances):
        """Compute the log density of each row; row weights are not used.

        Parameters
        ----------
        weights : array-like of shape (k,)

        means : array-like of shape (k, d)

        covariances : array-like

        Returns
        -------
        log_prob : ndarray of shape (n,)
        """
        return self._core.log_densities(self._given(weights, means, covariances))

    def value_and_gradient(self, weights, means, covariances):
        """Compute the log-likelihood and its gradient.

        Parameters
        ----------
        weights : array-like of shape (k,)

        means : array-like of shape (k, d)

        covariances : array-like

        Returns
        -------
        value : float

        gradient : Gradient

        Raises
        ------
        NumericalError
            If the value is ``-inf``, where the gradient is undefined.
        """
        value, *gradient = self._core.value_and_gradient(self._given(weights, means, covariances))
        return value, Gradient(*gradient)

    def components(self, weights, means, covariances):
        """Create a cached likelihood at a mixture, for updates of one component at a time.

        Parameters
        ----------
        weights : array-like of shape (k,)

        means : array-like of shape (k, d)

        covariances : array-like

        Returns
        -------
        components : Components
        """
        return Components(self, _core.Components(self._core, self._given(weights, means, covariances)))

    def unconstrained(self, n_components):
        """Create the likelihood in unconstrained coordinates of ℝᵐ, for samplers and optimisers.

        Parameters
        ----------
        n_components : int
            Number of components ``k``.

        Returns
        -------
        unconstrained : Unconstrained
        """
        return Unconstrained(self, n_components)

    def _given(self, weights, means, covariances):
        return (self.covariance_type, *(float64(array) for array in (weights, means, covariances)))
