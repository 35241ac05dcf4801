"""A likelihood in unconstrained coordinates of ℝᵐ."""

from gmm_rs import _core
from gmm_rs._given import Parameters, axes, float64, index


class Unconstrained:
    """A likelihood as a function of points of ℝᵐ; each point is a mixture with positive weights.

    Created by :meth:`Likelihood.unconstrained`. A point contains, in this order: ``k - 1`` log ratios of weights,
    ``log(weights[:-1] / weights[-1])``; ``k * d`` means, row by row; and the scales. For 'full' and 'tied' the scales
    are the lower triangles of the Cholesky factors, row by row, with the logarithms of the diagonals; for 'diag' and
    'spherical' they are the logarithms of the standard deviations.

    Attributes
    ----------
    n_dim : int
        ``m``, the length of a point.

    Examples
    --------
    >>> from gmm_rs import Likelihood
    >>> space = Likelihood([[0.0], [1.0], [5.0], [6.5]], "diag").unconstrained(2)
    >>> point = space.point([0.5, 0.5], [[0.5], [4.0]], [[1.0], [1.0]])
    >>> point.tolist()
    [0.0, 0.5, 4.0, 0.0, 0.0]
    >>> round(space.value(point), 6)
    -10.310387
    """

    def __init__(self, likelihood, n_components):
        self.n_components = index(n_components, "n_components", 1)
        self._likelihood = likelihood
        self._load()

    def _load(self):
        kind, d = self._likelihood.covariance_type, self._likelihood.n_features
        self._map = _core.Unconstrained(kind, self.n_components, d)
        self.n_dim = self._map.n_dim

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_map"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    def point(self, weights, means, covariances):
        """Convert a mixture to a point.

        Parameters
        ----------
        weights : array-like of shape (k,)
            Component weights, all positive: a weight of 0 would be at infinity.

        means : array-like of shape (k, d)
            Component means.

        covariances : array-like
            Component covariances.

        Returns
        -------
        point : ndarray of shape (m,)
        """
        return self._map.point(self._likelihood._given(weights, means, covariances))

    def parameters(self, point):
        """Convert a point to a mixture.

        Parameters
        ----------
        point : array-like of shape (m,)

        Returns
        -------
        parameters : Parameters
        """
        return Parameters(**self._map.parameters(axes(point, 1)))

    def value(self, points, *, jacobian=False):
        """Compute the log-likelihood at one point or at many points.

        Parameters
        ----------
        points : array-like of shape (m,) or (B, m)
            One point, or one point per row.

        jacobian : bool, default=False
            Whether to add :meth:`log_jacobian`. Samplers need it if the prior is a density over weights, means and
            covariances.

        Returns
        -------
        value : float, or ndarray of shape (B,)
            Also ``-inf`` if a scale is too large or too small for a covariance in float64, so that samplers reject the
            point.
        """
        points = float64(points)
        many = axes(points, 2)
        values = self._likelihood._core.at_points(self._map, many)
        if jacobian:
            values += self._map.log_jacobian(many)
        return float(values[0]) if points.ndim == 1 else values

    def value_and_gradient(self, point, *, jacobian=False):
        """Compute the log-likelihood at a point and its gradient.

        Parameters
        ----------
        point : array-like of shape (m,)

        jacobian : bool, default=False
            As for :meth:`value`.

        Returns
        -------
        value : float

        gradient : ndarray of shape (m,)

        Raises
        ------
        ValueError
            If the value is ``-inf``.
        """
        point = axes(point, 1)
        value, gradient = self._likelihood._core.at_point_with_gradient(self._map, point)
        if jacobian:
            value += self.log_jacobian(point)
            gradient += self._map.log_jacobian_gradient(point)
        return value, gradient

    def log_jacobian(self, points):
        """Compute the log determinant of the Jacobian of the map from points to mixtures.

        The coordinates of a mixture are the first ``k - 1`` weights, the means, and the lower triangles of the
        covariances or the variances.

        Parameters
        ----------
        points : array-like of shape (m,) or (B, m)

        Returns
        -------
        log_jacobian : float, or ndarray of shape (B,)
        """
        points = float64(points)
        found = self._map.log_jacobian(axes(points, 2))
        return float(found[0]) if points.ndim == 1 else found
