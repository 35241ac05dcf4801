"""The log-likelihood of rows that stay loaded, under parameters that move: for samplers, optimisers and searches.

Three lines to a value::

    from gmm_rs import Likelihood

    likelihood = Likelihood(X)
    value = likelihood.value(weights, means, covariances)

Rows are loaded once, on the CPU or an NVIDIA GPU; every question after that is parameters in, numbers out. ``n``, ``k``
and ``d`` are rows, components and dimensions. Covariances have the shapes that a fit's have: (k, d, d) for 'full',
(d, d) for 'tied', (k, d) variances for 'diag', (k,) for 'spherical'.
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

    A value is the sum of ``sample_weight * log(p(x))`` over the rows: finite or ``-inf``, never NaN. Same rows,
    parameters and threads give the same bits; on a GPU up to three mixtures can go another way than a batch of more, which
    agrees to float32's digits. Other Python threads run meanwhile, and Ctrl-C stops long work.

    It pickles, and works in forked processes: each process loads the rows for itself. Rows on a GPU are pickled as NumPy's,
    and cannot be used by a forked process, since CUDA cannot.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows, in any form that a fit takes. Where they are read in place, on the host or on a GPU, they are kept, and must not
        be written to.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Kind of the covariances that will be asked for.

    sample_weight : array-like of shape (n,), default=None
        Row weights: a row of weight 2 is the row twice, a row of weight 0 is not there.

    device : str, default='auto'
        As for :class:`~gmm_rs.mixture.GaussianMixture`.

    precision : {'f32', 'f64'}, default=None
        Type in which rows are held and multiplied; sums are float64 in any case. None takes the data's own.

    n_jobs : int, default=None
        Threads on the CPU. None and -1 mean all cores.

    Attributes
    ----------
    n_samples : int
        Rows ``n``.

    n_features : int
        Columns ``d``.

    Raises
    ------
    ValueError
        For rows, weights or parameters that cannot be used, also from the methods; see :mod:`gmm_rs.exceptions`.

    Examples
    --------
    >>> import numpy as np
    >>> from gmm_rs import Likelihood
    >>> likelihood = Likelihood([[0.0], [1.0], [5.0], [6.5]], "diag")
    >>> weights, means, variances = [0.5, 0.5], [[0.5], [4.0]], [[1.0], [1.0]]
    >>> round(likelihood.value(weights, means, variances), 6)
    -10.310387
    >>> value, gradient = likelihood.value_and_gradient(weights, means, variances)
    >>> bool(gradient.means[1, 0] > 0)  # The second mean wants to grow.
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
        # Rows on a GPU travel as NumPy's.
        return {**self.__dict__, "_core": None, "_rows": _inputs.on_host(self._rows, place(self))}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    def __repr__(self):
        return f"Likelihood(<{self.n_samples} × {self.n_features} rows>, {self.covariance_type!r})"

    def value(self, weights, means, covariances):
        """The log-likelihood.

        Parameters
        ----------
        weights : array-like of shape (k,)
            Component weights; they sum to 1.

        means : array-like of shape (k, d)

        covariances : array-like

        Returns
        -------
        value : float
        """
        return self._core.value(self._given(weights, means, covariances))

    def batch(self, weights, means, covariances):
        """The log-likelihood of many mixtures, which go over the rows together.

        On a CPU each has the bits that :meth:`value` gives it alone. On a GPU it has them too, but for float32 rows without
        weights under diagonal or spherical covariances, where up to three mixtures go another way than more of them: the
        two agree to 1e-6 of the value or a row's.

        Parameters
        ----------
        weights : array-like of shape (B, k)

        means : array-like of shape (B, k, d)

        covariances : array-like
            With the axis of ``B`` in front.

        Returns
        -------
        values : ndarray of shape (B,)
        """
        return self._core.batch(self._given(weights, means, covariances))

    def log_densities(self, weights, means, covariances):
        """The log density of each row; row weights do not enter.

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
        """The log-likelihood and its gradient.

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
            Where the value is ``-inf``: there is no gradient at such parameters.
        """
        value, *gradient = self._core.value_and_gradient(self._given(weights, means, covariances))
        return value, Gradient(*gradient)

    def components(self, weights, means, covariances):
        """The likelihood at a mixture whose components move one at a time.

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
        """The likelihood over all of ℝᵐ, for samplers and optimisers that know no constraints.

        Parameters
        ----------
        n_components : int

        Returns
        -------
        unconstrained : Unconstrained
        """
        return Unconstrained(self, n_components)

    def _given(self, weights, means, covariances):
        return (self.covariance_type, *(float64(array) for array in (weights, means, covariances)))
