"""A cached likelihood whose components are updated one at a time."""

from gmm_rs._given import Parameters, axes, float64, index


class Components:
    """A likelihood at one mixture that caches the log densities of every component, in `8 n (k + 1)` bytes.

    On a GPU the cache is in GPU memory if it fits, and no per-row values are copied to the host.

    It is for samplers that change one component, or the weights, at a time: unchanged components are not evaluated
    again, and a rejected step is undone at no cost. Created by :meth:`Likelihood.components`; any number of them, for
    example one per chain, can share one likelihood.

    Examples
    --------
    >>> from gmm_rs import Likelihood
    >>> likelihood = Likelihood([[0.0], [1.0], [5.0], [6.5]], "diag")
    >>> components = likelihood.components([0.5, 0.5], [[0.5], [4.0]], [[1.0], [1.0]])
    >>> before = components.value
    >>> components.update_component(1, mean=[5.5]) > before
    True
    >>> components.undo(), components.value == before
    (True, True)
    """

    def __init__(self, likelihood, core):
        self._likelihood = likelihood
        self._core = core

    @property
    def value(self):
        """The log-likelihood, a float."""
        return self._core.value()

    @property
    def parameters(self):
        """The mixture, as `Parameters`."""
        return Parameters(**self._core.parameters())

    def log_densities(self):
        """Compute the log density of each row.

        Returns
        -------
        log_prob : ndarray of shape (n,)
        """
        return self._core.log_densities()

    def update(self, weights, means, covariances):
        """Change to another mixture with the same number of components; only changed components are evaluated.

        Parameters
        ----------
        weights : array-like of shape (k,)

        means : array-like of shape (k, d)

        covariances : array-like

        Returns
        -------
        value : float
        """
        return self._core.update(self._likelihood._given(weights, means, covariances))

    def update_component(self, component, *, weights=None, mean=None, covariance=None):
        """Change one component; parameters that are None stay unchanged.

        Parameters
        ----------
        component : int
            Index of the component.

        weights : array-like of shape (k,), default=None
            Weights of all components, because they sum to 1.

        mean : array-like of shape (d,), default=None
            Mean of the component.

        covariance : array-like, default=None
            Covariance of the component: (d, d) for 'full', (d,) variances for 'diag', one variance for 'spherical'; for
            'tied' the covariance of all components, (d, d).

        Returns
        -------
        value : float
        """
        weights, mean = (None if array is None else axes(array, 1) for array in (weights, mean))
        covariance = None if covariance is None else float64(covariance)
        return self._core.update_component(index(component, "component", 0), weights, mean, covariance)

    def update_weights(self, weights):
        """Change the component weights; no row is evaluated.

        Parameters
        ----------
        weights : array-like of shape (k,)

        Returns
        -------
        value : float
        """
        return self._core.update_weights(axes(weights, 1))

    def undo(self):
        """Undo the last update exactly.

        Returns
        -------
        undone : bool
            False if there was no update, or it has already been undone.
        """
        return self._core.undo()
