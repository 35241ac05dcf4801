"""A likelihood whose components move one at a time."""

from gmm_rs._given import Parameters, axes, float64, index


class Components:
    """A likelihood at one mixture, with the log densities of every component kept: `8 n (k + 1)` bytes.

    On a GPU they are kept there, where its memory allows, and nothing of a row's comes to the host.

    For samplers that move one component, or the weights, at a time: what does not move is not evaluated again, and a
    step that is refused costs nothing to take back. Made by :meth:`Likelihood.components`; any number of them, one for
    each chain, can stand on one likelihood.

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
        """The log density of each row.

        Returns
        -------
        log_prob : ndarray of shape (n,)
        """
        return self._core.log_densities()

    def update(self, weights, means, covariances):
        """Move to another mixture of as many components; those that are other than before are evaluated.

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
        """Move one component; what is None stays.

        Parameters
        ----------
        component : int
            From 0.

        weights : array-like of shape (k,), default=None
            All component weights: one cannot change alone.

        mean : array-like of shape (d,), default=None

        covariance : array-like, default=None
            (d, d) for 'full', (d,) variances for 'diag', one variance for 'spherical'; for 'tied' that of all
            components, (d, d).

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
        """Take the last update back, to the bit.

        Returns
        -------
        undone : bool
            False where there is none, or it was taken back already.
        """
        return self._core.undo()
